"""Many writers at one time: every append is in exactly one chain, and no lease is held twice."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sandbox_recount import postgres_problems, sqlite_problems
from sandbox_stores import drop_schema

from savermark.sandbox import errors
from savermark.sandbox.lease import LeaseTimes
from savermark.sandbox.memory import MemorySandboxStore
from savermark.sandbox.postgres import PostgresSandboxStore
from savermark.sandbox.records import ForkRequest
from savermark.sandbox.sqlite import SqliteSandboxStore
from savermark.sandbox.testkit.harness import artifact, checkpoint, file

LEASE = LeaseTimes(100_000.0, 1_000.0)
Problems = Callable[[], list[str]]


class Place:
    """A store that can be opened by many, and recounted."""

    def __init__(self, opener: Any, problems: Problems, worker: dict[str, Any] | None) -> None:
        self.open: Callable[..., AbstractAsyncContextManager[Any]] = opener
        self.problems = problems
        self.worker = worker

    def deadlocks(self) -> int:
        """How often the server had to end a deadlock: the order of locks allows none."""
        if self.worker is None or "dsn" not in self.worker:
            return 0
        with psycopg.connect(self.worker["dsn"]) as connection:
            row = connection.execute("SELECT sum(deadlocks)::int FROM pg_stat_database").fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":

        @asynccontextmanager
        async def in_memory(**options: Any) -> AsyncIterator[Any]:
            yield MemorySandboxStore(**options)

        yield Place(in_memory, list, None)
    elif request.param == "sqlite":
        path = tmp_path / "load.db"
        yield Place(
            lambda **o: SqliteSandboxStore.open(path, synchronous="OFF", **o),
            lambda: sqlite_problems(path),
            {"sqlite": str(path)},
        )
    else:
        dsn = request.getfixturevalue("postgres_dsn")
        schema = f"load_{secrets.token_hex(4)}"
        yield Place(
            lambda **o: PostgresSandboxStore.open(dsn, schema=schema, **o),
            lambda: postgres_problems(dsn, schema),
            {"dsn": dsn, "schema": schema},
        )
        drop_schema(dsn, schema)


class Holders:
    """Notes who holds which lease, and fails when a thread has two holders."""

    def __init__(self) -> None:
        self._now: Counter[str] = Counter()
        self.fences: dict[str, list[int]] = defaultdict(list)

    def take(self, lease: Any) -> None:
        self._now[lease.thread_id] += 1
        assert self._now[lease.thread_id] == 1, f"{lease.thread_id} is held twice"
        self.fences[lease.thread_id].append(lease.fence)

    def give(self, lease: Any) -> None:
        self._now[lease.thread_id] -= 1


async def acquire(store: Any, thread: str) -> Any:
    while True:
        try:
            return await store.acquire_writer(thread)
        except errors.SandboxCheckpointWriterConflictError:
            await asyncio.sleep(random.uniform(0.0, 0.1))


def content(shared: int) -> dict[str, Any]:
    files = [file(f"f{at}", f"shared-{random.randrange(shared)}") for at in range(4)]
    return {"files": files, "artifacts": [artifact("1", f"art-{random.randrange(shared)}")]}


async def append(store: Any, lease: Any, name: str) -> str:
    head = await store.get_head(lease.thread_id)
    given = checkpoint(name, lease.thread_id, head, label=str(lease.fence), **content(6))
    done: str = await store.append(given, expected_head_id=head, writer=lease)
    return done


async def check_chains(store: Any, appended: dict[str, list[str]], place: Place) -> None:
    for thread, names in appended.items():
        found = await store.list(thread)
        assert sorted(item.id for item in found) == sorted(names)
        by_id = {item.id: item for item in found}
        at, fences = await store.get_head(thread), []
        chain = 0
        while at is not None:
            fences.append(int(by_id[at].label))
            chain += 1
            at = by_id[at].parent_checkpoint_id
        assert chain == len(names)
        assert fences == sorted(fences, reverse=True)  # a stale fence never wrote after a newer one
    used: Counter[str] = Counter()
    for thread in appended:
        for item in await store.list(thread):
            used.update({e.blob_key for e in item.files} | {a.blob_key for a in item.artifacts})
    assert {r.key: r.count async for r in store.list_blob_references()} == dict(used)
    assert place.problems() == []


def test_16_writers_on_one_thread(place: Place) -> None:
    """Some holders stall past their lease, go on, and must then be refused."""
    now = [1_000.0]
    appended: dict[str, list[str]] = {"t": []}
    holders, refused = Holders(), Counter[str]()

    async def stall(store: Any, lease: Any, name: str) -> None:
        holders.give(lease)
        now[0] += LEASE.duration_ms
        newer = await acquire(store, "t")
        holders.take(newer)
        for call in (append(store, lease, name), lease.renew()):
            with pytest.raises(errors.SandboxCheckpointWriterLostError):
                await call
            refused["stale"] += 1
        await lease.release()
        holders.give(newer)
        await newer.release()

    async def writer(store: Any, number: int) -> None:
        for turn in range(6):
            lease = await acquire(store, "t")
            holders.take(lease)
            for step in range(2):
                appended["t"].append(await append(store, lease, f"{number}-{turn}-{step}"))
            if turn == 3 and number % 4 == 0:
                await stall(store, lease, f"{number}-stale")
            else:
                holders.give(lease)
                await lease.release()

    async def work() -> None:
        async with place.open(clock=lambda: now[0], lease=LEASE) as store:
            await asyncio.gather(*(writer(store, number) for number in range(16)))
            await check_chains(store, appended, place)

    asyncio.run(work())
    assert len(appended["t"]) == 16 * 6 * 2
    assert refused["stale"] == 8
    fences = holders.fences["t"]
    assert fences == sorted(set(fences))


def test_one_lease_shared_by_16_appenders(place: Place) -> None:
    """One holder that appends from 16 tasks: each head is followed once."""
    won: list[str] = []
    lost: Counter[str] = Counter()

    async def appender(store: Any, lease: Any, number: int) -> None:
        for turn in range(6):
            try:
                won.append(await append(store, lease, f"{number}-{turn}"))
            except errors.SandboxCheckpointConflictError:
                lost["stale head"] += 1

    async def work() -> None:
        async with place.open(lease=LEASE) as store:
            lease = await store.acquire_writer("t")
            await asyncio.gather(*(appender(store, lease, number) for number in range(16)))
            await check_chains(store, {"t": won}, place)

    asyncio.run(work())
    assert len(won) + lost["stale head"] == 96


def test_200_writers_on_many_threads(place: Place) -> None:
    """Appends, deletes, prunes and forks over 50 threads that share their blobs."""
    holders, before = Holders(), place.deadlocks()

    async def writer(store: Any, number: int) -> None:
        thread = f"t{number % 50}"
        lease = await acquire(store, thread)
        holders.take(lease)
        for step in range(3):
            await append(store, lease, f"{number}-{step}")
        head = await store.get_head(thread)
        if number % 3 == 0:
            await store.delete_head(thread, head, writer=lease)
        elif number % 3 == 1:
            await store.delete_checkpoints(thread, keep=2, writer=lease)
        else:
            fork = await store.acquire_writer(f"fork-{number}")
            await store.fork_from_checkpoint(
                ForkRequest(thread, head, f"fork-{number}", f"fork-{number}", 5.0, fork)
            )
            await fork.release()
        holders.give(lease)
        await lease.release()

    async def work() -> None:
        async with place.open(lease=LEASE) as store:
            await asyncio.gather(*(writer(store, number) for number in range(200)))
            used: Counter[str] = Counter()
            threads = [f"t{at}" for at in range(50)] + [f"fork-{at}" for at in range(200)]
            for thread in threads:
                for item in await store.list(thread):
                    keys = {e.blob_key for e in item.files} | {a.blob_key for a in item.artifacts}
                    used.update(keys)
            assert {r.key: r.count async for r in store.list_blob_references()} == dict(used)

    asyncio.run(work())
    assert place.problems() == []
    assert place.deadlocks() == before
    assert all(len(fences) == 4 for fences in holders.fences.values())


def test_16_writers_in_4_processes(place: Place) -> None:
    """Processes share nothing but the database, and still no append is lost or forked."""
    if place.worker is None:
        pytest.skip("a store in memory has one process")
    here = Path(__file__).parent
    command = [sys.executable, str(here / "sandbox_worker.py"), "append", json.dumps(place.worker)]
    running = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    appended: list[str] = []
    try:
        for process in running:
            out, _ = process.communicate(timeout=120)
            assert process.returncode == 0
            appended += out.split()
    finally:
        for process in running:  # one that failed leaves the others waiting for its lease
            process.kill()
            process.communicate()
    assert len(appended) == 4 * 4 * 5

    async def work() -> None:
        async with place.open(lease=LEASE) as store:
            await check_chains(store, {"t": appended}, place)

    asyncio.run(work())
