"""What a walk workload shows, in sentences computed from its table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from savermark.frame.walks import FLOOR, growth_of, walk_table
from savermark.plots.series import least, most
from savermark.units import format_count, format_ns

if TYPE_CHECKING:
    from savermark.results import RunResult


@dataclass(frozen=True, slots=True)
class WalkStory:
    """The largest ratio to the floor, whose it is, and sentences."""

    times: float
    note: str
    sentences: tuple[str, ...]


def tell_walks(run: RunResult, workload: str) -> WalkStory | None:
    """The story of one workload; None without a walk that has a floor."""
    table = walk_table([run])
    table = table[(table["workload"] == workload) & (table["temperature"] == "warm")]
    walks = table[(table["read"] == "walk") & (table["walk"] != FLOOR)]
    known = walks[walks["times_floor"].notna()]
    if known.empty:
        return None
    worst = most(known, "times_floor")
    note = f"the floor's time: {worst['walk']} on {worst['backend']}, the slowest walk by ratio"
    floors = table[table["walk"] == FLOOR]
    sentences = [*_backends(known, floors), *_laws(table), *_histories(table)]
    return WalkStory(float(worst["times_floor"]), note, tuple(sentences))


def _backends(known: pd.DataFrame, floors: pd.DataFrame) -> Iterator[str]:
    """For each backend the fastest and the slowest walk of its longest case, by the floor."""
    for backend, rows in known.groupby("backend", sort=False):
        case = most(floors[floors["backend"] == backend], "p50_ns")["variant"]
        mine = rows[rows["variant"] == case]
        fast, slow = least(mine, "times_floor"), most(mine, "times_floor")
        where = f" ({case})" if case else ""
        line = f"On {backend}{where} {_one(fast)}"
        yield f"{line}." if fast["walk"] == slow["walk"] else f"{line}; {_one(slow)}."


def _one(row: Any) -> str:
    count = row["statements"]
    asked = "" if pd.isna(count) else f" in {format_count(int(count))} statements"
    return (
        f"{row['walk']} takes {format_ns(row['p50_ns'])}{asked}, "
        f"{row['times_floor']:.2f} times the floor"
    )


def _laws(table: pd.DataFrame) -> Iterator[str]:
    if table["turns"].nunique() < 3:
        return
    laws = growth_of(table[(table["read"] == "walk") & (table["walk"] != FLOOR)])
    for (backend, _, walk), law in laws.items():
        yield f"Time of {walk} on {backend} grows with the depth to the power {law}."


def _histories(table: pd.DataFrame) -> Iterator[str]:
    """A history rebuilds each of its states: what one costs against a single state."""
    rows = table[table["read"].str.startswith("history_")]
    for backend, mine in rows.groupby("backend", sort=False):
        row = most(mine, "p50_ns")
        same = (table["backend"] == backend) & (table["walk"] == row["walk"])
        one = table[same & (table["read"] == "get_state") & (table["variant"] == row["variant"])]
        if not one.empty:
            count = str(row["read"]).removeprefix("history_")
            yield (
                f"A history of {count} states through {row['walk']} on {backend} takes "
                f"{row['p50_ns'] / one['p50_ns'].iloc[0]:.1f} times one state "
                f"({format_ns(row['p50_ns'])})."
            )
