"""Costs that must not grow: memory of a listing, statements of a sweep and of an append."""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sandbox_stores import drop_schema
from sandbox_worker import open_place

from savermark.sandbox import sqlite_database
from savermark.sandbox.blobs import MemoryBlobStore
from savermark.sandbox.sweep import sweep_sandbox_blobs
from savermark.sandbox.testkit.harness import checkpoint, file

MILLION = 1_000_000
FLAT_KB = 20_000  # over the first 20,000; a million held at one time would take some 200 MB


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    if request.param == "sqlite":
        yield {"sqlite": str(tmp_path / "sizes.db")}
        return
    dsn, schema = request.getfixturevalue("postgres_dsn"), f"sizes_{secrets.token_hex(4)}"
    yield {"dsn": dsn, "schema": schema}
    drop_schema(dsn, schema)


def fill_references(place: dict[str, Any], number: int) -> None:
    """References as rows, behind the store's back: a million appends would take an hour."""

    async def lay() -> None:
        async with open_place(place):
            pass

    asyncio.run(lay())
    if "sqlite" in place:
        with closing(sqlite3.connect(place["sqlite"])) as connection, connection:
            connection.execute(
                """WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
                INSERT INTO sandbox_checkpoint_blob_references
                SELECT printf('sandbox-files/sha256/%064x', i), 1 + i % 3 FROM n""",
                (number - 1,),
            )
        return
    with psycopg.connect(place["dsn"], autocommit=True) as connection:
        connection.execute(f'SET search_path TO "{place["schema"]}"')
        connection.execute(
            """INSERT INTO sandbox_checkpoint_blob_references
            SELECT 'sandbox-files/sha256/' || lpad(to_hex(i), 64, '0'), 1 + i %% 3
            FROM generate_series(0, %s::int) AS i""",
            (number - 1,),
        )


@pytest.mark.slow
def test_a_million_references_stream_in_flat_memory(place: dict[str, Any]) -> None:
    fill_references(place, MILLION)
    worker = Path(__file__).with_name("sandbox_worker.py")
    done = subprocess.run(
        [sys.executable, str(worker), "references", json.dumps(place)],
        capture_output=True, text=True, check=True, timeout=200,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["number"] == MILLION
    assert found["sorted"]
    assert found["uses"] == sum(1 + i % 3 for i in range(MILLION))
    assert found["growth_kb"] < FLAT_KB


class Statements:
    """Counts what goes to the database: SQLite's statements, or Postgres' exchanges."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.number = 0
        self._trace_sqlite(patch)
        wait = psycopg.AsyncConnection.wait

        def counted(connection: Any, *arguments: Any, **other: Any) -> Any:
            self.number += 1
            return wait(connection, *arguments, **other)

        patch.setattr(psycopg.AsyncConnection, "wait", counted)

    def _trace_sqlite(self, patch: pytest.MonkeyPatch) -> None:
        connect = sqlite_database._connect

        async def traced(*arguments: Any) -> Any:
            connection = await connect(*arguments)
            await connection.set_trace_callback(self._one_more)
            return connection

        patch.setattr(sqlite_database, "_connect", traced)

    def _one_more(self, _statement: str) -> None:
        self.number += 1

    async def of(self, work: Any) -> int:
        before = self.number
        await work
        return self.number - before


Opened = Callable[[], AbstractAsyncContextManager[Any]]


async def _grow(store: Any, number: int, files: list[Any]) -> None:
    lease = await store.acquire_writer("t")
    head = await store.get_head("t")
    for at in range(number):
        given = checkpoint(secrets.token_hex(8), "t", head, files=files, created_at=float(at))
        head = await store.append(given, expected_head_id=head, writer=lease)
    await lease.release()


def test_append_and_delete_cost_the_same_at_any_length(
    place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = Statements(monkeypatch)
    files = [file(f"f{at}", f"s{at}") for at in range(10)]

    async def once(store: Any) -> tuple[int, int]:
        added = await statements.of(_grow(store, 1, files))
        lease = await store.acquire_writer("t")
        head = await store.get_head("t")
        gone = await statements.of(store.delete_head("t", head, writer=lease))
        await lease.release()
        return added, gone

    async def work() -> tuple[list[tuple[int, int]], int]:
        async with open_place(place) as store:
            await _grow(store, 10, files)
            for _ in range(8):  # drivers prepare what they see often
                await once(store)
            costs = [await once(store)]
            await _grow(store, 300, files)
            costs.append(await once(store))
            lease = await store.acquire_writer("t")
            pruned = await statements.of(store.delete_checkpoints("t", keep=1, writer=lease))
            return costs, pruned

    costs, pruned = asyncio.run(work())
    assert costs[0] == costs[1]
    assert 0 < pruned < 30  # 300 checkpoints went


@pytest.mark.slow
def test_a_sweep_asks_the_same_of_few_and_of_many_checkpoints(
    place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 blobs, of which 20,000 are in use, swept with 3 and with 303 checkpoints."""
    statements = Statements(monkeypatch)
    used = [file(f"f{at}", f"s{at}") for at in range(20_000)]
    blobs = MemoryBlobStore(clock=lambda: 0.0)

    async def fill() -> None:
        for item in used:
            await blobs.put(item.blob_key, b"")
        for at in range(100_000 - len(used)):
            await blobs.put(f"sandbox-artifacts/sha256/{at:064x}", b"")

    async def sweep(store: Any) -> int:
        await fill()
        cost = await statements.of(
            sweep_sandbox_blobs(checkpoints=store, blobs=blobs, older_than_ms=0, clock=lambda: 1.0)
        )
        assert len([info async for info in blobs.list("")]) == len(used)
        return cost

    async def work() -> list[int]:
        async with open_place(place) as store:
            await _grow(store, 1, used)
            await _grow(store, 2, used[:5])
            costs = [await sweep(store)]
            await _grow(store, 300, used[:50])
            return [*costs, await sweep(store)]

    costs = asyncio.run(work())
    assert costs[0] == costs[1]
    assert costs[0] < 40
