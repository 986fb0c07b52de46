"""What of a case can be compared: every metric with its values, repetition by repetition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from savermark import stats
from savermark.checks import label
from savermark.compare.model import Kind
from savermark.frame.build import counted, series
from savermark.frame.summary import trial_sizes
from savermark.records import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from savermark.records import PhaseStorage, TrialResult

_SIZES = {  # summary name -> metric and kind
    "checkpoints_rows": ("checkpoints rows", Kind.ROWS),
    "blobs_rows": ("blobs rows", Kind.ROWS),
    "writes_rows": ("writes rows", Kind.ROWS),
    "logical_bytes": ("logical bytes", Kind.BYTES),
    "footprint_loaded_bytes": ("footprint loaded", Kind.SPACE),
    "footprint_retained_bytes": ("footprint retained", Kind.SPACE),
    "footprint_compacted_bytes": ("footprint compacted", Kind.SPACE),
    "peak_rss_bytes": ("peak memory", Kind.MEMORY),
}


@dataclass(frozen=True)
class Measure:
    """One metric of one case: an array of values for each repetition (one value, or samples)."""

    metric: str
    kind: Kind
    repetitions: tuple[stats.Values, ...]

    @cached_property
    def pooled(self) -> stats.Values:
        """The values of all repetitions together."""
        return np.concatenate(self.repetitions)

    @cached_property
    def medians(self) -> list[float]:
        """One value a repetition."""
        return [float(np.median(values)) for values in self.repetitions]


def measures(trials: Sequence[TrialResult]) -> dict[str, Measure]:
    """The metrics of a case by name: rows, bytes and space first, then times and counts."""
    found: dict[str, tuple[Kind, list[stats.Values]]] = {}
    for trial in trials:
        for metric, kind, values in (*_sizes(trial), *_counts(trial), *_times(trial)):
            found.setdefault(metric, (kind, []))[1].append(values)
    order = list(Kind)
    named = sorted(found.items(), key=lambda item: order.index(item[1][0]))
    return {metric: Measure(metric, kind, tuple(values)) for metric, (kind, values) in named}


def _sizes(trial: TrialResult) -> Iterable[tuple[str, Kind, stats.Values]]:
    sizes = trial_sizes(trial)
    for name, (metric, kind) in _SIZES.items():
        if name in sizes:
            yield metric, kind, np.array([sizes[name]])
    for part in trial.phases:
        for metric, kind, value in _phase_sizes(part):
            yield metric, kind, np.array([float(value)])


def _phase_sizes(part: PhaseStorage) -> Iterable[tuple[str, Kind, int]]:
    if not part.storage:
        return
    if part.phase is Phase.LOADED:
        stored = [row.stored_bytes for row in part.storage if row.stored_bytes is not None]
        if len(stored) == len(part.storage):  # a sum with gaps is no sum
            yield "stored bytes", Kind.BYTES, sum(stored)
    elif part.phase is Phase.RETAINED:
        yield "rows retained", Kind.ROWS, sum(row.rows for row in part.storage)
        yield "logical bytes retained", Kind.BYTES, sum(row.logical_bytes for row in part.storage)


def _counts(trial: TrialResult) -> Iterable[tuple[str, Kind, stats.Values]]:
    """What calls cost in counts, where two calls agreed on them to the digit."""
    for row in trial.costs:
        known = row.counts.known()
        for name in row.exact:
            metric = f"{row.op} at {row.at}: {name.replace('_', ' ')}"
            yield metric, Kind.COUNT, np.array([float(known[name])])


def _times(trial: TrialResult) -> Iterable[tuple[str, Kind, stats.Values]]:
    for key, sets in series(trial).items():
        depth, times = counted(sets)
        if not times.size:
            continue
        yield label(key), Kind.TIME, times
        last = stats.windows(depth).get("last")
        if key[1] == "turn" and last is not None:  # where growth with depth shows first
            yield f"{label(key)}, last tenth", Kind.TIME, times[last]
