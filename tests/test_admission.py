"""Cleanup at admission: one leaf, a fixed budget, and a run that never suffers from it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import ExitStack, closing
from copy import copy as copy_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import tiny_graph
from fix_threads import Kept, at, snapshot
from savermark.backends.base import Location
from savermark.backends.null import NullBackend
from savermark.history.cached import with_cache
from savermark.history.leaf import Leaf, leaves
from savermark.meter import ametered, metered
from savermark.recording import Recorder, RecordingSaver
from savermark.retention.admission import Admission, aclean_admission, clean_admission
from savermark.retention.duration import (
    is_duration_only,
    persist_run_durations,
    state_neutral,
)
from savermark.retention.exhaustive import leaf_candidates
from savermark.retention.policy import RetentionPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from savermark.history.image import ThreadImage

STAMPS = {"source": "update", "run_durations": {"r": 1}}
APIS = pytest.mark.parametrize("api", ["sync", "async"])


def clean(kept: Kept, thread: str, api: str = "sync", **options: Any) -> Admission:
    """In either api; memory alone serves both with one saver."""
    if api == "sync":
        return clean_admission(kept.saver, thread, **options)

    async def opened() -> Admission:
        if kept.name == "memory":
            return await aclean_admission(kept.saver, thread, **options)
        async with kept.store.asaver() as saver:
            return await aclean_admission(saver, thread, **options)

    return asyncio.run(opened())


def image(kept: Kept, thread: str) -> ThreadImage:
    return kept.rows.image(thread)


def newest(kept: Kept, thread: str) -> str:
    return image(kept, thread).heads[""].checkpoint_id


def line(kept: Kept, length: int = 2) -> str:
    """A delta thread by hand, and a duration-only leaf on its end."""
    hand = kept.hand().put("c0000", None, {"x": snapshot("s"), "k": 1})
    for number in range(1, length):
        name, parent = f"c{number:04}", f"c{number - 1:04}"
        hand.write(parent, ("x", [name])).put(name, parent, {"k": 1}, moved="x", counts="x")
    copy(kept, hand.thread, "leaf")
    return hand.thread


def copy(kept: Kept, thread: str, name: str, **metadata: Any) -> None:
    """What `persist_run_durations` does, under a name of ours."""
    head = kept.saver.get_tuple(at(thread))
    assert head is not None
    made: Any = {**head.checkpoint, "id": name}
    kept.saver.put(head.config, made, {**head.metadata, **STAMPS, **metadata}, {})  # type: ignore[typeddict-item]


# --- what it does -----------------------------------------------------------------------------


@APIS
def test_the_leaf_goes_and_nothing_else(kept: Kept, api: str) -> None:
    graph, thread = tiny_graph.build(kept.saver), kept.hand().thread
    words = ["a", "b", "c"]
    leaf = ""
    for word in words:
        assert clean(kept, thread, api).deleted == leaf
        graph.invoke({"said": [word]}, tiny_graph.config(thread))
        before, state = image(kept, thread), graph.get_state(tiny_graph.config(thread))
        assert persist_run_durations(kept.saver, thread, {word: 1})
        leaf = newest(kept, thread)
    assert clean(kept, thread, api) == Admission(thread, deleted=leaf)
    assert image(kept, thread) == before
    after = graph.get_state(tiny_graph.config(thread))
    assert after == state and after.values == tiny_graph.expected(words)
    assert clean(kept, thread, api).why == "the newest checkpoint is not duration-only"


def test_stacked_leaves_lose_one_an_admission(kept: Kept) -> None:
    thread = line(kept)
    copy(kept, thread, "leaf2")
    assert clean(kept, thread).deleted == "leaf2"
    assert clean(kept, thread).deleted == "leaf"


def test_it_works_through_wrappers(kept: Kept) -> None:
    thread = line(kept)
    wrapped = RecordingSaver(with_cache(kept.saver), Recorder())
    assert clean_admission(wrapped, thread).deleted == "leaf"


# --- what it leaves ----------------------------------------------------------------------------


@APIS
def test_what_it_leaves_and_why(kept: Kept, api: str) -> None:
    def left(thread: str, **options: Any) -> str:
        before = image(kept, thread)
        done = clean(kept, thread, api, **options)
        assert image(kept, thread) == before and not done.deleted and not done.failed
        return done.why

    assert left("nobody-there") == "the thread has no checkpoint"
    thread = line(kept)
    assert left(thread, protect=["leaf"]) == "the newest checkpoint is protected"
    assert left(thread, protect=[{"": "leaf"}]) == "the newest checkpoint is protected"
    marked = {"writes": {"other": {}}}
    other = line(kept)
    copy(kept, other, "leaf2", **marked)
    if kept.name != "postgres":  # which drops the marker: there the shape decides
        assert left(other) == "the newest checkpoint is not duration-only"
    lone = kept.hand().put("c1", None, {"x": 1}, metadata=STAMPS)
    assert left(lone.thread) == "the newest checkpoint has no parent"
    orphan = kept.hand().put("c2", "c1", {"x": 1}, metadata=STAMPS)
    assert left(orphan.thread) == "its parent is not stored"
    titled = kept.hand().put("c1", None, {"x": 1}).put("c2", "c1", {"t": 1}, metadata=STAMPS)
    assert left(titled.thread) == "its versions differ from its parent's"
    owning = line(kept)
    kept.saver.put_writes(at(owning, "leaf"), [("x", 1)], "task")
    assert left(owning) == "the newest checkpoint owns writes"


@APIS
@pytest.mark.parametrize("channel", ["x", "k", "__error__", "__interrupt__"])
def test_scenario_g_a_parked_or_failed_parent_is_left_alone(
    kept: Kept, api: str, channel: str
) -> None:
    thread = line(kept)
    kept.saver.put_writes(at(thread, "c0001"), [(channel, ["done"])], "task")
    before = image(kept, thread)
    assert clean(kept, thread, api).why == "its parent owns writes"
    assert image(kept, thread) == before


def test_scenario_g_with_a_real_run_that_failed(kept: Kept) -> None:
    """One of two parallel tasks finished, the other failed, and the run was recorded all the same.

    The copy takes the finished task for its past: a resume from it runs that task again. To take
    the copy away would change what is read, so it stays, as it is.
    """

    class State(TypedDict):
        said: Annotated[list[str], DeltaChannel(tiny_graph.extend, snapshot_frequency=50)]

    broken, done = [True], threading.Event()

    def bad(state: State) -> dict[str, Any]:
        if broken.pop() if broken else False:
            done.wait(10)
            raise OSError("no answer")
        return {"said": ["bad"]}

    def ok(state: State) -> dict[str, Any]:
        return {"said": ["ok"]}

    builder = StateGraph(State)
    for node in (ok, bad):
        builder.add_node(node)
        builder.add_edge(START, node.__name__)
        builder.add_edge(node.__name__, END)
    graph = builder.compile(checkpointer=noticing(kept.saver, done))
    thread = kept.hand().thread
    with pytest.raises(OSError, match="no answer"):
        graph.invoke({"said": ["h"]}, at(thread))
    assert persist_run_durations(kept.saver, thread, {"r": 1})
    before = image(kept, thread)
    head = before.heads[""]
    assert is_duration_only(before, head) and not state_neutral(before, head)
    assert clean(kept, thread).why == "its parent owns writes"
    assert leaf_candidates(before, RetentionPolicy(duration_leaves=True)) == set()
    assert image(kept, thread) == before
    # Why: of the two ways to go on only the parent knows that the task has finished.
    assert graph.get_state(at(thread)).values["said"] == ["h", "ok"]
    assert graph.get_state(at(thread, head.parent_id)).values["said"] == ["h"]
    assert graph.invoke(None, at(thread))["said"] == ["h", "ok", "bad", "ok"]


def noticing(saver: Any, done: threading.Event) -> Any:
    """The same saver, which tells when the writes of the finished task are stored."""

    class Noticing(type(saver)):  # type: ignore[misc]
        __slots__ = ()

        def put_writes(self, config: Any, writes: Any, *rest: Any) -> None:
            super().put_writes(config, writes, *rest)
            if ("said", ["ok"]) in [tuple(write) for write in writes]:
                done.set()

    made = copy_of(saver)
    made.__class__ = Noticing
    return made


@pytest.mark.parametrize("put", [str, int])
def test_a_number_as_thread_id(kept: Kept, put: Any) -> None:
    """Everywhere it means its text; the memory saver alone may hold it as a number."""
    number = 70_000 + (put is int)
    thread: Any = put(number) if kept.name == "memory" else str(number)
    kept.hand(thread).put("0", None, {"x": 1})
    assert persist_run_durations(kept.saver, number, {"r": 1})
    leaf = newest(kept, str(number))
    assert leaf != "0"
    assert clean_admission(kept.saver, number) == Admission(str(number), deleted=leaf)


def test_a_value_folded_onto_the_leaf_is_not_lost(kept: Kept) -> None:
    thread = line(kept)
    with kept.rows.transaction(thread) as txn:
        typed = kept.saver.serde.dumps_typed(snapshot("whole"))
        txn.store_value("", "leaf", "x", typed)
    done = clean(kept, thread)
    if kept.name == "sqlite":
        assert done.why == "it stores values that its parent does not"
        return
    assert done.deleted == "leaf"  # the parent has the same version, so it shows the value as well
    found = kept.saver.get_tuple(at(thread))
    assert found is not None and found.checkpoint["channel_values"]["x"] == snapshot("whole")


# --- failures ------------------------------------------------------------------------------------


class Broken:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def invalidate(self, thread_id: str) -> None:
        self.seen.append(thread_id)
        raise OSError("the cache\nis away")


@APIS
def test_failures_never_reach_the_run(kept: Kept, api: str) -> None:
    thread, broken = line(kept), Broken()
    before = image(kept, thread)
    done = clean(kept, thread, api, lifecycle=broken)
    assert done == Admission(thread, why="OSError: the cache is away", failed=True)
    assert broken.seen == [thread]
    done = clean(kept, thread, api, protect="leaf")
    assert done.failed and "list of ids" in done.why
    assert image(kept, thread) == before


def test_unknown_savers_are_left_alone() -> None:
    with NullBackend.create(Location(Path(), "null")).saver() as saver:
        done = clean_admission(saver, "t")
    assert done.failed and "not known to savermark" in done.why


def test_caches_are_forgotten_before_the_delete(kept: Kept) -> None:
    thread = line(kept)

    class Watching:
        def invalidate(self, thread_id: str) -> None:
            self.stored = newest(kept, thread_id)

    watching = Watching()
    assert clean(kept, thread, lifecycle=watching).deleted == "leaf"
    assert watching.stored == "leaf"


# --- the conditional delete --------------------------------------------------------------------


@pytest.mark.parametrize("change", ["child", "early child", "newer", "write", "parent", "gone"])
def test_a_leaf_that_is_none_any_more_stays(kept: Kept, change: str) -> None:
    thread = line(kept)
    hand = kept.hand(thread)
    leaf = Leaf(thread, "", "leaf", "c0001")
    if change == "child":
        hand.put("z", "leaf", {"k": 2})
    elif change == "early child":  # of a host whose clock is behind
        hand.put("d", "leaf", {"k": 2})
    elif change == "newer":
        hand.put("z", "c0000", {"k": 2})
    elif change == "write":
        hand.write("leaf", ("x", 1))
    elif change == "parent":
        leaf = Leaf(thread, "", "leaf", "c0000")
    else:
        with kept.rows.transaction(thread) as txn:
            txn.delete_checkpoints([("", "leaf")])
    before = image(kept, thread)
    assert leaves(kept.saver).remove(leaf) is False
    assert image(kept, thread) == before
    assert leaves(kept.saver).has_writes(leaf) is (change == "write")


@APIS
def test_a_run_that_comes_in_between_is_noticed(kept: Kept, api: str) -> None:
    """The lock was not held after all: a child appears while the caches are told."""
    thread = line(kept)

    class Late:
        def invalidate(self, thread_id: str) -> None:
            kept.hand(thread_id).put("z", "leaf", {"k": 2})

    assert clean(kept, thread, api, lifecycle=Late()).why == "the thread changed meanwhile"
    assert image(kept, thread).row("", "leaf") is not None


# --- connections of other kinds ------------------------------------------------------------------


def of_the_store(kept: Kept) -> str:
    """The dsn under which the shared store's tables are found."""
    info = kept.saver.conn.info  # type: ignore[attr-defined]
    found: str = make_conninfo(info.dsn, password=info.password or None)
    return found


