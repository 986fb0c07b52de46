"""The table of walks, for a terminal, for Markdown and for the page: one definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from savermark.frame.walks import growth_of
from savermark.stats import TOO_FEW
from savermark.units import format_bytes, format_count, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING = "–"
#: Column of `told` -> its heading and how its values read.
SHOWN: dict[str, tuple[str, Callable[[Any], str]]] = {
    "variant": ("variant", str),
    "backend": ("backend", str),
    "what": ("read", str),
    "p50_ns": ("p50", format_ns),
    "within": ("95 % interval", str),
    "times_floor": ("× floor", "{:.2f}".format),
    "statements": ("statements", format_count),
    "round_trips": ("round trips", format_count),
    "rows": ("rows", format_count),
    "bytes": ("bytes", format_bytes),
    "blocks": ("blocks", format_count),
    "vm_steps": ("VM steps", format_count),
    "values": ("values", format_count),
    "value_bytes": ("deserialized", format_bytes),
}
GROWN = ("statements", "rows", "blocks")  # counts whose growth is told beside the time's


@dataclass(frozen=True, slots=True)
class Grid:
    """A table as text; the first `words` columns hold words, the others numbers."""

    workload: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int


def told(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with `what` (`walk native`, `walk base (cold)`) and `within` (the interval)."""
    what = [
        f"{read} {walk}" + (f" ({temperature})" if temperature != "warm" else "")
        for read, walk, temperature in zip(
            rows["read"], rows["walk"], rows["temperature"], strict=True
        )
    ]
    within = [
        TOO_FEW if pd.isna(low) else f"{format_ns(low)} to {format_ns(high)}"
        for low, high in zip(rows["p50_low_ns"], rows["p50_high_ns"], strict=True)
    ]
    return rows.assign(what=what, within=within)


def shown_of(rows: pd.DataFrame) -> dict[str, tuple[str, Callable[[Any], str]]]:
    """The columns that hold anything: memory has no statements."""
    return {name: look for name, look in SHOWN.items() if rows[name].notna().any()}


def growth_grid(workload: str, rows: pd.DataFrame) -> Grid | None:
    """How time and counts of each read grow with the depth; None where depths were not swept."""
    if rows["turns"].nunique() < 2:
        return None
    counts = [growth_of(rows, name) for name in GROWN]
    lines = []
    for key, law in growth_of(rows).items():
        backend, read, walk = key
        grown = [one.get(key) for one in counts]
        exponents = [MISSING if one is None else f"{one.exponent:.2f}" for one in grown]
        lines.append((backend, f"{read} {walk}", str(law), *exponents))
    headings = ("backend", "read", "time ~ depth^", *(f"{name} ~ depth^" for name in GROWN))
    return Grid(workload, headings, tuple(lines), 2)


def walk_grids(table: pd.DataFrame, *, brief: bool = False) -> Iterator[Grid]:
    """Of each workload its table and, where depths were swept, its growth.

    `brief` leaves the reads of a graph out: only the walks themselves.
    """
    table = table[table["read"] == "walk"] if brief else table
    for workload, rows in table.groupby("workload", sort=False):
        shown = told(rows)
        columns = shown_of(shown)
        lines = tuple(
            tuple(
                MISSING if pd.isna(value) else look(value)
                for (_, look), value in zip(columns.values(), line, strict=True)
            )
            for line in shown[list(columns)].itertuples(index=False, name=None)
        )
        yield Grid(str(workload), tuple(title for title, _ in columns.values()), lines, 3)
        grown = growth_grid(str(workload), rows)
        if grown is not None:
            yield grown
