"""Our three stores, opened fresh, for the tests of this folder."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from savermark.sandbox.memory import MemoryInstanceStore, MemorySandboxStore
from savermark.sandbox.postgres import PostgresSandboxStore
from savermark.sandbox.records import SandboxCheckpoint
from savermark.sandbox.rules import freeze
from savermark.sandbox.sqlite import SqliteSandboxStore
from savermark.sandbox.testkit import StoreOptions

Opener = Callable[[StoreOptions], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def open_memory(options: StoreOptions) -> AsyncIterator[Any]:
    store = MemorySandboxStore(clock=options.clock, lease=options.lease)
    store.instances = MemoryInstanceStore()  # type: ignore[attr-defined]
    yield store


def sqlite_opener(folder: Path) -> Opener:
    """Stores in new files of the folder, without waiting for the disk."""

    @asynccontextmanager
    async def open_sqlite(options: StoreOptions) -> AsyncIterator[Any]:
        path = folder / f"{secrets.token_hex(6)}.db"
        async with SqliteSandboxStore.open(
            path, clock=options.clock, lease=options.lease, synchronous="OFF"
        ) as store:
            yield store

    return open_sqlite


def postgres_opener(dsn: str) -> Opener:
    """Stores in schemas of their own, dropped at the end."""

    @asynccontextmanager
    async def open_postgres(options: StoreOptions) -> AsyncIterator[Any]:
        schema = f"sandbox_{secrets.token_hex(6)}"
        try:
            async with PostgresSandboxStore.open(
                dsn, schema=schema, clock=options.clock, lease=options.lease
            ) as store:
                yield store
        finally:
            drop_schema(dsn, schema)

    return open_postgres


def drop_schema(dsn: str, schema: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


async def plant(store: Any, checkpoint: SandboxCheckpoint) -> None:
    """Stores a checkpoint and puts the head back where it was."""

    async def work(ledger: Any) -> None:
        facts = await ledger.facts(checkpoint.thread_id)
        await ledger.insert(freeze(checkpoint, symlinks=True))
        await ledger.remove(checkpoint.thread_id, [], facts.state.head_id)

    await store._write(work)