@pytest.mark.parametrize("kept", ["postgres"], indirect=True)
@pytest.mark.parametrize("how", ["pool", "pipeline", "plain"])
def test_connections_of_every_kind(kept: Kept, how: str) -> None:
    options: dict[str, Any] = {"autocommit": how != "plain", "row_factory": dict_row}
    thread = line(kept)
    before = image(kept, thread)
    with ExitStack() as stack:
        if how == "pool":
            pool = ConnectionPool(of_the_store(kept), kwargs=options, min_size=1, max_size=1)
            saver = PostgresSaver(stack.enter_context(pool))
        else:
            opened = psycopg.connect(of_the_store(kept), **options)
            connection = stack.enter_context(opened)
            pipe = stack.enter_context(connection.pipeline()) if how == "pipeline" else None
            saver = PostgresSaver(connection, pipe)
        done = clean_admission(saver, thread)
    if how == "plain":
        assert done.failed and image(kept, thread) == before
    else:
        assert done.deleted == "leaf" and image(kept, thread).row("", "leaf") is None


@pytest.mark.parametrize("kept", ["postgres"], indirect=True)
def test_an_async_pool(kept: Kept) -> None:
    thread = line(kept)

    async def cleaned() -> Admission:
        options = {"autocommit": True, "row_factory": dict_row}
        pool: Any = AsyncConnectionPool(of_the_store(kept), kwargs=options, open=False, min_size=1)
        async with pool:
            return await aclean_admission(AsyncPostgresSaver(pool), thread)

    assert asyncio.run(cleaned()).deleted == "leaf"


