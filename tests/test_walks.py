"""The walks: all answer as the base class's walk does, on every trap and on random threads."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from fix_threads import Hand, Kept, at, history, snapshot
from savermark.errors import Unsupported, UsageError
from savermark.history.lineage import LineageError
from savermark.history.walks import OnePassHistory, walk, walks, with_walk
from savermark.history.walks.cached import CachedWalk
from savermark.history.walks.onepass import ONE_PASS
from savermark.history.walks.postgres_plans import Plans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

NAMES = tuple(walks())


def read(kept: Kept, hand: Hand, name: str | None, channels: Sequence[str]) -> Any:
    """What `onepass` finds in the sync api, having been compared with the async one and base."""
    found = ONE_PASS.trail(kept.saver, at(hand.thread, name, hand.space), channels)
    expected = history(kept, hand.thread, name, channels, hand.space) if name else None
    if expected is None:
        target = kept.saver.get_tuple(at(hand.thread, None, hand.space))
        assert target is not None
        expected = BaseCheckpointSaver.get_delta_channel_history(
            kept.saver, config=target.config, channels=channels
        )
    assert found.histories == expected
    return found


async def aread(
    kept: Kept, hand: Hand, names: Sequence[str | None], channels: Sequence[str]
) -> None:
    """The async saver's `onepass` agrees with its base walk on all of these checkpoints."""
    async with kept.store.asaver() as saver:
        if kept.name == "memory":
            saver = kept.saver
        for name in names:
            config = at(hand.thread, name, hand.space)
            expected = await BaseCheckpointSaver.aget_delta_channel_history(
                saver, config=config, channels=channels
            )
            assert await ONE_PASS.ahistory(saver, config, channels) == expected


def values(found: Any, channel: str = "m") -> list[Any]:
    return [value for _, _, value in found.histories[channel]["writes"]]


# --- the traps ----------------------------------------------------------------------------------


def test_seed_and_its_own_writes(kept: Kept) -> None:
    """T1, T2: the seed's own writes count, the target's do not."""
    hand = kept.hand()
    hand.put("c0").write("c0", ("m", "older"))
    hand.put("c1", "c0", {"m": snapshot("s")}).write("c1", ("m", "a"))
    hand.put("c2", "c1", moved="m").write("c2", ("m", "b"))
    hand.put("c3", "c2", moved="m").write("c3", ("m", "p"))
    found = read(kept, hand, "c3", ["m"])
    assert values(found) == ["a", "b"]
    assert found.histories["m"]["seed"] == snapshot("s")
    assert not found.broken


def test_missing_parent_reads_as_root_and_is_told(kept: Kept) -> None:
    """T3."""
    hand = kept.hand()
    hand.put("c2", "c1", moved="m").write("c2", ("m", "b"))
    hand.put("c3", "c2", moved="m")
    found = read(kept, hand, "c3", ["m", "n"])
    assert values(found) == ["b"]
    assert found.broken == {"m": "c1", "n": "c1"}
    hand.put("d9", "gone", moved="m").write("d9", ("m", "x"))
    assert read(kept, hand, "d9", ["m"]).broken == {"m": "gone"}


def test_order_of_writes(kept: Kept) -> None:
    """T4: by path, task and number, all by code points."""
    hand = kept.hand().put("c1")
    hand.write("c1", ("m", 2), ("m", 3), task="ff", path="~a")
    hand.write("c1", ("m", 4), task="00", path="~b").write("c1", ("m", 1), task="zz")
    hand.write("c1", *(("m", 10 + n) for n in range(12)), task="zzz", path="~é")
    hand.write("c1", ("m", 9), task="b", path="~c").write("c1", ("m", 8), task="B", path="~c")
    hand.put("c2", "c1")
    assert values(read(kept, hand, "c2", ["m"])) == [1, 2, 3, 4, 8, 9, *range(10, 22)]


