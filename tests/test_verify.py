"""Verification: what was promised is found again, and each kind of loss is found by its check."""

from __future__ import annotations

import asyncio
import operator
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Overwrite
from typing_extensions import TypedDict

from fix_threads import Kept, at, clone, delete_others, snapshot
from savermark.contract.graphs import ASK, MODES, chat, family, parallel
from savermark.errors import UsageError
from savermark.graphs.channels import extend_all
from savermark.history.arows import arow_access
from savermark.history.lineage import KeepSet, keep_all
from savermark.history.rows import row_access
from savermark.retention.apply import apply
from savermark.retention.branching import (
    DepthExceeded,
    LineageIntegrity,
    Lookup,
    ParentMissing,
    Place,
    afind_checkpoint_before_message,
    find_checkpoint_before_message,
    scan_before_message,
)
from savermark.retention.digest import contributions, judged, stored_evidence, value_digest
from savermark.retention.duration import persist_run_durations
from savermark.retention.leftovers import leftovers
from savermark.retention.places import abranch_point, branch_point
from savermark.retention.plan import plans
from savermark.retention.policy import parse_policy
from savermark.retention.records import Applied, ThreadPlan
from savermark.retention.support import support_rows
from savermark.retention.verify import (
    CHECKS,
    Check,
    Verification,
    asnapshot_promises,
    averified,
    averify_retention,
    snapshot_promises,
    verified,
    verify_retention,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from savermark.history.rows import ThreadTxn


def say(graph: Any, thread: str, *texts: str, at_id: str | None = None) -> list[str]:
    """Turns; the id of the newest checkpoint after each."""
    ids = []
    for text in texts:
        config = at(thread, at_id) if at_id else {"configurable": {"thread_id": thread}}
        given: Any = {"messages": [HumanMessage(text, id=text)], "topic": text}
        graph.invoke(given, config)
        found = graph.checkpointer.get_tuple(at(thread))
        ids.append(found.config["configurable"]["checkpoint_id"])
    return ids


def thread_id() -> str:
    return f"verify-{uuid.uuid4().hex[:8]}"


def failed(verification: Verification) -> set[str]:
    return {check.check for check in verification.failures}


def pruned(kept: Kept, thread: str, policy: str, **options: Any) -> list[Applied]:
    return list(apply(kept.rows, parse_policy(policy), threads=[thread], **options))


# -- digests


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=5))
def test_the_order_of_a_mapping_does_not_count(value: dict[str, Any]) -> None:
    assert value_digest(value) == value_digest(dict(reversed(value.items())))
    assert value_digest(set(value)) == value_digest(frozenset(value))


@pytest.mark.parametrize(
    "odd", [{1: 2, "1": 3}, ["\ud800"], 2**70, {(1, 2): {3: {4}}}, {None: HumanMessage("x")}]
)
def test_what_msgpack_cannot_hold_has_a_digest_too(odd: Any) -> None:
    assert value_digest([odd, "a"]) == value_digest([odd, "a"])
    assert value_digest([odd, "a"]) != value_digest([odd, "b"])
    assert value_digest(odd) != value_digest([odd])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        ("1", 1),
        ([1], (1,)),
        ([[1], 2], [[1, 2]]),
        (["ab", "c"], ["a", "bc"]),
        (None, "None"),
        ({"a": {"b": 1}}, {"a": {"b": 2}}),
        (b"a", "a"),
        (HumanMessage("x", id="1"), AIMessage("x", id="1")),
        (HumanMessage("x", id="1"), HumanMessage("x", id="2")),
        (snapshot("a").value, ["b"]),
    ],
)
def test_other_values_have_other_digests(one: Any, other: Any) -> None:
    assert value_digest(one) != value_digest(other)


def test_a_value_survives_its_serializer() -> None:
    serde = InMemorySaver().serde
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    value = {"m": [HumanMessage("x", id="1")], "t": moment, "s": {1, 2}, "u": uuid.UUID(int=7)}
    assert value_digest(serde.loads_typed(serde.dumps_typed(value))) == value_digest(value)


def test_contributions_flatten_and_start_again_at_an_overwrite() -> None:
    assert contributions(["s"], ["a", ["b", "c"]]) == ["s", "a", "b", "c"]
    assert contributions(["s"], ["a", Overwrite(["x"]), "b"]) == ["x", "b"]
    assert contributions(["s"], [{"__overwrite__": ["x"]}, "b"]) == ["x", "b"]
    assert contributions({"a": 1}, [{"b": 2}, {"a": 3}]) == [("a", 3), ("b", 2)]


def test_a_folded_channel_of_an_unknown_reducer_proves_nothing() -> None:
    before, after = stored_evidence(["a", "b"]), stored_evidence(["b", "a"])
    assert judged(before, after)[0] == "failed"
    assert judged(before, None)[0] == "failed"
    assert judged(before, stored_evidence(snapshot("a", "b"))) == ("ok", "")


