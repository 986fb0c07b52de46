"""What policies freed, what that cost, and whether it was proved: before and after, case by case.

Numbers are medians over the repetitions that ended well. A case whose verification or any other
check failed has its verdict and no number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from savermark.frame.summary import case_times, state_checks, worst_status
from savermark.records import Phase, Status
from savermark.stats import median_ratio
from savermark.storage import TABLES

if TYPE_CHECKING:
    from savermark.records import TrialResult
    from savermark.results import RunResult

FAMILY = "retention"
PHASES = tuple(str(phase) for phase in Phase)
ALL = "all tables"
CASE = ("workload", "variant", "backend", "policy", "setting")
SIZES = ("rows", "logical_bytes", "stored_bytes")
SPACE = (
    *CASE,
    "table",
    *(f"{size}_{phase}" for size in SIZES for phase in PHASES),
    *(f"footprint_bytes_{phase}" for phase in PHASES),
)
EFFORT = (
    *CASE,
    "threads",
    "changed",
    "refused",
    "rows_deleted",
    "plan_ns",
    "apply_ns",
    "verify_ns",
    "rows_per_s",
    "verified",
    "ok",
)
READS = (
    *CASE,
    "op",
    "temperature",
    "at",
    *(f"p50_ns_{phase}" for phase in PHASES),
    "ratio",
    "ratio_low",
    "ratio_high",
)
_TIMED = ("plan", "apply", "verify")


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on one case: what verification said, or why there was none."""

    case_id: str
    workload: str
    policy: str
    setting: str  # the variant without the policy
    backend: str
    ok: bool
    verdict: str
    checks: dict[str, dict[str, int]] = field(default_factory=dict)  # check -> verdict -> threads
    failures: tuple[dict[str, str], ...] = ()  # thread_id, check, verdict, detail
    more_failures: int = 0
    refused: int = 0
    reasons: tuple[tuple[str, str], ...] = ()  # thread, why it was left untouched
    judged: bool = True  # False: the trial did not come so far, or the backend cannot do it


def verdicts(run: RunResult) -> list[Judged]:
    """A verdict for each case with a policy, in the order of the run; the worst repetition's."""
    return [_judged(run, case, trials) for case, trials in cases_of(run, scenario="")]


def broken(run: RunResult) -> bool:
    """Whether a policy was seen to break what threads promise, or to touch what it should not."""
    return any(
        not check.ok and check.phase is not Phase.LOADED
        for _, trials in cases_of(run, scenario="")
        for trial in trials
        for check in trial.checks
    )


def space_table(runs: Sequence[RunResult]) -> pd.DataFrame:
    """Rows and bytes of each table and of all of them, at each phase (columns `SPACE`).

    The footprint, of the whole store, stands beside the table `ALL`.
    """
    rows = []
    for run in runs:
        for case, trials in good_cases(run, scenario=""):
            sizes = [_sizes(trial) for trial in trials]
            for table in (*TABLES, ALL):
                found = {
                    key: median([size[table, key] for size in sizes if (table, key) in size])
                    for key in SPACE[len(CASE) + 1 :]
                }
                if any(value is not None for value in found.values()):
                    rows.append({**place_of(case), "table": table, **found})
    return tidy(rows, SPACE)


