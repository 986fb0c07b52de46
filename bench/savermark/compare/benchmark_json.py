"""Files of pytest-benchmark side by side, judged as our own results are.

The raw samples that a file keeps are compared (`--benchmark-json` keeps them, and
`--benchmark-save` with `--benchmark-save-data`); without them there is no verdict. What the
fixtures of savermark leave in `extra_info` (exact counts, stored rows and bytes) is compared
exactly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from savermark.compare.exact import exact_rows, unlike
from savermark.compare.gates import flat
from savermark.compare.judge import TIME_THRESHOLD, Rules, judge
from savermark.compare.measures import Measure
from savermark.compare.model import COLUMNS, Comparison, Difference, Kind, Row, Verdict
from savermark.errors import NotComparableError, ResultError
from savermark.probe import Probe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: The key of `extra_info` under which our fixtures file what they counted.
EXTRA = "savermark"
_MACHINE = ("system", "machine", "cpu.brand_raw", "cpu.count")
_SHOWN = (*_MACHINE, "python_version", "release")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark of a file: its samples in seconds, and what was counted beside them."""

    name: str
    seconds: tuple[float, ...]
    rounds: int
    probe: Probe | None = None


@dataclass(frozen=True, slots=True)
class BenchmarkFile:
    """What a file of pytest-benchmark says."""

    name: str
    machine: dict[str, Any]
    benchmarks: dict[str, Benchmark] = field(default_factory=dict)


def is_benchmark_file(path: Path) -> bool:
    """Whether this is a JSON file as pytest-benchmark writes it."""
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and "benchmarks" in document


def load_benchmarks(path: Path) -> BenchmarkFile:
    """Read a file; raises `ResultError` for what is none of pytest-benchmark."""
    try:
        document = json.loads(path.read_bytes())
        found = [_benchmark(item) for item in document["benchmarks"]]
        machine = flat(document.get("machine_info") or {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultError(f"{path} is no file of pytest-benchmark: {error!r}") from error
    return BenchmarkFile(path.name, machine, {item.name: item for item in found})


def _benchmark(item: dict[str, Any]) -> Benchmark:
    stats, extra = item["stats"], (item.get("extra_info") or {}).get(EXTRA)
    return Benchmark(
        name=str(item.get("fullname") or item["name"]),
        seconds=tuple(float(value) for value in stats.get("data") or ()),
        rounds=int(stats.get("rounds", 0)),
        probe=Probe.from_json(extra) if extra else None,
    )


def compare_benchmarks(
    a: BenchmarkFile, b: BenchmarkFile, *, threshold: float = TIME_THRESHOLD
) -> Comparison:
    """File `b` against the baseline `a`. Raises `NotComparableError` without a common benchmark."""
    if not a.benchmarks.keys() & b.benchmarks.keys():
        raise NotComparableError(
            f"{a.name} and {b.name} have no benchmark in common: run the same tests for both"
        )
    names = list(dict.fromkeys([*a.benchmarks, *b.benchmarks]))
    other = [fact for fact in _MACHINE if a.machine.get(fact) != b.machine.get(fact)]
    why = f"another machine: other {', '.join(other)}" if other else ""
    rows = [row for name in names for row in _rows(name, a, b, why, threshold)]
    columns = set(COLUMNS) - {"workload"}
    return Comparison(
        name_a=a.name,
        name_b=b.name,
        rows=tuple(rows),
        differences=tuple(
            Difference(fact, str(a.machine.get(fact, "–")), str(b.machine.get(fact, "–")))
            for fact in _SHOWN
            if a.machine.get(fact) != b.machine.get(fact)
        ),
        notes=("A file holds one run of each benchmark: only a ratio of 1.5 and more counts.",),
        broken=(),
        cases={name: {"workload": name, **dict.fromkeys(columns)} for name in names},
    )


def _rows(
    name: str, a: BenchmarkFile, b: BenchmarkFile, other_machine: str, threshold: float
) -> Iterator[Row]:
    left, right = a.benchmarks.get(name), b.benchmarks.get(name)
    if left is None or right is None:
        where = "A" if right is None else "B"
        yield Row(name, "all", None, Verdict.NOT_COMPARABLE, f"only in {where}")
        return
    if left.probe is not None and right.probe is not None:
        why = unlike(left.probe, right.probe)
        if why:
            yield Row(name, "counts", None, Verdict.NOT_COMPARABLE, why)
        else:
            yield from exact_rows(name, left.probe, right.probe)
    if other_machine:
        yield Row(name, "time", Kind.TIME, Verdict.NOT_COMPARABLE, other_machine)
        return
    lacks = [file.name for file, one in ((a, left), (b, right)) if not one.seconds]
    if lacks:
        detail = f"n too small: no samples in {', '.join(lacks)}; --benchmark-save-data keeps them"
        yield Row(name, "time", Kind.TIME, Verdict.UNRESOLVED, detail)
        return
    yield judge(name, _measure(left), _measure(right), Rules(threshold=threshold))


def _measure(one: Benchmark) -> Measure:
    return Measure("time", Kind.TIME, (np.array(one.seconds, np.float64) * 1e9,))