# -- branch points


class Shelf:
    """Places by id."""

    def __init__(self, *places: Place) -> None:
        self.places = {place.checkpoint_id: place for place in places}

    def place(self, checkpoint_id: str) -> Place | None:
        return self.places.get(checkpoint_id)


class AsyncShelf(Shelf):
    async def place(self, checkpoint_id: str) -> Place | None:  # type: ignore[override]
        return self.places.get(checkpoint_id)


def place(name: str, parent: str | None, *messages: str, **rest: Any) -> Place:
    return Place(name, parent, frozenset(messages), **rest)


def found(shelf: Shelf, head: Place, message: str, depth: int = 10) -> str:
    """Where both drivers start a branch; they must agree."""
    twin = AsyncShelf(*shelf.places.values())
    try:
        one = find_checkpoint_before_message(shelf, head, message, max_depth=depth)
    except Exception as error:
        with pytest.raises(type(error)):
            asyncio.run(afind_checkpoint_before_message(twin, head, message, max_depth=depth))
        raise
    other = asyncio.run(afind_checkpoint_before_message(twin, head, message, max_depth=depth))
    assert one == other
    return one


def test_a_branch_starts_at_the_settled_checkpoint_before_the_message() -> None:
    head = place("c6", "c5", "m1", "m2")
    shelf = Shelf(
        place("c5", "c4", "renamed", "m1", pending=True),  # the same turn, mid-run
        place("c4", "c3", "m1", duration_only=True),
        place("c3", "c2", "m1"),
        place("c2", "c1", pending=True),
        place("c1", None),
    )
    assert found(shelf, head, "m2") == "c3"
    assert found(shelf, head, "m1") == "c1"


def test_each_way_to_find_nothing_is_told_apart() -> None:
    head = place("c3", "c2", "m1")
    with pytest.raises(LineageIntegrity, match="no message"):
        found(Shelf(), head, "m9")
    with pytest.raises(LineageIntegrity, match="not stored"):
        found(Shelf(), head, "m1")
    with pytest.raises(ParentMissing):
        found(Shelf(place("c2", None, "m1")), head, "m1")
    with pytest.raises(LineageIntegrity, match="own ancestor"):
        found(Shelf(place("c2", "c3", "m1"), head), head, "m1")
    with pytest.raises(DepthExceeded):
        found(Shelf(place("c2", "c1", "m1"), place("c1", None)), head, "m1", depth=1)
    other = Shelf()
    other.places["c2"] = place("c9", None)
    with pytest.raises(LineageIntegrity, match="reads back as c9"):
        found(other, head, "m1")


@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from("abcde")), st.booleans(), st.booleans()), max_size=8
    ),
    st.integers(0, 9),
)
def test_one_walk_for_all_messages_equals_a_walk_for_each(
    rows: list[tuple[set[str], bool, bool]], hole: int
) -> None:
    names = [f"c{number}" for number in range(len(rows) + 1)]
    head = place("head", names[0], *"abcd")
    places = [
        place(name, up, *has, pending=pending, duration_only=only)
        for name, up, (has, pending, only) in zip(names, [*names[1:], None], rows, strict=False)
    ]
    shelf = Shelf(*(each for number, each in enumerate(places) if number != hole))
    lookup = Lookup(head, "abcde")
    while (wanted := lookup.wants) is not None:
        lookup.feed(shelf.place(wanted))
    for message in "abcde":
        try:
            alone: Any = find_checkpoint_before_message(shelf, head, message)
        except Exception as error:
            alone = type(error)
        together = lookup.found[message]
        assert (together if isinstance(together, str) else type(together)) == alone


def test_the_scan_finds_the_newest_settled_one_before_the_message() -> None:
    rows = [place("1", None), place("2", None, "a"), place("3", None, "a", pending=True)]
    assert scan_before_message(rows, "a") == "1"
    assert scan_before_message([*rows, place("4", None, "a", "b")], "b") == "2"
    assert scan_before_message(rows, "z") is None
    assert scan_before_message([*rows, place("4", None, "b")], "b", budget=3) is None


# -- policies that keep what they promise


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", ["keep-latest", "keep-turns=2", "duration-leaves"])
def test_a_right_policy_passes(kept: Kept, mode: Any, policy: str) -> None:
    graph = chat(mode, []).compile(checkpointer=kept.saver)
    thread = thread_id()
    ids = say(graph, thread, "one", "two", "three", "four", "five", "six")
    for known in (graph, None):
        copy = clone(kept, thread)
        before = snapshot_promises(kept.saver, [copy], protect=[ids[1]], graph=known)
        done = pruned(kept, copy, policy, protect=[ids[1]])
        for told in (done, None, {copy: [ids[1], ids[5]]}):
            verification = verify_retention(before, kept.saver, plans=told)
            assert verification.ok, verification.as_text()
            assert {check.check for check in verification.checks} == set(CHECKS)


