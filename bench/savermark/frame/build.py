"""Turns the trials of runs into the columns of each frame; the statistics are stats.py's."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from savermark import stats
from savermark.errors import ResultError
from savermark.frame.columns import CASE, OWN
from savermark.meter import FIELDS
from savermark.spec import Dist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from savermark.records import PhaseStorage, SampleSet, TrialResult
    from savermark.results import RunResult

Columns: TypeAlias = "Mapping[str, Sequence[Any]]"
SeriesKey: TypeAlias = "tuple[str, str, str, str]"  # phase, op, temperature, at

_PERCENTILES = (90, 95, 99)


def build(kind: str, runs: Sequence[RunResult]) -> pd.DataFrame:
    """The frame of this kind over every trial of the runs, in the order they were run."""
    trials = [(run, trial) for run in runs for trial in run.trials]
    cases = [case_values(run, trial.case_id, trial.repetition) for run, trial in trials]
    return assemble(kind, cases, [BUILDERS[kind](trial) for _, trial in trials])


def assemble(
    kind: str, cases: Sequence[Mapping[str, Any]], parts: Sequence[Columns]
) -> pd.DataFrame:
    """One frame from each part's case values and own columns, with the documented types."""
    own = OWN[kind]
    first = next(iter(own))
    place = np.repeat(np.arange(len(parts)), [len(part[first]) for part in parts])
    frame = {
        name: pd.Series([case[name] for case in cases], dtype=dtype).take(place).array
        for name, dtype in CASE.items()
    }
    for name, dtype in own.items():
        values = list(chain.from_iterable(part[name] for part in parts))
        frame[name] = pd.Series(values, dtype=dtype).array
    return pd.DataFrame(frame)


def case_values(run: RunResult, case_id: str, repetition: int | None) -> dict[str, Any]:
    """The case columns of one case; raises `ResultError` for a case the header does not name."""
    try:
        case = run.cases[case_id]
        return {
            "run_id": run.header["run_id"],
            "workload": case["workload"],
            "variant": case["variant"],
            "backend": case["backend"],
            **_SPEC_VALUES[case.get("family", "savers")](case["spec"]),
            "fingerprint": case["fingerprint"],
            "repetition": repetition,
        }
    except KeyError as error:
        raise ResultError(
            f"{run.path}: the header lacks {error} for case {case_id!r}: run it again"
        ) from error


def _saver_values(spec: Mapping[str, Any]) -> dict[str, Any]:
    messages, conversation = spec["state"]["messages"], spec["conversation"]
    delta = messages["kind"] == "delta"
    return {
        "api": spec["run"]["api"],
        "durability": spec["run"]["durability"],
        "mode": messages["kind"],
        "snapshot_frequency": messages["snapshot_frequency"] if delta else None,
        "threads": conversation["threads"],
        "turns": _typical(conversation["turns"]),
    }