@APIS
@pytest.mark.parametrize("kept", ["sqlite"], indirect=True)
def test_a_file_that_another_process_writes_is_left_for_later(kept: Kept, api: str) -> None:
    thread = line(kept)
    path = kept.saver.conn.execute("PRAGMA database_list").fetchone()[2]  # type: ignore[attr-defined]
    kept.saver.conn.execute("PRAGMA busy_timeout = 20")  # type: ignore[attr-defined]

    async def hurried() -> Admission:
        async with kept.store.asaver() as saver:
            await saver.setup()
            await saver.conn.execute("PRAGMA busy_timeout = 20")
            with closing(sqlite3.connect(path)) as other:
                other.execute("BEGIN IMMEDIATE")
                done = await aclean_admission(saver, thread)
            assert (await aclean_admission(saver, thread)).deleted == "leaf"  # nothing is stuck
            return done

    if api == "async":
        done = asyncio.run(hurried())
    else:
        with closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            done = clean_admission(kept.saver, thread)
        assert clean_admission(kept.saver, thread).deleted == "leaf"
    kept.saver.conn.execute("PRAGMA busy_timeout = 5000")  # type: ignore[attr-defined]
    assert done.failed and "locked" in done.why and not done.deleted


# --- the budget ----------------------------------------------------------------------------------