@pytest.mark.parametrize("mode", MODES)
def test_subgraphs_and_their_questions_pass(kept: Kept, mode: Any) -> None:
    graph = family(mode, []).compile(checkpointer=kept.saver)
    thread = thread_id()
    ids = say(graph, thread, "one", "two", "three", f"{ASK} me")
    before = snapshot_promises(kept.saver, [thread], protect=[ids[1]], graph=graph)
    done = pruned(kept, thread, "keep-latest", protect=[ids[1]])
    verification = verify_retention(before, kept.saver, plans=done)
    assert verification.ok, verification.as_text()
    graph.invoke(Command(resume="yes"), {"configurable": {"thread_id": thread}})


def test_the_naive_policy_fails(kept: Kept) -> None:
    """Delete all but the newest row: the proof that the checks can fail."""
    graph = chat("delta", []).compile(checkpointer=kept.saver)
    thread = thread_id()
    ids = say(graph, thread, "one", "two", "three", "four")
    for known in (graph, None):
        copy = clone(kept, thread)
        before = snapshot_promises(kept.saver, [copy], graph=known)
        with kept.rows.transaction(copy) as txn:
            txn.delete_checkpoints(
                row.key for row in txn.image().checkpoints if row.checkpoint_id != ids[-1]
            )
        verification = verify_retention(before, kept.saver)
        assert {"latest", "resume", "orphans", "values"} <= failed(verification)
        assert "0 of 8 items" in verification.as_text()


# -- one planted fault for each check


def _older_rows(txn: ThreadTxn, keep: set[str]) -> list[tuple[str, str]]:
    return [row.key for row in txn.image().checkpoints if row.checkpoint_id not in keep]


Fault = Any


@pytest.fixture
def faulty(kept: Kept) -> Callable[..., Verification]:
    """Plays a thread, plants a fault into it and verifies; everything was promised."""

    def run(build: Any, texts: list[str], plant: Fault, mode: Any = "delta") -> Verification:
        graph = build(mode, []).compile(checkpointer=kept.saver)
        thread = thread_id()
        ids = say(graph, thread, *texts)
        before = snapshot_promises(kept.saver, [thread], protect=ids[:1], graph=graph)
        with kept.rows.transaction(thread) as txn:
            plant(txn, ids)
        return verify_retention(before, kept.saver)

    return run


TEXTS = ["one", "two", "three"]


def test_a_lost_write_of_the_head_s_chain_fails_latest(faulty: Any) -> None:
    def plant(txn: ThreadTxn, ids: list[str]) -> None:
        image = txn.image()
        parent = image.heads[""].parent_id
        assert parent is not None
        txn.delete_writes_of([("", parent)])

    verification = faulty(chat, TEXTS, plant)
    assert "latest" in failed(verification)
    assert "5 of 6 items" in verification.as_text()


def test_a_deleted_head_fails_latest(faulty: Any) -> None:
    def plant(txn: ThreadTxn, ids: list[str]) -> None:
        txn.delete_checkpoints([("", ids[-1])])

    assert "latest" in failed(faulty(chat, TEXTS, plant, "full"))


def test_a_deleted_resume_target_fails_resume(faulty: Any) -> None:
    def plant(txn: ThreadTxn, ids: list[str]) -> None:
        keep = {ids[-1]}
        gone = _older_rows(txn, keep)
        txn.delete_writes_of(gone)
        txn.delete_checkpoints(gone)
        txn.reparent("", ids[-1], None)
        named = set(txn.image().heads[""].versions.items())
        txn.delete_blobs(b.key for b in txn.image().blobs if b.key[1:] not in named)

    verification = faulty(chat, TEXTS, plant, "full")
    (check,) = [each for each in verification.failures if each.check == "resume"]
    assert "(protected) is gone" in check.detail
    assert "orphans" not in failed(verification)


def test_a_hole_among_the_ancestors_fails_branch(faulty: Any) -> None:
    def plant(txn: ThreadTxn, ids: list[str]) -> None:
        """What lies between the first two turns."""
        middle = [key for key in _older_rows(txn, set()) if ids[0] < key[1] < ids[1]]
        txn.delete_writes_of(middle)
        txn.delete_checkpoints(middle)

    verification = faulty(chat, TEXTS, plant, "full")
    assert {"branch"} <= failed(verification)
    assert "latest" not in failed(verification)


