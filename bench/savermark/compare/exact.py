"""Verdicts on what a probe counted: exact, with no tolerance and no statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savermark.compare.model import Kind, Row, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from savermark.probe import Probe


def exact_rows(case_id: str, a: Probe, b: Probe) -> Iterator[Row]:
    """Every count of reads and writes, then stored rows and bytes: any rise is worse."""
    for op in dict.fromkeys([*a.counts, *b.counts]):
        left, right = a.counts.get(op, {}), b.counts.get(op, {})
        yield from _numbers(case_id, left, right, f"{op}: ", Kind.COUNT)
    yield from _numbers(case_id, a.storage, b.storage, "stored ", None)


def _numbers(
    case_id: str, a: Mapping[str, int], b: Mapping[str, int], prefix: str, kind: Kind | None
) -> Iterator[Row]:
    for name in dict.fromkeys([*a, *b]):
        metric, of = f"{prefix}{name.replace('_', ' ')}", kind or _kind(name)
        if name in a and name in b:
            yield exact_row(case_id, metric, of, a[name], b[name])
        else:
            where = "A" if name in a else "B"
            why = f"only measured in {where}"
            yield Row(case_id, metric, of, Verdict.NOT_COMPARABLE, why)


def _kind(name: str) -> Kind:
    return Kind.BYTES if name.endswith("bytes") else Kind.ROWS


def exact_row(case_id: str, metric: str, kind: Kind, a: float, b: float) -> Row:
    """The row of one number that each side has."""
    verdict = Verdict.SAME if a == b else Verdict.WORSE if b > a else Verdict.BETTER
    return Row(
        case_id, metric, kind, verdict,
        a=float(a), b=float(b), n_a=1, n_b=1, ratio=b / a if a else None,
    )  # fmt: skip


def unlike(a: Probe, b: Probe, packages: Sequence[str] = ()) -> str:
    """Why the counts of two probes must not be compared; empty when they may be.

    `packages` names those whose version decides counts beside the saver's.
    """
    for side, probe in (("A", a), ("B", b)):
        if probe.cause:
            return f"failed in {side}: {probe.cause}"
    if a.fingerprint != b.fingerprint:
        return "another spec: the workload or its keys changed"
    if a.meter_version != b.meter_version:
        return f"counted by another meter: versions {a.meter_version} and {b.meter_version}"
    changed = [
        f"{key} {a.engine.get(key)} and {b.engine.get(key)}"
        for key in sorted(a.engine.keys() | b.engine.keys())
        if a.engine.get(key) != b.engine.get(key)
    ]
    if changed:
        return f"another engine: {', '.join(changed)}"
    other = [
        f"{name} {a.packages.get(name)} and {b.packages.get(name)}"
        for name in packages
        if a.packages.get(name) != b.packages.get(name)
    ]
    return f"another runtime: {', '.join(other)}" if other else ""