def test_none_is_a_seed(kept: Kept) -> None:
    """T5: by the base walk's rule, on every backend."""
    hand = kept.hand()
    hand.put("c1", None, {"m": 7}).write("c1", ("m", 1))
    hand.put("c2", "c1", {"m": None}).write("c2", ("m", 2))
    hand.put("c3", "c2", moved="m")
    found = read(kept, hand, "c3", ["m"])
    assert values(found) == [2]
    assert found.histories["m"]["seed"] is None


def test_channels_of_other_depths(kept: Kept) -> None:
    """T6 and T11: each channel goes to its own seed, an unwritten one to the root."""
    hand, parent = kept.hand(), None
    for number in range(12):
        name = f"c{number:02}"
        held = {"a": snapshot(10)} if number == 10 else {"b": [2]} if number == 2 else {}
        hand.put(name, parent, held, moved="ab").write(name, ("a", number), ("b", -number))
        parent = name
    found = read(kept, hand, "c11", ["a", "b", "never"])
    assert values(found, "a") == [10]
    assert values(found, "b") == [-n for n in range(2, 11)]
    assert found.histories["never"] == {"writes": []}


def test_exit_durability(kept: Kept) -> None:
    """T7: the stub without versions is part of the chain."""
    hand = kept.hand()
    hand.put("c1", metadata={"step": -2})
    for number in range(5):
        hand.write("c1", ("m", number), task=f"ffffffff-{number}", path=f"~~{number:010}~a")
    hand.put("c2", "c1", moved="m", counts="m").write("c2", ("m", 5))
    hand.put("c3", "c2", moved="m", counts="m")
    assert values(read(kept, hand, "c3", ["m"])) == [0, 1, 2, 3, 4, 5]


def test_parent_above_its_child(kept: Kept) -> None:
    """T8: links, and not the order of ids."""
    hand = kept.hand()
    hand.put("c9", None, {"m": snapshot("s")}).write("c9", ("m", 9))
    hand.put("c3", "c9", moved="m").write("c3", ("m", 3))
    hand.put("c5", "c3", moved="m").write("c5", ("m", 5))
    hand.put("c4", "c5", moved="m").write("c4", ("m", 4))
    hand.put("c6", "c4", moved="m")
    found = read(kept, hand, "c6", ["m"])
    assert values(found) == [9, 3, 5, 4]
    assert found.histories["m"]["seed"] == snapshot("s")


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_circle_is_an_error(kept: Kept, length: int) -> None:
    """T9."""
    hand = kept.hand()
    names = [f"c{number}" for number in range(length)]
    for number, name in enumerate(names):
        hand.put(name, names[number - 1] if number else None).write(name, ("m", number))
    hand.put("d", names[-1])
    with kept.rows.transaction(hand.thread) as txn:
        txn.reparent("", names[0], names[-1])
    with pytest.raises(LineageError, match="own ancestor"):
        ONE_PASS.history(kept.saver, at(hand.thread, "d"), ["m"])


def test_shared_versions(kept: Kept) -> None:
    """A child that did not change a channel shows its parent's blob (not on SQLite)."""
    hand = kept.hand()
    hand.put("c1", None, {"m": ["full"], "p": 1}).write("c1", ("m", 1))
    hand.put("c2", "c1").write("c2", ("m", 2))
    hand.put("c3", "c2", moved="m").write("c3", ("m", 3))
    hand.put("c4", "c3", moved="m")
    read(kept, hand, "c4", ["m", "p"])


def test_writes_without_a_checkpoint_are_not_read(kept: Kept) -> None:
    """Orphans whose id lies inside the range of the chain."""
    hand, parent = kept.hand(), None
    for number in range(0, 40, 2):
        hand.put(f"c{number:02}", parent, moved="m").write(f"c{number:02}", ("m", number))
        hand.write(f"c{number + 1:02}", ("m", "orphan"))
        parent = f"c{number:02}"
    found = read(kept, hand, parent, ["m"])
    assert values(found) == list(range(0, 38, 2))
    read(kept, hand, parent, ["m", "n"])


