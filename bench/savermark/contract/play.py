"""Steps of a scenario, and the two drivers that take them: on a sync and on an async saver."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from savermark.retention.duration import (
    apersist_run_durations,
    duration_leaf,
    persist_run_durations,
)

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing an application does with a thread, at its newest checkpoint or at one by its id.

    `run` gives the state afterwards (with `fails`, a run that raises is what is wanted), `state`
    a state, `history` the ids and next tasks, newest first. `copy` puts a duration-only copy of
    the newest checkpoint whatever it waits for, as applications did that knew no better.
    """

    what: Literal["run", "update", "state", "history", "durations", "copy"]
    thread_id: str
    checkpoint_id: str | None = None
    given: Any = None
    as_node: str | None = None
    fails: bool = False

    @property
    def config(self) -> Any:
        """The config of the checkpoint."""
        where = {"thread_id": self.thread_id}
        if self.checkpoint_id is not None:
            where |= {"checkpoint_id": self.checkpoint_id, "checkpoint_ns": ""}
        return {"configurable": where}


@dataclass(frozen=True, slots=True)
class State:
    """What a state shows, as plain data that compares across threads."""

    checkpoint_id: str
    values: Mapping[str, Any]
    upcoming: tuple[str, ...]
    questions: tuple[Any, ...]

    @property
    def told(self) -> tuple[Any, ...]:
        """Everything but the id."""
        return dict(self.values), self.upcoming, self.questions


Play = Generator[Step, Any, T]


def shown(snapshot: Any) -> State:
    """A state snapshot as plain data; a message is its text."""
    values = {
        name: [getattr(item, "content", item) for item in value]
        if isinstance(value, list)
        else value
        for name, value in snapshot.values.items()
    }
    where = snapshot.config["configurable"].get("checkpoint_id", "")
    return State(where, values, snapshot.next, tuple(each.value for each in snapshot.interrupts))


def _copied(found: CheckpointTuple | None, durations: Any) -> tuple[Any, ...]:
    put = duration_leaf(found._replace(pending_writes=None), durations) if found else None
    assert put is not None, "a scenario copies only what is there"
    return put


def play(graph: Any, saver: BaseCheckpointSaver[Any], steps: Play[T]) -> T:
    """Take the steps with a sync saver."""
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            return cast("T", stop.value)
        answer = _take(graph, saver, step)


def _take(graph: Any, saver: BaseCheckpointSaver[Any], step: Step) -> Any:
    match step.what:
        case "run":
            try:
                graph.invoke(step.given, step.config, durability="sync")
            except RuntimeError:
                if not step.fails:
                    raise
            return shown(graph.get_state({"configurable": {"thread_id": step.thread_id}}))
        case "update":
            made = graph.update_state(step.config, step.given, as_node=step.as_node)
            return made["configurable"]["checkpoint_id"]
        case "state":
            return shown(graph.get_state(step.config))
        case "history":
            return [shown(each) for each in graph.get_state_history(step.config)]
        case "durations":
            return persist_run_durations(saver, step.thread_id, step.given)
        case "copy":
            found = saver.get_tuple(step.config)
            return saver.put(*_copied(found, step.given))["configurable"]["checkpoint_id"]


async def aplay(graph: Any, saver: BaseCheckpointSaver[Any], steps: Play[T]) -> T:
    """The async twin of `play`."""
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            return cast("T", stop.value)
        answer = await _atake(graph, saver, step)


async def _atake(graph: Any, saver: BaseCheckpointSaver[Any], step: Step) -> Any:
    match step.what:
        case "run":
            try:
                await graph.ainvoke(step.given, step.config, durability="sync")
            except RuntimeError:
                if not step.fails:
                    raise
            return shown(await graph.aget_state({"configurable": {"thread_id": step.thread_id}}))
        case "update":
            made = await graph.aupdate_state(step.config, step.given, as_node=step.as_node)
            return made["configurable"]["checkpoint_id"]
        case "state":
            return shown(await graph.aget_state(step.config))
        case "history":
            return [shown(each) async for each in graph.aget_state_history(step.config)]
        case "durations":
            return await apersist_run_durations(saver, step.thread_id, step.given)
        case "copy":
            found = await saver.aget_tuple(step.config)
            made = await saver.aput(*_copied(found, step.given))
            return made["configurable"]["checkpoint_id"]