@pytest.mark.parametrize("table", ["checkpoints", "writes", "blobs"])
def test_rows_left_behind_fail_orphans(faulty: Any, kept: Kept, table: str) -> None:
    def plant(txn: ThreadTxn, ids: list[str]) -> None:
        gone = _older_rows(txn, set(ids))
        if table != "writes":
            txn.delete_writes_of(gone)
        txn.delete_checkpoints(gone)
        if table != "checkpoints":
            for row in txn.image().checkpoints:
                txn.reparent("", row.checkpoint_id, None)
        if table != "blobs":
            left = txn.image()
            named = {pair for row in left.checkpoints for pair in row.versions.items()}
            txn.delete_blobs(b.key for b in left.blobs if b.key[1:] not in named)

    verification = faulty(chat, TEXTS, plant, "full")
    told = [check.detail for check in verification.failures if check.check == "orphans"]
    if table == "blobs" and kept.name == "sqlite":
        assert told == []  # it has no such table
        return
    (detail,) = told
    assert detail.startswith(f"{table}: ")
    assert detail.endswith("that nothing refers to any more")
    assert detail.count("refers") == 1


def test_a_changed_value_fails_values(faulty: Any, kept: Kept) -> None:
    def plant(txn: ThreadTxn, ids: list[str]) -> None:
        value = kept.saver.serde.dumps_typed(snapshot(HumanMessage("other", id="other")))
        txn.store_value("", ids[0], "messages", value)

    verification = faulty(chat, TEXTS, plant)
    assert "values" in failed(verification)


def test_dropped_pending_writes_fail_pending(faulty: Any) -> None:
    def plant(txn: ThreadTxn, ids: list[str]) -> None:
        txn.delete_writes_of([("", ids[-1])])

    verification = faulty(parallel, ["one", f"{ASK} me"], plant)
    assert {"pending", "latest"} <= failed(verification)
    (check,) = [each for each in verification.failures if each.check == "pending"]
    assert "0 of " in check.detail


def test_a_wiped_subgraph_that_waits_fails_pending(faulty: Any) -> None:
    def plant(txn: ThreadTxn, ids: list[str]) -> None:
        image = txn.image()
        roots = image.heads[""].checkpoint_id
        calls = [
            row.key
            for row in image.checkpoints
            if ":" in row.checkpoint_ns and row.metadata["parents"][""] == roots
        ]
        txn.delete_writes_of(calls)
        txn.delete_checkpoints(calls)

    verification = faulty(family, ["one", f"{ASK} me"], plant)
    (check,) = [each for each in verification.failures if each.check == "pending"]
    assert "would start again" in check.detail


def test_a_persistent_subgraph_cut_to_its_head_fails_resume(faulty: Any) -> None:
    def plant(txn: ThreadTxn, ids: list[str]) -> None:
        image = txn.image()
        head = image.heads["memory"].checkpoint_id
        gone = [row.key for row in image.checkpoints if row.checkpoint_ns == "memory"]
        txn.delete_checkpoints(key for key in gone if key[1] != head)

    verification = faulty(family, TEXTS, plant, "full")
    (check,) = [each for each in verification.failures if each.check == "resume"]
    assert "another state of subgraph 'memory'" in check.detail


# -- what is held against a policy, and what is not


def test_support_rows_may_read_wrong(kept: Kept) -> None:
    """Two channels: what is kept for the one cannot rebuild the other any more."""
    hand = kept.hand()
    hand.put("c1", None, {"b": snapshot("b1"), "a": snapshot("a0")})
    hand.write("c1", ("a", "a1"))
    hand.put("c2", "c1", moved=["a"], counts=["a", "b"])
    hand.write("c2", ("b", "b2"))
    hand.put("c3", "c2", {"a": snapshot("a0", "a1")}, moved=["b"], counts=["b"])
    hand.put("c4", "c3", {"b": snapshot("b1", "b2")}, moved=["a"], counts=["a"])
    reducers = {"a": extend_all, "b": extend_all}
    before = snapshot_promises(kept.saver, [hand.thread], channels=reducers)
    image = kept.rows.image(hand.thread)
    assert support_rows(image.checkpoints) == frozenset()
    needed = keep_all(image, "", ["c4"])
    assert set(needed) == {"c4", "c3"}
    delete_others(kept, hand.thread, needed)
    with kept.rows.transaction(hand.thread) as txn:
        txn.reparent("", "c3", None)
    assert support_rows(kept.rows.image(hand.thread).checkpoints) == {("", "c3")}
    plan = ThreadPlan(hand.thread, kept={"": needed})
    for told in (plan, None, {hand.thread: ["c4"]}):
        verification = verify_retention(before, kept.saver, plans=told)
        assert verification.ok, verification.as_text()
    wrong = ThreadPlan(hand.thread, kept={"": KeepSet(needed, needed)})
    assert "values" in failed(verify_retention(before, kept.saver, plans=wrong))


