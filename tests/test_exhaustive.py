"""The leaf engine: what may go, and that what is left reads back as before."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.types import Command

import tiny_graph
from fix_threads import Kept, at, delete_others, history, snapshot
from savermark.errors import UsageError
from savermark.history.image import CheckpointRow, ThreadImage, WriteRow
from savermark.history.lineage import chain
from savermark.retention.duration import is_duration_only, persist_run_durations
from savermark.retention.exhaustive import leaf_candidates, protected_ids
from savermark.retention.policy import RetentionPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAVES = RetentionPolicy(duration_leaves=True)
SIBLINGS = RetentionPolicy(leaf_siblings=True)
BOTH = RetentionPolicy(duration_leaves=True, leaf_siblings=True)
STAMPS = {"source": "update", "run_durations": {"r": 1}}


def row(name: str, parent: str | None = None, x: str = "1", **more: Any) -> CheckpointRow:
    return CheckpointRow(more.pop("space", ""), name, parent, {"x": x}, **more)


def leaf(name: str, parent: str, x: str = "1", **more: Any) -> CheckpointRow:
    """A duration-only copy, told by its shape."""
    return row(name, parent, x, metadata={**STAMPS, **more.pop("metadata", {})}, **more)


def image(*rows: CheckpointRow, writes: tuple[str, ...] = ()) -> ThreadImage:
    owned = tuple(WriteRow("", name, "task", 0, "x", "", 1) for name in writes)
    return ThreadImage("t", rows, owned)


def names(found: frozenset[tuple[str, str]]) -> set[str]:
    return {name for _, name in found}


LINE = (row("c1"), row("c2", "c1", "2"))


def test_a_trailing_duration_leaf_goes_where_the_policy_says_so() -> None:
    thread = image(*LINE, leaf("c3", "c2", "2"))
    assert leaf_candidates(thread, LEAVES) == {("", "c3")}
    assert leaf_candidates(thread, BOTH) == {("", "c3")}
    assert leaf_candidates(thread, SIBLINGS) == set()


def test_stacked_leaves_go_from_the_tip() -> None:
    thread = image(*LINE, leaf("c3", "c2", "2"), leaf("c4", "c3", "2"))
    assert names(leaf_candidates(thread, LEAVES)) == {"c3", "c4"}
    assert names(leaf_candidates(thread, LEAVES, cap=1)) == {"c4"}
    assert names(leaf_candidates(thread, LEAVES, ["c3"])) == {"c4"}
    assert leaf_candidates(thread, LEAVES, ["c4"]) == set()
    assert leaf_candidates(thread, LEAVES, cap=0) == set()


def test_a_link_is_no_leaf() -> None:
    thread = image(*LINE, leaf("c3", "c2", "2"), row("c4", "c3", "3"))
    assert leaf_candidates(thread, BOTH) == set()


def test_a_leaf_with_writes_stays_and_so_does_the_head_over_a_parent_with_writes() -> None:
    thread = (*LINE, leaf("c3", "c2", "2"))
    assert leaf_candidates(image(*thread, writes=("c3",)), BOTH) == set()
    assert leaf_candidates(image(*thread, writes=("c2",)), BOTH) == set()
    # Off the head the parent's writes do not come to life.
    side = (*LINE, leaf("c3", "c1"), row("c4", "c2", "3"))
    assert names(leaf_candidates(image(*side, writes=("c1",)), LEAVES)) == {"c3"}


def test_a_head_goes_only_where_its_parent_takes_over() -> None:
    """c3 is a branch newer than what the leaf copies: without the leaf it would be the latest."""
    thread = image(*LINE, row("c3", "c1", "3"), leaf("c4", "c2", "2"))
    assert leaf_candidates(thread, LEAVES) == set()


def test_what_cannot_be_proven_stays() -> None:
    missing = image(row("c2", "c1"), row("c3", "c2"), leaf("c5", "c4"))
    assert leaf_candidates(missing, LEAVES) == set()  # c5's parent is not stored
    marked = {"writes": {"runtime_run_duration": {}}}
    other = image(*LINE, leaf("c3", "c2", "9", metadata=marked))
    assert leaf_candidates(other, LEAVES) == set()  # marked, but with a state of its own
    richer = image(*LINE, leaf("c3", "c2", "2", stored=frozenset("x")))
    assert leaf_candidates(richer, LEAVES) == set()
    hidden = image(row("c1"), row("c2", "c1", unreadable="pickle"), leaf("c3", "c2"))
    assert leaf_candidates(hidden, LEAVES) == set()


def test_side_branches_shrink_from_their_tips() -> None:
    branch = (row("c3", "c1", "3"), row("c4", "c3", "4"), row("c5", "c4", "5"))
    thread = (*LINE, *branch, row("c6", "c2", "6"))
    assert names(leaf_candidates(image(*thread), SIBLINGS)) == {"c3", "c4", "c5"}
    assert names(leaf_candidates(image(*thread, writes=("c3",)), SIBLINGS)) == {"c4", "c5"}
    assert names(leaf_candidates(image(*thread), SIBLINGS, ["c4"])) == {"c5"}
    assert leaf_candidates(image(*thread), LEAVES) == set()


def test_selectors_and_what_a_replay_loads_are_protected() -> None:
    sub = row("s1", space="sub", metadata={"parents": {"": "c3"}})
    thread = image(*LINE, row("c3", "c1", "3"), row("c4", "c2", "4"), sub)
    assert leaf_candidates(thread, SIBLINGS) == set()
    assert leaf_candidates(image(*thread.checkpoints[:-1]), SIBLINGS) == {("", "c3")}
    assert leaf_candidates(image(*thread.checkpoints[:-1]), SIBLINGS, [{"": "c3"}]) == set()
    # A root checkpoint "b" replays the newest of `sub` before it, also when that is a side branch.
    space = [row(name, parent, name, space="sub") for name, parent in _SIDE]
    assert leaf_candidates(image(row("b0"), *space), SIBLINGS) == {("sub", "c0")}
    assert leaf_candidates(image(row("c1"), *space), SIBLINGS) == set()


_SIDE = (("a0", None), ("a1", "a0"), ("c0", "a0"), ("d0", "a1"))


def test_wrong_words_are_refused() -> None:
    with pytest.raises(UsageError, match="0 or more"):
        leaf_candidates(image(*LINE), BOTH, cap=-1)
    with pytest.raises(UsageError, match="list of ids"):
        protected_ids("abc")
    assert protected_ids(["a", {"": "b", "sub": "c"}]) == {"a", "b", "c"}
    assert protected_ids({"": "b"}) == {"b"}


# --- on real stores ----------------------------------------------------------------------------


@st.composite
def _threads(draw: st.DrawFn) -> list[Mapping[str, Any]]:
    """Checkpoints under any earlier one: runs with writes, duration copies, plain copies."""
    steps: list[Mapping[str, Any]] = []
    for number in range(draw(st.integers(2, 9))):
        parent = draw(st.integers(0, number - 1)) if number else None
        if draw(st.booleans()) and number:
            parent = number - 1
        kinds = ("run", "snapshot", "copy", "fork") if number else ("run", "snapshot")
        steps.append(
            {
                "parent": parent,
                "kind": draw(st.sampled_from(kinds)),
                "writes": draw(st.integers(0, 3)) == 0,
            }
        )
    return steps


def _build(kept: Kept, steps: list[Mapping[str, Any]]) -> str:
    hand = kept.hand()
    for number, step in enumerate(steps):
        name, parent = f"c{number}", None if step["parent"] is None else f"c{step['parent']}"
        if step["kind"] in ("run", "snapshot"):
            if parent:
                hand.write(parent, ("x", [name]), task=f"task-{name}")
            values = {"x": snapshot(name)} if step["kind"] == "snapshot" else {}
            hand.put(name, parent, values, moved="x", counts="" if values else "x")
        else:
            source = kept.saver.get_tuple(at(hand.thread, parent))
            assert source is not None
            told = STAMPS if step["kind"] == "copy" else {"source": "fork"}
            copied = {**source.checkpoint, "id": name}
            kept.saver.put(source.config, copied, {**source.metadata, **told}, {})  # type: ignore[arg-type,typeddict-item]
        if step["writes"]:
            hand.write(name, ("y", 1), task="pending")
    return hand.thread


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=_threads(),
    policy=st.sampled_from([LEAVES, SIBLINGS, BOTH]),
    cap=st.integers(0, 3) | st.none(),
)
def test_what_is_left_reads_back_as_before(
    kept: Kept, steps: list[Mapping[str, Any]], policy: RetentionPolicy, cap: int | None
) -> None:
    thread = _build(kept, steps)
    before = kept.rows.image(thread)
    gone = leaf_candidates(before, policy, cap=cap)
    assert cap is None or len(gone) <= cap
    stay = {row.checkpoint_id for row in before.checkpoints if row.key not in gone}
    seen = {name: _read(kept, thread, name) for name in stay}
    latest = kept.saver.get_tuple(at(thread))
    delete_others(kept, thread, frozenset(stay))
    after = kept.rows.image(thread)
    assert {row.checkpoint_id for row in after.checkpoints} == stay
    assert all(row.parent_id in {None, *stay} for row in after.checkpoints)
    assert {name: _read(kept, thread, name) for name in stay} == seen
    assert after.writes == before.writes  # the removed ones owned none
    assert cap is not None or leaf_candidates(after, policy) == set()  # once is enough
    now = kept.saver.get_tuple(at(thread))
    assert latest is not None and now is not None
    if latest.config != now.config:  # a duration leaf that was the head: its state lives on
        assert not now.pending_writes
        assert now.checkpoint["channel_versions"] == latest.checkpoint["channel_versions"]


def _read(kept: Kept, thread: str, name: str) -> Any:
    found = kept.saver.get_tuple(at(thread, name))
    assert found is not None
    return (
        found.checkpoint["channel_values"],
        found.pending_writes,
        history(kept, thread, name, ["x"]),
    )


STEP = st.sampled_from(["say", "exit", "copy", "copy", "update", "command", "branch", "fork"])


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, min_size=2, max_size=7), seed=st.integers(0, 99))
def test_real_threads_go_on_as_if_nothing_had_gone(kept: Kept, steps: list[str], seed: int) -> None:
    """Scenarios E1 and E2: two equal threads, one of them cleaned after every step."""
    graph, threads = tiny_graph.build(kept.saver), (kept.hand().thread, kept.hand().thread)
    for number, step in enumerate(["say", *steps, "say"]):
        for thread in threads:
            _step(kept, graph, thread, step, random.Random(seed + number))
        before = kept.rows.image(threads[1])
        going = leaf_candidates(before, BOTH)
        stay = {row.checkpoint_id for row in before.checkpoints if row.key not in going}
        states = {name: graph.get_state(at(threads[1], name)).values for name in stay}
        delete_others(kept, threads[1], frozenset(stay))
        assert states == {name: graph.get_state(at(threads[1], name)).values for name in stay}
        heads = [graph.get_state(tiny_graph.config(thread)) for thread in threads]
        assert heads[0].values == heads[1].values and heads[0].next == heads[1].next


def _step(kept: Kept, graph: Any, thread: str, step: str, dice: random.Random) -> None:
    """A step that finds its place on the way from the head, which both threads have alike."""
    where = tiny_graph.config(thread)
    if step == "copy":
        persist_run_durations(kept.saver, thread, {f"r{dice.random()}": 1})
    elif step == "update":
        graph.update_state(where, {"said": ["u"]}, as_node="count")
    elif step == "command":
        graph.invoke(Command(update={"said": ["c"]}, goto="answer"), where)
    elif step in ("branch", "fork"):
        image = kept.rows.image(thread)
        way = chain(image, "", image.heads[""].checkpoint_id)
        real = [row for row in way if not is_duration_only(image, row)]
        old = at(thread, real[dice.randrange(len(real))].checkpoint_id)
        if step == "branch":
            graph.invoke({"said": ["b"]}, old)
        else:
            graph.update_state(old, {"said": ["f"]}, as_node="count")
    else:
        graph.invoke({"said": ["q"]}, where, durability="exit" if step == "exit" else "sync")