def effort_table(runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row a case: what was changed and deleted, and how long each step took (`EFFORT`)."""
    rows = []
    for run in runs:
        for case, trials in good_cases(run, scenario=""):
            notes = [trial.notes["retention"] for trial in trials]
            times = {
                f"{op}_ns": middle(trials, (str(Phase.RETAINED), op, "warm", "")) for op in _TIMED
            }
            deleted = median([n for trial in trials if (n := _deleted(trial)) is not None])
            apply_ns = times["apply_ns"]
            speed = deleted / apply_ns * 1e9 if deleted is not None and apply_ns else None
            shown = {name: notes[0][name] for name in ("threads", "changed", "refused")}
            told = {"rows_deleted": deleted, "rows_per_s": speed, "ok": notes[0]["ok"]}
            rows.append(
                {**place_of(case), **shown, **times, **told, "verified": notes[0]["verified"]}
            )
    return tidy(rows, EFFORT)


def reads_table(runs: Sequence[RunResult]) -> pd.DataFrame:
    """The median of each read before and after, NaN where it was not made (columns `READS`).

    `ratio` is retained by loaded, with its 95 % interval where there are samples enough.
    """
    rows = []
    for run in runs:
        for case, trials in good_cases(run, scenario=""):
            keys = dict.fromkeys(
                (item.op, item.temperature, item.at)
                for trial in trials
                for item in trial.samples
                if item.temperature != "run" and item.at
            )
            for op, temperature, at in keys:
                found = {
                    f"p50_ns_{phase}": middle(trials, (phase, op, temperature, at))
                    for phase in PHASES
                }
                found |= _ratio(trials, (op, temperature, at))
                read = {"op": op, "temperature": temperature, "at": at}
                rows.append({**place_of(case), **read, **found})
    return tidy(rows, READS)


# --- cases ----------------------------------------------------------------------------------------


def cases_of(run: RunResult, scenario: str) -> Iterator[tuple[dict[str, Any], list[TrialResult]]]:
    """The cases of a scenario, or those with a policy where it is empty; each with its trials."""
    for case_id, case in run.cases.items():
        if case.get("family") == FAMILY and case[FAMILY]["scenario"] == scenario:
            yield case, [trial for trial in run.trials if trial.case_id == case_id]


def good_cases(run: RunResult, scenario: str) -> Iterator[tuple[dict[str, Any], list[TrialResult]]]:
    """Those of them whose checks held, with the trials that ended well."""
    for case, trials in cases_of(run, scenario):
        good = [trial for trial in trials if trial.status is Status.OK]
        if good and state_checks(trials) is not False:
            yield case, good


def place_of(case: dict[str, Any]) -> dict[str, str]:
    """The columns `CASE`."""
    policy = str(case[FAMILY]["policy"])
    told = {name: str(case[name]) for name in ("workload", "variant", "backend")}
    return {**told, "policy": policy, "setting": setting_of(case)}


def setting_of(case: dict[str, Any]) -> str:
    """The variant without what names the policy."""
    before, _, after = str(case["variant"]).rpartition("policy=")
    if case[FAMILY]["scenario"]:
        before, after = str(case["variant"]).rpartition("leaf=")[0], ""
    rest = [before.rstrip(","), "tips=protected" if after.endswith(",tips=protected") else ""]
    return ",".join(filter(None, rest))


def _judged(run: RunResult, case: dict[str, Any], trials: list[TrialResult]) -> Judged:
    place = place_of(case)
    start = partial(
        Judged,
        str(case["case_id"]),
        place["workload"],
        place["policy"],
        place["setting"],
        place["backend"],
    )
    said = [trial.notes["retention"] for trial in trials if trial.notes.get("retention")]
    if not said:
        status = worst_status(trials)
        cause = next((trial.cause for trial in trials if trial.cause), "it was not run")
        return start(ok=False, verdict=f"no verdict: {status}: {cause}", judged=False)
    told = min(said, key=lambda each: each["ok"])
    failed = next((c for t in trials for c in t.checks if not c.ok), None)
    ok, verdict = bool(told["ok"]), str(told["verdict"])
    if ok and failed is not None:
        ok, verdict = False, f"FAILED: check {failed.check}: {failed.detail}"
    return start(
        ok=ok,
        verdict=verdict,
        checks=told["checks"],
        failures=tuple(told["failures"]),
        more_failures=told["more_failures"],
        refused=told["refused"],
        reasons=tuple((thread, why) for thread, why in told["reasons"]),
    )


# --- numbers --------------------------------------------------------------------------------------


def _sizes(trial: TrialResult) -> dict[tuple[str, str], float]:
    """(table, column) -> value. A size that the engine cannot say of some row is not there."""
    found: dict[tuple[str, str], float] = {}
    for part in trial.phases:
        for table in (*TABLES, ALL) if part.storage else ():
            rows = [row for row in part.storage if table in (ALL, row.table)]
            for size in SIZES:
                values = [getattr(row, size) for row in rows]
                if None not in values:
                    found[table, f"{size}_{part.phase}"] = float(sum(values))
        totals = [row.bytes for row in part.footprint if row.component == "total"]
        if totals:
            found[ALL, f"footprint_bytes_{part.phase}"] = float(sum(totals))
    return found


def _deleted(trial: TrialResult) -> int | None:
    """Rows that went: as the policy says, else by the tables; None where neither tells."""
    said = trial.notes["retention"]["deleted"]
    if said is not None:
        return int(sum(said.values()))
    sizes = _sizes(trial)
    pair = [sizes.get((ALL, f"rows_{phase}")) for phase in (Phase.LOADED, Phase.RETAINED)]
    return None if None in pair else int(pair[0] - pair[1])  # type: ignore[operator]


def middle(trials: Sequence[TrialResult], key: tuple[str, str, str, str]) -> float | None:
    """The median of one series over the trials together; None without samples."""
    times = case_times(trials, key)
    return float(np.median(times)) if times.size else None


def _ratio(trials: Sequence[TrialResult], read: tuple[str, str, str]) -> dict[str, float | None]:
    before, after = (
        case_times(trials, (str(phase), *read)) for phase in (Phase.LOADED, Phase.RETAINED)
    )
    if not (before.size and after.size):
        return {}
    found = median_ratio(before, after)
    return {"ratio": found.value, "ratio_low": found.low, "ratio_high": found.high}


def median(values: Sequence[float]) -> float | None:
    """The median; None of nothing."""
    return float(np.median(values)) if values else None


def tidy(rows: list[dict[str, Any]], names: Sequence[str]) -> pd.DataFrame:
    """A frame with exactly these columns; all but words are floats."""
    frame = pd.DataFrame(rows, columns=list(names))
    words = (*CASE, "table", "op", "temperature", "at", "ok")
    numbers = [name for name in names if name not in words]
    return frame.astype(dict.fromkeys(numbers, "float64"))
