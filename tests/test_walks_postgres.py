"""The one-pass walk on Postgres: memory changes its statements only, and its counts repeat."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from fix_threads import Hand, Kept, at, history, snapshot
from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.history.rows import row_access
from savermark.history.walks import OnePassHistory, postgres_window
from savermark.history.walks.onepass import ONE_PASS
from savermark.history.walks.postgres_plans import plans_of
from savermark.meter import Counts, acount, count
from test_walks import CHANNELS, build, graph_of, make_dsn, run, threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@pytest.fixture
def postgres(kept: Kept) -> Iterator[Kept]:
    """The Postgres store alone; what its saver remembers is forgotten before and after."""
    if kept.name != "postgres":
        pytest.skip("Postgres only")
    _forget(kept)
    yield kept
    _forget(kept)


@pytest.fixture
def empty(postgres_dsn: str, tmp_path: Path) -> Iterator[Kept]:
    """A store of its own, whose tables nobody has analyzed."""
    store = get_backend("postgres").create(Location(tmp_path, "walks-alone", postgres_dsn))
    with store.saver() as saver:
        yield Kept("postgres", store, saver, row_access(saver))
    store.destroy()


def _forget(kept: Kept) -> None:
    plans = plans_of(kept.saver)
    plans.windows.clear()
    plans.seeded.clear()
    plans.long.clear()
    plans.mixed.clear()
    plans.walks = 0


def line(hand: Hand, length: int, seed: int | None = None) -> str:
    """A chain with a write each and, if asked, one snapshot."""
    parent = None
    for number in range(length):
        name = f"c{number:05}"
        hand.put(name, parent, {"m": snapshot("s")} if number == seed else {}, moved="m")
        hand.write(name, ("m", number))
        parent = name
    return str(parent)


def statements(kept: Kept, hand: Hand, name: str | None) -> int:
    """How many it takes; the answer is that of the base walk."""
    config = at(hand.thread, name)
    taken = count(kept.saver, lambda: ONE_PASS.history(kept.saver, config, ["m"]), warmup=0)
    tip = name or str(kept.saver.get_tuple(config).config["configurable"]["checkpoint_id"])  # type: ignore[union-attr]
    assert ONE_PASS.history(kept.saver, config, ["m"]) == history(kept, hand.thread, tip, ["m"])
    assert taken.statements is not None
    return taken.statements


# --- windows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("window", [4, 16, 8_192])
def test_windows_on_random_threads(postgres: Kept, window: int, seeded: bool) -> None:
    """Whatever window is remembered, and whether or not stored values are expected."""
    plans = plans_of(postgres.saver)

    @given(threads(), st.sampled_from(CHANNELS))
    @settings(max_examples=12, deadline=None, database=None)
    def check(nodes: list[dict[str, Any]], channel: str) -> None:
        hand = build(postgres, nodes)
        for node in [*nodes, None]:
            name = node["name"] if node else None
            plans.windows[channel] = window
            plans.seeded = {channel} if seeded else set()
            found = ONE_PASS.trail(postgres.saver, at(hand.thread, name), [channel])
            plans.windows.clear()
            assert found == ONE_PASS.trail(postgres.saver, at(hand.thread, name), [channel])
            if name:
                assert found.histories == history(postgres, hand.thread, name, [channel])

    check()


@pytest.mark.parametrize("length", [2, 10, 40])
@pytest.mark.parametrize("newest", [False, True])
def test_a_window_takes_one_statement(postgres: Kept, length: int, newest: bool) -> None:
    """To the root, with a fork in it, and to a snapshot."""
    hand = postgres.hand()
    tip = line(hand, length)
    name = None if newest else tip
    assert [statements(postgres, hand, name) for _ in range(3)] == [1, 1, 1]
    assert plans_of(postgres.saver).windows["m"] == (16 if length < 16 else 8_192)
    hand.put("c00000x", "c00000", moved="m").write("c00000x", ("m", "side"))
    assert statements(postgres, hand, name) == 1
    other = postgres.hand()
    tip = line(other, length, length - 2)
    name = None if newest else tip
    assert statements(postgres, other, name) <= 2  # the first value stored of this channel
    assert [statements(postgres, other, name) for _ in range(3)] == [1, 1, 1]
    assert plans_of(postgres.saver).windows["m"] == 4


def test_a_window_that_is_too_small(postgres: Kept) -> None:
    """The other statements are asked then, and it is forgotten."""
    hand = postgres.hand()
    tip = line(hand, 30, 2)
    plans = plans_of(postgres.saver)
    plans.windows["m"], plans.seeded = 8, {"m"}
    assert statements(postgres, hand, tip) == 2
    assert "m" not in plans.windows
    assert statements(postgres, hand, tip) == 1


def test_a_seed_of_another_branch_is_not_taken(postgres: Kept) -> None:
    hand = postgres.hand()
    hand.put("c1", None, {"m": snapshot("mine")}).write("c1", ("m", 1))
    hand.put("c2", "c1", {"m": snapshot("other")}).write("c2", ("m", 2))
    hand.put("c3", "c1", moved="m").write("c3", ("m", 3))
    hand.put("c4", "c3", moved="m")
    plans = plans_of(postgres.saver)
    plans.windows["m"], plans.seeded = 16, {"m"}
    assert statements(postgres, hand, "c4") > 1
    found = ONE_PASS.history(postgres.saver, at(hand.thread, "c4"), ["m"])["m"]
    assert found["seed"] == snapshot("mine")


def test_ids_with_the_separator_are_read_otherwise(postgres: Kept) -> None:
    hand = postgres.hand()
    hand.put("a\x01b").write("a\x01b", ("m", 1)).put("c", "a\x01b", moved="m")
    plans_of(postgres.saver).windows["m"] = 16
    assert statements(postgres, hand, "c") > 1


# --- answers read piece by piece ----------------------------------------------------------------


@pytest.fixture
def streamed(postgres: Kept, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """A store whose chains all count as long, read two rows at a time."""
    monkeypatch.setattr("savermark.history.walks.postgres_plans._LONG", 2)
    monkeypatch.setattr("savermark.history.walks.postgres._STREAMED", 2)
    _forget(postgres)
    yield postgres
    _forget(postgres)


def test_a_long_chain_is_read_piece_by_piece(streamed: Kept) -> None:
    """In one statement, and as the base walk reads it; a fork in the range is passed over."""
    hand = streamed.hand()
    tip = line(hand, 40)
    assert [statements(streamed, hand, tip) for _ in range(2)] == [1, 1]
    assert plans_of(streamed.saver).long == {"m"}
    hand.put("c00000x", "c00000", moved="m").write("c00000x", ("m", "side"))
    assert statements(streamed, hand, tip) == 1


def test_an_answer_that_does_not_hold_the_chain_is_read_to_its_end(streamed: Kept) -> None:
    """A cancelled statement would cost a second connection; the next one is asked on this."""
    hand = streamed.hand()
    tip = line(hand, 40)
    statements(streamed, hand, tip)
    broken = streamed.hand()
    line(broken, 30)
    broken.put("c99999", "c00003x", moved="m")
    config = at(broken.thread, "c99999")
    assert ONE_PASS.trail(streamed.saver, config, ["m"]).broken == {"m": "c00003x"}
    many = streamed.hand()
    tip = line(many, 30)
    many.write("c00007", ("m", "another"), task="00000000-other")
    plans_of(streamed.saver).windows["m"] = 8_192
    plans_of(streamed.saver).long.add("m")
    statements(streamed, many, tip)
    assert plans_of(streamed.saver).windows["m"] == 0


def test_a_value_that_cannot_be_built_leaves_the_connection_usable(
    streamed: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = streamed.hand()
    tip = line(hand, 40)
    statements(streamed, hand, tip)
    config, taken = at(hand.thread, tip), []

    def fail(value: tuple[str, bytes]) -> Any:
        taken.append(value)
        if len(taken) > 3:
            raise ValueError("no such type")
        return None

    with monkeypatch.context() as patch:
        patch.setattr(streamed.saver.serde, "loads_typed", fail)
        with pytest.raises(ValueError, match="no such type"):
            try:
                ONE_PASS.history(streamed.saver, config, ["m"])
            except ValueError:  # while it is handled, its traceback keeps the frames of the walk
                connection = streamed.saver.conn  # type: ignore[attr-defined]
                assert connection.lock.acquire(timeout=5)
                connection.lock.release()
                assert connection.execute("SELECT 1").fetchone()
                raise
    assert len(taken) == 4
    assert statements(streamed, hand, tip) == 1


def test_a_serializer_that_asks_the_same_connection_is_served(
    streamed: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its values are built when all rows are there and the connection is free."""
    hand = streamed.hand()
    tip = line(hand, 40)
    statements(streamed, hand, tip)
    inner, connection = streamed.saver.serde, streamed.saver.conn  # type: ignore[attr-defined]

    class Asking(JsonPlusSerializer):
        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            connection.execute("SELECT 1")
            return inner.loads_typed(data)

    monkeypatch.setattr(streamed.saver, "serde", Asking())
    found = ONE_PASS.history(streamed.saver, at(hand.thread, tip), ["m"])
    assert len(found["m"]["writes"]) == 39


