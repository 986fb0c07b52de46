"""Plans carried out on every store: what was promised reads back, and the rest is gone."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

import tiny_graph
from fix_threads import Hand, Kept, at, clone, history, snapshot
from savermark.errors import UsageError
from savermark.history.arows import arow_access
from savermark.history.rows import ThreadBusy
from savermark.retention.apply import aapply, apply, apply_thread
from savermark.retention.duration import persist_run_durations
from savermark.retention.fold import graph_fold
from savermark.retention.plan import plan_thread, plans
from savermark.retention.policy import parse_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from savermark.history.image import ThreadImage
    from savermark.history.rows import RowAccess, ThreadTxn
    from savermark.retention.records import Applied, Graft, ThreadPlan

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NUMBERS = itertools.count()


def uid(minutes_ago: float) -> str:
    """A time-ordered id of this age at `NOW`."""
    made = NOW - timedelta(minutes=minutes_ago)
    ticks = int((made - datetime(1582, 10, 15, tzinfo=UTC)).total_seconds() * 10**7)
    time = f"{ticks >> 28:08x}-{(ticks >> 12) & 0xFFFF:04x}-6{ticks & 0xFFF:03x}"
    return f"{time}-8000-000000000000"


def run(kept: Kept, thread: str, policy: str, **more: Any) -> Applied:
    more.setdefault("now", NOW)
    return apply_thread(kept.rows, thread, parse_policy(policy), **more)


def ids(kept: Kept, thread: str) -> list[str]:
    return [row.checkpoint_id for row in kept.rows.image(thread).checkpoints]


def line(kept: Kept) -> Hand:
    """c1 snapshot, c2, c3; the plain channel k moves at each; a write on each."""
    hand = kept.hand().put("c1", None, {"a": snapshot("s"), "k": [1]}, counts="a")
    hand.write("c1", ("a", ["w1"]))
    hand.put("c2", "c1", {"k": [2]}, moved="a", counts="a").write("c2", ("a", ["w2"]))
    return hand.put("c3", "c2", {"k": [3]}, moved="a", counts="a").write("c3", ("p", 1))


# --- random threads -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One checkpoint: how far back its parent lies, what it snapshots and what is written on it."""

    back: int
    snapshots: str
    writes: str
    source: str
    pause: int


@dataclass(frozen=True)
class Case:
    steps: tuple[Step, ...]
    subs: tuple[tuple[str, int], ...]  # namespace and the place of its caller
    policy: str
    protect: tuple[int, ...]
    orphans: tuple[int, ...]


STEPS = st.builds(
    Step,
    back=st.sampled_from([1, 1, 1, 1, 2, 3]),
    snapshots=st.sampled_from(["", "", "", "a", "b", "ab"]),
    writes=st.sampled_from(["", "a", "b", "ab", "ak", "k"]),
    source=st.sampled_from(["input", "loop", "loop", "update", "stamp", "stamp"]),
    pause=st.integers(1, 90),
)
CASES = st.builds(
    Case,
    steps=st.lists(STEPS, min_size=1, max_size=9).map(tuple),
    subs=st.lists(
        st.tuples(st.sampled_from(["s", "s:t1", "s:t2", "s:t1|in:x", "odd:1"]), st.integers(0, 8)),
        max_size=4,
    ).map(tuple),
    policy=st.sampled_from(
        [
            "keep-latest",
            "keep-turns=1",
            "keep-turns=2",
            "older-than=2h",
            "keep-turns=1,older-than=1h",
            "leaf-siblings",
            "keep-latest,leaf-siblings,duration-leaves",
            "duration-leaves",
        ]
    ),
    protect=st.lists(st.integers(0, 8), max_size=2).map(tuple),
    orphans=st.lists(st.integers(1, 200), max_size=2).map(tuple),
)


