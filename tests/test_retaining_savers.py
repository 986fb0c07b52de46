"""Our savers: all eight capabilities of the public suite, and delta threads pruned unharmed."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

import tiny_graph
from fix_threads import at
from savermark.conformance import Status, run_conformance
from savermark.conformance.apis import AsyncFace
from savermark.errors import ContractError, UsageError
from savermark.history.rows import row_access
from savermark.retention.savers import (
    AsyncRetainingInMemorySaver,
    AsyncRetainingPostgresSaver,
    AsyncRetainingSqliteSaver,
    RetainingInMemorySaver,
    RetainingPostgresSaver,
    RetainingSqliteSaver,
)

ROOT = Path(__file__).parents[1]

SYNC = {
    "memory": (RetainingInMemorySaver, InMemorySaver),
    "sqlite": (RetainingSqliteSaver, SqliteSaver),
    "postgres": (RetainingPostgresSaver, PostgresSaver),
}
ASYNC = {
    "memory": (AsyncRetainingInMemorySaver, InMemorySaver),
    "sqlite": (AsyncRetainingSqliteSaver, AsyncSqliteSaver),
    "postgres": (AsyncRetainingPostgresSaver, AsyncPostgresSaver),
}


class Place:
    """One kind of store, opened through the savers' own constructors."""

    def __init__(self, name: str, folder: Path, dsn: str | None) -> None:
        self.name = name
        self.target = dsn if name == "postgres" else str(folder / "kept.db")

    @contextmanager
    def sync(self) -> Iterator[Any]:
        kind = SYNC[self.name][0]
        if self.name == "memory":
            yield kind()
            return
        with kind.from_conn_string(self.target) as saver:
            assert type(saver) is kind
            saver.setup()
            yield saver

    @asynccontextmanager
    async def asynchronous(self) -> AsyncIterator[Any]:
        kind = ASYNC[self.name][0]
        if self.name == "memory":
            yield kind()
            return
        async with kind.from_conn_string(self.target) as saver:
            assert type(saver) is kind
            await saver.setup()
            yield saver


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    return Place(request.param, tmp_path, dsn)


@pytest.mark.parametrize("api", ["sync", "async"])
def test_all_eight_capabilities(place: Place, api: str) -> None:
    @checkpointer_test(name=f"{place.name} {api}")
    async def fresh() -> AsyncIterator[Any]:
        if api == "sync":
            with place.sync() as saver:
                yield AsyncFace.of(saver)
        else:
            async with place.asynchronous() as saver:
                yield saver

    report = asyncio.run(validate(fresh))
    failures = {name: each.failures for name, each in report.results.items() if each.failures}
    assert failures == {}
    assert len(report.results) == 8
    assert all(each.detected and each.passed for each in report.results.values())
    assert report.conformance_level() == "FULL"


@pytest.mark.parametrize("api", ["sync", "async"])
def test_delta_channels_survive_every_cleanup(place: Place, api: str) -> None:
    opened = place.sync if api == "sync" else place.asynchronous
    rows = run_conformance(lambda: opened(), groups=["cleanup", "interface"], apis=[api])
    assert [row for row in rows if row.status in (Status.FAILED, Status.ERROR)] == []
    cleanup = [row for row in rows if row.group == "cleanup"]
    assert len(cleanup) == 9
    assert all(row.status is Status.OK for row in cleanup)


@pytest.mark.parametrize("api", ["sync", "async"])
def test_drop_in(place: Place, api: str) -> None:
    ours, theirs = (SYNC if api == "sync" else ASYNC)[place.name]
    assert issubclass(ours, theirs)
    assert ours.__init__ is theirs.__init__
    for name in ("put", "aput", "get_tuple", "aget_tuple", "get_delta_channel_history"):
        assert getattr(ours, name) is getattr(theirs, name)


WORDS = ["a", "b", "c", "d", "e", "f", "g"]


def test_delta_threads_are_pruned_and_go_on(place: Place, tmp_path: Path) -> None:
    with place.sync() as saver:
        graph = tiny_graph.build(saver)
        for word in WORDS:
            graph.invoke({"said": [word]}, at(f"{tmp_path}"))
        before = graph.get_state(at(f"{tmp_path}"))
        rows = len(list(saver.list(at(f"{tmp_path}"))))
        saver.prune([str(tmp_path)])
        assert len(list(saver.list(at(f"{tmp_path}")))) < rows
        after = graph.get_state(at(f"{tmp_path}"))
        assert (after.values, after.next, after.config) == (
            before.values,
            before.next,
            before.config,
        )
        assert after.values == tiny_graph.expected(WORDS)
        graph.invoke({"said": ["h"]}, at(f"{tmp_path}"))
        assert graph.get_state(at(f"{tmp_path}")).values == tiny_graph.expected([*WORDS, "h"])
        saver.copy_thread(str(tmp_path), f"{tmp_path}-copy")
        copied = graph.get_state(at(f"{tmp_path}-copy")).values
        assert copied == tiny_graph.expected([*WORDS, "h"])
        saver.prune([str(tmp_path)], strategy="delete")
        assert list(saver.list(at(f"{tmp_path}"))) == []


