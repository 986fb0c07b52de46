"""Probes of cases: a fresh process and a fresh store for each, as for trials."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.backends.base import Location
from savermark.errors import ResultError
from savermark.families import get_family
from savermark.probe.model import Probe
from savermark.runner.scratch import scratch_problem
from savermark.trial import location_to_json, run_child

if TYPE_CHECKING:
    from savermark.probe.model import Ask
    from savermark.trial import BaseCase


def probe_case(
    case: BaseCase, ask: Ask, scratch: Path, dsn: str | None, python: Path | None = None,
    timeout_s: float | None = None, turns: Path | None = None,
) -> Probe:  # fmt: skip
    """One probe in a process of its own, of our interpreter or of `python`.

    Whatever happens to it, there is a probe; one that failed has a `cause`. With a folder `turns`
    it times its walk as it is told there (`savermark.probe.turns`).
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="probe-", dir=scratch))
    except OSError as error:
        raise ResultError(scratch_problem(scratch, error)) from error
    location = Location(folder, folder.name.removeprefix("probe-"), dsn)
    job = {
        "kind": "probe",
        "case": case.to_json(),
        "location": location_to_json(location),
        "ask": ask.to_json(),
        "turns": str(turns) if turns else "",
    }
    end = run_child(job, folder, timeout_s or case.spec.measure.timeout_s, python=python)
    shutil.rmtree(folder, ignore_errors=True)
    if end.result is not None:
        return Probe.from_json(end.result)
    get_family(case.family).sweep(case, location)
    return Probe(case.case_id, case.fingerprint, cause=end.cause)
