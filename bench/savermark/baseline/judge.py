"""Verdicts of a gate on one case. Pure functions; every threshold with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from savermark import stats
from savermark.compare.exact import exact_rows, unlike
from savermark.compare.judge import ALPHA
from savermark.compare.model import Kind, Row, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from savermark.baseline.file import Entry
    from savermark.probe import Probe

#: The ratio of a walk to the reference walk beside it does not drift with the machine as a time
#: does: docs/method.md has how far it moved between processes of the same code under a noisy
#: neighbour. A walk that became 1.3 times slower lies beyond this, and noise does not.
RATIO_THRESHOLD = 1.15
#: Packages beside the saver whose version decides what is written and how it is fetched.
RUNTIME = ("langgraph", "langgraph-checkpoint", "langchain-core", "psycopg")


def judge_entry(
    entry: Entry, probes: Sequence[Probe], threshold: float = RATIO_THRESHOLD
) -> Iterator[Row]:
    """The rows of one case: exact ones of the first probe, and the ratio of the walks of all.

    More than one probe is there where an earlier one looked slower (`looks_slower`).
    """
    case_id, now = entry.case.case_id, probes[0]
    why = unlike(entry.probe, now, RUNTIME)
    if why:
        yield Row(case_id, "all", None, Verdict.NOT_COMPARABLE, why)
        return
    yield from exact_rows(case_id, entry.probe, _without(now, entry.unsteady))
    if entry.ratios or now.pairs:
        yield judge_ratios(case_id, entry, probes, threshold)


def _without(probe: Probe, unsteady: Sequence[str]) -> Probe:
    """The probe without the counts that were not steady when the baseline was saved."""
    return replace(
        probe,
        counts={
            op: {name: v for name, v in numbers.items() if f"{op}: {name}" not in unsteady}
            for op, numbers in probe.counts.items()
        },
        storage={k: v for k, v in probe.storage.items() if f"stored {k}" not in unsteady},
    )


def judge_ratios(
    case_id: str, entry: Entry, probes: Sequence[Probe], threshold: float = RATIO_THRESHOLD
) -> Row:
    """Whether a walk became slower against the reference walk of the same process.

    Worse or better needs all three in every probe: the rank test, an interval that leaves 1 out,
    and a ratio beyond the threshold.
    """
    sides = [np.array(probe.pairs.ratios if probe.pairs else (), np.float64) for probe in probes]
    before, now = np.array(entry.ratios, np.float64), np.concatenate(sides)
    metric = _metric(probes[0])
    if min(before.size, *(side.size for side in sides)) < stats.INTERVAL_MIN_N:
        detail = f"n too small: fewer than {stats.INTERVAL_MIN_N} pairs on one side"
        return Row(case_id, metric, Kind.RATIO, Verdict.UNRESOLVED, detail)
    verdicts = {_verdict(before, side, threshold) for side in sides}
    verdict = verdicts.pop() if len(verdicts) == 1 else Verdict.UNRESOLVED
    ratio = stats.median_ratio(before, now)
    detail = {
        Verdict.UNRESOLVED: f"too much noise to say same within {threshold:g}",
        Verdict.SAME: f"within {threshold:g}",
    }.get(verdict, "")
    return Row(
        case_id, metric, Kind.RATIO, verdict, detail,
        a=float(np.median(before)), b=float(np.median(now)), n_a=before.size, n_b=now.size,
        ratio=ratio.value, low=ratio.low, high=ratio.high, p=stats.rank_test(before, now),
    )  # fmt: skip


def _metric(probe: Probe) -> str:
    pairs = probe.pairs
    return f"time of walk {pairs.tested} / walk {pairs.reference}" if pairs else "time of walk"


def _verdict(before: stats.Values, now: stats.Values, threshold: float) -> Verdict:
    ratio = stats.median_ratio(before, now)
    if ratio.low is None or ratio.high is None:
        return Verdict.UNRESOLVED
    moved = ratio.low > 1 or ratio.high < 1
    far = max(ratio.value, 1 / ratio.value) >= threshold
    if moved and far and stats.rank_test(before, now) < ALPHA:
        return Verdict.WORSE if ratio.value > 1 else Verdict.BETTER
    within = 1 / threshold <= ratio.low and ratio.high <= threshold
    return Verdict.SAME if within else Verdict.UNRESOLVED


def looks_slower(entry: Entry, probe: Probe, threshold: float = RATIO_THRESHOLD) -> bool:
    """Whether this probe alone would be called worse by its times: then another one is taken."""
    if not entry.ratios or probe.pairs is None or unlike(entry.probe, probe, RUNTIME):
        return False
    row = judge_ratios(entry.case.case_id, entry, [probe], threshold)
    return row.verdict is Verdict.WORSE
