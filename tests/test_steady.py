"""Reads beside retention: what is deleted or folded between the two steps of a read."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

import tiny_graph
from fix_threads import Kept, at, snapshot
from savermark.errors import UsageError
from savermark.history.cached import with_cache
from savermark.history.kinds import is_memory
from savermark.recording import Recorder, RecordingSaver
from savermark.retention.admission import clean_admission
from savermark.retention.duration import persist_run_durations
from savermark.retention.steady import (
    Vanished,
    asteady_read,
    asteady_state,
    steady_read,
    steady_state,
    with_steady,
)

if TYPE_CHECKING:
    from collections.abc import Callable

APIS = pytest.mark.parametrize("api", ["sync", "async"])


class Racing(BaseCheckpointSaver[Any]):
    """Mixed in before a saver: does something after each of the first lookups of a checkpoint."""

    steps: list[Callable[[], object]]

    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        if self.steps:
            self.steps.pop(0)()
        return found

    async def aget_tuple(self, config: Any) -> Any:
        found = await super().aget_tuple(config)
        if self.steps and not is_memory(self):  # which answers through `get_tuple`
            self.steps.pop(0)()
        return found


def racing(saver: Any, *steps: Callable[[], object]) -> Any:
    made = copy.copy(saver)
    made.__class__ = type("Racing", (Racing, type(saver)), {"steps": list(steps), "__slots__": ()})
    return made


def thread_with_leaf(kept: Kept) -> tuple[str, dict[str, Any], str]:
    """Two turns and a duration-only leaf: thread, state, the leaf's id."""
    thread = kept.hand().thread
    graph = tiny_graph.build(kept.saver)
    for word in "ab":
        graph.invoke({"said": [word]}, tiny_graph.config(thread))
    persist_run_durations(kept.saver, thread, {"r": 1})
    head = kept.rows.image(thread).heads[""]
    assert "said" not in head.stored  # a delta read, then
    return thread, tiny_graph.expected(["a", "b"]), head.checkpoint_id


def read(kept: Kept, api: str, config: Any, *steps: Callable[[], object]) -> Any:
    """The state through a graph on a saver that races."""
    if api == "sync":
        return steady_state(tiny_graph.build(racing(kept.saver, *steps)), config).values

    async def opened() -> Any:
        if kept.name == "memory":
            graph = tiny_graph.build(racing(kept.saver, *steps))
            return (await asteady_state(graph, config)).values
        async with kept.store.asaver() as saver:
            return (await asteady_state(tiny_graph.build(racing(saver, *steps)), config)).values

    return asyncio.run(opened())


def delete(kept: Kept, thread: str) -> Callable[[], object]:
    def step() -> None:
        assert clean_admission(kept.saver, thread).deleted

    return step


def test_without_it_the_state_is_silently_lost(kept: Kept) -> None:
    thread, state, _ = thread_with_leaf(kept)
    graph = tiny_graph.build(racing(kept.saver, delete(kept, thread)))
    lost = graph.get_state(tiny_graph.config(thread)).values
    assert lost == {**state, "said": []}


@APIS
def test_a_latest_read_whose_target_vanished_is_done_again(kept: Kept, api: str) -> None:
    thread, state, _ = thread_with_leaf(kept)
    assert read(kept, api, tiny_graph.config(thread), delete(kept, thread)) == state


@APIS
def test_an_explicit_read_never_moves(kept: Kept, api: str) -> None:
    thread, state, leaf = thread_with_leaf(kept)
    assert read(kept, api, at(thread, leaf)) == state
    with pytest.raises(Vanished, match=f"{leaf} was deleted while it was read") as caught:
        read(kept, api, at(thread, leaf), delete(kept, thread))
    assert caught.value.gone


@APIS
def test_once_is_once(kept: Kept, api: str) -> None:
    """The second target vanishes as well: no third read."""
    thread, _, _ = thread_with_leaf(kept)
    persist_run_durations(kept.saver, thread, {"r": 2})
    twice = delete(kept, thread)
    with pytest.raises(Vanished):
        # The lookups are: the first target, its check, the second target.
        read(kept, api, tiny_graph.config(thread), twice, lambda: None, twice)


