"""Counts around a block of code: what a saver asked its engine for, and what it deserialized.

Counts do not depend on the machine, so a change of one is a change of the code. docs/method.md says
which repeat to the digit and what has to be fixed for that.
"""

from savermark.meter.around import ametered, metered
from savermark.meter.calls import WARMUP, acount, count
from savermark.meter.counts import FIELDS, Counts, Meter
from savermark.meter.values import counting_serde

__all__ = [
    "FIELDS",
    "WARMUP",
    "Counts",
    "Meter",
    "acount",
    "ametered",
    "count",
    "counting_serde",
    "metered",
]