class Counting:
    """Counts lookups through a saver's public methods; anything else is an error."""

    def __init__(self, saver: Any) -> None:
        self.inner, self.serde, self.calls = saver, saver.serde, list[Any]()

    def get_tuple(self, config: Any) -> Any:
        self.calls.append(config)
        return self.inner.get_tuple(config)


def test_two_lookups_are_all(kept: Kept) -> None:
    thread = line(kept)
    counting: Any = Counting(kept.saver)
    assert clean_admission(counting, thread).deleted == "leaf"
    asked = [config["configurable"].get("checkpoint_id") for config in counting.calls]
    assert asked == [None, "c0001"]
    assert clean_admission(counting, thread).why == "the newest checkpoint is not duration-only"
    assert len(counting.calls) == 3


SYNC_BUDGET = {"sqlite": 2 * 2 + 1 + 3, "postgres": 2 + 1 + 1}  # BEGIN and COMMIT count


def test_statements_do_not_depend_on_the_length_of_the_history(kept: Kept) -> None:
    if kept.name == "memory":
        pytest.skip("it has no statements")
    threads = [line(kept, length) for length in (10, 1000)]
    found = []
    clean(kept, line(kept))  # what a saver does once is not counted
    for thread in threads:
        with metered(kept.saver) as meter:
            assert clean_admission(kept.saver, thread).deleted == "leaf"
        found.append(meter.counts)
    assert [counts.statements for counts in found] == [SYNC_BUDGET[kept.name]] * 2
    assert found[0].rows == found[1].rows
    if kept.name == "sqlite":
        assert found[0].vm_steps is not None and found[1].vm_steps is not None
        assert found[1].vm_steps <= found[0].vm_steps * 1.2