def fold(kept: Kept, thread: str) -> Callable[[], object]:
    """The value goes onto the head, and everything before it goes."""

    def step() -> None:
        value = tiny_graph.build(kept.saver).get_state(tiny_graph.config(thread)).values["said"]
        typed = kept.saver.serde.dumps_typed(snapshot(*value))
        with kept.rows.transaction(thread) as txn:
            image = txn.image()
            head = image.heads[""]
            txn.store_value("", head.checkpoint_id, "said", typed)
            txn.reparent("", head.checkpoint_id, None)
            others = [row.key for row in image.checkpoints if row.key != head.key]
            txn.delete_writes_of(others)
            txn.delete_checkpoints(others)

    return step


@APIS
@pytest.mark.parametrize("explicit", [True, False])
def test_a_target_that_was_folded_is_read_again_under_its_id(
    kept: Kept, api: str, explicit: bool
) -> None:
    thread, state, leaf = thread_with_leaf(kept)
    config = at(thread, leaf) if explicit else tiny_graph.config(thread)
    assert read(kept, api, config, fold(kept, thread)) == state


@APIS
def test_a_run_that_appends_meanwhile_disturbs_nobody(kept: Kept, api: str) -> None:
    thread, state, _ = thread_with_leaf(kept)

    def append() -> None:
        tiny_graph.build(kept.saver).invoke({"said": ["c"]}, tiny_graph.config(thread))

    assert read(kept, api, tiny_graph.config(thread), append) == state
    assert read(kept, api, tiny_graph.config(thread)) == tiny_graph.expected(["a", "b", "c"])


# --- without a graph ------------------------------------------------------------------------------


def raw(kept: Kept, api: str, config: Any, *steps: Callable[[], object], **options: Any) -> Any:
    if api == "sync":
        return steady_read(racing(kept.saver, *steps), config, **options)

    async def opened() -> Any:
        if kept.name == "memory":
            return await asteady_read(racing(kept.saver, *steps), config, **options)
        async with kept.store.asaver() as saver:
            return await asteady_read(racing(saver, *steps), config, **options)

    return asyncio.run(opened())


@APIS
def test_checkpoint_and_histories_are_of_one_moment(kept: Kept, api: str) -> None:
    thread, _, leaf = thread_with_leaf(kept)
    parent = kept.rows.image(thread).row("", leaf).parent_id  # type: ignore[union-attr]
    quiet = raw(kept, api, at(thread))
    assert quiet.tuple.checkpoint["id"] == leaf and set(quiet.histories) == {"said"}
    assert raw(kept, api, at(thread), channels=["said"]) == quiet
    with pytest.raises(Vanished):
        raw(kept, api, at(thread, leaf), delete(kept, thread))
    persist_run_durations(kept.saver, thread, {"r": 3})
    moved = raw(kept, api, at(thread), delete(kept, thread))
    assert moved.tuple.checkpoint["id"] == parent
    assert moved.histories == quiet.histories
    assert raw(kept, api, at("nobody-at-all")) is None
    with pytest.raises(Vanished):
        persist_run_durations(kept.saver, thread, {"r": 4})
        persist_run_durations(kept.saver, thread, {"r": 5})
        twice = delete(kept, thread)
        raw(kept, api, at(thread), twice, lambda: None, twice)


def test_what_was_never_there_is_answered_as_the_saver_does(kept: Kept) -> None:
    thread, _, _ = thread_with_leaf(kept)
    steady = with_steady(kept.saver)
    for config in (at(thread, "no-such-id"), at(thread)):
        asked = {"config": config, "channels": ["said"]}
        own = kept.saver.get_delta_channel_history(**asked)  # type: ignore[arg-type]
        assert steady.get_delta_channel_history(**asked) == own  # type: ignore[arg-type]
    assert steady.get_delta_channel_history(config=at(thread), channels=[]) == {}


def test_it_goes_with_a_cache_and_not_with_a_wrapper(kept: Kept) -> None:
    thread, state, _ = thread_with_leaf(kept)
    graph = tiny_graph.build(racing(with_cache(kept.saver), delete(kept, thread)))
    assert steady_state(graph, tiny_graph.config(thread)).values == state
    steady = with_steady(kept.saver)
    assert with_steady(steady) is steady
    with pytest.raises(UsageError, match="inside the wrapper"):
        with_steady(RecordingSaver(InMemorySaver(), Recorder()))
    with pytest.raises(UsageError, match="compile it with one"):
        steady_state(tiny_graph.build(None), tiny_graph.config(thread))