def test_unknown_targets(kept: Kept) -> None:
    hand = kept.hand().put("c2").write("c2", ("m", 1))
    for name in ("c0", "c1", "c3"):
        assert read(kept, hand, name, ["m"]).histories == {"m": {"writes": []}}
    unknown = ONE_PASS.history(kept.saver, at(f"{hand.thread}-none"), ["m"])
    assert unknown == {"m": {"writes": []}}
    assert ONE_PASS.history(kept.saver, at(hand.thread, "c2"), []) == {}


def test_newest_and_namespaces(kept: Kept) -> None:
    hand = kept.hand(space="sub:1")
    hand.put("c1", None, {"m": snapshot(1)}).write("c1", ("m", 1)).put("c2", "c1", moved="m")
    other = kept.hand(hand.thread)
    other.put("c1").write("c1", ("m", "root")).put("c9", "c1", moved="m")
    assert values(read(kept, hand, None, ["m"])) == [1]
    assert values(read(kept, other, None, ["m"])) == ["root"]


@pytest.mark.parametrize("side", [1, 2, 7])
@pytest.mark.parametrize("every", [1, 3, 40])
def test_forks(kept: Kept, every: int, side: int) -> None:
    """Side branches inside the range of ids, few and many, short and long."""
    hand, parent, number = kept.hand(), None, 0
    for step in range(80):
        name = f"c{number:04}"
        hand.put(name, parent, {"m": snapshot(step)} if step == 3 else {}, moved="m")
        hand.write(name, ("m", step), ("n", -step))
        if step % every == 0:
            tip = parent
            for _ in range(side):
                number += 1
                other = f"c{number:04}"
                hand.put(other, tip, {"m": snapshot("x")} if step % 2 else {}, moved="m")
                hand.write(other, ("m", "side"))
                tip = other
        number += 1
        parent = name
    assert values(read(kept, hand, parent, ["m"])) == list(range(3, 79))
    read(kept, hand, parent, ["n", "m"])
    asyncio.run(aread(kept, hand, [parent], ["m", "n"]))


# --- random threads -----------------------------------------------------------------------------

CHANNELS = "abp"


