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
HISTORY_COUNTS = ("runs", "reads", "fast", "scans", "writes", "deletes", "checkpoints")
HISTORY = (
    *CASE,
    *HISTORY_COUNTS,
    "duration_copies",
    "fast_p50_ns",
    "scan_p50_ns",
    "admission_p50_ns",
    "idle_ns",
    "fast_statements",
    "fast_rows",
    "scan_statements",
    "scan_rows",
    "idle_statements",
    "idle_rows",
)
_IDLE = ("history_fast", "history_scan", "leaf_write", "leaf_delete")


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


def verdicts(run: RunResult) -> list[Judged]:
    """A verdict for each case with a policy, in the order of the run; the worst repetition's."""
    return [_judged(run, case, trials) for case, trials in _cases(run, scenario="")]


def broken(run: RunResult) -> bool:
    """Whether a policy was seen to break what threads promise."""
    found = (trial.notes.get("retention") for trial in run.trials)
    return any(told and not told["ok"] for told in found)


def space_table(runs: Sequence[RunResult]) -> pd.DataFrame:
    """Rows and bytes of each table and of all of them, at each phase (columns `SPACE`).

    The footprint, of the whole store, stands beside the table `ALL`.
    """
    rows = []
    for run in runs:
        for case, trials in _good(run, scenario=""):
            sizes = [_sizes(trial) for trial in trials]
            for table in (*TABLES, ALL):
                found = {
                    key: _median([size[table, key] for size in sizes if (table, key) in size])
                    for key in SPACE[len(CASE) + 1 :]
                }
                if any(value is not None for value in found.values()):
                    rows.append({**_place(case), "table": table, **found})
    return _frame(rows, SPACE)


def effort_table(runs: Sequence[RunResult]) -> pd.DataFrame:
    """One row a case: what was changed and deleted, and how long each step took (`EFFORT`)."""
    rows = []
    for run in runs:
        for case, trials in _good(run, scenario=""):
            notes = [trial.notes["retention"] for trial in trials]
            times = {
                f"{op}_ns": _middle(trials, (str(Phase.RETAINED), op, "warm", "")) for op in _TIMED
            }
            deleted = _median([n for trial in trials if (n := _deleted(trial)) is not None])
            apply_ns = times["apply_ns"]
            speed = deleted / apply_ns * 1e9 if deleted is not None and apply_ns else None
            shown = {name: notes[0][name] for name in ("threads", "changed", "refused")}
            told = {"rows_deleted": deleted, "rows_per_s": speed, "ok": notes[0]["ok"]}
            rows.append(
                {**_place(case), **shown, **times, **told, "verified": notes[0]["verified"]}
            )
    return _frame(rows, EFFORT)


def reads_table(runs: Sequence[RunResult]) -> pd.DataFrame:
    """The median of each read before and after, NaN where it was not made (columns `READS`).

    `ratio` is retained by loaded, with its 95 % interval where there are samples enough.
    """
    rows = []
    for run in runs:
        for case, trials in _good(run, scenario=""):
            keys = dict.fromkeys(
                (item.op, item.temperature, item.at)
                for trial in trials
                for item in trial.samples
                if item.temperature != "run" and item.at
            )
            for op, temperature, at in keys:
                found = {
                    f"p50_ns_{phase}": _middle(trials, (phase, op, temperature, at))
                    for phase in PHASES
                }
                found |= _ratio(trials, (op, temperature, at))
                read = {"op": op, "temperature": temperature, "at": at}
                rows.append({**_place(case), **read, **found})
    return _frame(rows, READS)


def history_table(runs: Sequence[RunResult]) -> pd.DataFrame:
    """The run-history scenario, one row a case (columns `HISTORY`).

    `idle_ns` is what the history reads after one run take, with what they write and a pass deletes:
    the median of each call, as often as it was made. Counts with `idle_` are of that round after
    the last run, the others of one read.
    """
    rows = []
    for run in runs:
        for case, trials in _good(run, scenario="run-history"):
            told = trials[0].notes["run_history"]
            counts = {(row.op, name): getattr(row.counts, name)
                      for row in trials[0].costs for name in ("statements", "rows")}  # fmt: skip
            row = {name: told[name] for name in (*HISTORY_COUNTS, "duration_copies")}
            for name, op in (("fast", "history_fast"), ("scan", "history_scan")):
                row[f"{name}_p50_ns"] = _middle(trials, ("loaded", op, "warm", "head"))
                for what in ("statements", "rows"):
                    row[f"{name}_{what}"] = counts.get((op, what))
            for what in ("statements", "rows"):
                row[f"idle_{what}"] = counts.get(("idle_round", what))
            row["admission_p50_ns"] = _middle(trials, ("loaded", "admission", "warm", "head"))
            spent = [_idle_ns(trial, told["runs"]) for trial in trials]
            rows.append({**_place(case), **row, "idle_ns": _median(spent)})
    return _frame(rows, HISTORY)


def _idle_ns(trial: TrialResult, runs: int) -> float:
    calls = [item.ns for item in trial.samples if item.op in _IDLE]
    return sum(len(ns) * float(np.median(ns)) for ns in calls) / runs


# --- cases ----------------------------------------------------------------------------------------


def _cases(run: RunResult, scenario: str) -> Iterator[tuple[dict[str, Any], list[TrialResult]]]:
    for case_id, case in run.cases.items():
        if case.get("family") == FAMILY and case[FAMILY]["scenario"] == scenario:
            yield case, [trial for trial in run.trials if trial.case_id == case_id]


def _good(run: RunResult, scenario: str) -> Iterator[tuple[dict[str, Any], list[TrialResult]]]:
    for case, trials in _cases(run, scenario):
        good = [trial for trial in trials if trial.status is Status.OK]
        if good and state_checks(trials) is not False:
            yield case, good


def _place(case: dict[str, Any]) -> dict[str, str]:
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
    place = _place(case)
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
        return start(ok=False, verdict=f"no verdict: {status}: {cause}")
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


def _middle(trials: Sequence[TrialResult], key: tuple[str, str, str, str]) -> float | None:
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


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _frame(rows: list[dict[str, Any]], names: Sequence[str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(names))
    words = (*CASE, "table", "op", "temperature", "at", "ok")
    numbers = [name for name in names if name not in words]
    return frame.astype(dict.fromkeys(numbers, "float64"))