def test_what_others_learn_meanwhile_changes_no_answer(
    postgres: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans are shared by all who use a connection or pool."""
    hand = postgres.hand()
    for number in range(6):
        values = {"m": snapshot("s")} if number == 3 else {}
        hand.put(f"c{number}", f"c{number - 1}" if number else None, values, moved="m")
    hand.write("c4", ("m", 4))
    for _ in range(4):
        statements(postgres, hand, "c5")
    assert plans_of(postgres.saver).seeded == {"m"}
    found = postgres_window._found

    def disturbed(*args: Any) -> Any:
        _forget(postgres)
        return found(*args)

    monkeypatch.setattr(postgres_window, "_found", disturbed)
    assert statements(postgres, hand, "c5") == 1


def test_threads_of_unlike_length_in_turn_take_one_statement_each(postgres: Kept) -> None:
    short, long = postgres.hand(), postgres.hand()
    tips = line(short, 10), line(long, 60)
    for _ in range(2):
        taken = [statements(postgres, *each) for each in zip((short, long), tips, strict=True)]
    assert taken == [1, 1]


# --- counts -------------------------------------------------------------------------------------


def lengthen(kept: Kept, hand: Hand, count: int) -> str:
    """Copies of the thread's one checkpoint and its write, a line; returns the last."""
    name = "'b' || lpad(({})::text, 6, '0')"
    this, last = name.format("n"), name.format("n - 1")
    with kept.saver._cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute(
            f"INSERT INTO checkpoints SELECT thread_id, checkpoint_ns, {this}, "
            f"CASE WHEN n = 1 THEN checkpoint_id ELSE {last} END, type, checkpoint, metadata "
            "FROM checkpoints, generate_series(1, %s) AS n WHERE thread_id = %s",
            (count, hand.thread),
        )
        cursor.execute(
            "INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, "
            f"channel, type, blob) SELECT thread_id, checkpoint_ns, {this}, task_id, idx, channel, "
            "type, blob FROM checkpoint_writes, generate_series(1, %s) AS n WHERE thread_id = %s",
            (count, hand.thread),
        )
    return f"b{count:06}"


def costs(kept: Kept, hand: Hand, name: str, channels: Sequence[str] = ("m",)) -> Counts:
    """Warm: it has asked what has grown, and taken to a plan."""
    config = at(hand.thread, name)
    return count(kept.saver, lambda: ONE_PASS.history(kept.saver, config, channels), warmup=16)


@pytest.mark.parametrize("channels", [("m",), ("m", "n")])
def test_rows_do_not_depend_on_the_length_of_a_thread(
    empty: Kept, channels: tuple[str, ...]
) -> None:
    """The snapshot is one step away: as many rows and bytes on 50 as on 5,000.

    Blocks are those of descents of the indexes, which may be a level deeper.
    """
    found = []
    for length in (50, 5_000):
        hand = empty.hand(f"length-{length:05}-{len(channels)}")
        hand.put("a", moved="mn").write("a", ("m", 0))
        parent = lengthen(empty, hand, length)
        values = {name: snapshot(1) for name in channels}
        hand.put("c1", parent, values, moved=channels).write("c1", ("m", 1))
        hand.put("c2", "c1", moved=channels)
        found.append(costs(empty, hand, "c2", channels))
        expected = history(empty, hand.thread, "c2", channels)
        assert ONE_PASS.history(empty.saver, at(hand.thread, "c2"), channels) == expected
    short, long = found
    assert (short.statements, short.round_trips, short.values) == (1, 1, len(channels) + 1)
    for name in ("statements", "round_trips", "rows", "bytes", "values"):
        assert getattr(short, name) == getattr(long, name)
    assert short.blocks is not None
    assert long.blocks is not None
    assert long.blocks <= short.blocks + 12


@pytest.mark.parametrize("seed", [None, 5, 27])
def test_counts_repeat_to_the_digit(postgres: Kept, seed: int | None) -> None:
    """Over more calls than it takes to ask again what has grown; in one channel and in two.

    Blocks need a store that nobody else writes to: `test_meter` has one.
    """
    hand = postgres.hand()
    tip = line(hand, 30, seed)
    for channels in (("m",), ("m", "n")):
        call = partial(ONE_PASS.history, postgres.saver, at(hand.thread, tip), channels)
        seen = {replace(count(postgres.saver, call), blocks=None)}
        seen |= {replace(count(postgres.saver, call, warmup=0), blocks=None) for _ in range(12)}
        assert len(seen) == 1


# --- mixed into an async saver ------------------------------------------------------------------


class FastAsyncSaver(OnePassHistory, AsyncPostgresSaver):
    """As the docs show it."""


def test_each_kind_of_async_connection(postgres: Kept) -> None:
    """A pool, a pipeline and connections with another row factory serve it, and a graph runs."""
    from psycopg import AsyncConnection
    from psycopg.rows import dict_row, tuple_row
    from psycopg_pool import AsyncConnectionPool

    hand, dsn = postgres.hand(), make_dsn(postgres)
    config = at(hand.thread, line(hand, 60))
    expected = history(postgres, hand.thread, "c00059", ["m"])
    options: Any = {"autocommit": True, "row_factory": dict_row}

    async def agree(saver: FastAsyncSaver) -> None:
        for _ in range(8):
            found = await saver.aget_delta_channel_history(config=config, channels=["m"])
            assert found == expected

    async def play(saver: FastAsyncSaver) -> Any:
        graph, where = graph_of(saver), at(postgres.hand().thread)
        await graph.ainvoke({"step": 0}, where)
        await graph.ainvoke({"step": 10}, where)
        told = await graph.aget_state(where)
        assert graph_of(postgres.saver).get_state(where).values == told.values

    async def check() -> None:
        async with await AsyncConnection.connect(dsn, **options) as connection:
            for factory in (tuple_row, dict_row):
                connection.row_factory = factory
                await agree(FastAsyncSaver(connection))
            async with connection.pipeline() as pipe:
                saver = FastAsyncSaver(connection, pipe)
                await agree(saver)
                await play(saver)
        async with AsyncConnectionPool(
            dsn, min_size=1, max_size=2, open=False, kwargs=options
        ) as pool:
            lent: Any = pool
            pooled = FastAsyncSaver(lent)
            await agree(pooled)
            await asyncio.gather(*(agree(pooled) for _ in range(4)))
            await play(pooled)

    asyncio.run(check())


def test_async_counts_are_those_of_the_sync_saver(postgres: Kept) -> None:
    hand = postgres.hand()
    tip = line(hand, 20, 12)
    config = at(hand.thread, tip)

    async def ask() -> Counts:
        async with postgres.store.asaver() as saver:
            return await acount(saver, lambda: ONE_PASS.ahistory(saver, config, ["m"]))

    assert asyncio.run(ask()) == costs(postgres, hand, tip)


def test_somebodys_own_cursor_is_used(postgres: Kept) -> None:
    """One put into the object or a subclass is not passed by."""
    hand = postgres.hand()
    config = at(hand.thread, line(hand, 3))
    saver: Any = postgres.saver
    lent, own = [], saver._cursor

    def cursor(**options: Any) -> Any:
        lent.append(1)
        return own(**options)

    saver._cursor = cursor
    try:
        ONE_PASS.history(saver, config, ["m"])
    finally:
        del saver._cursor
    assert lent


def test_a_graph_grows_past_its_windows(postgres: Kept) -> None:
    """Runs, branches and updates by a saver that mixes it in, judged by one that does not."""
    from langgraph.checkpoint.postgres import PostgresSaver

    class FastPostgresSaver(OnePassHistory, PostgresSaver):
        pass

    saver: Any = FastPostgresSaver(postgres.saver.conn)  # type: ignore[attr-defined]
    where = at(postgres.hand().thread)
    seen = run(graph_of(saver), where, "sync")
    plain = graph_of(postgres.saver)
    assert all(plain.get_state(config).values == values for config, values in seen["states"])