def test_async_statements_neither(kept: Kept) -> None:
    if kept.name == "memory":
        pytest.skip("it has no statements")
    threads = [line(kept, length) for length in (10, 300)]

    async def count() -> list[int | None]:
        found = []
        async with kept.store.asaver() as saver:
            await aclean_admission(saver, line(kept))
            for thread in threads:
                async with ametered(saver) as meter:
                    assert (await aclean_admission(saver, thread)).deleted == "leaf"
                found.append(meter.counts.statements)
        return found

    assert asyncio.run(count()) == [SYNC_BUDGET[kept.name]] * 2


# --- any thread --------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(
        st.sampled_from(["say", "exit", "copy", "copy", "update", "branch", "park"]), max_size=6
    ),
    which=st.integers(0, 20),
)
def test_no_state_ever_changes(kept: Kept, steps: list[str], which: int) -> None:
    """Admission before every step: what is read and what the turns yield is as without it."""
    graph, names = tiny_graph.build(kept.saver), (kept.hand().thread, kept.hand().thread)
    states: list[list[Mapping[str, Any]]] = [[], []]
    for number, step in enumerate(["say", *steps, "say"]):
        for place, thread in enumerate(names):
            if place:
                before = graph.get_state(tiny_graph.config(thread))
                done = clean(kept, thread)
                after = graph.get_state(tiny_graph.config(thread))
                assert (after.values, after.next) == (before.values, before.next)
                assert (after.config == before.config) is not bool(done.deleted)
            take(kept, graph, thread, step, number, which)
            states[place].append(graph.get_state(tiny_graph.config(thread)).values)
    assert states[0] == states[1]


def take(kept: Kept, graph: Any, thread: str, step: str, number: int, which: int) -> None:
    where = tiny_graph.config(thread)
    if step == "copy":
        persist_run_durations(kept.saver, thread, {f"r{number}": 1})
    elif step == "update":
        graph.update_state(where, {"said": [f"u{number}"]}, as_node="count")
    elif step == "park":  # a finished task of a run that failed
        head = newest(kept, thread)
        kept.saver.put_writes(at(thread, head), [("__error__", "E")], "bad")
    elif step == "branch":
        real = [
            row.checkpoint_id
            for row in image(kept, thread).checkpoints
            if "run_durations" not in row.metadata
        ]
        graph.invoke({"said": [f"q{number}"]}, at(thread, real[which % len(real)]))
    else:
        how = "exit" if step == "exit" else "sync"
        graph.invoke({"said": [f"q{number}"]}, where, durability=how)