@st.composite
def threads(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Forks, ids in any order, snapshots, plain seeds and None, shared versions, lost parents."""
    nodes = []
    seeds = st.sampled_from([None, None, None, snapshot(1), [2], 3, "text", True, "none"])
    for number in range(draw(st.integers(2, 14))):
        held = {name: draw(seeds) for name in CHANNELS}
        nodes.append(
            {
                "parent": draw(st.integers(max(0, number - 3), number - 1)) if number else None,
                "values": {
                    name: None if value == "none" else value
                    for name, value in held.items()
                    if value is not None
                },
                "moved": draw(st.sampled_from(["", "a", "ab", "p"])),
                "writes": draw(st.lists(st.sampled_from(CHANNELS), max_size=3)),
                "lost": draw(st.integers(0, 15)) == 0,
            }
        )
    order = draw(st.one_of(st.just(list(range(14))), st.permutations(range(14))))
    for number, node in enumerate(nodes):
        node["name"] = f"c{order[number]:02}"
    return nodes


def build(kept: Kept, nodes: Sequence[dict[str, Any]]) -> Hand:
    hand = kept.hand()
    for node in nodes:
        parent = None if node["parent"] is None else nodes[node["parent"]]["name"]
        hand.put(node["name"], parent, node["values"], moved=node["moved"])
        for number, channel in enumerate(node["writes"]):
            task, path = f"t{(7 * number) % 5}", f"~{(3 * number) % 4}"
            hand.write(node["name"], (channel, f"{node['name']}-{number}"), task=task, path=path)
    lost = [("", node["name"]) for node in nodes if node["lost"]]
    with kept.rows.transaction(hand.thread) as txn:
        txn.delete_checkpoints(lost)
    return hand


def test_random_threads(kept: Kept) -> None:
    """On every checkpoint, one channel and several, sync and async."""

    @given(threads(), st.permutations(CHANNELS), st.booleans())
    @settings(max_examples=15, deadline=None, database=None)
    def check(nodes: list[dict[str, Any]], channels: list[str], also_async: bool) -> None:
        hand = build(kept, nodes)
        names = [node["name"] for node in nodes]
        for name in names:
            several = read(kept, hand, name, channels)
            alone = ONE_PASS.history(kept.saver, at(hand.thread, name), [channels[0]])
            assert alone[channels[0]] == several.histories[channels[0]]
        if also_async:
            asyncio.run(aread(kept, hand, names, channels))

    check()


# --- with the real runtime ----------------------------------------------------------------------


def extend(state: list[Any] | None, writes: Sequence[list[Any]]) -> list[Any]:
    return [*(state or []), *(item for write in writes for item in write)]


class State(TypedDict):
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=4)]
    all: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=1000)]
    step: int


def graph_of(saver: BaseCheckpointSaver[Any]) -> Any:
    def work(state: State) -> dict[str, Any]:
        step = state["step"]
        return {"log": [f"log {step}"], "all": [len(state["log"])], "step": step + 1}

    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if state["step"] % 5 else END)
    return graph.compile(checkpointer=saver)


def run(graph: Any, config: Any, durability: str) -> dict[str, Any]:
    """Two runs, a branch from the middle of the first, and an update."""
    graph.invoke({"step": 0}, config, durability=durability)
    middle = list(graph.get_state_history(config))[1].config
    graph.invoke({"step": 10}, config, durability=durability)
    graph.update_state(config, {"log": ["updated"]}, as_node="work")
    graph.invoke({"step": 20}, middle, durability=durability)
    states = [(s.config, s.values) for s in graph.get_state_history(config)]
    return {"states": states, "head": graph.get_state(config).values}


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("name", NAMES)
def test_a_real_graph_runs_on_each_walk(kept: Kept, name: str, durability: str) -> None:
    thread = kept.hand().thread
    saver = with_walk(kept.saver, name)
    assert isinstance(saver, type(kept.saver))
    graph = graph_of(saver)
    seen = run(graph, at(thread), durability)
    plain = graph_of(kept.saver)
    for config, held in seen["states"]:
        assert plain.get_state(config).values == held
    assert seen["head"] == plain.get_state(at(thread)).values
    for config, _ in seen["states"]:
        expected = walk("base").history(kept.saver, config, ["log", "all"])
        assert walk(name).history(saver, config, ["log", "all"]) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_real_async_graph(kept: Kept, name: str) -> None:
    thread = kept.hand().thread

    async def play() -> tuple[Any, Any]:
        async with kept.store.asaver() as opened:
            saver = kept.saver if kept.name == "memory" else opened
            graph = graph_of(with_walk(saver, name))
            await graph.ainvoke({"step": 0}, at(thread))
            await graph.ainvoke({"step": 10}, at(thread))
            told = await graph.aget_state(at(thread))
            # The sync api from another thread than the loop's, as the savers allow.
            bridged = await asyncio.to_thread(
                walk(name).history, with_walk(saver, name), told.config, ["all"]
            )
            return told, bridged

    told, bridged = asyncio.run(play())
    assert told.values == graph_of(kept.saver).get_state(at(thread)).values
    assert bridged == walk("base").history(kept.saver, told.config, ["all"])


# --- what a walk costs --------------------------------------------------------------------------


def long_thread(saver: BaseCheckpointSaver[Any], thread: str, length: int) -> None:
    """A line of checkpoints with a write each, and a snapshot one step before the head."""
    hand = Hand(saver, thread)
    parent = None
    for number in range(length):
        held = {"m": snapshot("s")} if number == length - 2 else {}
        hand.put(f"c{number:05}", parent, held, moved="m")
        hand.write(f"c{number:05}", ("m", number))
        parent = f"c{number:05}"


def sqlite_steps(connection: sqlite3.Connection, block: Callable[[], object]) -> tuple[int, int]:
    """Statements, and virtual-machine steps."""
    statements: list[str] = []
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_trace_callback(statements.append)
    connection.set_progress_handler(count, 1)
    block()
    connection.set_progress_handler(None, 0)
    connection.set_trace_callback(None)
    return len(statements), steps


def test_sqlite_reads_no_more_of_a_long_thread() -> None:
    """Snapshot one step away: the same steps on 50 checkpoints and on 5,000."""
    saver = SqliteSaver(sqlite3.connect(":memory:", check_same_thread=False))
    costs = []
    for length in (50, 5_000):
        long_thread(saver, str(length), length)
        config = at(str(length), f"c{length - 1:05}")
        base = walk("base").history(saver, config, ["m"])
        assert walk("onepass").history(saver, config, ["m"]) == base
        costs.append(
            sqlite_steps(saver.conn, partial(walk("onepass").history, saver, config, ["m"]))
        )
    assert costs[0] == costs[1]
    assert costs[0][0] == 2


@pytest.mark.parametrize("padding", [0, 5_000])
@pytest.mark.parametrize("longer", [17, 18, 33])
def test_sqlite_takes_no_text_in_a_value_for_the_values(longer: int, padding: int) -> None:
    """Where another checkpoint, with a longer timestamp, had them."""
    saver = SqliteSaver(sqlite3.connect(":memory:", check_same_thread=False))
    hand, pad = Hand(saver, "t"), {"p": "P" * padding}

    def put(name: str, parent: str | None, values: dict[str, Any], ts: str = "") -> None:
        checkpoint: Any = {"v": 4, "ts": f"2026-01-01T00:00:00+00:00{ts}", "id": name}
        checkpoint |= {"channel_values": values | pad, "channel_versions": {"m": "1"}}
        checkpoint |= {"versions_seen": {}, "updated_channels": None}
        saver.put(at(hand.thread, parent), checkpoint, {}, {})

    put("c0", None, {"m": ["channel_values"] * 2})
    put("c1", "c0", {}, "t" * longer)
    put("c2", "c1", {})
    put("c3", "c2", {})
    config = at(hand.thread, "c3")
    found = walk("onepass").history(saver, config, ["m"])
    assert found == walk("base").history(saver, config, ["m"])
    assert found["m"]["seed"] == ["channel_values"] * 2


def test_sqlite_takes_half_the_steps_of_the_savers_own() -> None:
    saver = SqliteSaver(sqlite3.connect(":memory:", check_same_thread=False))
    hand, parent = Hand(saver, "t"), None
    for number in range(300):
        hand.put(f"c{number:03}", parent, {"branch": None}, moved="m")
        hand.write(f"c{number:03}", ("m", {"n": number}), ("branch", None))
        parent = f"c{number:03}"
    config = at("t", parent)

    def steps(name: str) -> int:
        return sqlite_steps(saver.conn, lambda: walk(name).history(saver, config, ["m"]))[1]

    assert steps("onepass") * 2 <= steps("native")


def test_memory_builds_only_what_it_returns() -> None:
    saver = InMemorySaver()
    long_thread(saver, "t", 500)
    loads, count = saver.serde.loads_typed, 0

    class Serde(type(saver.serde)):  # type: ignore[misc]
        def loads_typed(self, data: Any) -> Any:
            nonlocal count
            count += 1
            return loads(data)

    saver.serde = Serde()
    config = at("t", "c00499")
    found = walk("onepass").history(saver, config, ["m"])
    assert (len(found["m"]["writes"]), count) == (1, 2)  # the write, and the seed


# --- the registry and its refusals --------------------------------------------------------------


def test_names() -> None:
    assert {"base", "native", "onepass", "cached"} <= set(walks())
    for name, each in walks().items():
        assert each.name == name
        assert each.title
        assert walk(name) is each
    with pytest.raises(UsageError, match="did you mean 'onepass'"):
        walk("onepas")


class Foreign(InMemorySaver):
    """Somebody's saver."""


def test_refusals() -> None:
    class Other(BaseCheckpointSaver[str]):
        pass

    other = Other()
    assert walk("base").supports(other)
    assert not walk("native").supports(other)
    assert not walk("onepass").supports(other)
    with pytest.raises(Unsupported, match="use 'base'"):
        with_walk(other, "onepass")
    with pytest.raises(Unsupported):
        walk("onepass").history(other, at("t"), ["m"])
    sync = SqliteSaver(sqlite3.connect(":memory:"))
    for name in ("base", "native", "onepass"):
        with pytest.raises(Unsupported, match=r"history\(\)"):
            asyncio.run(walk(name).ahistory(sync, at("t"), ["m"]))
    assert walk("onepass").supports(Foreign())


def test_refuse_broken() -> None:
    class Strict(OnePassHistory, InMemorySaver):
        refuse_broken = True

    saver = Strict()
    hand = Hand(saver, "t").put("c2", "c1", moved="m").put("c3", "c2", moved="m")
    with pytest.raises(LineageError, match="names parent c1"):
        saver.get_delta_channel_history(config=at(hand.thread, "c3"), channels=["m"])


def test_with_walk_leaves_the_saver_alone() -> None:
    saver = InMemorySaver()
    other = with_walk(saver, "onepass")
    assert type(saver) is InMemorySaver
    assert other.storage is saver.storage
    clone = other.with_allowlist([("somewhere", "Something")])
    asked: Mapping[str, Any] = clone.get_delta_channel_history(config=at("t"), channels=["m"])
    assert asked == {"m": {"writes": []}}
    assert type(clone) is type(other)


# --- cached -------------------------------------------------------------------------------------


def test_the_cache_answers_and_forgets(kept: Kept) -> None:
    """A second read asks the store nothing; the saver's own deletion is seen at once."""
    saver = with_walk(kept.saver, "cached")
    hand = Hand(saver, kept.hand().thread)
    hand.put("c1", None, {"m": snapshot("s")}).write("c1", ("m", 1)).put("c2", "c1", moved="m")
    cached = walk("cached")
    assert isinstance(cached, CachedWalk)
    cache = cached.cache(saver)
    config = at(hand.thread, "c2")
    expected = walk("base").history(kept.saver, config, ["m"])
    for clone in (saver, saver.with_allowlist([("somewhere", "Something")])):
        found = clone.get_delta_channel_history(config=config, channels=["m"])
        assert found == expected
    assert (cache.misses, cache.hits) == (1, 1)
    saver.delete_thread(thread_id=hand.thread)
    assert not cache.knows(hand.thread)
    again = saver.get_delta_channel_history(config=config, channels=["m"])
    assert again == {"m": {"writes": []}}
    assert (type(saver).prune is BaseCheckpointSaver.prune) == (
        type(kept.saver).prune is BaseCheckpointSaver.prune
    )


# --- mixed into a saver -------------------------------------------------------------------------


def test_mixed_into_each_kind_of_postgres_connection(kept: Kept) -> None:
    """Pools, pipelines and connections with another row factory serve it, and a graph runs."""
    if kept.name != "postgres":
        pytest.skip("one store is enough")
    from psycopg import Connection
    from psycopg.rows import dict_row, tuple_row
    from psycopg_pool import ConnectionPool

    class FastPostgresSaver(OnePassHistory, PostgresSaver):
        pass

    hand, parent = kept.hand(), None
    for number in range(60):
        hand.put(f"c{number:02}", parent, moved="m").write(f"c{number:02}", ("m", number))
        parent = f"c{number:02}"
    config = at(hand.thread, parent)
    expected = history(kept, hand.thread, str(parent), ["m"])
    dsn = make_dsn(kept)
    with Connection.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        for factory in (dict_row, tuple_row):
            connection.row_factory = factory  # type: ignore[assignment]
            saver = FastPostgresSaver(connection)
            assert saver.get_delta_channel_history(config=config, channels=["m"]) == expected
        connection.row_factory = dict_row
        with connection.pipeline() as pipe:
            saver = FastPostgresSaver(connection, pipe)
            for _ in range(8):
                found = saver.get_delta_channel_history(config=config, channels=["m"])
                assert found == expected
            run(graph_of(saver), at(kept.hand().thread), "sync")
    options: Any = {"autocommit": True, "row_factory": dict_row}
    with ConnectionPool(dsn, min_size=1, max_size=2, kwargs=options) as pool:
        pooled: Any = FastPostgresSaver(pool)
        assert pooled.get_delta_channel_history(config=config, channels=["m"]) == expected
        seen = run(graph_of(pooled), at(kept.hand().thread), "sync")
    plain = graph_of(kept.saver)
    assert all(plain.get_state(where).values == values for where, values in seen["states"])


def make_dsn(kept: Kept) -> str:
    """How to connect to the store's own database."""
    info = kept.saver.conn.info  # type: ignore[attr-defined]
    return f"{info.dsn} password={info.password}" if info.password else str(info.dsn)


def test_postgres_takes_one_statement_on_a_line_and_few_on_forks(kept: Kept) -> None:
    if kept.name != "postgres":
        pytest.skip("counts what psycopg executes")
    hand, parent = kept.hand(), None
    for number in range(300):
        name = f"c{number:03}"
        hand.put(name, parent, {"n": snapshot(1)} if number == 290 else {}, moved="mn")
        hand.write(name, ("m", number), ("n", number))
        parent = name
    config = at(hand.thread, parent)

    def statements(channels: list[str]) -> int:
        saver: Any = kept.saver
        count, own = 0, saver._cursor

        @contextmanager
        def cursor(**options: Any) -> Iterator[Any]:
            nonlocal count
            count += 1
            with own(**options) as lent:
                yield lent

        saver._cursor = cursor
        try:
            read_only = ONE_PASS.history(saver, config, channels)
        finally:
            del saver._cursor
        assert read_only == history(kept, hand.thread, str(parent), channels)
        return count

    assert [statements(["m"]), statements(["n"]), statements(["m", "n"])] == [1, 1, 1]
    hand.put("c200x", "c200", moved="m").write("c200x", ("m", "side"))
    assert [statements(["m"]), statements(["n"])] == [2, 1]


def test_async_saver_from_its_own_loop_is_refused(kept: Kept) -> None:
    if kept.name == "memory":
        pytest.skip("has both apis")

    async def ask() -> None:
        async with kept.store.asaver() as saver:
            with pytest.raises(Unsupported, match="ahistory"):
                ONE_PASS.history(saver, at("t"), ["m"])

    asyncio.run(ask())


# --- forms that only some threads need ----------------------------------------------------------


def dense(hand: Hand, length: int) -> str:
    """A chain with a side checkpoint after each of its own."""
    parent = None
    for number in range(length):
        name = f"c{number:03}"
        hand.put(name, parent, moved="m").write(name, ("m", number))
        hand.put(f"{name}x", name, moved="m").write(f"{name}x", ("m", "side"))
        parent = name
    return str(parent)


def test_links_in_several_statements(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("savermark.history.walks.postgres.CHUNK", 7)
    hand = kept.hand()
    assert values(read(kept, hand, dense(hand, 60), ["m"])) == list(range(59))
    broken = kept.hand()
    tip = dense(broken, 60)
    with kept.rows.transaction(broken.thread) as txn:
        txn.delete_checkpoints([("", "c020")])
    found = read(kept, broken, tip, ["m"])
    assert values(found) == list(range(21, 59))
    assert found.broken == {"m": "c020"}


def test_many_channels(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("savermark.history.walks.sqlite._NAMES", 3)
    names = [f"m{number}" for number in range(8)]
    hand, parent = kept.hand(), None
    for number in range(12):
        name = f"c{number:02}"
        held = {names[number]: snapshot(number)} if number < 6 else {}
        hand.put(name, parent, held, moved=names)
        hand.write(name, *((channel, number) for channel in names))
        parent = name
    found = read(kept, hand, parent, names)
    assert [values(found, name)[0] for name in names] == [0, 1, 2, 3, 4, 5, 0, 0]


@pytest.mark.parametrize("size", [100, 3_000, 30_000])
def test_checkpoints_of_any_size(kept: Kept, size: int) -> None:
    """Other channels of any form before and behind the one sought, in one large value or many."""
    hand, parent = kept.hand(), None
    others: list[Any] = ["x" * size, [{"a": ["y" * size, 1.5, None]}], list(range(size // 9))]
    others += [b"z" * size, {str(n): n for n in range(40)}, -5, 2**40, ("m", "n"), True]
    for number in range(40):
        name = f"c{number:02}"
        held = {f"o{place}": other for place, other in enumerate(others) if number % 9 != place}
        if number == 7:
            held = {"before": 1, "m": snapshot("s"), **held}
        if number == 11:
            held = {**held, "n": [11]}
        hand.put(name, parent, held if number % 5 else {"m2": ["m", "n"]}, moved="mn")
        hand.write(name, ("m", number), ("n", number))
        parent = name
    found = read(kept, hand, parent, ["m", "n"])
    assert values(found, "m") == list(range(7, 39))
    assert values(found, "n") == list(range(11, 39))
    assert values(read(kept, hand, parent, ["m"])) == list(range(7, 39))


class Odd(JsonPlusSerializer):
    """Writes a form of its own."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        tag, data = super().dumps_typed(obj)
        return f"odd-{tag}", data[::-1]

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed((data[0].removeprefix("odd-"), data[1][::-1]))


@pytest.mark.parametrize("serde", [Odd(), JsonPlusSerializer(pickle_fallback=True)])
@pytest.mark.parametrize("size", [10, 9_000])
def test_other_serializers(serde: Any, size: int) -> None:
    saver = SqliteSaver(sqlite3.connect(":memory:", check_same_thread=False), serde=serde)
    for each in (saver, InMemorySaver(serde=serde)):
        hand, parent = Hand(each, "t"), None
        for number in range(20):
            name = f"c{number:02}"
            held = {"o": ["x" * size, {1, 2}]} | ({"m": snapshot(1)} if number == 4 else {})
            hand.put(name, parent, held, moved="m").write(name, ("m", number))
            parent = name
        found = walk("onepass").history(each, at("t", parent), ["m"])
        assert found == walk("base").history(each, at("t", parent), ["m"])
        assert len(found["m"]["writes"]) == 15


def test_long_names(kept: Kept) -> None:
    """A channel's name may be longer than what is looked at in one go."""
    long = "n" * 400
    hand, parent = kept.hand(), None
    for number in range(12):
        name = f"c{number:02}"
        held = {long: snapshot(1)} if number == 3 else {}
        hand.put(name, parent, {"o": ["x" * 6_000], **held, "p": ["y"]}, moved=[long])
        hand.write(name, (long, number))
        parent = name
    assert values(read(kept, hand, parent, [long]), long) == list(range(3, 11))


def test_a_channel_with_stored_values_is_not_sought_in_whole_threads() -> None:
    plans = Plans()
    plans.covers("messages", 100, root=True)
    assert plans.windows["messages"] > 100
    plans.seeded.add("messages")
    plans.covers("messages", 100, root=True)
    assert "messages" not in plans.windows
    plans.covers("messages", 3, root=True)
    assert plans.windows["messages"] == 4