def test_a_protected_id_must_not_become_support(kept: Kept) -> None:
    hand = kept.hand().put("c1", None, {"x": 1}).put("c2", "c1", {"x": 2})
    before = snapshot_promises(kept.saver, [hand.thread], protect=["c1"])
    plan = ThreadPlan(hand.thread, kept={"": KeepSet({"c1", "c2"}, {"c2"})})
    verification = verify_retention(before, kept.saver, plans=plan)
    assert failed(verification) == {"resume"}
    assert "only as support" in verification.as_text()


def test_a_refused_thread_must_be_as_it_was(kept: Kept) -> None:
    hand = kept.hand().put("c1", None, {"x": 1}).put("c2", "c1", {"x": 2})
    before = snapshot_promises(kept.saver, [hand.thread])
    plan = ThreadPlan(hand.thread, refused="it is damaged")
    applied = Applied(hand.thread, ThreadPlan(hand.thread), refused="it is busy")
    assert verify_retention(before, kept.saver, plans=plan).ok
    assert verify_retention(before, kept.saver, plans=[applied]).ok
    with kept.rows.transaction(hand.thread) as txn:
        txn.delete_checkpoints([("", "c1")])
    assert "resume" in failed(verify_retention(before, kept.saver, plans=applied))


def test_a_thread_that_is_deleted_whole_leaves_nothing(kept: Kept) -> None:
    hand = kept.hand().put("c1", None, {"x": 1}).write("c1", ("x", 2))
    before = snapshot_promises(kept.saver, [hand.thread])
    protected = snapshot_promises(kept.saver, [hand.thread], protect=["c1"])
    plan = ThreadPlan(hand.thread, whole=True)
    assert "rows of a deleted thread" in verify_retention(before, kept.saver, plans=plan).as_text()
    done = pruned(kept, hand.thread, "delete")
    verification = verify_retention(before, kept.saver, plans=done)
    assert verification.ok
    assert {check.check for check in verification.checks} == {"resume", "orphans"}
    assert failed(verify_retention(protected, kept.saver, plans=done)) == {"resume"}
    assert "latest" in failed(verify_retention(before, kept.saver))  # nobody said it was meant


def test_a_live_run_that_appends_is_no_loss(kept: Kept) -> None:
    graph = chat("delta", []).compile(checkpointer=kept.saver)
    thread = thread_id()
    say(graph, thread, "one", "two")
    before = snapshot_promises(kept.saver, [thread], graph=graph)
    say(graph, thread, "three")
    done = pruned(kept, thread, "keep-latest")
    verification = verify_retention(before, kept.saver, plans=done)
    assert verification.ok, verification.as_text()
    assert "a run moved on" in next(c.detail for c in verification.checks if c.check == "latest")
    unsaid = verify_retention(before, kept.saver)
    assert [check.verdict for check in unsaid.failures] == ["unproven"]


def test_orphans_within_the_grace_are_told_apart(kept: Kept) -> None:
    young, old = uuid.uuid1(), "1ef00000-0000-6000-8000-000000000000"
    hand = kept.hand().put("c1", None, {"x": 1})
    hand.write(str(young), ("x", 2))
    before = kept.rows.image(hand.thread)
    hand.write(str(uuid.uuid1()), ("x", 3)).write(old, ("x", 4))
    after = kept.rows.image(hand.thread)
    now = datetime.now(UTC)
    writes = leftovers(before, after, now)["writes"]
    assert (writes.made, writes.left, writes.waiting) == (1, 0, 2)
    later = leftovers(before, after, now + timedelta(hours=2))["writes"]
    assert (later.made, later.left, later.waiting) == (2, 1, 0)
    promised = snapshot_promises(kept.saver, [hand.thread])
    assert "1 orphans of before" in verify_retention(promised, kept.saver).as_text()


class _Tokens(TypedDict):
    tokens: Annotated[list, DeltaChannel(lambda s, w: [*s, *((uuid.uuid4().hex, x) for x in w)])]


def test_a_reducer_that_makes_things_up_is_not_provable(kept: Kept) -> None:
    builder: Any = StateGraph(_Tokens)
    builder.add_node("note", lambda state: {"tokens": "b"})
    builder.add_edge(START, "note")
    graph = builder.compile(checkpointer=kept.saver)
    thread = thread_id()
    for _ in range(3):
        graph.invoke({"tokens": "a"}, {"configurable": {"thread_id": thread}})
    copy = clone(kept, thread)
    before = snapshot_promises(kept.saver, [copy, thread], graph=graph)
    walked = pruned(kept, copy, "keep-latest")  # the same rows are read: that is proof enough
    checks = verify_retention(before, kept.saver, plans=walked).checks
    assert [c.verdict for c in checks if c.thread_id == copy] == ["ok"] * len(CHECKS)
    head = kept.rows.image(thread).heads[""].checkpoint_id
    with kept.rows.transaction(thread) as txn:
        value = kept.saver.serde.dumps_typed(snapshot("made up"))
        txn.store_value("", head, "tokens", value)
    folded = verify_retention(before, kept.saver)
    told = [c for c in folded.failures if c.thread_id == thread and c.check == "values"]
    assert [check.verdict for check in told] == ["unproven"]
    assert "NOT PROVABLE" in folded.as_text()


