"""Many threads at once: equal to the plan by rows wherever it is taken, and else not taken."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import psycopg
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from fix_threads import Hand, Kept, at, clone, snapshot
from savermark.errors import ContractError
from savermark.history.arows import AsyncRows
from savermark.history.bulk import Cut, batches, bulk_of
from savermark.history.postgres import PostgresRows
from savermark.history.postgres_facts import _plain, _spaces, spaces_of
from savermark.history.rows import ThreadBusy, row_access
from savermark.retention.apply import aapply, apply
from savermark.retention.fast import SetPlan
from savermark.retention.policy import parse_policy
from savermark.retention.savers import RetainingSqliteSaver
from test_apply import NOW, NUMBERS, copied, uid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from savermark.history.image import ThreadImage
    from savermark.retention.records import Applied

LATEST = parse_policy("keep-latest")
ODD = (
    "fork",
    "old orphan",
    "young orphan",
    "left behind",
    "old format",
    "duration copy",
    "waits",
    "version again",
    "lost snapshot",
    "hole",
    "protected",
    "tab",
    "comma",
    "flag",
    "empty channel",
)


@pytest.fixture
def bulky(kept: Kept) -> Kept:
    """A store that has a form for many threads."""
    if bulk_of(kept.rows) is None:
        pytest.skip("one dictionary holds all threads: there is nothing to gain")
    return kept


@dataclass(frozen=True)
class Case:
    """A thread: the channels that each checkpoint snapshots, and the writes on it."""

    steps: tuple[tuple[str, str], ...]
    counts: str
    subs: tuple[tuple[str, int], ...]
    odd: frozenset[str]


CASES = st.builds(
    Case,
    steps=st.lists(
        st.tuples(st.sampled_from(["", "", "", "a", "b", "ab"]), st.sampled_from(["", "a", "abk"])),
        min_size=1,
        max_size=7,
    ).map(tuple),
    counts=st.sampled_from(["", "a", "ab"]),
    subs=st.lists(
        st.tuples(st.sampled_from(["s", "s:t1", "s:t2", "s:t1|in:x", "odd:1"]), st.integers(0, 7)),
        max_size=3,
    ).map(tuple),
    odd=st.one_of(
        st.just(frozenset()),
        st.just(frozenset()),
        st.frozensets(st.sampled_from(ODD), min_size=1, max_size=2),
    ),
)


def build(kept: Kept, case: Case) -> tuple[Hand, list[str]]:
    """The thread, and its checkpoints of the root."""
    hand, names = kept.hand(), list[str]()
    for number, (fresh, writes) in enumerate(case.steps):
        name = uid(500 - number * 10) + ("\t" if "tab" in case.odd and number == 1 else "")
        values: dict[str, Any] = {"k": [number]}
        values |= {c: snapshot(f"{c}{number}") for c in fresh if c in case.counts}
        if not case.counts:
            values |= {"a": f"plain{number}", "b": number}
        if "comma" in case.odd:
            values['x, "y'] = [number]
        if "flag" in case.odd:
            values["f"] = True
        moved = [c for c in case.counts if c not in fresh]
        moved += ["empty"] if "empty channel" in case.odd and number else []
        v = 3 if "old format" in case.odd else 4
        parent = names[-1] if names else None
        metadata = {"source": "loop", "step": number}
        hand.put(name, parent, values, moved=moved, counts=case.counts, metadata=metadata, v=v)
        for channel in writes:
            hand.write(name, (channel, [f"w{number}"]), task=f"t-{channel}")
        names.append(name)
    children(kept, hand, case, names)
    spoil(kept, hand, case, names)
    return hand, names


def children(kept: Kept, hand: Hand, case: Case, names: list[str]) -> None:
    """Namespaces below the root."""
    last: dict[str, str] = {}
    for number, (space, place) in enumerate(case.subs):
        caller = names[place % len(names)]
        parents = {} if space.startswith("odd") else {"": caller}
        sub = Hand(kept.saver, hand.thread, space)
        sub.versions = {last[space]: {"k": f"{1:032}.0"}} if space in last else {}
        name = uid(300 - number)
        sub.put(name, last.get(space), {"k": number}, metadata={"parents": parents})
        sub.write(name, ("k", [f"s{number}"]))
        last[space] = name


def spoil(kept: Kept, hand: Hand, case: Case, names: list[str]) -> None:
    """What makes a thread an unusual one."""
    head = names[-1]
    if "fork" in case.odd:
        hand.put(uid(1), names[0], {"k": ["fork"]}, counts=case.counts)
    if "old orphan" in case.odd:
        hand.write(uid(505), ("k", [1]))
    if "young orphan" in case.odd:
        hand.write(uid(0), ("k", [1]))
    if "left behind" in case.odd:  # blobs and writes of a checkpoint that others deleted
        hand.put(uid(2), head, {"k": ["x"]}).write(uid(2), ("k", [1]))
        with kept.rows.transaction(hand.thread) as txn:
            txn.delete_checkpoints([("", uid(2))])
    if "duration copy" in case.odd:
        copied(kept, hand, uid(3), head, 1)
        names.append(uid(3))
    if "waits" in case.odd:
        hand.write(names[-1], ("__interrupt__", "?"), task="asks")
    if "version again" in case.odd and len(names) > 2:
        hand.versions[names[-1]] = hand.versions[names[1]]
        hand.put(uid(4), names[-1], {}, counts=case.counts)
        names.append(uid(4))
    if "lost snapshot" in case.odd:
        with kept.rows.transaction(hand.thread) as txn:
            txn.delete_blobs([b.key for b in txn.image().blobs if b.channel == "a"][-1:])
    if "hole" in case.odd and len(names) > 2:
        with kept.rows.transaction(hand.thread) as txn:
            txn.delete_checkpoints([("", names[1])])
            txn.delete_writes_of([("", names[1])])


def protected(case: Case, names: Sequence[str]) -> list[str]:
    return [names[0]] if "protected" in case.odd else []


def bare(image: ThreadImage) -> ThreadImage:
    return replace(image, thread_id="")


def both(kept: Kept, threads: Sequence[str], **more: Any) -> list[tuple[Applied, Applied]]:
    """What comes of threads many at a time, and of copies of them one by one."""
    controls = [clone(kept, thread) for thread in threads]
    done = list(apply(kept.rows, LATEST, threads=threads, now=NOW, **more))
    alone = list(apply(kept.rows, LATEST, threads=controls, now=NOW, keys=True, **more))
    assert [each.thread_id for each in done] == list(threads)
    pairs = list(zip(done, alone, strict=True))
    for one, other in pairs:
        after = bare(kept.rows.image(one.thread_id))
        assert after == bare(kept.rows.image(other.thread_id))
        assert dict(one.deleted) == dict(other.deleted) or not sum(other.deleted.values())
        assert bool(one.refused) == bool(other.refused)
        assert not isinstance(other.plan, SetPlan)
        if isinstance(one.plan, SetPlan):
            assert_says_the_same(one.plan, other)
    return pairs


def assert_says_the_same(plan: SetPlan, other: Applied) -> None:
    assert plan.kept == other.plan.kept and plan.detached == other.plan.detached
    assert all(keep.targets == other.plan.kept[space].targets for space, keep in plan.kept.items())
    assert plan.gone == len(other.plan.checkpoints) and plan.empty == other.plan.empty


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases=st.lists(CASES, min_size=1, max_size=3))
def test_many_at_once_is_each_by_itself(bulky: Kept, cases: list[Case]) -> None:
    made = [build(bulky, case) for case in cases]
    protect = [
        each
        for (_, names), case in zip(made, cases, strict=True)
        for each in protected(case, names)
    ]
    pairs = both(bulky, [hand.thread for hand, _ in made], protect=protect)
    for one, _ in pairs:
        event("at once" if isinstance(one.plan, SetPlan) else "by rows")
        event("refused" if one.refused else "empty" if one.plan.empty else "some go")
    threads = [one.thread_id for one, _ in pairs if isinstance(one.plan, SetPlan)]
    again = list(apply(bulky.rows, LATEST, threads=threads, protect=protect, now=NOW))
    assert not any(sum(each.deleted.values()) for each in again)


def usual(kept: Kept, odd: str = "", counts: str = "a") -> tuple[str, list[str]]:
    """A line of five checkpoints, with one oddity."""
    steps = (("a", "a"), ("", "a"), ("a", "abk"), ("", "a"), ("", ""))
    hand, names = build(kept, Case(steps, counts, (), frozenset({odd})))
    return hand.thread, names


@pytest.mark.parametrize("counts", ["", "a"])
def test_usual_threads_are_taken_at_once(bulky: Kept, counts: str) -> None:
    threads = [usual(bulky, counts=counts)[0] for _ in range(3)]
    for one, _ in both(bulky, threads):
        assert isinstance(one.plan, SetPlan) and not one.refused
        assert one.deleted["checkpoints"] == (2 if counts else 4)


@pytest.mark.parametrize(
    "odd", sorted({*ODD} - {"waits", "flag", "tab", "comma", "lost snapshot", "version again"})
)
def test_unusual_threads_are_not(bulky: Kept, odd: str) -> None:
    thread, names = usual(bulky, odd)
    plain, _ = usual(bulky)
    protect = names[:1] if odd == "protected" else []
    (one, _), (other, _) = both(bulky, [thread, plain], protect=protect)
    assert not isinstance(one.plan, SetPlan)
    assert isinstance(other.plan, SetPlan) == (odd != "protected")  # their ids are the same


def test_a_version_that_comes_back_is_left(kept: Kept) -> None:
    """Two values were stored under one version, so one of them is lost: facts of the tables only
    where values have rows of their own.
    """
    thread, _ = usual(kept, "version again", counts="")
    (one,) = apply(kept.rows, LATEST, threads=[thread], now=NOW)
    assert bool(one.refused) == (kept.name != "sqlite")


def test_a_lost_snapshot_is_seen_where_it_is_needed(kept: Kept) -> None:
    thread, _ = usual(kept, "lost snapshot")
    (one,) = apply(kept.rows, LATEST, threads=[thread], now=NOW)
    assert bool(one.refused) == (kept.name != "sqlite")


@pytest.mark.parametrize("batch", [1, 2, 64])
def test_order_and_progress_are_those_of_the_threads(kept: Kept, batch: int) -> None:
    threads = [usual(kept, odd)[0] for odd in ("", "fork", "", "hole", "")]
    told = list[str]()
    done = apply(
        kept.rows,
        LATEST,
        threads=[*threads, threads[0]],
        now=NOW,
        batch=batch,
        on_progress=lambda each: told.append(each.thread_id),
    )
    assert [each.thread_id for each in done] == threads == told


def test_a_cache_that_cannot_be_told_keeps_its_thread_alone(bulky: Kept) -> None:
    (bad, _), (good, _) = usual(bulky), usual(bulky)
    asked = list[str]()

    class Cache:
        def invalidate(self, thread_id: str) -> None:
            asked.append(thread_id)
            assert len(bulky_rows.image(thread_id).checkpoints) == 5  # before anything went
            if thread_id == bad:
                raise OSError("no cache today")

    before, bulky_rows = bulky.rows.image(bad), _Seen(bulky, (bad, good))
    first, second = apply(bulky.rows, LATEST, threads=[bad, good], now=NOW, lifecycle=Cache())
    assert "no cache today" in first.refused and bulky.rows.image(bad) == before
    assert second.deleted["checkpoints"] == 2 and asked == [bad, good]
    again = list(apply(bulky.rows, LATEST, threads=[good], now=NOW, lifecycle=Cache()))
    assert again[0].plan.empty and asked == [bad, good]  # nothing to go, nothing to tell


class _Seen:
    """The images of threads as they were: inside a transaction nobody else may ask."""

    def __init__(self, kept: Kept, threads: Sequence[str]) -> None:
        self._images = {thread: kept.rows.image(thread) for thread in threads}

    def image(self, thread: str) -> ThreadImage:
        return self._images[thread]


def test_async(bulky: Kept) -> None:
    threads = [usual(bulky)[0], usual(bulky, "fork")[0]]
    controls = [clone(bulky, thread) for thread in threads]

    async def run(work: Callable[[Any], Any]) -> Any:
        return await asyncio.to_thread(work, bulky.rows)

    async def done() -> list[Applied]:
        rows = AsyncRows(run)
        return [each async for each in aapply(rows, LATEST, threads=threads, now=NOW)]

    plans = [type(each.plan) for each in asyncio.run(done())]
    assert plans[0] is SetPlan and plans[1] is not SetPlan
    list(apply(bulky.rows, LATEST, threads=controls, now=NOW, keys=True))
    for thread, control in zip(threads, controls, strict=True):
        assert bare(bulky.rows.image(thread)) == bare(bulky.rows.image(control))


def test_batches_hold_no_more_rows_than_asked(bulky: Kept) -> None:
    threads = [usual(bulky)[0] for _ in range(5)]
    bulk = bulk_of(bulky.rows)
    assert bulk is not None
    rows = bulky.rows.image(threads[0]).rows
    assert [len(part) for part in batches(bulk, threads, 64, 2 * rows)] == [2, 2, 1]
    assert [len(part) for part in batches(bulk, threads, 3)] == [3, 2]
    assert [len(part) for part in batches(bulk, threads, 1, 1)] == [1] * 5


# --- beside others ------------------------------------------------------------------------------


@pytest.fixture
def second(kept: Kept) -> Any:
    """A second session on the same Postgres."""
    if not isinstance(kept.rows, PostgresRows):
        pytest.skip("one writer at a time")
    with psycopg.connect(kept.store._place.dsn, autocommit=True) as connection:  # type: ignore[attr-defined]
        yield connection


def test_a_thread_that_another_job_holds_is_waited_for(kept: Kept, second: Any) -> None:
    (held, _), (free, _) = usual(kept), usual(kept)
    other, inside, leave = PostgresRows(second), threading.Event(), threading.Event()

    def job() -> None:
        with other.transaction(held):
            inside.set()
            leave.wait(10)

    worker = threading.Thread(target=job)
    worker.start()
    inside.wait(10)
    found: list[Applied] = []
    ours = threading.Thread(
        target=lambda: found.extend(apply(kept.rows, LATEST, threads=[free, held], now=NOW))
    )
    ours.start()
    time.sleep(0.2)
    assert ours.is_alive()
    leave.set()
    ours.join(10)
    worker.join(10)
    assert [type(each.plan) is SetPlan for each in found] == [True, False]
    assert all(each.deleted["checkpoints"] == 2 for each in found)


def test_rows_that_change_meanwhile_undo_the_batch(kept: Kept, second: Any) -> None:
    (thread, names), (other, _) = usual(kept), usual(kept)
    bulk = bulk_of(kept.rows)
    before = kept.rows.image(other)
    assert bulk is not None
    with pytest.raises(ThreadBusy), bulk.transaction([thread, other]) as txn:
        assert len(list(txn.outlines())) == 2
        second.execute(
            "DELETE FROM checkpoints WHERE thread_id = %s AND checkpoint_id = %s",
            (thread, names[0]),
        )
        txn.clear([Cut(each, "", frozenset(names[2:]), detach=True) for each in (thread, other)])
    assert kept.rows.image(other) == before
    assert len(kept.rows.image(thread).checkpoints) == 4


def test_what_a_live_run_appends_meanwhile_stays(kept: Kept, second: Any) -> None:
    thread, names = usual(kept)
    bulk = bulk_of(kept.rows)
    assert bulk is not None
    with bulk.transaction([thread]) as txn:
        assert len(list(txn.outlines())) == 1
        second.execute(
            "INSERT INTO checkpoints (thread_id, checkpoint_id, parent_checkpoint_id, checkpoint) "
            "SELECT thread_id, %s, checkpoint_id, checkpoint FROM checkpoints "
            "WHERE thread_id = %s AND checkpoint_id = %s",
            (uid(0), thread, names[-1]),
        )
        txn.clear([Cut(thread, "", frozenset(names[2:]), detach=True)])
    left = [row.checkpoint_id for row in kept.rows.image(thread).checkpoints]
    assert left == [*names[2:], uid(0)]


# --- real graphs --------------------------------------------------------------------------------


def extend(state: list[Any] | None, writes: Sequence[list[Any]]) -> list[Any]:
    return [*(state or []), *(item for write in writes for item in write)]


class Plain(TypedDict):
    said: str
    deep: int


class Delta(TypedDict):
    said: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=5)]


def outer(saver: Any, lasting: bool, asks: bool = False) -> Any:
    """A node beside a subgraph whose state lasts, or does not."""

    def inside(state: Plain) -> dict[str, Any]:
        answer = interrupt("go on?") if asks else ""
        return {"deep": state.get("deep", 0) + 1, "said": f"{state['said']}{answer}"}

    child = StateGraph(Plain)
    child.add_node("inside", inside)
    child.add_edge(START, "inside")
    graph = StateGraph(Plain)
    graph.add_node("sub", child.compile(checkpointer=True if lasting else None))
    graph.add_node("after", lambda state: {"said": state["said"] + "!"})
    graph.add_edge(START, "sub")
    graph.add_edge("sub", "after")
    graph.add_edge("after", END)
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("lasting", [False, True])
def test_subgraphs_that_are_over_go_as_the_plan_has_it(bulky: Kept, lasting: bool) -> None:
    thread = f"fast-{next(NUMBERS)}"
    graph = outer(bulky.saver, lasting)
    for word in "abc":
        graph.invoke({"said": word}, at(thread))
    ((one, _),) = both(bulky, [thread])
    assert isinstance(one.plan, SetPlan)
    assert graph.get_state(at(thread)).values["said"] == "c!"


def test_a_subgraph_that_waits_is_left_to_the_plan(bulky: Kept) -> None:
    thread = f"fast-{next(NUMBERS)}"
    graph = outer(bulky.saver, False, asks=True)
    graph.invoke({"said": "a"}, at(thread))
    ((one, _),) = both(bulky, [thread])
    assert not isinstance(one.plan, SetPlan)


@pytest.mark.parametrize("lasting", [False, True])
def test_the_survivors_are_those_of_the_savers_own_prune(kept: Kept, lasting: bool) -> None:
    if not isinstance(kept.rows, PostgresRows):
        pytest.skip("only the Postgres saver has a prune of its own")
    thread = f"fast-{next(NUMBERS)}"
    graph = outer(kept.saver, lasting)
    for word in "abc":
        graph.invoke({"said": word}, at(thread))
    other = clone(kept, thread)
    kept.saver.prune([other])
    (one,) = apply(row_access(kept.saver), LATEST, threads=[thread])
    assert isinstance(one.plan, SetPlan)
    assert bare(kept.rows.image(thread)) == bare(kept.rows.image(other))


def test_a_delta_thread_keeps_what_it_is_rebuilt_from(bulky: Kept) -> None:
    graph = StateGraph(Delta)
    graph.add_node("say", lambda state: {"said": [str(len(state["said"]))]})
    graph.add_edge(START, "say")
    run = graph.compile(checkpointer=bulky.saver)
    thread = f"fast-{next(NUMBERS)}"
    for word in "abcdef":
        run.invoke({"said": [word]}, at(thread))
    before = run.get_state(at(thread)).values
    ((one, _),) = both(bulky, [thread])
    assert isinstance(one.plan, SetPlan) and 1 < len(one.plan.kept[""]) < 18
    assert run.get_state(at(thread)).values == before


def test_caches_that_lie_on_a_saver_are_told(tmp_path: Path) -> None:
    told: list[str] = []

    class Mine(RetainingSqliteSaver):
        def invalidate(self, thread_id: str) -> None:
            told.append(thread_id)
            if thread_id == "bad":
                raise OSError("no cache today")

    with Mine.from_conn_string(str(tmp_path / "kept.db")) as saver:
        graph = outer(saver, False)
        for thread in ("bad", "good"):
            for word in "ab":
                graph.invoke({"said": word}, at(thread))
        before = row_access(saver).image("bad")
        with pytest.raises(ContractError, match=r"bad.*no cache today"):
            saver.prune(["bad", "good"])
        assert told == ["bad", "good"] and row_access(saver).image("bad") == before
        assert len(row_access(saver).image("good").checkpoints) == 1


def naive(lines: Sequence[dict[str, int]]) -> bool:
    """Whether no version comes back, pair by pair."""
    for channel in {name for line in lines for name in line}:
        runs = [value for value, _ in groupby(line.get(channel) for line in lines)]
        told = [value for value in runs if value is not None]
        if len(told) != len(set(told)):
            return False
    return True


LINES = st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), max_size=3), min_size=1)


def told(line: dict[str, int]) -> str:
    """Versions as the server writes them."""
    return json.dumps({channel: str(version) for channel, version in sorted(line.items())})


@pytest.mark.parametrize("order", [list, lambda rows: rows[::-1]], ids=["in order", "reversed"])
@given(lines=LINES)
def test_a_namespace_is_only_called_linear_when_no_version_comes_back(
    order: Callable[[list[Any]], list[Any]], lines: list[dict[str, int]]
) -> None:
    rows = [
        ("", f"{at:03}", f"{at - 1:03}" if at else "", told(line)) for at, line in enumerate(lines)
    ]
    columns = ["\n".join(column) for column in zip(*order(rows), strict=True)]
    facts = spaces_of(len(rows), columns)
    assert not facts[""].linear or naive(lines)
    if all(line.keys() == lines[0].keys() for line in lines):
        assert facts[""].linear == naive(lines)


@pytest.mark.parametrize(
    "versions",
    [
        ['{"a": "1"}', '{"a": 2}'],
        ['{"a": 1, "b": "1"}', '{"a": 1, "b": "2"}'],
        ['{"a": "1", "b": 1}', '{"a": "2", "b": 2}'],
        ['{"a": "1"}', "null"],
        ['["a"]', '{"a": "1"}'],
        ['{"a": "1"}', '{"a": "1", "b": "1"}', '{"b": "2"}', '{"b": "1"}'],
    ],
)
def test_versions_that_are_no_texts_make_no_line(versions: list[str]) -> None:
    ids = [str(at) for at in range(len(versions))]
    columns = [[""] * len(ids), ids, ["", *ids[:-1]], versions]
    facts = spaces_of(len(ids), ["\n".join(column) for column in columns])
    assert not facts or not facts[""].linear


NAMES = st.sampled_from(["a", "b", 'x, "y', 'x": "y', 'z": 1, "y', "line\nend", "back\\"])
VERSIONS = st.one_of(
    st.integers(1, 12).map(str), st.integers(1, 3), st.sampled_from(['1", "a', ""])
)


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(st.dictionaries(NAMES, VERSIONS, max_size=3), min_size=1, max_size=5).flatmap(
        lambda steps: st.permutations([*enumerate(steps)])
    )
)
def test_the_short_way_through_texts_tells_what_the_long_way_does(
    steps: list[tuple[int, dict[str, Any]]],
) -> None:
    state: dict[str, Any] = {}
    grown = {at: (state := state | line) for at, line in sorted(steps)}
    rows = [("", f"{at}", f"{at - 1}" if at else "", json.dumps(grown[at])) for at, _ in steps]
    texts = ["\n".join(column) for column in zip(*rows, strict=True)]
    short, long = _plain(len(rows), *texts), _spaces(len(rows), texts)
    event("short" if short else "long")
    if short is not None:
        assert long[""].linear and [*long[""].ids] == [*short.ids]
        assert [*long[""].versions] == [*short.versions]
        assert short.with_blobs(["a"], filled=True).strays == (
            long[""].with_blobs(["a"], filled=True).strays
        )
        assert short.named(2) == long[""].named(2)
