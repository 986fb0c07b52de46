"""What the stores keep across restarts, cancellations and bad input; how they are opened."""

from __future__ import annotations

import asyncio
import random
import secrets
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from sandbox_recount import postgres_problems, sqlite_problems
from sandbox_stores import drop_schema

import savermark.sandbox as sandbox
from savermark.errors import BackendError, SavermarkError, Unsupported, UsageError
from savermark.sandbox import errors
from savermark.sandbox.lease import LeaseTimes
from savermark.sandbox.memory import MemorySandboxStore
from savermark.sandbox.postgres import PostgresSandboxStore
from savermark.sandbox.protocols import fork_checkpoint, keep_newest, store_capabilities
from savermark.sandbox.records import ForkRequest, SandboxInstance, Writer
from savermark.sandbox.sqlite import SqliteSandboxStore
from savermark.sandbox.testkit.harness import checkpoint, file, file_blob
from savermark.sandbox.testkit.load import load_factory

Opener = Callable[..., AbstractAsyncContextManager[Any]]


class Place:
    def __init__(self, opener: Opener, problems: Callable[[], list[str]]) -> None:
        self.open, self.problems = opener, problems


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        path = tmp_path / "store.db"
        yield Place(lambda **o: SqliteSandboxStore.open(path, **o), lambda: sqlite_problems(path))
        return
    dsn = request.getfixturevalue("postgres_dsn")
    schema = f'odd "{secrets.token_hex(4)}" Schema'
    yield Place(
        lambda **o: PostgresSandboxStore.open(dsn, schema=schema, **o),
        lambda: postgres_problems(dsn, schema),
    )
    drop_schema(dsn, schema)


def test_all_is_kept_across_a_restart_and_fences_rise(place: Place) -> None:
    asyncio.run(_restart(place))


async def _restart(place: Place) -> None:
    fences = []
    for at in range(4):
        async with place.open() as store:
            lease = await store.acquire_writer("thread")
            fences.append(lease.fence)
            head = await store.get_head("thread")
            assert head == (f"c{at - 1}" if at else None)
            given = checkpoint(f"c{at}", parent=head)
            await store.append(given, expected_head_id=head, writer=lease)
            if at == 2:
                await store.delete_checkpoints("thread", keep=1, writer=lease)
            await store.save_transcript("other", [at])
            await store.instances.upsert(SandboxInstance("k", "p", f"s{at}", "t", float(at)))
            await lease.release()
    async with place.open() as store:
        assert [item.id for item in await store.list("thread")] == ["c2", "c3"]
        assert await store.get_transcript("other") == [3]
        assert (await store.instances.get("k")).provider_sandbox_id == "s3"
        lease = await store.acquire_writer("thread")
        assert [*fences, lease.fence] == sorted({*fences, lease.fence})
        for used in ("c0", "c3"):  # removed or not, an id is used once
            with pytest.raises(errors.SandboxCheckpointDuplicateIdError):
                await store.append(
                    checkpoint(used, parent="c3"), expected_head_id="c3", writer=lease
                )
    assert place.problems() == []


def test_a_cancelled_write_leaves_nothing_half_done(place: Place) -> None:
    random.seed(3)

    async def work() -> int:
        done = 0
        files = [file(f"f{at}", f"s{at}") for at in range(200)]
        async with place.open(lease=LeaseTimes(1e6, 1e5)) as store:
            lease = await store.acquire_writer("thread")
            for at in range(60):
                head = await store.get_head("thread")
                given = checkpoint(f"c{at}", parent=head, files=files)
                call = store.append(given, expected_head_id=head, writer=lease)
                try:
                    await asyncio.wait_for(call, 10 ** random.uniform(-4.0, -1.5))
                except TimeoutError:
                    done += 1
                if at % 7 == 0:
                    call = store.delete_checkpoints("thread", keep=1, writer=lease)
                    try:
                        await asyncio.wait_for(call, 10 ** random.uniform(-4.0, -2.0))
                    except TimeoutError:
                        done += 1
            head = await store.get_head("thread")
            last = checkpoint("last", parent=head)
            assert await store.append(last, expected_head_id=head, writer=lease) == "last"
        return done

    assert asyncio.run(work()) > 5
    assert place.problems() == []


def test_a_listing_is_of_one_moment_and_may_be_left(place: Place) -> None:
    """Writes go on while a listing is read, also by its own reader; leaving it early is fine."""

    async def work() -> None:
        async with place.open() as store:
            lease = await store.acquire_writer("thread")
            files = [file(f"f{at}", f"s{at}") for at in range(6_000)]
            await store.append(checkpoint("a", files=files), expected_head_id=None, writer=lease)
            found = []
            async for item in store.list_blob_references():
                if not found:
                    await store.append(
                        checkpoint("b", parent="a"), expected_head_id="a", writer=lease
                    )
                found.append(item.key)
            assert len(found) == 6_001
            assert file_blob("b") not in found
            async with aclosing(store.list_blob_references()) as references:
                async for _ in references:
                    break
            assert len([item async for item in store.list_blob_references()]) == 6_003

    asyncio.run(work())


