"""What a case costs, to the digit: counts of reads and writes, stored rows and bytes, timed pairs.

A trial samples times over a whole conversation; a probe asks what must not change at all. It plays
the same conversation on a saver whose version strings have one length, so that bytes repeat, and
counts each read once it is warm. Gates compare what two probes found.
"""

from savermark.probe.model import METER_VERSION, OWN, Ask, Pairs, Probe
from savermark.probe.run import probe_store, run_probe_job
from savermark.probe.stored import stored_rows

__all__ = [
    "METER_VERSION",
    "OWN",
    "Ask",
    "Pairs",
    "Probe",
    "probe_store",
    "run_probe_job",
    "stored_rows",
]