def test_async_the_same_and_its_sync_methods_from_another_thread(
    place: Place, tmp_path: Path
) -> None:
    thread = str(tmp_path)

    async def live() -> None:
        async with place.asynchronous() as saver:
            graph = tiny_graph.build(saver)
            for word in WORDS:
                await graph.ainvoke({"said": [word]}, at(thread))
            await saver.aprune([thread])
            assert (await graph.aget_state(at(thread))).values == tiny_graph.expected(WORDS)
            await asyncio.to_thread(saver.copy_thread, thread, f"{thread}-copy")
            await asyncio.to_thread(saver.prune, [thread], strategy="delete")
            await saver.adelete_for_runs(["nobody"])
            await asyncio.to_thread(saver.delete_for_runs, ["nobody"])
            assert not (await graph.aget_state(at(thread))).values
            copied = (await graph.aget_state(at(f"{thread}-copy"))).values
            assert copied == tiny_graph.expected(WORDS)
            if place.name != "memory":
                with pytest.raises(asyncio.InvalidStateError, match="its own event loop"):
                    saver.prune([thread])

    asyncio.run(live())


def test_wrong_arguments(place: Place) -> None:
    with place.sync() as saver:
        with pytest.raises(TypeError, match="not a str"):
            saver.prune("abc")
        with pytest.raises(ValueError, match="'keep_all': use 'keep_latest' or 'delete'"):
            saver.prune(["abc"], strategy="keep_all")
        with pytest.raises(TypeError, match="not a str"):
            saver.delete_for_runs("abc")
        with pytest.raises(UsageError, match="holds no checkpoints"):
            saver.copy_thread("nowhere", "somewhere")
        saver.prune([])
        saver.prune(["nowhere"])
        saver.delete_for_runs([])


def test_a_damaged_thread_is_named_and_the_others_are_done(place: Place, tmp_path: Path) -> None:
    good, bad = f"{tmp_path}-good", f"{tmp_path}-bad"
    with place.sync() as saver:
        graph = tiny_graph.build(saver)
        for word in WORDS[:2]:
            graph.invoke({"said": [word]}, at(good))
            graph.invoke({"said": [word]}, at(bad))
        rows = row_access(saver)
        with rows.transaction(bad) as txn:
            image = txn.image()
            head = image.heads[""]
            txn.delete_checkpoints([("", head.parent_id or "")])
        damaged, before = rows.image(bad), graph.get_state(at(good)).values
        with pytest.raises(ContractError, match=f"{bad}.*not stored"):
            saver.prune([bad, good])
        assert rows.image(bad) == damaged
        assert graph.get_state(at(good)).values == before
        saver.prune([bad], strategy="delete")
        assert rows.image(bad).rows == 0


def test_a_pool_and_a_pipeline_will_do(postgres_dsn: str, tmp_path: Path) -> None:
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    thread = str(tmp_path)
    with RetainingPostgresSaver.from_conn_string(postgres_dsn, pipeline=True) as saver:
        saver.setup()
        graph = tiny_graph.build(saver)
        for word in WORDS:
            graph.invoke({"said": [word]}, at(thread))
        saver.prune([thread])
        assert graph.get_state(at(thread)).values == tiny_graph.expected(WORDS)
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    with ConnectionPool(postgres_dsn, kwargs=options, min_size=1, max_size=2) as pool:
        saver = RetainingPostgresSaver(pool)
        saver.copy_thread(thread, f"{thread}-copy")
        graph = tiny_graph.build(saver)
        assert graph.get_state(at(f"{thread}-copy")).values == tiny_graph.expected(WORDS)


def test_a_database_in_memory_will_do() -> None:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    saver = RetainingSqliteSaver(connection)
    graph = tiny_graph.build(saver)
    for word in WORDS:
        graph.invoke({"said": [word]}, at("t"))
    saver.prune(["t"])
    assert graph.get_state(at("t")).values == tiny_graph.expected(WORDS)
    connection.close()


def test_a_database_in_memory_will_do_on_a_loop() -> None:
    async def live() -> None:
        async with AsyncRetainingSqliteSaver.from_conn_string(":memory:") as saver:
            graph = tiny_graph.build(saver)
            for word in WORDS:
                await graph.ainvoke({"said": [word]}, at("t"))
            await saver.aprune(["t"])
            await saver.acopy_thread("t", "u")
            assert (await graph.aget_state(at("u"))).values == tiny_graph.expected(WORDS)

    asyncio.run(live())


def test_the_example_of_the_documentation_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(from savermark\.retention\.savers.*?)```", text, re.S)
    monkeypatch.chdir(tmp_path)
    with RetainingSqliteSaver.from_conn_string("checkpoints.db") as saver:
        graph = tiny_graph.build(saver)
        for word in WORDS:
            graph.invoke({"said": [word]}, at("thread-1"))
    exec(example, {})
    with RetainingSqliteSaver.from_conn_string("checkpoints.db") as saver:
        graph = tiny_graph.build(saver)
        assert graph.get_state(at("thread-1-copy")).values == tiny_graph.expected(WORDS)