def test_bad_content_outweighs_a_foreign_writer(place: Place) -> None:
    """Of the two orders that the sources give, ours is that of the published table."""

    async def work() -> None:
        async with place.open() as store:
            bad = checkpoint("a", files=[file("/a")])
            with pytest.raises(errors.SandboxCheckpointInvalidEntryError):
                await store.append(bad, expected_head_id=None, writer=Writer("other", "x", 1))

    asyncio.run(work())


def test_symlinks_can_be_refused(place: Place) -> None:
    async def work() -> None:
        async with place.open(symlinks=False) as store:
            lease = await store.acquire_writer("thread")
            given = checkpoint("a", files=[sandbox.SymlinkEntry("l", "a")])
            with pytest.raises(errors.SandboxCheckpointInvalidEntryError):
                await store.append(given, expected_head_id=None, writer=lease)

    asyncio.run(work())


def test_a_newer_schema_is_refused(place: Place, tmp_path: Path, request: Any) -> None:
    async def opened() -> None:
        async with place.open() as store:
            if hasattr(store.database, "path"):
                with closing(sqlite3.connect(store.database.path)) as connection:
                    connection.execute("PRAGMA user_version = 99")
            else:
                await store.database.run("UPDATE sandbox_schema SET version = 99")

    asyncio.run(opened())
    with pytest.raises(BackendError, match="newer"):
        asyncio.run(opened())


def test_many_processes_may_make_one_sqlite_file(tmp_path: Path) -> None:
    code = """
import asyncio, sys, time
from savermark.sandbox import SqliteSandboxStore
async def main():
    time.sleep(max(0.0, float(sys.argv[2]) - time.time()))
    async with SqliteSandboxStore.open(sys.argv[1], synchronous="OFF") as store:
        await store.acquire_writer(sys.argv[3])
asyncio.run(main())
"""
    at = str(time.time() + 2.0)
    command = [sys.executable, "-c", code, str(tmp_path / "one.db"), at]
    running = [
        subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE) for number in range(6)
    ]
    for process in running:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said.decode()


def test_opening_what_cannot_be_opened(tmp_path: Path) -> None:
    async def opened(store: AbstractAsyncContextManager[Any]) -> None:
        async with store:
            pass

    with pytest.raises(UsageError, match="MemorySandboxStore"):
        asyncio.run(opened(SqliteSandboxStore.open(":memory:")))
    with pytest.raises(BackendError, match="cannot open"):
        asyncio.run(opened(SqliteSandboxStore.open(tmp_path / "missing" / "x.db")))
    (tmp_path / "text.db").write_text("this is no database, " * 100)
    with pytest.raises(BackendError, match="cannot open"):
        asyncio.run(opened(SqliteSandboxStore.open(tmp_path / "text.db")))
    with pytest.raises(BackendError) as caught:
        dsn = "postgresql://me:s3cr3t@127.0.0.1:1/none"
        asyncio.run(opened(PostgresSandboxStore.open(dsn)))
    assert "s3cr3t" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_postgres_is_embedded_by_default() -> None:
    async def work() -> None:
        async with PostgresSandboxStore.open() as store:
            await store.acquire_writer("t")

    asyncio.run(work())


def test_a_role_that_may_not_create_uses_what_is_there(postgres_dsn: str) -> None:
    """Tables that an administrator laid serve a role without the right to create any."""
    schema, role = f"given_{secrets.token_hex(4)}", f"role_{secrets.token_hex(4)}"

    async def opened(dsn: str, name: str) -> None:
        async with PostgresSandboxStore.open(dsn, schema=name) as store:
            await store.acquire_writer(secrets.token_hex(4))

    asyncio.run(opened(postgres_dsn, schema))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'pw'")
        try:
            connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
            connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
            dsn = make_conninfo(postgres_dsn, options=f"-c role={role}")
            asyncio.run(opened(dsn, schema))
            with pytest.raises(BackendError, match="permission denied"):
                asyncio.run(opened(dsn, f"{schema}_other"))
        finally:
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")
    drop_schema(postgres_dsn, schema)


def test_postgres_keys_are_compared_byte_by_byte(postgres_dsn: str) -> None:
    """Whatever the database's own collation: every text column that is a key has collation C."""
    schema = f"collation_{secrets.token_hex(4)}"

    async def work() -> None:
        async with PostgresSandboxStore.open(postgres_dsn, schema=schema):
            pass

    asyncio.run(work())
    query = """SELECT c.relname, a.attname, l.collname
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_collation l
        ON l.oid = a.attcollation
        WHERE n.nspname = %s AND c.relkind = 'i' AND a.attcollation <> 0"""
    with psycopg.connect(postgres_dsn) as connection:
        found = connection.execute(query, (schema,)).fetchall()
    drop_schema(postgres_dsn, schema)
    assert len(found) > 8
    assert {row[2] for row in found if row[1] != "kind"} == {"C"}