@pytest.mark.parametrize("known", [True, False])
def test_a_fold_is_judged_by_its_reducer(kept: Kept, known: bool) -> None:
    """An appending fold is told without it; a fold that replaces a message is not."""
    graph = chat("delta", []).compile(checkpointer=kept.saver)
    for edited, verdict in (("new", "ok"), ("re-one", "ok" if known else "unproven")):
        thread = thread_id()
        say(graph, thread, "one")
        update: Any = {"messages": [AIMessage("edited", id=edited)]}
        graph.update_state({"configurable": {"thread_id": thread}}, update)
        before = snapshot_promises(kept.saver, [thread], graph=graph if known else None)
        head = kept.rows.image(thread).heads[""].checkpoint_id
        value = graph.get_state(at(thread, head)).values["messages"]
        with kept.rows.transaction(thread) as txn:
            txn.store_value("", head, "messages", kept.saver.serde.dumps_typed(snapshot(*value)))
        verification = verify_retention(before, kept.saver, plans={thread: [head]})
        verdicts = {c.check: c.verdict for c in verification.checks}
        assert verdicts["values"] == verdict


# -- reading in batches, sync and async


def test_batches_are_read_one_at_a_time(kept: Kept) -> None:
    hands = [kept.hand().put("c1", None, {"x": 1}).put("c2", "c1", {"x": 2}) for _ in range(5)]
    seen: list[list[str]] = []

    def prune(threads: list[str], protect: Any) -> Any:
        seen.append(threads)
        yield from apply(kept.rows, parse_policy("keep-latest"), threads=threads, protect=protect)

    names = [hand.thread for hand in hands]
    found = list(verified(kept.saver, prune, iter(names), batch=2))
    assert [len(part) for part in seen] == [2, 2, 1]
    assert [each.threads for each in found] == [2, 2, 1]
    assert all(each.ok for each in found)
    assert all(len(kept.rows.image(name).checkpoints) == 1 for name in names)


def test_a_plan_known_beforehand_saves_reads(kept: Kept) -> None:
    graph = family("delta", []).compile(checkpointer=kept.saver)
    thread = thread_id()
    ids = say(graph, thread, "one", "two", "three", f"{ASK} me")
    policy = parse_policy("keep-latest")

    def planned(threads: list[str]) -> Any:
        return plans(kept.rows, policy, threads=threads, protect=[ids[1]])

    def prune(threads: list[str], protect: Any) -> Any:
        return apply(kept.rows, policy, threads=threads, protect=protect)

    every = snapshot_promises(kept.saver, [thread], graph=graph, protect=[ids[1]])
    some = snapshot_promises(kept.saver, [thread], graph=graph, plans=list(planned([thread])))
    few, all_of_them = (each.threads[thread].readings for each in (some, every))
    assert len(few) < len(all_of_them) / 3
    assert {key: all_of_them[key] for key in few} == dict(few)
    options: Any = {"graph": graph, "protect": [ids[1]], "planned": planned}
    (found,) = verified(kept.saver, prune, [thread], **options)
    assert found.ok, found.as_text()
    (check,) = [each for each in found.checks if each.check == "pending"]
    assert "2 checkpoints with a question" in check.detail  # the root, and the subgraph
    with kept.rows.transaction(thread) as txn:
        txn.delete_writes(row.key for row in txn.image().writes)
    assert not verify_retention(some, kept.saver).ok


def test_async_says_the_same(tmp_path: Any) -> None:
    async def run() -> tuple[Verification, Verification, list[Verification]]:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "v.db")) as saver:
            graph = parallel("delta", []).compile(checkpointer=saver)
            for name in ("t1", "t2"):
                for text in ("one", "two", f"{ASK} me"):
                    given: Any = {"messages": [HumanMessage(text, id=text)]}
                    await graph.ainvoke(given, {"configurable": {"thread_id": name}})
            before = await asnapshot_promises(saver, ["t1"], graph=graph)

            async def prune(threads: list[str], protect: Any) -> Any:
                async with arow_access(saver) as rows:
                    return await rows.run(
                        lambda rows: list(apply(rows, parse_policy("keep-latest"), threads=threads))
                    )

            done = await prune(["t1"], ())
            right = await averify_retention(before, saver, plans=done)
            batches = [
                each
                async for each in averified(
                    saver, prune, ["t2"], graph=graph, planned=lambda threads: None
                )
            ]
            await saver.conn.execute("DELETE FROM writes WHERE thread_id = 't1'")
            wrong = await averify_retention(before, saver, plans=done)
            return right, wrong, batches

    right, wrong, batches = asyncio.run(run())
    assert right.ok, right.as_text()
    assert all(each.ok for each in batches)
    assert {"latest", "pending"} <= failed(wrong)


