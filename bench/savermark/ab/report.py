"""One report of two sides: what was counted, exactly, then what was timed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from savermark.compare import Comparison, Row, Verdict, compare_runs
from savermark.compare.exact import exact_rows, unlike
from savermark.compare.judge import TIME_THRESHOLD
from savermark.compare.turns import judge_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from savermark.ab.store import AbResult


def compare_ab(result: AbResult, *, threshold: float = TIME_THRESHOLD) -> Comparison:
    """Side B against side A: the rows of both probes, then those of `compare_runs`.

    Raises `NotComparableError` as `compare_runs` does.
    """
    compared = compare_runs(result.runs["a"], result.runs["b"], threshold=threshold)
    broken = [
        case_id
        for case_id, probe in result.probes["b"].items()
        if probe.cause and not result.probes["a"][case_id].cause
    ]
    return replace(
        compared,
        name_a=result.installs["a"].title,
        name_b=result.installs["b"].title,
        rows=(*_exact(result), *compared.rows),
        notes=(*_notes(result), *compared.notes),
        broken=tuple(dict.fromkeys([*compared.broken, *broken])),
    )


def _exact(result: AbResult) -> Iterator[Row]:
    for case_id, a in result.probes["a"].items():
        b = result.probes["b"].get(case_id)
        why = unlike(a, b) if b else "not probed in B"
        if why or b is None:
            yield Row(case_id, "counts", None, Verdict.NOT_COMPARABLE, why)
        else:
            yield from exact_rows(case_id, a, b)
        if result.duels.get(case_id):
            yield judge_turns(case_id, result.duels[case_id])


def _notes(result: AbResult) -> Iterator[str]:
    a, b = result.installs["a"], result.installs["b"]
    if (a.distribution, a.version, a.source) == (b.distribution, b.version, b.source):
        yield "A and B are the same build: what differs is noise."
    for side, probes in result.probes.items():
        for case_id, probe in probes.items():
            for note in probe.notes:
                yield f"{side.upper()}, {case_id}: {note}."