def test_postgres_leases_run_on_the_servers_clock(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts whose clocks are a day apart agree who holds a lease."""
    schema = f"clock_{secrets.token_hex(4)}"

    async def work() -> None:
        async with (
            PostgresSandboxStore.open(postgres_dsn, schema=schema) as one,
            PostgresSandboxStore.open(postgres_dsn, schema=schema) as two,
        ):
            real = time.time()
            lease = await one.acquire_writer("t")
            assert abs(lease.expires_at - (real * 1000.0 + 120_000.0)) < 30_000.0
            with monkeypatch.context() as patch:
                patch.setattr(time, "time", lambda: real + 86_400.0)
                with pytest.raises(errors.SandboxCheckpointWriterConflictError):
                    await two.acquire_writer("t")
                await lease.renew()
            assert lease.expires_at < (real + 3_600.0) * 1000.0

    asyncio.run(work())
    drop_schema(postgres_dsn, schema)


class Plain:
    """A store without the optional parts."""

    def __init__(self) -> None:
        inner = MemorySandboxStore()
        self.acquire_writer = inner.acquire_writer


def test_capabilities_are_what_a_store_has() -> None:
    assert {str(part) for part in store_capabilities(MemorySandboxStore())} == {
        "delete_checkpoints", "fork_from_checkpoint", "thread_records",
    }  # fmt: skip
    assert store_capabilities(Plain()) == frozenset()
    request = ForkRequest("a", "1", "b", "2", 1.0, Writer("b", "x", 1))
    with pytest.raises(errors.SandboxCheckpointAtomicForkRequiredError):
        asyncio.run(fork_checkpoint(Plain(), request))
    with pytest.raises(Unsupported):
        asyncio.run(keep_newest(Plain(), "t", 1))  # type: ignore[arg-type]


def test_keep_newest_gives_the_lease_back() -> None:
    async def work() -> None:
        store = MemorySandboxStore()
        lease = await store.acquire_writer("thread")
        for at in range(3):
            parent = f"c{at - 1}" if at else None
            given = checkpoint(f"c{at}", parent=parent)
            await store.append(given, expected_head_id=parent, writer=lease)
        with pytest.raises(errors.SandboxCheckpointWriterConflictError):
            await keep_newest(store, "thread", 1)
        await lease.release()
        assert await keep_newest(store, "thread", 1) == ("c0", "c1")
        with pytest.raises(errors.SandboxCheckpointInvalidEntryError):
            await keep_newest(store, "thread", 0)
        await store.acquire_writer("thread")

    asyncio.run(work())


def test_the_memory_store_is_shared_among_threads() -> None:
    """Each system thread has an event loop of its own, and appends to two threads of the store."""
    store = MemorySandboxStore()
    done: list[str] = []

    async def appends(number: int) -> None:
        for at in range(40):
            thread = f"t{(number + at) % 2}"
            try:
                lease = await store.acquire_writer(thread)
            except errors.SandboxCheckpointWriterConflictError:
                continue
            head = await store.get_head(thread)
            given = checkpoint(f"{number}-{at}", thread, head, files=[file("f", "shared")])
            done.append(await store.append(given, expected_head_id=head, writer=lease))
            await lease.release()

    async def listed() -> tuple[list[str], dict[str, int]]:
        found = [item.id for name in ("t0", "t1") for item in await store.list(name)]
        return found, {item.key: item.count async for item in store.list_blob_references()}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: asyncio.run(appends(number)), range(8)))
    found, counts = asyncio.run(listed())
    assert sorted(found) == sorted(done)
    assert counts[file_blob("shared")] == len(done) > 40


def test_a_writer_does_not_print_its_token() -> None:
    assert "secret" not in repr(Writer("t", "secret", 1))


def test_release_never_raises() -> None:
    """Not even when the database is gone."""
    store = MemorySandboxStore()

    async def work() -> None:
        lease = await store.acquire_writer("t")

        async def gone(work: Any) -> Any:
            raise OSError("gone")

        store._write = gone  # type: ignore[method-assign]
        await lease.release()

    asyncio.run(work())


def test_public_names() -> None:
    for name in sandbox.__all__:
        assert getattr(sandbox, name).__name__ == name
    with pytest.raises(AttributeError):
        sandbox.nothing  # noqa: B018


def test_the_memory_store_needs_no_driver() -> None:
    code = "import sys; from savermark.sandbox import MemorySandboxStore, FolderBlobStore;"
    code += "print([m for m in ('psycopg', 'aiosqlite', 'obstore', 'pytest') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_factories_are_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_sandbox_store.py").write_text("def make(options): ...\nvalue = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_factory("my_sandbox_store:make").__name__ == "make"
    for bad in ("my_sandbox_store", ":make", "my_sandbox_store:none", "none:make", "a:"):
        with pytest.raises(UsageError):
            load_factory(bad)
    with pytest.raises(SavermarkError, match="called"):
        load_factory("my_sandbox_store:value")
