"""Duration-only checkpoints: how they are written and how they are told, on every store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

import tiny_graph
from fix_threads import Kept, at, snapshot
from savermark.history.image import CheckpointRow, ThreadImage, WriteRow
from savermark.retention.duration import (
    apersist_run_durations,
    delta_writes,
    duration_leaf,
    has_shape,
    is_duration_only,
    persist_run_durations,
    state_neutral,
)

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

STAMPS = {"source": "update", "run_durations": {"r": 1}}
MARK = {"writes": {"runtime_run_duration": {"run_ids": ["r"]}}}


def played(kept: Kept, turns: int = 1) -> tuple[Any, str]:
    graph, hand = tiny_graph.build(kept.saver), kept.hand()
    for turn in range(turns):
        graph.invoke({"said": [f"q{turn}"]}, tiny_graph.config(hand.thread))
    return graph, hand.thread


def head(kept: Kept, thread: str) -> CheckpointTuple:
    found = kept.saver.get_tuple(at(thread))
    assert found is not None
    return found


# --- writing ------------------------------------------------------------------------------------


def test_a_leaf_copies_the_head_and_records_what_changed(kept: Kept) -> None:
    graph, thread = played(kept)
    old, state = head(kept, thread), graph.get_state(tiny_graph.config(thread)).values
    rows = {len(kept.rows.image(thread).blobs), len(kept.rows.image(thread).writes)}
    assert persist_run_durations(kept.saver, thread, {"r2": 7, "r1": -3}, {"m": "r2"})
    new = head(kept, thread)
    assert new.parent_config is not None
    assert new.parent_config["configurable"]["checkpoint_id"] == old.checkpoint["id"]
    assert new.checkpoint["id"] > old.checkpoint["id"]
    for part in ("channel_versions", "versions_seen", "channel_values"):
        assert new.checkpoint[part] == old.checkpoint[part]  # type: ignore[literal-required]
    told = dict(new.metadata)
    assert told["source"] == "update" and told["step"] == old.metadata["step"] + 1
    assert told["run_durations"] == {"r2": 7, "r1": 0} and told["run_message_ids"] == {"m": "r2"}
    if kept.name != "postgres":  # which drops that key
        assert told["writes"] == {
            "runtime_run_duration": {"run_ids": ["r1", "r2"], "message_ids": ["m"]}
        }
    image = kept.rows.image(thread)
    assert {len(image.blobs), len(image.writes)} == rows  # one checkpoint more, and nothing else
    assert graph.get_state(tiny_graph.config(thread)).values == state


def test_nothing_new_writes_nothing(kept: Kept) -> None:
    assert not persist_run_durations(kept.saver, "nobody-here", {"r": 1})
    _, thread = played(kept)
    assert not persist_run_durations(kept.saver, thread, {})
    wrong: Any = {"": 1, 5: 1, "r": True, "s": 1.5, "t": "9"}
    assert not persist_run_durations(kept.saver, thread, wrong, {"m": 1})  # type: ignore[dict-item]
    assert persist_run_durations(kept.saver, thread, {"r": 1})
    assert not persist_run_durations(kept.saver, thread, {"r": 1})
    assert persist_run_durations(kept.saver, thread, {"r": 2, "s": 1})
    told = dict(head(kept, thread).metadata)
    assert told["run_durations"] == {"r": 2, "s": 1} and "run_message_ids" not in told
    assert len(kept.rows.image(thread).checkpoints) == 6


def test_a_head_that_waits_is_left_alone(kept: Kept) -> None:
    hand = kept.hand().put("c1", None, {"x": 1}).write("c1", ("__interrupt__", "?"))
    assert not persist_run_durations(kept.saver, hand.thread, {"r": 1})


class Moving(InMemorySaver):
    """Another run appends after each of the first reads."""

    moves = 0
    reads = 0

    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        self.reads += 1
        if found is not None and self.moves > 0 and self.reads % 2:
            self.moves -= 1
            made = {**found.checkpoint, "id": f"moved-{9 - self.moves}"}
            self.put(found.config, made, {"step": 5}, {})  # type: ignore[typeddict-item,arg-type]
        return found


@pytest.mark.parametrize(("moves", "done"), [(0, True), (1, True), (2, True), (3, False)])
@pytest.mark.parametrize("api", ["sync", "async"])
def test_a_head_that_moves_is_read_again(moves: int, done: bool, api: str) -> None:
    saver = Moving()
    tiny_graph.build(saver).invoke({"said": ["q"]}, tiny_graph.config("t"))
    saver.moves, saver.reads = moves, 0
    if api == "sync":
        assert persist_run_durations(saver, "t", {"r": 1}) is done
    else:
        assert asyncio.run(apersist_run_durations(saver, "t", {"r": 1})) is done


def test_the_async_twin_writes_the_same(kept: Kept) -> None:
    _, thread = played(kept)

    async def record() -> CheckpointTuple:
        async with kept.store.asaver() as saver:
            assert await apersist_run_durations(saver, thread, {"r": 3})
            assert not await apersist_run_durations(saver, thread, {"r": 3})
            found = await saver.aget_tuple(at(thread))
            assert found is not None
            return found

    if kept.name == "memory":  # each saver of it is a store of its own
        assert asyncio.run(apersist_run_durations(kept.saver, thread, {"r": 3}))
        new = head(kept, thread)
    else:
        new = asyncio.run(record())
    assert dict(new.metadata)["run_durations"] == {"r": 3}


# --- telling ------------------------------------------------------------------------------------


def test_a_written_leaf_is_told_and_nothing_else_is(kept: Kept) -> None:
    graph, thread = played(kept, turns=2)
    persist_run_durations(kept.saver, thread, {"r": 1})
    graph.update_state(tiny_graph.config(thread), {"said": ["more"]}, as_node="answer")
    persist_run_durations(kept.saver, thread, {"r": 1})
    copied = graph.update_state(tiny_graph.config(thread), None, as_node="__copy__")
    image = kept.rows.image(thread)
    told = [row for row in image.checkpoints if is_duration_only(image, row)]
    assert [row.metadata["step"] for row in told] == [7, 9]
    assert all(row.versions == image.row("", row.parent_id or "").versions for row in told)  # type: ignore[union-attr]
    fork = image.row("", copied["configurable"]["checkpoint_id"])
    assert fork is not None and fork not in told


@pytest.mark.parametrize(
    ("metadata", "parent", "answer"),
    [
        (MARK, None, True),  # the marker is final
        ({**STAMPS, "writes": {"other": {}}}, {"x": "1"}, False),
        ({**STAMPS, "writes": None}, {"x": "1"}, True),
        (STAMPS, {"x": "1"}, True),
        (STAMPS, {"x": "2"}, False),  # a title was set
        (STAMPS, {"x": "1", "y": "1"}, False),
        (STAMPS, None, False),
        ({**STAMPS, "source": "loop"}, {"x": "1"}, False),
        ({"source": "update"}, {"x": "1"}, False),
        ({"source": "update", "run_durations": {}}, {"x": "1"}, False),
        ({"source": "update", "run_message_ids": {"m": "r"}}, {"x": "1"}, True),
    ],
)
def test_marker_and_shape(metadata: Any, parent: Any, answer: bool) -> None:
    assert has_shape(metadata, {"x": "1"}, parent) is answer


def test_versions_that_cannot_be_read_equal_nothing() -> None:
    rows = (
        CheckpointRow("", "c1", None, {}, unreadable="pickle"),
        CheckpointRow("", "c2", "c1", {}, metadata=STAMPS),
    )
    assert not is_duration_only(ThreadImage("t", rows), rows[1])
    readable = (replace(rows[0], unreadable=""), rows[1])
    assert is_duration_only(ThreadImage("t", readable), rows[1])


# --- neutral ------------------------------------------------------------------------------------


def test_a_copy_under_delta_writes_is_not_neutral(kept: Kept) -> None:
    """A task finished, its sibling failed: the copy takes the finished work for its past."""
    hand = kept.hand().put("c1", None, {"d": snapshot("s"), "k": 1, "w": 0})
    hand.put("c2", "c1", {"k": 2}, moved="d", counts="d")
    for number, (channel, neutral) in enumerate(
        {"k": True, "d": False, "new": False, "__error__": True}.items()
    ):
        name = f"c3-{number}"
        hand.put(name, "c2", {"k": 2}, counts="d").write(name, (channel, ["w"]))
        hand.put(f"{name}-leaf", name, {"k": 2}, metadata=STAMPS)
        image = kept.rows.image(hand.thread)
        copy = image.row("", f"{name}-leaf")
        assert copy is not None
        assert state_neutral(image, copy) is neutral, channel
    assert not state_neutral(image, replace(copy, parent_id="gone"))


def test_a_plain_value_that_others_count_is_a_delta_channel() -> None:
    """The thread began with a full list and went on as delta."""
    first = CheckpointRow("", "c1", None, {"m": "1"}, frozenset("m"))
    write = (WriteRow("", "c1", "task", 0, "m", "", 1),)
    counts = {"counters_since_delta_snapshot": {"m": [1, 1]}}
    second = CheckpointRow("", "c2", "c1", {"m": "2"}, metadata=counts)
    assert delta_writes(ThreadImage("t", (first,), write), first) == set()
    assert delta_writes(ThreadImage("t", (first, second), write), first) == {"m"}


def test_a_leaf_needs_no_writing_to_be_planned(kept: Kept) -> None:
    _, thread = played(kept)
    made = duration_leaf(head(kept, thread), {"r": 1})
    assert made is not None and made[3] == {}
    assert len(kept.rows.image(thread).checkpoints) == 4
