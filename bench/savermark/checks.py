"""What stands between a number and a conclusion: typed findings, each with a remedy.

One finding a case and kind, not one a series: it names the worst series and counts the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from savermark import stats
from savermark.frame.build import assemble, case_values, counted, series
from savermark.frame.columns import CASE, OWN
from savermark.frame.summary import trial_sizes
from savermark.records import Status
from savermark.units import format_ns

if TYPE_CHECKING:
    import pandas as pd

    from savermark.frame.build import SeriesKey
    from savermark.records import SampleSet, TrialResult
    from savermark.results import RunResult

# A quiet machine gives 5 to 15 % between the quartiles; at 50 % the median hides two behaviours.
WIDE_SPREAD = 0.5
# A cold cache or a lazy import costs several times a call; 2x still happens by chance.
SLOW_FIRST = 3.0
SLOW_FIRST_MIN_N = 5  # with fewer there is no telling what is usual
# Two clock reads and an append take about 250 ns (`make perf`), so below 2.5 µs they are a tenth.
CLOCK_COST_NS = 250
CLOCK_SHARE = 0.1
# One trial runs at a time, and its worker and its server take turns: together about one core.
OWN_LOAD = 1.0
# With half of the cores taken by others a worker and its server no longer both find a free one.
BUSY_SHARE = 0.5


class Severity(StrEnum):
    """How much of the result a finding takes away."""

    ERROR = "error"  # no number of this case may be used
    WARNING = "warning"  # times of this case are in doubt
    NOTE = "note"  # to be known when reading


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know before a number is believed; `subject` is a case id, or `run`."""

    severity: Severity
    finding: str
    subject: str
    detail: str
    remedy: str


def find(run: RunResult) -> list[Finding]:
    """Every finding of the run, the gravest first, then in the order of the cases."""
    trials: dict[str, list[TrialResult]] = {}
    for trial in run.trials:
        trials.setdefault(trial.case_id, []).append(trial)
    found = list(_run_findings(run))
    for case_id, tried in trials.items():
        for check in (*_TRIAL_CHECKS, *_SERIES_CHECKS):
            found += [Finding(s, n, case_id, d, r) for s, n, d, r in check(tried)]
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def findings_frame(runs: Sequence[RunResult]) -> pd.DataFrame:
    """The `findings` frame; case columns are NA where a finding is about the whole run."""
    cases, parts = [], []
    for run in runs:
        nothing: dict[str, Any] = {**dict.fromkeys(CASE), "run_id": run.header["run_id"]}
        for finding in find(run):
            known = finding.subject in run.cases
            cases.append(case_values(run, finding.subject, None) if known else nothing)
            values = asdict(finding)
            parts.append({name: [values[name]] for name in OWN["findings"]})
    return assemble("findings", cases, parts)


# -- the whole run ---------------------------------------------------------------------------------


def _run_findings(run: RunResult) -> Iterator[Finding]:
    if run.quick:
        yield Finding(
            Severity.NOTE,
            "quick profile",
            "run",
            "small cases, few repetitions: for a first look only, never a baseline",
            "run with --profile standard",
        )
    if not run.complete:
        yield Finding(
            Severity.WARNING,
            "incomplete run",
            "run",
            f"{len(run.trials)} trials are there, but the run did not come to its end",
            "finish it with savermark run --resume",
        )
    yield from _busy(run)


def _busy(run: RunResult) -> Iterator[Finding]:
    busy = [load for trial in run.trials if (load := busy_load(run, trial)) is not None]
    if busy:
        cores = run.header["environment"]["cores"]
        yield Finding(
            Severity.WARNING,
            "busy machine",
            "run",
            f"{len(busy)} of {len(run.trials)} trials began at a load above "
            f"{_load_limit(cores):.1f} on {cores} cores, at most {max(busy):.1f}",
            "stop what else runs on this machine and run again",
        )


def busy_load(run: RunResult, trial: TrialResult) -> float | None:
    """The load average at the trial's start where others used the machine then, else None."""
    cores, load = run.header["environment"].get("cores"), _load(trial.notes)
    return load if cores and load is not None and load > _load_limit(cores) else None