def test_a_saver_of_unknown_tables_is_read_all_the_same() -> None:
    class Foreign(InMemorySaver):
        pass

    saver = Foreign()
    graph = chat("delta", []).compile(checkpointer=saver)
    say(graph, "t", "one", "two", "three")

    class Facade(type(saver).__mro__[2]):  # type: ignore[misc]  # the base class of all savers
        def __init__(self) -> None:
            super().__init__(serde=saver.serde)

        get_tuple = staticmethod(saver.get_tuple)
        list = staticmethod(saver.list)

    facade = Facade()
    before = snapshot_promises(facade, ["t"])
    verification = verify_retention(before, facade)
    assert verification.ok
    counts = Counter(check.verdict for check in verification.checks)
    assert counts == {"ok": 5, "unsupported": 1}
    with row_access(saver).transaction("t") as txn:
        txn.delete_writes(write.key for write in txn.image().writes)
    assert {"latest", "values"} <= failed(verify_retention(before, facade))


# -- what people do wrong, and what they are told


def test_misuse_is_named() -> None:
    saver = InMemorySaver()
    with pytest.raises(UsageError, match="must be a list of ids"):
        snapshot_promises(saver, "abc")
    with pytest.raises(UsageError, match="protect must be a list"):
        snapshot_promises(saver, ["t"], protect="abc")
    with pytest.raises(UsageError, match="must be a list of ids"):
        next(verified(saver, lambda threads, protect: None, "abc"))
    before = snapshot_promises(saver, ["t"])
    with pytest.raises(UsageError, match="must return None, plans"):
        verify_retention(before, saver, plans={"t": 3})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="must return None, plans"):
        verify_retention(before, saver, plans=[True])  # type: ignore[list-item]


def test_the_report_names_each_check_and_the_first_failures() -> None:
    checks = [Check(f"t{number}", "values", "failed", "a | b\nc") for number in range(4)]
    verification = Verification((*checks, Check("t9", "latest", "ok")))
    assert verification.as_text(limit=2).splitlines()[0].startswith("FAILED: 4 of 5 threads")
    assert verification.as_text(limit=2).endswith("and 2 more")
    table = verification.as_markdown(limit=3)
    assert "| values | 0 | 4 | 0 | 0 |" in table
    assert r"| t0 | values | FAILED | a \| b c |" in table
    assert Verification().verdict == "nothing was checked"
    assert (Verification() + verification).failures == tuple(checks)
    assert operator.not_(verification.ok)


# -- branch points on a saver


def test_a_branch_point_survives_the_prune_that_protects_it(kept: Kept) -> None:
    graph = chat("delta", []).compile(checkpointer=kept.saver)
    thread = thread_id()
    ids = say(graph, thread, "one", "two")
    persist_run_durations(kept.saver, thread, {"run-2": 2})
    say(graph, thread, "three", "four")
    assert branch_point(kept.saver, thread, "three", graph=graph) == ids[1]
    assert branch_point(kept.saver, thread, "two") == ids[0]
    with pytest.raises(ParentMissing):
        branch_point(kept.saver, thread, "one", graph=graph)
    with pytest.raises(LineageIntegrity, match="no message"):
        branch_point(kept.saver, thread, "nine", graph=graph)
    with pytest.raises(LineageIntegrity, match="has no checkpoint"):
        branch_point(kept.saver, thread_id(), "one", graph=graph)
    with pytest.raises(DepthExceeded):
        branch_point(kept.saver, thread, "two", graph=graph, max_depth=2)
    support = [ids[1]]  # not offered: what lies before it and is settled is
    assert branch_point(kept.saver, thread, "three", graph=graph, support=support) < ids[1]
    pruned(kept, thread, "keep-latest", protect=[ids[1]])  # the walk ends before it now
    assert branch_point(kept.saver, thread, "three", graph=graph) == ids[1]
    again = say(graph, thread, "again", at_id=ids[1])
    shown = graph.get_state(at(thread, again[-1])).values["messages"]
    assert [message.content for message in shown][-2:] == ["again", "5 again"]
    asyncio.run(_agrees(kept, thread))


async def _agrees(kept: Kept, thread: str) -> None:
    if kept.name == "memory":  # whose one saver has both apis
        base = branch_point(kept.saver, thread, "again")
        assert await abranch_point(kept.saver, thread, "again") == base


