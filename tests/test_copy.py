"""Copies of threads: whole, the latest state, the last turns, and what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.types import Command

import tiny_graph
from fix_threads import Hand, Kept, at, history, snapshot
from savermark.errors import ContractError, UsageError
from savermark.history.rows import ThreadBusy
from savermark.retention.copy import acopy_thread, copy_thread
from savermark.retention.fold import graph_fold
from test_runs import _asking

if TYPE_CHECKING:
    from savermark.history.image import ThreadImage

WORDS = ["a", "b", "c", "d", "e", "f", "g"]


def _played(kept: Kept, words: list[str] = WORDS) -> tuple[str, Any]:
    thread, graph = kept.hand().thread, tiny_graph.build(kept.saver)
    for word in words:
        graph.invoke({"said": [word]}, at(thread))
    return thread, graph


def _values(graph: Any, thread: str) -> dict[str, Any]:
    found = graph.get_state_history(at(thread))
    return {row.config["configurable"]["checkpoint_id"]: row.values for row in found}


def _moved(image: ThreadImage, thread: str) -> ThreadImage:
    return replace(image, thread_id=thread)


def test_everything_is_copied_as_it_is(kept: Kept) -> None:
    thread, graph = kept.hand().thread, _asking(kept.saver, inner=True)
    graph.invoke({"said": ["hello"]}, at(thread))
    before = kept.rows.image(thread)
    assert len(before.spaces) == 2
    assert any(row.task_path for row in before.writes)
    done = copy_thread(kept.saver, thread, f"{thread}-copy")
    assert kept.rows.image(thread) == before
    assert kept.rows.image(f"{thread}-copy") == _moved(before, f"{thread}-copy")
    assert sum(done.rows.values()) == before.rows
    assert done.rows["writes"] == len(before.writes)
    assert "everything of thread" in str(done)
    answer = graph.invoke(Command(resume="yes"), at(f"{thread}-copy"))
    assert "answered yes" in answer["said"]
    assert kept.rows.image(thread) == before


def test_the_latest_state(kept: Kept) -> None:
    thread, graph = _played(kept)
    before = kept.rows.image(thread)
    target = f"{thread}-copy"
    done = copy_thread(kept.saver, thread, target, latest=True)
    assert kept.rows.image(thread) == before
    assert graph.get_state(at(target)).values == tiny_graph.expected(WORDS)
    assert 1 < done.rows["checkpoints"] < len(before.checkpoints)
    graph.invoke({"said": ["h"]}, at(target))
    assert graph.get_state(at(target)).values == tiny_graph.expected([*WORDS, "h"])


@pytest.mark.parametrize("api", ["sync", "async"])
def test_the_latest_state_folded_is_one_checkpoint(kept: Kept, api: str) -> None:
    thread, graph = _played(kept)
    before, target = kept.rows.image(thread), f"{thread}-copy"
    if api == "sync":
        fold = graph_fold(graph, kept.saver)
        done = copy_thread(kept.saver, thread, target, latest=True, fold=fold)
    else:

        async def copy() -> Any:
            async with kept.store.asaver() as saver:
                fold = graph_fold(graph, saver)
                return await acopy_thread(saver, thread, target, latest=True, fold=fold)

        done = asyncio.run(copy())
    assert kept.rows.image(thread) == before
    assert done.rows["checkpoints"] == 1
    assert done.folded == ("said",)
    image = kept.rows.image(target)
    (only,) = image.checkpoints
    assert only.parent_id is None
    assert only.checkpoint_id == before.heads[""].checkpoint_id
    assert "said" in only.snapshots
    assert "said" not in only.counted
    assert graph.get_state(at(target)).values == tiny_graph.expected(WORDS)
    graph.invoke({"said": ["h"]}, at(target))
    assert graph.get_state(at(target)).values == tiny_graph.expected([*WORDS, "h"])
    assert {name: done.rows[name] for name in done.rows} == {
        "checkpoints": 1,
        "blobs": len(image.blobs),
        "writes": len(image.writes),
    }


def test_the_last_turns(kept: Kept) -> None:
    thread, graph = _played(kept)
    values, target = _values(graph, thread), f"{thread}-copy"
    copy_thread(kept.saver, thread, target, last=2)
    copied = _values(graph, target)
    assert len(copied) < len(values)
    newest = list(values)[:8]  # two turns of four checkpoints
    assert {name: copied[name] for name in newest} == {name: values[name] for name in newest}
    assert {row.key[1] for row in kept.rows.image(target).checkpoints} == set(copied)


def test_a_protected_checkpoint_comes_along(kept: Kept) -> None:
    thread, graph = _played(kept)
    values, target = _values(graph, thread), f"{thread}-copy"
    oldest = list(values)[-3]
    copy_thread(kept.saver, thread, target, latest=True, protect=[oldest])
    assert _values(graph, target)[oldest] == values[oldest]


def test_a_dry_run_tells_the_same_and_copies_nothing(kept: Kept) -> None:
    thread, _ = _played(kept)
    for options in ({}, {"latest": True}, {"last": 3}):
        target = f"{thread}-{len(options)}-{options.get('last')}"
        told = copy_thread(kept.saver, thread, target, dry_run=True, **options)
        assert kept.rows.image(target).rows == 0
        assert "would be copied" in str(told)
        done = copy_thread(kept.saver, thread, target, **options)
        assert (told.rows, told.logical_bytes) == (done.rows, done.logical_bytes)
        image = kept.rows.image(target)
        assert sum(done.rows.values()) == image.rows
        assert done.logical_bytes["writes"] == sum(row.bytes for row in image.writes)


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_is_refused(kept: Kept, dry_run: bool) -> None:
    thread, _ = _played(kept, WORDS[:2])
    other, before = kept.hand().put("c1"), kept.rows.image(thread)
    wrong: list[tuple[Any, str]] = [
        ((thread, other.thread), f"{other.thread}' holds rows already"),
        ((thread, thread), "cannot be copied to itself"),
        (("nowhere", "somewhere"), "'nowhere' holds no checkpoints"),
        (("", "somewhere"), "source thread has an empty id"),
        ((thread, ""), "target thread has an empty id"),
    ]
    for ids, words in wrong:
        with pytest.raises(UsageError, match=words):
            copy_thread(kept.saver, *ids, dry_run=dry_run)
    with pytest.raises(UsageError, match="not both"):
        copy_thread(kept.saver, thread, "x", latest=True, last=1, dry_run=dry_run)
    with pytest.raises(UsageError, match="must be 1 or more"):
        copy_thread(kept.saver, thread, "x", last=0, dry_run=dry_run)
    with pytest.raises(UsageError, match="only the latest state can be folded"):
        copy_thread(kept.saver, thread, "x", fold=_Lagging(kept, thread), dry_run=dry_run)
    assert kept.rows.image("somewhere").rows == kept.rows.image("x").rows == 0
    assert kept.rows.image(thread) == before


def test_a_writing_orphan_keeps_the_target_in_use(kept: Kept) -> None:
    thread, _ = _played(kept, WORDS[:1])
    orphan = kept.hand()
    orphan.write("c1", ("x", 1))
    with pytest.raises(UsageError, match="holds rows already"):
        copy_thread(kept.saver, thread, orphan.thread)


def test_a_damaged_thread_is_copied_whole_or_not_at_all(kept: Kept) -> None:
    hand = kept.hand().put("c2", "c1", moved=["d"], counts=["d"])
    hand.put("c3", "c2", moved=["d"], counts=["d"])
    for part in ({"latest": True}, {"last": 1}):
        with pytest.raises(ContractError, match=r"c1, which is not stored.*copy everything"):
            copy_thread(kept.saver, hand.thread, f"{hand.thread}-copy", **part)  # type: ignore[arg-type]
    copy_thread(kept.saver, hand.thread, f"{hand.thread}-copy")
    assert len(kept.rows.image(f"{hand.thread}-copy").checkpoints) == 2


class _Lagging:
    """A fold during which the thread goes on, so that what was read is no longer so."""

    def __init__(self, kept: Kept, thread: str) -> None:
        self.kept, self.thread = kept, thread

    def values(self, thread_id: str, folds: Any) -> Any:
        tiny_graph.build(self.kept.saver).invoke({"said": ["meanwhile"]}, at(self.thread))
        return {}

    async def avalues(self, thread_id: str, folds: Any) -> Any:
        return self.values(thread_id, folds)


def test_a_thread_that_moves_meanwhile_is_not_copied_half(kept: Kept) -> None:
    thread, _ = _played(kept)
    target = f"{thread}-copy"
    with pytest.raises(ThreadBusy, match="copy it again"):
        copy_thread(kept.saver, thread, target, latest=True, fold=_Lagging(kept, thread))
    assert kept.rows.image(target).rows == 0


def test_a_number_as_thread_id_is_its_text(kept: Kept) -> None:
    number = 7_000_000 + int(kept.hand().thread.rpartition("-")[2])
    kept.hand(number).put("c1", values={"x": 1})  # type: ignore[arg-type]
    copy_thread(kept.saver, number, number + 1_000_000)
    found = kept.saver.get_tuple(at(str(number + 1_000_000)))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"x": 1}


def test_async_says_the_same(kept: Kept) -> None:
    thread, _ = _played(kept)

    async def copies() -> list[Any]:
        async with kept.store.asaver() as saver:
            return [
                await acopy_thread(saver, thread, f"{thread}-async", dry_run=True),
                await acopy_thread(saver, thread, f"{thread}-async"),
                await acopy_thread(saver, thread, f"{thread}-latest", latest=True),
            ]

    told, whole, latest = asyncio.run(copies())
    assert told.rows == whole.rows == copy_thread(kept.saver, thread, f"{thread}-sync").rows
    assert kept.rows.image(f"{thread}-async").rows == kept.rows.image(f"{thread}-sync").rows
    again = copy_thread(kept.saver, thread, f"{thread}-again", latest=True)
    assert latest.rows == again.rows


_STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.booleans(), st.booleans(), st.integers(0, 2)),
    min_size=1,
    max_size=12,
)


def _built(hand: Hand, steps: list[Any]) -> None:
    """Numbered checkpoints with forks, two delta channels and writes.

    A second child stores its values, as the runtime sees to it.
    """
    parents = set[str | None]()
    for number, (back, near, far, writes) in enumerate(steps):
        parent = f"c{max(number - 1 - back, 0):02}" if number else None
        fork = parent in parents
        parents.add(parent)
        values = ({"near": snapshot(number)} if near or fork else {}) | (
            {"far": snapshot(number)} if fork or (far and not number % 3) else {}
        )
        source = ("input", "loop", "loop")[number % 3]
        told = {"source": source, "step": number - 1}
        name, both = f"c{number:02}", ["near", "far"]
        hand.put(name, parent, values, moved=both, counts=both, metadata=told)
        hand.write(name, *[(channel, number) for channel in both[:writes]])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=_STEPS, last=st.integers(0, 3))
def test_the_copy_of_a_random_thread_reads_the_same(
    kept: Kept, steps: list[Any], last: int
) -> None:
    hand = kept.hand()
    _built(hand, steps)
    before, target = kept.rows.image(hand.thread), f"{hand.thread}-copy"
    copy_thread(kept.saver, hand.thread, target, latest=not last, last=last or None)
    assert kept.rows.image(hand.thread) == before
    name = f"c{len(steps) - 1:02}"

    def read(thread: str) -> Any:
        found = kept.saver.get_tuple(at(thread))
        assert found is not None
        held = found.checkpoint["channel_values"]
        absent = sorted({"near", "far"} - held.keys())
        walk = history(kept, thread, name, absent)
        return found.checkpoint, found.metadata, found.pending_writes, walk

    assert read(target) == read(hand.thread)
    copied = kept.rows.image(target)
    stored = {row.checkpoint_id for row in copied.checkpoints}
    assert all(row.parent_id in stored | {None} for row in copied.checkpoints)
    assert {row.key for row in copied.checkpoints} <= {row.key for row in before.checkpoints}
    assert {row.key for row in copied.writes} <= {row.key for row in before.writes}