def _load_limit(cores: int) -> float:
    return OWN_LOAD + BUSY_SHARE * cores


def _load(notes: Mapping[str, Any]) -> float | None:
    load = notes.get("load_average")
    if isinstance(load, Sequence):
        load = load[0] if load else None
    return None if load is None else float(load)


# -- one case over its repetitions -----------------------------------------------------------------

Found = tuple[Severity, str, str, str]  # severity, finding, detail, remedy
Check = Callable[[Sequence["TrialResult"]], Iterable[Found]]


def _ended(trials: Sequence[TrialResult]) -> Iterator[Found]:
    told = {
        Status.FAILED: (Severity.ERROR, "failed trial", "read the cause; the run goes on without"),
        Status.TIMEOUT: (Severity.ERROR, "timed out", "raise measure.timeout_s or shrink the case"),
        Status.SKIPPED: (Severity.NOTE, "skipped", "lift the safety cap with --allow-large"),
        Status.UNSUPPORTED: (Severity.NOTE, "unsupported", "choose a backend that can do this"),
    }
    for status, (severity, finding, remedy) in told.items():
        causes = [trial.cause for trial in trials if trial.status is status]
        if causes:
            yield severity, finding, f"{_of(causes, trials)}: {causes[0] or 'no cause'}", remedy


def _failed_checks(trials: Sequence[TrialResult]) -> Iterator[Found]:
    failed = [check for trial in trials for check in trial.checks if not check.ok]
    if failed:
        first = failed[0]
        detail = f"{first.check} at phase {first.phase} did not hold: {first.detail}"
        remedy = "no number of this case is shown: the store does not give back what was written"
        yield Severity.ERROR, "failed state check", _more(detail, len(failed)), remedy


def _unsupported(trials: Sequence[TrialResult]) -> Iterator[Found]:
    lacking = {
        what: why for trial in trials for what, why in trial.notes.get("unsupported", {}).items()
    }
    if lacking:
        what, why = next(iter(lacking.items()))
        remedy = "nothing is wrong: it is left out, and never counts as zero"
        yield Severity.NOTE, "unsupported", _more(f"{what}: {why}", len(lacking)), remedy


def _autovacuum(trials: Sequence[TrialResult]) -> Iterator[Found]:
    hit = [trial for trial in trials if trial.backend.get("autovacuum_runs")]
    if hit:
        yield (
            Severity.WARNING,
            "autovacuum during a measurement",
            f"in {_of(hit, trials)} the server vacuumed by itself while calls were timed",
            "switch autovacuum off on the measured server, or repeat more often",
        )


def _unsteady_rows(trials: Sequence[TrialResult]) -> Iterator[Found]:
    sizes = [trial_sizes(trial) for trial in trials if trial.status is Status.OK]
    for name in ("checkpoints_rows", "blobs_rows", "writes_rows"):
        seen = {int(size[name]) for size in sizes if name in size}
        if len(seen) > 1:
            detail = f"{name} is {min(seen)} to {max(seen)} for the same seed"
            remedy = "look for a clock or an unseeded choice in the workload or the saver"
            yield Severity.WARNING, "rows differ between repetitions", detail, remedy


_TRIAL_CHECKS: tuple[Check, ...] = (
    _ended,
    _failed_checks,
    _unsupported,
    _autovacuum,
    _unsteady_rows,
)


# -- one series of samples over the repetitions ----------------------------------------------------


def _by_series(trials: Sequence[TrialResult]) -> dict[SeriesKey, list[list[SampleSet]]]:
    found: dict[SeriesKey, list[list[SampleSet]]] = {}
    for trial in trials:
        for key, sets in series(trial).items():
            found.setdefault(key, []).append(sets)
    return found


def _times(repetitions: Sequence[Sequence[SampleSet]]) -> stats.Values:
    return np.concatenate([counted(sets)[1] for sets in repetitions])