def build(kept: Kept, case: Case) -> tuple[Hand, list[str]]:
    """The thread of a case. A second child of a checkpoint snapshots, as the runtime has it."""
    hand, names, births = kept.hand(), list[str](), set[str]()
    minutes = sum(step.pause for step in case.steps)
    for number, step in enumerate(case.steps):
        parent = names[-min(step.back, len(names))] if names else None
        minutes -= step.pause
        name = uid(minutes)
        if step.source == "stamp" and names:
            copied(kept, hand, name, names[-1], number)
            if "a" in step.writes:  # as a run of durability exit leaves them
                hand.write(name, ("a", [f"w{number}"]), task=f"t-{number}", path="~p")
            births.add(names[-1])
            names.append(name)
            continue
        fresh = "ab" if parent in births else step.snapshots
        values: dict[str, Any] = {c: snapshot(f"{c}{number}") for c in fresh}
        moved = [c for c in "ab" if c not in fresh and number]
        metadata = {"source": step.source, "step": number}
        hand.put(
            name, parent, {**values, "k": [number]}, moved=moved, counts="ab", metadata=metadata
        )
        for channel in step.writes:
            hand.write(name, (channel, [f"w{number}"]), task=f"t-{channel}", path="~p")
        births.add(parent or "")
        names.append(name)
    last: dict[str, str] = {}
    for number, (space, place) in enumerate(case.subs):
        caller = names[place % len(names)]
        name = uid(-1 - number)
        parents = {} if space.startswith("odd") else {"": caller}
        sub = Hand(kept.saver, hand.thread, space)
        sub.versions = {last[space]: {"a": "0"}} if space in last else {}
        sub.put(
            name,
            last.get(space),
            {"k": number},
            moved="a",
            counts="a",
            metadata={"parents": parents},
        )
        sub.write(name, ("a", [f"s{number}"]))
        last[space] = name
    for age in case.orphans:
        hand.write(uid(age), ("a", ["orphan"]), task=f"orphan-{age}")
    return hand, names


def copied(kept: Kept, hand: Hand, name: str, parent: str, number: int) -> None:
    """A duration-only copy, as an application appends it (`persist_run_durations`)."""
    held = kept.saver.get_tuple(at(hand.thread, parent))
    assert held is not None
    stamps = {"run_durations": {f"r{number}": 1}, "writes": {"runtime_run_duration": {}}}
    checkpoint: Any = {**held.checkpoint, "id": name}
    metadata: Any = {**held.metadata, "source": "update", "step": number, **stamps}
    kept.saver.put(held.config, checkpoint, metadata, {})
    hand.versions[name] = dict(hand.versions[parent])


def moves(plan: ThreadPlan) -> list[Graft]:
    return [graft for graft in plan.grafts if graft.handling == "move"]


def reading(kept: Kept, thread: str, space: str, name: str, given: bool = False) -> Any:
    """All that is promised of an addressable checkpoint; one that was `given` the writes of a link
    owns more than before.
    """
    found = kept.saver.get_tuple(at(thread, name, space))
    assert found is not None
    values, versions = found.checkpoint["channel_values"], found.checkpoint["channel_versions"]
    rebuilt = [channel for channel in "ab" if channel in versions and channel not in values]
    walked = history(kept, thread, name, rebuilt, space)
    owned = None if given else found.pending_writes
    return kept.saver.serde.dumps_typed(values), repr(walked), owned, versions


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=CASES)
def test_what_stays_addressable_reads_back(kept: Kept, case: Case) -> None:
    hand, names = build(kept, case)
    thread = hand.thread
    protect = [names[place % len(names)] for place in case.protect]
    policy = parse_policy(case.policy)
    before = kept.rows.image(thread)
    plan = plan_thread(before, policy, protect=protect, now=NOW)
    asked = [(space, name) for space, each in plan.kept.items() for name in each.targets]
    given = {(graft.checkpoint_ns, graft.parent_id) for graft in moves(plan)}
    promised = {key: reading(kept, thread, *key, key in given) for key in asked}
    applied = run(kept, thread, case.policy, protect=protect)
    after = kept.rows.image(thread)
    event("refused" if plan.refused else "empty" if plan.empty else "some go")
    event(f"grafts: {sorted({graft.handling for graft in plan.grafts})}")
    if plan.refused:
        assert applied.refused == plan.refused and after == before
        return
    assert applied.plan == plan
    assert {key: reading(kept, thread, *key, key in given) for key in asked} == promised
    assert {key[1] for key in asked} >= set(protect)
    heads = {space: row.checkpoint_id for space, row in after.heads.items()}
    assert all(heads[space] in each.targets for space, each in plan.kept.items())
    assert_only_that(before, after, applied)
    again = run(kept, thread, case.policy, protect=protect)
    assert again.plan.empty and not again.deleted and kept.rows.image(thread) == after


