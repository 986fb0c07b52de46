"""SQLite at fleet size: 5,000 threads of some 50 checkpoints and 200 writes, 1.25 million rows."""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from goals import Goal, seconds
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph

from savermark.backends.base import Location
from savermark.backends.sqlite import SqliteBackend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from savermark.backends.base import Store

THREADS = 5_000
STEPS = 51  # supersteps of the driven thread, each a checkpoint of about five rows in all


def _extend(state: list[str] | None, writes: Sequence[list[str]]) -> list[str]:
    return [*(state or []), *(item for write in writes for item in write)]


class _State(TypedDict):
    messages: Annotated[list[str], DeltaChannel(_extend, snapshot_frequency=50)]
    notes: Annotated[list[str], DeltaChannel(_extend, snapshot_frequency=50)]
    step: int


def drive(store: Store, thread: str) -> None:
    """One thread through the real loop: four writes a step, of ordinary sizes."""
    chance = random.Random(1)

    def text(size: int) -> str:
        return "".join(chance.choices("etaoin shrdlu", k=size))

    def work(state: _State) -> dict[str, Any]:
        return {"messages": [text(400)], "notes": [text(700)], "step": state["step"] + 1}

    graph = StateGraph(_State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda s: "work" if s["step"] < STEPS - 1 else END)
    with store.saver() as saver:
        compiled = graph.compile(checkpointer=saver)
        configuration = {"configurable": {"thread_id": thread}, "recursion_limit": STEPS + 5}
        compiled.invoke({"step": 0}, configuration)  # type: ignore[arg-type]


def measure() -> Iterator[Goal]:
    """Clones the fleet, then passes over it three times; takes 10 to 20 s and 0.8 GB of disk."""
    with tempfile.TemporaryDirectory(prefix="savermark-perf-") as folder:
        store = SqliteBackend.create(Location(Path(folder), "fleet"))
        drive(store, "source")
        clones = [f"t{number:05d}" for number in range(THREADS - 1)]
        taken = seconds(lambda: store.clone_threads({"source": clones}))
        rows = sum(row.rows for row in store.storage())
        yield Goal("SQLite: clone", rows / taken, 220_000, "rows/s", at_most=False)
        passes = statistics.median(seconds(store.storage) for _ in range(3))
        yield Goal(f"SQLite: storage pass over {rows:,} rows", passes, 2.0, "s")
        store.destroy()


def main() -> None:
    """Print measured / goal."""
    for goal in measure():
        sys.stdout.write(f"{goal.what}: {goal.measured:,.2f} / {goal.goal:,.0f} {goal.unit}\n")


if __name__ == "__main__":
    main()