def _wide_spread(trials: Sequence[TrialResult]) -> Iterator[Found]:
    wide = {}
    for key, repetitions in _by_series(trials).items():
        spreads = [_spread(key, *counted(sets)) for sets in repetitions]
        known = [spread for spread in spreads if spread is not None]
        if known and float(np.median(known)) > WIDE_SPREAD:
            wide[key] = float(np.median(known))
    if wide:
        worst = max(wide, key=lambda key: wide[key])
        detail = f"{label(worst)}: the middle half spans {wide[worst]:.0%} of the median"
        remedy = "run again on a quiet machine, with more repetitions or reads"
        yield Severity.WARNING, "wide spread", _more(detail, len(wide)), remedy


def _spread(key: SeriesKey, depth: Any, times: stats.Values) -> float | None:
    if key[2] == "run":  # growth along the thread is no noise: look at one stretch of it
        last = stats.windows(depth).get("last")
        return None if last is None else stats.relative_spread(times[last])
    return stats.relative_spread(times) if times.size >= stats.INTERVAL_MIN_N else None


def _slow_first(trials: Sequence[TrialResult]) -> Iterator[Found]:
    slow = {}
    for key, repetitions in _by_series(trials).items():
        firsts = [_first_ratio(counted(sets)[1]) for sets in repetitions]
        known = [ratio for ratio in firsts if ratio is not None]
        # A first call that is slow once is noise; slow in the middle repetition, it is a habit.
        if key[2] != "cold" and known and float(np.median(known)) > SLOW_FIRST:
            slow[key] = float(np.median(known))
    if slow:
        worst = max(slow, key=lambda key: slow[key])
        detail = f"{label(worst)}: the first sample takes {slow[worst]:.1f} times the next ones"
        remedy = "read medians and windows, not the maximum; the first call pays for caches"
        yield Severity.NOTE, "slow first sample", _more(detail, len(slow)), remedy


def _first_ratio(times: stats.Values) -> float | None:
    if times.size < SLOW_FIRST_MIN_N:
        return None
    usual = float(np.median(times[1:10]))  # the neighbours, before growth sets in
    return float(times[0]) / usual if usual else None


def _near_clock(trials: Sequence[TrialResult]) -> Iterator[Found]:
    limit = CLOCK_COST_NS / CLOCK_SHARE
    medians = {key: float(np.median(_times(sets))) for key, sets in _nonempty(trials)}
    near = {key: value for key, value in medians.items() if value < limit}
    if near:
        worst = min(near, key=lambda key: near[key])
        detail = f"{label(worst)}: median {format_ns(near[worst])}, the clock takes part of it"
        remedy = f"compare only with values of this harness; below {format_ns(limit)} it counts"
        yield Severity.NOTE, "near the clock's resolution", _more(detail, len(near)), remedy


def _too_few(trials: Sequence[TrialResult]) -> Iterator[Found]:
    counts = {key: _times(sets).size for key, sets in _nonempty(trials)}
    few = {key: n for key, n in counts.items() if n < stats.INTERVAL_MIN_N}
    if few:
        worst = min(few, key=lambda key: few[key])
        detail = f"{label(worst)}: {few[worst]} samples over all repetitions carry no interval"
        remedy = "raise measure.reads or measure.repetitions"
        yield Severity.NOTE, "too few samples", _more(detail, len(few)), remedy


def _nonempty(
    trials: Sequence[TrialResult],
) -> Iterator[tuple[SeriesKey, list[list[SampleSet]]]]:
    return ((k, sets) for k, sets in _by_series(trials).items() if _times(sets).size)


_SERIES_CHECKS: tuple[Check, ...] = (_wide_spread, _slow_first, _near_clock, _too_few)


def label(key: SeriesKey) -> str:
    """A series in words: `get_state warm at head`, `put`, `turn (retained)`."""
    phase, op, temperature, at = key
    words = [op] if temperature == "run" else [op, temperature]
    words += ["at", at] if at else []
    return " ".join(words) + ("" if phase == "loaded" else f" ({phase})")


def _of(part: Sequence[object], whole: Sequence[object]) -> str:
    return f"{len(part)} of {len(whole)} trials"


def _more(detail: str, count: int) -> str:
    return detail if count == 1 else f"{detail} (and {count - 1} more)"