def assert_only_that(before: ThreadImage, after: ThreadImage, applied: Applied) -> None:
    """The plan went, nothing else did, and no survivor misses a row of its own."""
    plan = applied.plan
    kept = {(space, name) for space, each in plan.kept.items() for name in each}
    assert {row.key for row in after.checkpoints} == kept
    assert {row.key for row in before.checkpoints} - kept == plan.checkpoints
    to = {(graft.checkpoint_ns, graft.link_id): graft.parent_id for graft in moves(plan)}
    left = {row.key for row in before.writes} - plan.writes
    left = {(space, to.get((space, name), name), *rest) for space, name, *rest in left}  # type: ignore[misc]
    assert left == {row.key for row in after.writes}
    assert {row.key for row in before.blobs} - plan.blobs == {row.key for row in after.blobs}
    stored = {row.key for row in after.checkpoints}
    assert all(
        r.parent_id is None or (r.checkpoint_ns, r.parent_id) in stored for r in after.checkpoints
    )
    named = {(r.checkpoint_ns, *pair) for r in after.checkpoints for pair in r.versions.items()}
    assert {b.key for b in before.blobs} & named <= {b.key for b in after.blobs}
    old = {w.key: w for w in before.writes if w.key[:2] in kept}
    assert old.items() <= {w.key: w for w in after.writes}.items()
    for table in ("checkpoints", "blobs", "writes"):
        assert applied.deleted.get(table, 0) == plan.freed[table].rows  # type: ignore[index]
        assert plan.freed[table].rows == len(getattr(before, table)) - len(getattr(after, table))  # type: ignore[index]


# --- one thread ---------------------------------------------------------------------------------


def test_rows_are_deleted_and_the_head_is_a_root(kept: Kept) -> None:
    hand = line(kept)
    hand.put("c4", "c3", {"a": snapshot("z"), "k": [4]}, counts="a")
    applied = run(kept, hand.thread, "keep-latest")
    assert ids(kept, hand.thread) == ["c4"] and applied.deleted["writes"] == 3
    found = kept.saver.get_tuple(at(hand.thread))
    assert found is not None and found.parent_config is None
    assert found.checkpoint["channel_values"]["k"] == [4]
    assert applied.plan_ns > 0 and applied.apply_ns > 0


def test_a_shared_blob_outlives_the_copy_that_named_it(kept: Kept) -> None:
    """T19: the leaf names the versions of the live head."""
    hand = kept.hand().put("c1", None, {"k": ["x" * 50]}).put("c2", "c1", {"k": ["y"]})
    stamps = {"source": "update", "run_durations": {"r": 1}, "writes": {"runtime_run_duration": {}}}
    held = kept.saver.get_tuple(at(hand.thread))
    assert held is not None
    copy: Any = {**held.checkpoint, "id": "c3"}
    kept.saver.put(held.config, copy, stamps, {})  # type: ignore[arg-type]
    before = kept.rows.image(hand.thread)
    applied = run(kept, hand.thread, "duration-leaves")
    assert applied.deleted == {"checkpoints": 1, "blobs": 0, "writes": 0}
    assert ids(kept, hand.thread) == ["c1", "c2"]
    assert kept.rows.image(hand.thread).blobs == before.blobs
    found = kept.saver.get_tuple(at(hand.thread))
    assert found is not None and found.checkpoint["channel_values"]["k"] == ["y"]


def test_delete_and_idle_threads(kept: Kept) -> None:
    hand = kept.hand().put(uid(100), None, {"k": [1]}).write(uid(100), ("k", 1))
    assert not run(kept, hand.thread, "idle-threads=2h").deleted
    applied = run(kept, hand.thread, "idle-threads=1h")
    assert applied.plan.whole and applied.deleted["checkpoints"] == 1
    assert kept.rows.image(hand.thread).rows == 0
    other = line(kept)
    assert run(kept, other.thread, "delete").plan.whole
    assert kept.rows.image(other.thread).rows == 0
    assert run(kept, "nobody-here", "delete").plan.empty


