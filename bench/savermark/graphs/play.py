"""Drives a thread's events through a compiled graph: `play`, and its async twin `aplay`.

What to do is decided once, in the generator `_plan`; the two drivers only carry out its calls and
differ by `await`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from langgraph.types import Command

from savermark.graphs.durations import duration_put
from savermark.graphs.messages import to_state
from savermark.script import Duration, Fork, Turn

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    from savermark.script import ThreadScript
    from savermark.spec import WorkloadSpec

    Graph = CompiledStateGraph[Any, Any, Any, Any]
    Saver = BaseCheckpointSaver[Any]

#: Entered around the graph calls of each run with its number (`Turn.number`).
TurnClock = Callable[[int], AbstractContextManager[None]]

#: A turn may take more supersteps than LangGraph's default limit of 25 allows.
RECURSION_LIMIT = 100_000


@dataclass(slots=True)
class Outcome:
    """Where each tip of a played thread is: tip name -> config with its checkpoint id."""

    tips: dict[str, RunnableConfig] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that a driver carries out; its async twin has the same name after an `a`."""

    on: Literal["graph", "saver"]
    method: str
    args: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


def play(
    graph: Graph, saver: Saver, thread: ThreadScript, spec: WorkloadSpec, clock: TurnClock
) -> Outcome:
    """Play a driven thread's events on `graph`.

    `saver` is where duration-only checkpoints are written and where the checkpoint of a mark is
    looked up. Pass the unwrapped saver to keep these few reads out of a recording.
    """
    with closing(_plan(thread, spec, clock)) as plan:
        answer: Any = None
        while True:
            try:
                call = plan.send(answer)
            except StopIteration as stop:
                outcome: Outcome = stop.value
                return outcome
            target = graph if call.on == "graph" else saver
            answer = getattr(target, call.method)(*call.args, **call.options)


async def aplay(
    graph: Graph, saver: Saver, thread: ThreadScript, spec: WorkloadSpec, clock: TurnClock
) -> Outcome:
    """The async twin of `play`."""
    with closing(_plan(thread, spec, clock)) as plan:
        answer: Any = None
        while True:
            try:
                call = plan.send(answer)
            except StopIteration as stop:
                outcome: Outcome = stop.value
                return outcome
            target = graph if call.on == "graph" else saver
            answer = await getattr(target, f"a{call.method}")(*call.args, **call.options)


_Plan = Generator[_Call, Any, Outcome]


def _plan(thread: ThreadScript, spec: WorkloadSpec, clock: TurnClock) -> _Plan:
    head: RunnableConfig = {"configurable": {"thread_id": thread.thread_id}}
    marks: dict[str, RunnableConfig] = {}
    for event in thread.events:
        if isinstance(event, Duration):
            copy = duration_put((yield _Call("saver", "get_tuple", (head,))), event)
            if copy is not None:
                yield _Call("saver", "put", copy)
            continue
        with clock(event.number):
            yield from _run(event, head, marks, spec)
        if event.marks:
            found = yield _Call("saver", "get_tuple", (head,))
            marks.update(dict.fromkeys(event.marks, found.config))
    last = yield _Call("saver", "get_tuple", (head,))
    if last is not None:
        marks["head"] = last.config
    return Outcome({name: _bare(marks[name]) for name in thread.tips if name in marks})


def _run(
    event: Turn | Fork,
    head: RunnableConfig,
    marks: Mapping[str, RunnableConfig],
    spec: WorkloadSpec,
) -> Generator[_Call, Any, None]:
    """One run and the resumes of its interrupts."""
    values: Any = to_state(event.input)
    start = _config(head, event, spec)
    if isinstance(event, Fork):
        start = _config(marks[event.base], event, spec)
        if event.kind == "edit":
            found = yield _Call("graph", "update_state", (start, values, "__start__"))
            start, values = _config(found, event, spec), None
        elif event.kind == "copy":
            # Without a run id: a run whose id is on the checkpoint it starts from counts as a
            # resume of itself, and its input is silently ignored.
            bare = _bare(marks[event.base])
            found = yield _Call("graph", "update_state", (bare, None, "__copy__"))
            start = _config(found, event, spec)
    options = {"durability": spec.run.durability}
    yield _Call("graph", "invoke", (values, start), options)
    for answer in event.answers:
        again = _config(head, event, spec)
        yield _Call("graph", "invoke", (Command(resume=answer), again), options)


def _bare(config: RunnableConfig) -> RunnableConfig:
    """Only what identifies the checkpoint."""
    keys = ("thread_id", "checkpoint_ns", "checkpoint_id")
    return {"configurable": {key: config["configurable"].get(key, "") for key in keys}}


def _config(at: RunnableConfig, event: Turn | Fork, spec: WorkloadSpec) -> RunnableConfig:
    config: RunnableConfig = {
        "configurable": dict(at["configurable"]),
        "recursion_limit": RECURSION_LIMIT,
    }
    if spec.run.run_id:
        config["metadata"] = {"run_id": event.run_id}
    return config