def test_a_graph_of_another_saver_reads_through_the_one_given(kept: Kept) -> None:
    graph = chat("full", []).compile(checkpointer=kept.saver)
    thread = thread_id()
    say(graph, thread, "one")
    for other in (chat("full", []).compile(), chat("full", []).compile(InMemorySaver())):
        reading = snapshot_promises(kept.saver, [thread], graph=other).threads[thread]
        assert reading.latest is not None
        assert (
            reading.latest.state
            == snapshot_promises(kept.saver, [thread], graph=graph).threads[thread].latest.state
        )  # type: ignore[union-attr]


# -- every row, one at a time


def _shown(graph: Any, saver: Any, thread: str) -> Any:
    """All that the public methods show of a thread, read without our own code."""
    seen: dict[Any, Any] = {}
    for row in list(saver.list({"configurable": {"thread_id": thread}})):
        where = row.config["configurable"]
        key = (where["checkpoint_ns"], where["checkpoint_id"])
        parent = row.parent_config and row.parent_config["configurable"]["checkpoint_id"]
        state = graph.get_state(row.config)
        asked = [each.value for each in state.interrupts]
        seen[key] = (parent, state.values, state.next, asked, row.pending_writes)
    live = graph.get_state({"configurable": {"thread_id": thread}})
    return seen, live.values, live.next


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("build", [parallel, family])
def test_no_single_row_can_go_unnoticed(build: Any, mode: Any) -> None:
    """Each row of a thread is deleted once: whatever shows by it, the verification finds."""
    saver = InMemorySaver()
    graph, rows = build(mode, []).compile(checkpointer=saver), row_access(saver)
    say(graph, "t", "one", f"{ASK} me")
    image = rows.image("t")
    deletions = [("delete_checkpoints", row.key) for row in image.checkpoints]
    deletions += [("delete_writes", row.key) for row in image.writes]
    deletions += [("delete_blobs", row.key) for row in image.blobs]
    verdicts = Counter[bool]()
    for number, (method, key) in enumerate(deletions):
        copy = f"t-{number}"
        with rows.transaction("t") as txn:
            txn.copy_rows(copy)
        before, shown = snapshot_promises(saver, [copy], graph=graph), _shown(graph, saver, copy)
        with rows.transaction(copy) as txn:
            getattr(txn, method)([key])
        passed = verify_retention(before, saver).ok
        same = _shown(graph, saver, copy) == shown
        assert not passed or same, (method, key)
        assert passed or not same or method != "delete_blobs", key  # and no alarm without cause
        verdicts[passed] += 1
        saver.delete_thread(copy)
    assert min(verdicts.values()) > 5


def test_a_circle_is_no_walk_without_end(kept: Kept) -> None:
    """Every read of such a thread ends, before it goes whole and where it stays."""
    hand = kept.hand().put("c0").put("c1", "c0", moved="a", counts="a")
    hand.put("c2", "c1", moved="a", counts="a").put("c3", "c2", moved="a", counts="a")
    with kept.rows.transaction(hand.thread) as txn:
        assert txn.reparent("", "c1", "c2") == 1
    before = snapshot_promises(kept.saver, [hand.thread])
    latest = before.threads[hand.thread].latest
    assert latest is not None and "circle" in latest.error
    assert not before.threads[hand.thread].readings["", "c0"].error
    plans = list(apply(kept.rows, parse_policy("keep-latest"), threads=[hand.thread]))
    assert plans[0].refused and verify_retention(before, kept.saver, plans=plans)
    plans = list(apply(kept.rows, parse_policy("delete"), threads=[hand.thread]))
    assert not plans[0].refused and verify_retention(before, kept.saver, plans=plans).ok


def test_what_could_not_be_read_before_is_not_proven(kept: Kept) -> None:
    """Values under somebody's own serializer: neither a loss that we made nor a proof."""
    hand = kept.hand().put("c0", values={"n": [0]}).put("c1", "c0", {"n": [1]})

    class Sealed(type(kept.saver.serde)):  # type: ignore[misc]
        def loads_typed(self, data: Any) -> Any:
            raise NotImplementedError("sealed")

    serde, kept.saver.serde = kept.saver.serde, Sealed()
    try:
        before = snapshot_promises(kept.saver, [hand.thread])
        same = verify_retention(before, kept.saver)
    finally:
        kept.saver.serde = serde
    told = {each.check: each.verdict for each in same.checks if each.check != "orphans"}
    assert told == dict.fromkeys(("latest", "resume", "branch", "values"), "unproven") | {
        "pending": "ok"  # rows are compared only where (b) and (e) could read
    }
    assert all(
        "could not be read before" in c.detail or "as before" in c.detail for c in same.failures
    )
    lost = snapshot_promises(kept.saver, [hand.thread])
    kept.saver.serde = Sealed()
    try:
        assert "failed" in {each.verdict for each in verify_retention(lost, kept.saver).checks}
    finally:
        kept.saver.serde = serde
