"""What a walk workload shows, in sentences computed from its table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from savermark.frame.walks import FLOOR, growth_of, walk_table
from savermark.plots.series import most
from savermark.units import format_count, format_ns

if TYPE_CHECKING:
    from savermark.results import RunResult

NATIVE = "native"


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
    """For each backend the walks at its longest thread, the fastest one first.

    Of several such cases the one that takes the floor longest.
    """
    for backend, rows in known.groupby("backend", sort=False):
        mine = floors[floors["backend"] == backend]
        case = most(mine[mine["turns"] == mine["turns"].max()], "p50_ns")["variant"]
        mine = rows[rows["variant"] == case].sort_values("times_floor")
        where = f" ({case})" if case else ""
        first, *others = (_one(row) for row in mine.to_dict("records"))
        yield f"On {backend}{where} {'; '.join([f'{first} times the floor', *others])}."


def _one(row: Any) -> str:
    """`base takes 1.69 s in 5,000 statements, 50.8`."""
    count = row["statements"]
    asked = "" if pd.isna(count) else f" in {format_count(int(count))} statement"
    asked += "s" if asked and count != 1 else ""
    return f"{row['walk']} takes {format_ns(row['p50_ns'])}{asked}, {row['times_floor']:.2f}"


def _laws(table: pd.DataFrame) -> Iterator[str]:
    """A sentence a backend: the exponent of each walk, with its interval where n carries one."""
    if table["turns"].nunique() < 3:
        return
    laws = growth_of(table[(table["read"] == "walk") & (table["walk"] != FLOOR)])
    for name in dict.fromkeys(backend for backend, _, _ in laws):
        told = [f"{law} for {walk}" for (backend, _, walk), law in laws.items() if backend == name]
        yield f"On {name} time grows with the depth to the power {', '.join(told)}."


def _histories(table: pd.DataFrame) -> Iterator[str]:
    """A history rebuilds each of its states: what one costs against a single state.

    Through the saver's own walk, which is what an application has, unless that was not measured.
    """
    rows = table[table["read"].str.startswith("history_")]
    rows = rows[rows["walk"] == NATIVE] if (rows["walk"] == NATIVE).any() else rows
    for backend, mine in rows.groupby("backend", sort=False):
        row = most(mine, "p50_ns")
        same = (table["backend"] == backend) & (table["walk"] == row["walk"])
        one = table[same & (table["read"] == "get_state") & (table["variant"] == row["variant"])]
        if not one.empty:
            count = str(row["read"]).removeprefix("history_")
            case = f", {row['variant']}" if row["variant"] else ""
            yield (
                f"A history of {count} states through {row['walk']} on {backend} takes "
                f"{format_count(row['p50_ns'] / one['p50_ns'].iloc[0])} times one state "
                f"({format_ns(row['p50_ns'])}{case})."
            )