def _sandbox_values(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Captures stand for turns; what only a conversation has is NA."""
    chains = spec["chains"]
    return {
        "api": "async",
        "durability": None,
        "mode": None,
        "snapshot_frequency": None,
        "threads": chains["threads"] + chains["forks"],
        "turns": _typical(chains["captures"]),
    }


def _walk_values(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The chain's checkpoints stand for turns; a frequency that no snapshot came of is NA."""
    depth, frequencies = spec["thread"]["depth"], spec["channels"]["frequencies"]
    return {
        "api": spec["reads"]["api"],
        "durability": None,
        "mode": "delta",
        "snapshot_frequency": next((f for f in frequencies if f < depth), None),
        "threads": 1,
        "turns": depth,
    }


_SPEC_VALUES = {
    "savers": _saver_values,
    "retention": _saver_values,
    "sandbox": _sandbox_values,
    "walks": _walk_values,
}


def _typical(turns: Any) -> int:
    return Dist(**turns).typical if isinstance(turns, dict) else int(turns)


def series(trial: TrialResult) -> dict[SeriesKey, list[SampleSet]]:
    """The trial's sample sets by what they are samples of."""
    found: dict[SeriesKey, list[SampleSet]] = {}
    for item in trial.samples:
        key = (str(item.phase), item.op, item.temperature, item.at)
        found.setdefault(key, []).append(item)
    return found


def counted(sets: Sequence[SampleSet]) -> tuple[NDArray[np.int64], stats.Values]:
    """Depths and times of the samples that count: all but each set's warm-ups."""
    depth = [value for item in sets for value in item.depth[item.warmup :]]
    times = [value for item in sets for value in item.ns[item.warmup :]]
    return np.array(depth, dtype=np.int64), np.array(times, dtype=np.float64)


def _rows(kind: str, rows: Sequence[tuple[Any, ...]]) -> Columns:
    names = list(OWN[kind])
    return (
        dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(names, ())
    )


def _phases(trial: TrialResult) -> Iterator[tuple[str, PhaseStorage]]:
    return ((str(part.phase), part) for part in trial.phases)


def _storage(trial: TrialResult) -> Columns:
    return _rows(
        "storage",
        [
            (
                phase,
                row.thread_id,
                row.checkpoint_ns,
                row.table,
                row.channel,
                row.rows,
                row.logical_bytes,
                row.stored_bytes,
            )
            for phase, part in _phases(trial)
            for row in part.storage
        ],
    )


def _footprint(trial: TrialResult) -> Columns:
    return _rows(
        "footprint",
        [
            (phase, row.component, row.table, row.bytes)
            for phase, part in _phases(trial)
            for row in part.footprint
        ],
    )


def _floor(trial: TrialResult) -> Columns:
    return _rows(
        "floor",
        [
            (phase, row.thread_id, row.distinct_payloads, row.bytes)
            for phase, part in _phases(trial)
            for row in part.floor
        ],
    )


def _checks(trial: TrialResult) -> Columns:
    return _rows("checks", [(str(c.phase), c.check, c.ok, c.detail) for c in trial.checks])


def _cost(trial: TrialResult) -> Columns:
    return _rows(
        "cost",
        [
            (
                str(row.phase),
                row.op,
                row.at,
                row.depth,
                *(getattr(row.counts, name) for name in FIELDS),
                ",".join(row.exact),
            )
            for row in trial.costs
        ],
    )


def _trials(trial: TrialResult) -> Columns:
    cost = trial.process
    used = (
        (None,) * 6
        if cost is None
        else (
            cost.setup_ns,
            cost.run_wall_ns,
            cost.saver_busy_ns,
            cost.cpu_user_ns,
            cost.cpu_system_ns,
            cost.peak_rss_bytes,
        )
    )
    head = (str(trial.status), trial.cause, trial.started_at, trial.duration_ns)
    return _rows("trials", [(*head, *used)])


def _samples(trial: TrialResult) -> Columns:
    return _rows(
        "samples",
        [
            (*key, index, depth, ns, index < item.warmup)
            for key, sets in series(trial).items()
            for item in sets
            for index, (depth, ns) in enumerate(zip(item.depth, item.ns, strict=True))
        ],
    )


def _latency(trial: TrialResult) -> Columns:
    rows: list[tuple[Any, ...]] = []
    for key, sets in series(trial).items():
        depth, times = counted(sets)
        if not times.size:
            continue
        rows.append((*key, "all", *describe(times)))
        if key[2] == "run":  # reads aim at one place: nothing grows along them
            for window, chosen in stats.windows(depth).items():
                rows.append((*key, window, *describe(times[chosen])))
    return _rows("latency", rows)


def describe(times: stats.Values) -> tuple[float | None, ...]:
    """The statistics of one latency row, in the order of its columns."""
    median = stats.median_interval(times)
    tails = stats.percentiles(times, _PERCENTILES)
    return (times.size, median.value, *tails, float(times.max()), median.low, median.high)


BUILDERS: dict[str, Callable[[TrialResult], Columns]] = {
    "storage": _storage,
    "footprint": _footprint,
    "floor": _floor,
    "samples": _samples,
    "latency": _latency,
    "cost": _cost,
    "checks": _checks,
    "trials": _trials,
}