def test_orphans_that_others_left_are_found(kept: Kept) -> None:
    """T23."""
    hand = kept.hand()
    for number, age in enumerate((400, 300, 200)):
        parent = uid(age + 100) if number else None
        hand.put(uid(age), parent, {"k": [number]}).write(uid(age), ("k", number))
    with kept.rows.transaction(hand.thread) as txn:
        txn.delete_checkpoints([("", uid(400)), ("", uid(300))])
    applied = run(kept, hand.thread, "keep-latest")
    assert applied.deleted["writes"] == 2
    assert applied.deleted["blobs"] == (0 if kept.name == "sqlite" else 2)
    left = kept.rows.image(hand.thread)
    assert (len(left.checkpoints), len(left.writes)) == (1, 1)


def test_a_refused_thread_is_untouched(kept: Kept) -> None:
    hand = line(kept)
    with kept.rows.transaction(hand.thread) as txn:
        txn.delete_checkpoints([("", "c1")])
    before = kept.rows.image(hand.thread)
    for policy in ("keep-latest", "compact", "keep-turns=1", "refuse"):
        applied = run(kept, hand.thread, policy)
        assert applied.refused and not applied.deleted, policy
        assert kept.rows.image(hand.thread) == before


# --- the cache ----------------------------------------------------------------------------------


class Cache:
    """Notes what it was told, and how many rows the thread held then."""

    def __init__(self, rows: RowAccess | None = None, error: Exception | None = None) -> None:
        self.told: list[str] = []
        self.error = error

    def invalidate(self, thread_id: str) -> None:
        self.told.append(thread_id)
        if self.error:
            raise self.error


def test_a_cache_that_fails_keeps_everything(kept: Kept) -> None:
    hand = line(kept).put("c4", "c3", {"a": snapshot("z")}, counts="a")
    before = kept.rows.image(hand.thread)
    broken = Cache(error=ConnectionError("no\nway"))
    for policy in ("keep-latest", "delete"):
        applied = run(kept, hand.thread, policy, lifecycle=broken)
        assert "ConnectionError: no" in applied.refused and "nothing was deleted" in applied.refused
        assert kept.rows.image(hand.thread) == before and not applied.deleted
    cache = Cache()
    assert run(kept, hand.thread, "keep-latest", lifecycle=cache).deleted
    assert cache.told == [hand.thread]
    assert not run(kept, hand.thread, "keep-latest", lifecycle=cache).deleted
    assert cache.told == [hand.thread]  # nothing to delete, nothing to forget


# --- many threads -------------------------------------------------------------------------------


def test_one_thread_never_blocks_another(kept: Kept) -> None:
    """T28: a damaged one between two good ones."""
    hands = [line(kept).put("c4", "c3", {"a": snapshot("z")}, counts="a") for _ in range(3)]
    with kept.rows.transaction(hands[1].thread) as txn:
        txn.reparent("", "c1", "c3")
    seen: list[str] = []
    names = [hand.thread for hand in hands]
    found = list(
        apply(
            kept.rows,
            parse_policy("keep-latest"),
            threads=[*names, "nobody"],
            now=NOW,
            batch=2,
            on_progress=lambda each: seen.append(each.thread_id),
        )
    )
    assert [each.thread_id for each in found] == seen == [*names, "nobody"]
    assert [bool(each.refused) for each in found] == [False, True, False, False]
    assert [ids(kept, name) for name in names] == [["c4"], ["c1", "c2", "c3", "c4"], ["c4"]]
    left = list(plans(kept.rows, parse_policy("keep-latest"), threads=names, now=NOW))
    assert [plan.empty for plan in left] == [True] * 3


def test_a_job_stopped_in_the_middle_is_started_again(kept: Kept) -> None:
    hands = [line(kept).put("c4", "c3", {"a": snapshot("z")}, counts="a") for _ in range(3)]
    names = [hand.thread for hand in hands]
    policy = parse_policy("keep-latest")
    started = apply(kept.rows, policy, threads=names, batch=1)
    next(started)
    started.close()  # type: ignore[attr-defined]
    assert [len(ids(kept, name)) for name in names] == [1, 4, 4]
    done = list(apply(kept.rows, policy, threads=names))
    assert [bool(each.deleted) for each in done] == [False, True, True]


