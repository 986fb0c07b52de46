"""Keep-sets: the set-based form against the walk through the saver's public methods.

The thread is driven by the real loop: one node, one message of ordinary size a superstep, no
snapshot within the depth, so that the whole chain is the keep-set. Both forms are asked for the
head's, in turn, and must agree.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from goals import Goal, interleaved_ratio
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph

from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.history.keepset import keep_set
from savermark.history.rows import row_access

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langgraph.checkpoint.base import BaseCheckpointSaver

DEPTHS = (1_000, 3_000)
ROUNDS = 9
GOALS = {"sqlite": 10.0, "postgres": 100.0}
MESSAGE = 300  # characters


def _extend(state: list[Any] | None, writes: Sequence[list[Any]]) -> list[Any]:
    return [*(state or []), *(item for write in writes for item in write)]


class _State(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_extend, snapshot_frequency=10**6)]
    step: int


def drive(saver: BaseCheckpointSaver[Any], thread: str, depth: int) -> None:
    """One run of `depth` supersteps."""
    chance = random.Random(depth)

    def work(state: _State) -> dict[str, Any]:
        text = "".join(chance.choices("etaoin shrdlu", k=MESSAGE))
        return {"messages": [AIMessage(text, id=str(state["step"]))], "step": state["step"] + 1}

    graph = StateGraph(_State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if state["step"] < depth else END)
    config: Any = {"configurable": {"thread_id": thread}, "recursion_limit": depth + 5}
    graph.compile(checkpointer=saver).invoke({"step": 0}, config)  # type: ignore[arg-type]


def measure() -> Iterator[Goal]:
    """For each backend and depth how many times faster the set-based form is."""
    for name, goal in GOALS.items():
        backend = get_backend(name)
        with tempfile.TemporaryDirectory(prefix="savermark-perf-") as folder:
            place = Path(folder)
            place.chmod(0o755)
            with backend.service(place) as dsn:
                store = backend.create(Location(place, "keepset", dsn))
                with store.saver() as saver:
                    for depth in DEPTHS:
                        drive(saver, str(depth), depth)
                    store.settle()
                    for depth in DEPTHS:
                        what = f"{name}: keep-set of {depth:,} by SQL, times the base walk's speed"
                        yield Goal(what, _speed(saver, str(depth)), goal, "x", at_most=False)
                store.destroy()


def _speed(saver: BaseCheckpointSaver[Any], thread: str) -> float:
    rows = row_access(saver)
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}

    def fast() -> object:
        return rows.keep_set(thread)

    for _ in range(6):  # Postgres settles on a plan after five
        fast()
    assert rows.keep_set(thread) == keep_set(saver, config)
    return 1 / interleaved_ratio(fast, lambda: keep_set(saver, config), ROUNDS)
