"""What a comparison is made of. Lower is better for every metric, so a ratio B/A above 1 is bad."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

COMPARISON_VERSION = 1  # counts the shape of the frame and of the JSON, like FRAME_VERSION

# The case columns without run_id and repetition, then what was compared.
COLUMNS: dict[str, str] = {
    "workload": "string",
    "variant": "string",
    "backend": "string",
    "api": "string",
    "durability": "string",
    "mode": "string",
    "snapshot_frequency": "Int64",
    "threads": "Int64",
    "turns": "Int64",
    "fingerprint": "string",
    "metric": "string",
    "kind": "string",
    "unit": "string",
    "n_a": "Int64",
    "n_b": "Int64",
    "a": "float64",
    "b": "float64",
    "ratio": "float64",
    "ratio_low": "float64",
    "ratio_high": "float64",
    "p": "float64",
    "verdict": "string",
    "detail": "string",
}


class Verdict(StrEnum):
    """What may be said of B against A."""

    WORSE = "worse"
    BETTER = "better"
    UNRESOLVED = "unresolved"  # the data carries neither a difference nor sameness
    NOT_COMPARABLE = "not comparable"  # no number may be put beside the other
    SAME = "same"


class Kind(StrEnum):
    """What a metric measures decides how it is compared."""

    ROWS = "rows"  # a count: exact
    BYTES = "bytes"  # payload bytes: exact but for random version strings
    SPACE = "space"  # the whole store, in pages
    MEMORY = "memory"  # of the worker process
    TIME = "time"
    COUNT = "count"  # of a probe: exact (savermark.probe)
    RATIO = "ratio"  # of paired times: no unit, and judged as times are

    @property
    def unit(self) -> str:
        """The unit of values of this kind."""
        return _UNITS.get(self, "B")


_UNITS = {Kind.ROWS: "rows", Kind.TIME: "ns", Kind.COUNT: "", Kind.RATIO: ""}


@dataclass(frozen=True, slots=True)
class Row:
    """One case and metric. Values are None where a number must not be given.

    `n_a` and `n_b` count repetitions, for times samples. `low` and `high` bound the ratio with
    95 %, `p` is the rank test's; both are None for what is compared exactly.
    """

    case_id: str
    metric: str
    kind: Kind | None
    verdict: Verdict
    detail: str = ""
    a: float | None = None
    b: float | None = None
    n_a: int | None = None
    n_b: int | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact about the surroundings that is not the same on both sides."""

    what: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result B against result A, the baseline.

    `broken` names the cases that held in A and failed in B; `cases` the case columns by case id.
    """

    name_a: str
    name_b: str
    rows: tuple[Row, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    broken: tuple[str, ...]
    cases: dict[str, dict[str, Any]]

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many rows have each verdict, in the order of `Verdict`."""
        seen = Counter(row.verdict for row in self.rows)
        return {verdict: seen[verdict] for verdict in Verdict}

    @property
    def verdict(self) -> Verdict:
        """One word for the whole: worse if anything is, else better, unresolved or same."""
        counts = self.counts
        if self.broken:
            return Verdict.WORSE
        if counts[Verdict.NOT_COMPARABLE] == len(self.rows):
            return Verdict.NOT_COMPARABLE
        order = (Verdict.WORSE, Verdict.BETTER, Verdict.UNRESOLVED, Verdict.SAME)
        return next(verdict for verdict in order if counts[verdict])

    def to_frame(self) -> pd.DataFrame:
        """The rows as a frame with the columns of `COLUMNS`; `to_csv` of it is the CSV form."""
        records = [
            {
                **self.cases[row.case_id],
                **asdict(row),
                "unit": row.kind.unit if row.kind else None,
                "ratio_low": row.low,
                "ratio_high": row.high,
            }
            for row in self.rows
        ]
        return pd.DataFrame(
            {
                name: pd.Series([record[name] for record in records], dtype=dtype)
                for name, dtype in COLUMNS.items()
            }
        )

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "comparison_version": COMPARISON_VERSION,
            "a": self.name_a,
            "b": self.name_b,
            "verdict": str(self.verdict),
            "counts": {str(verdict): count for verdict, count in self.counts.items()},
            "broken": list(self.broken),
            "rows": [asdict(row) for row in self.rows],
            "differences": [asdict(difference) for difference in self.differences],
            "notes": list(self.notes),
        }