def test_wrong_arguments_are_told_before_anything_is_read(kept: Kept) -> None:
    """T29."""
    policy = parse_policy("keep-latest")
    with pytest.raises(UsageError, match="not the text"):
        apply(kept.rows, policy, threads="abc")
    with pytest.raises(UsageError, match="not the text"):
        apply(kept.rows, policy, protect="abc")
    assert list(apply(kept.rows, policy, threads=[])) == []


def test_the_rest_between_batches(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    monkeypatch.setattr("savermark.retention.apply.time.sleep", rests.append)
    hands = [line(kept).put("c4", "c3", {"a": snapshot("z")}, counts="a") for _ in range(5)]
    names = ["nobody", *(hand.thread for hand in hands)]
    list(apply(kept.rows, parse_policy("keep-latest"), threads=names, batch=2, sleep=0.5))
    assert rests == [0.5, 0.5]


# --- others at work -----------------------------------------------------------------------------


class Between:
    """Row access that lets something happen just before a transaction begins."""

    def __init__(self, rows: RowAccess, act: Callable[[], object]) -> None:
        self._rows, self._act = rows, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    def transaction(self, thread_id: str) -> Any:
        self._act()
        return self._rows.transaction(thread_id)


def test_the_plan_is_made_again_inside(kept: Kept) -> None:
    """An append between plan and transaction survives, with what it hangs on."""
    hand = line(kept).put("c4", "c3", {"a": snapshot("z")}, counts="a")

    def append() -> None:
        hand.put("c5", "c3", {"k": [5]}, moved="a", counts="a")

    rows: Any = Between(kept.rows, append)
    applied = apply_thread(rows, hand.thread, parse_policy("keep-latest"), now=NOW)
    # c3 had a child already, so what hangs there now replays writes that may not be its own; only
    # that c5 and its past are whole matters here.
    assert ids(kept, hand.thread) == ["c1", "c2", "c3", "c5"]
    assert set(applied.plan.kept[""].targets) == {"c5"}
    assert "seed" in history(kept, hand.thread, "c5", ["a"])["a"]


def test_a_busy_thread_is_tried_again_then_refused(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("savermark.retention.settle.PAUSE", 0.0)
    hand = line(kept).put("c4", "c3", {"a": snapshot("z")}, counts="a")
    tries = itertools.count(1)

    def busy(times: int) -> Any:
        def act() -> None:
            if next(tries) <= times:
                raise ThreadBusy("someone else is at it")

        return Between(kept.rows, act)

    applied = apply_thread(busy(99), hand.thread, parse_policy("keep-latest"), retries=2)
    assert applied.refused == "someone else is at it" and next(tries) == 4
    assert len(ids(kept, hand.thread)) == 4
    tries = itertools.count(1)
    assert apply_thread(busy(2), hand.thread, parse_policy("keep-latest"), retries=2).deleted


def test_two_jobs_at_once_are_safe(kept: Kept) -> None:
    hands = [line(kept).put("c4", "c3", {"a": snapshot("z")}, counts="a") for _ in range(6)]
    names = [hand.thread for hand in hands]
    found: list[list[Applied]] = []

    def job() -> None:
        found.append(list(apply(kept.rows, parse_policy("keep-latest"), threads=names)))

    workers = [threading.Thread(target=job) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [ids(kept, name) for name in names] == [["c4"]] * 6
    assert sum(each.deleted.get("checkpoints", 0) for part in found for each in part) == 18
    assert not any(each.refused for part in found for each in part)


class Breaking:
    """Row access whose transactions break at the n-th change."""

    def __init__(self, rows: RowAccess, number: int) -> None:
        self._rows, self.left = rows, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    @contextmanager
    def transaction(self, thread_id: str) -> Iterator[Any]:
        with self._rows.transaction(thread_id) as txn:
            yield _Breaking(txn, self)


class _Breaking:
    def __init__(self, txn: ThreadTxn, owner: Breaking) -> None:
        self._txn, self._owner = txn, owner

    def __getattr__(self, name: str) -> Any:
        if name != "image":
            self._owner.left -= 1
            if self._owner.left < 0:
                raise KeyboardInterrupt
        return getattr(self._txn, name)


@pytest.mark.parametrize("policy", ["keep-latest", "delete", "keep-latest,duration-leaves"])
def test_a_thread_is_as_before_or_as_after(kept: Kept, policy: str) -> None:
    hand = line(kept).put("c4", "c3", {"a": snapshot("z")}, counts="a").write("c4", ("p", 1))
    hand.put("c5", "c4", moved="a", counts="a")
    before = kept.rows.image(hand.thread)
    for number in itertools.count():
        rows: Any = Breaking(kept.rows, number)
        try:
            apply_thread(rows, hand.thread, parse_policy(policy), now=NOW)
            break
        except KeyboardInterrupt:
            assert kept.rows.image(hand.thread) == before
    assert number >= (1 if policy == "delete" else 4)
    assert kept.rows.image(hand.thread) != before


# --- real graphs --------------------------------------------------------------------------------


def turn_of(kept: Kept, thread: str, words: str, **more: Any) -> Any:
    graph = tiny_graph.build(kept.saver)
    for word in words:
        graph.invoke({"said": [word]}, at(thread), **more)
    return graph


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("turns", [1, 2])
def test_kept_turns_can_be_answered_anew(kept: Kept, durability: str, turns: int) -> None:
    thread = f"turns-{next(NUMBERS)}"
    graph = turn_of(kept, thread, "abcd", durability=durability)
    control = clone(kept, thread)
    applied = run(kept, thread, f"keep-turns={turns}")
    assert applied.plan.kept[""].targets < {
        row.checkpoint_id for row in kept.rows.image(control).checkpoints
    }
    base = min(applied.plan.kept[""].targets)
    words = "abcd"[: 4 - turns]
    assert graph.get_state(at(thread, base)).values == tiny_graph.expected(words)
    assert graph.get_state(at(thread)).values == tiny_graph.expected("abcd")
    for name in applied.plan.kept[""].targets:
        assert graph.get_state(at(thread, name)).values == graph.get_state(at(control, name)).values
    graph.invoke({"said": ["other"]}, at(thread, base))
    assert graph.get_state(at(thread)).values == tiny_graph.expected([*words, "other"])


def test_turns_of_commands_and_updates(kept: Kept) -> None:
    thread = f"turns-{next(NUMBERS)}"
    graph = turn_of(kept, thread, "ab")
    graph.update_state(at(thread), {"count": 7})
    settled = graph.get_state(at(thread)).config["configurable"]["checkpoint_id"]
    graph.invoke(Command(update={"said": ["c"]}, goto="answer"), at(thread))
    before = graph.get_state(at(thread)).values
    applied = run(kept, thread, "keep-turns=1")
    assert min(applied.plan.kept[""].targets) == settled
    assert graph.get_state(at(thread)).values == before
    assert graph.get_state(at(thread, settled)).values["count"] == 7


class State(TypedDict):
    said: Annotated[list[str], DeltaChannel(tiny_graph.extend, snapshot_frequency=3)]


def nested(saver: Any, inner_saver: Any, ask: bool) -> Any:
    """first -> sub (pre -> ask) -> END; the subgraph shares the delta channel."""

    def answer(state: State) -> Any:
        found = interrupt("?") if ask else len(state["said"])
        return {"said": [f"asked {found}"]}

    inner = StateGraph(State)
    inner.add_node("pre", lambda state: {"said": [f"pre {len(state['said'])}"]})
    inner.add_node("ask", answer)
    inner.add_edge(START, "pre")
    inner.add_edge("pre", "ask")
    inner.add_edge("ask", END)
    outer = StateGraph(State)
    outer.add_node("first", lambda state: {"said": [f"first {len(state['said'])}"]})
    outer.add_node("sub", inner.compile(checkpointer=inner_saver))
    outer.add_edge(START, "first")
    outer.add_edge("first", "sub")
    outer.add_edge("sub", END)
    return outer.compile(checkpointer=saver)


@pytest.mark.parametrize("policy", ["keep-latest", "keep-turns=1"])
def test_a_waiting_subgraph_resumes_as_if_nothing_had_happened(kept: Kept, policy: str) -> None:
    """facts R10."""
    graph, thread = nested(kept.saver, None, True), f"nested-{next(NUMBERS)}"
    for word in "ab":
        graph.invoke({"said": [word]}, at(thread))
        if word == "a":
            graph.invoke(Command(resume="yes"), at(thread))
    control = clone(kept, thread)
    assert len(kept.rows.image(thread).spaces) == 3
    applied = run(kept, thread, policy)
    assert applied.deleted["checkpoints"] and len(kept.rows.image(thread).spaces) == 2
    assert graph.get_state(at(thread)).interrupts == graph.get_state(at(control)).interrupts
    for name in (thread, control):
        graph.invoke(Command(resume="no"), at(name))
    assert graph.get_state(at(thread)).values == graph.get_state(at(control)).values
    assert run(kept, thread, "keep-latest").deleted["checkpoints"]
    assert set(kept.rows.image(thread).spaces) == {""}
    assert graph.get_state(at(thread)).values == graph.get_state(at(control)).values


def test_a_persistent_subgraph_replays_as_before(kept: Kept) -> None:
    graph, thread = nested(kept.saver, True, False), f"nested-{next(NUMBERS)}"
    for word in "abcd":
        graph.invoke({"said": [word]}, at(thread))
    control = clone(kept, thread)
    applied = run(kept, thread, "keep-turns=2")
    assert {space for space, _ in applied.plan.checkpoints} == {"", "sub"}
    for target in sorted(applied.plan.kept[""].targets):
        copies = [clone(kept, thread), clone(kept, control)]
        for name in copies:
            graph.invoke(None, at(name, target))
        values = [graph.get_state(at(name)).values for name in copies]
        assert values[0] == values[1], target
    graph.invoke({"said": ["e"]}, at(thread))
    graph.invoke({"said": ["e"]}, at(control))
    assert graph.get_state(at(thread)).values == graph.get_state(at(control)).values


def test_links_are_grafted(kept: Kept) -> None:
    """facts 3.6: a run that went on from a duration copy; with writes on it and without."""
    thread = f"links-{next(NUMBERS)}"
    graph = turn_of(kept, thread, "a")
    persist_run_durations(kept.saver, thread, {"r1": 3})
    turn_of(kept, thread, "b", durability="exit")  # its writes are stored on the copy
    persist_run_durations(kept.saver, thread, {"r2": 3})
    turn_of(kept, thread, "c")
    persist_run_durations(kept.saver, thread, {"r3": 3})
    before = [state.values for state in graph.get_state_history(at(thread))]
    applied = run(kept, thread, "duration-leaves")
    assert len(applied.plan.grafts) == 2 and applied.deleted["checkpoints"] == 3
    assert {graft.handling for graft in applied.plan.grafts} == {"reparent", "move"}
    after = [state.values for state in graph.get_state_history(at(thread))]
    assert len(after) == len(before) - 3 and all(values in before for values in after)
    assert after[0] == tiny_graph.expected("abc")
    turn_of(kept, thread, "d")
    assert graph.get_state(at(thread)).values == tiny_graph.expected("abcd")
    assert run(kept, thread, "duration-leaves").plan.empty


# --- async --------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["keep-latest", "compact", "keep-turns=1"])
def test_the_async_twin_does_the_same(kept: Kept, policy: str) -> None:
    names = [f"async-{next(NUMBERS)}" for _ in range(3)]
    for name in names:
        turn_of(kept, name, "abc")
    wanted = {
        name: run(kept, clone(kept, name), policy, fold=fold_of(kept.saver)) for name in names
    }

    async def work() -> list[Applied]:
        async with kept.store.asaver() as saver, arow_access(saver) as rows:
            found = aapply(rows, parse_policy(policy), threads=names, fold=fold_of(saver))
            return [each async for each in found]

    found = asyncio.run(work())
    assert {each.thread_id: each.deleted for each in found} == {
        n: w.deleted for n, w in wanted.items()
    }
    graph = tiny_graph.build(kept.saver)
    for name in names:
        assert graph.get_state(at(name)).values == tiny_graph.expected("abc")


def fold_of(saver: Any) -> Any:
    return graph_fold(tiny_graph.build(None), saver)
