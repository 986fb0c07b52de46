"""Random sequences on the three stores and on a plain model, with a clock that jumps both ways."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from plain_model import Model, ModelLease
from sandbox_recount import postgres_problems, sqlite_problems
from sandbox_stores import drop_schema

from savermark.sandbox.errors import SandboxCheckpointError
from savermark.sandbox.lease import LeaseTimes
from savermark.sandbox.memory import MemorySandboxStore
from savermark.sandbox.postgres import PostgresSandboxStore
from savermark.sandbox.records import ForkRequest, SandboxCheckpoint, ThreadRecordKind
from savermark.sandbox.sqlite import SqliteSandboxStore
from savermark.sandbox.testkit.harness import artifact, file

LEASE = LeaseTimes(100.0, 25.0)
THREADS = st.sampled_from(["A", "A", "é", "\0", "F1"])
IDS = st.sampled_from([*"123456789", "é", "😀", "\uff5e", "\x01", "\0"])
SEEDS = st.lists(st.sampled_from("xyz"), max_size=4)
JUMPS = st.sampled_from([0.0, 1.0, 24.0, 99.0, 100.0, 250.0, -1.0, -60.0, -300.0])
TIMES = st.sampled_from([0.0, 1.0, 1.5, 7.0])

TABLES = """sandbox_checkpoint_threads, sandbox_checkpoint_ids, sandbox_checkpoints,
    sandbox_checkpoint_entries, sandbox_checkpoint_artifacts,
    sandbox_checkpoint_blob_references, sandbox_thread_records"""


def row_of(item: SandboxCheckpoint) -> dict[str, Any]:
    keys = [part.blob_key for part in item.files] + [part.blob_key for part in item.artifacts]  # type: ignore[union-attr]
    return {
        "id": item.id,
        "thread": item.thread_id,
        "parent": item.parent_checkpoint_id,
        "at": item.created_at,
        "keys": keys,
        "says": item.conversation[0],
    }


class Stores(RuleBasedStateMachine):
    """The same calls on all; whatever comes back must be the same."""

    dsn: ClassVar[str]
    schema: ClassVar[str]
    folder: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(LEASE.duration_ms, now=1_000.0)
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.path = self.folder / f"{secrets.token_hex(6)}.db"
        self.stores: dict[str, Any] = {}
        self.fresh = 0
        self.leases: list[tuple[Any, dict[str, Any]]] = []
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        options: dict[str, Any] = {"clock": lambda: self.model.now, "lease": LEASE}
        self.stores["memory"] = MemorySandboxStore(**options)
        sqlite = SqliteSandboxStore.open(self.path, synchronous="OFF", **options)
        self.stores["sqlite"] = await self.stack.enter_async_context(sqlite)
        postgres = PostgresSandboxStore.open(self.dsn, schema=self.schema, pool_size=2, **options)
        self.stores["postgres"] = store = await self.stack.enter_async_context(postgres)
        await store.database.run(f"TRUNCATE {TABLES}")

    def teardown(self) -> None:
        try:
            self.everything_is_the_same()
            assert sqlite_problems(self.path) == []
            assert postgres_problems(self.dsn, self.schema) == []
        finally:
            self.loop.run_until_complete(self.stack.aclose())
            self.loop.close()
            self.path.unlink(missing_ok=True)

    def on_each(self, call: Callable[[str, Any], Awaitable[Any]]) -> dict[str, Any]:
        """What the call gives on each store: a value, or the code of its error."""

        async def one(name: str, store: Any) -> Any:
            try:
                return await call(name, store)
            except SandboxCheckpointError as error:
                return f"[{error.code.removeprefix('SANDBOX_SNAPSHOT_')}]"

        async def all_of_them() -> dict[str, Any]:
            return {name: await one(name, store) for name, store in self.stores.items()}

        return self.loop.run_until_complete(all_of_them())

    def same(self, wanted: Any, call: Callable[[str, Any], Awaitable[Any]]) -> None:
        for name, found in self.on_each(call).items():
            assert found == wanted, f"{name}: {found!r}, wanted {wanted!r}"

    def lease(self, pick: int) -> tuple[Any, dict[str, Any]]:
        return self.leases[pick % len(self.leases)]

    @rule(thread=THREADS)
    def acquire(self, thread: str) -> None:
        wanted = self.model.acquire(thread)
        found = self.on_each(lambda _, store: store.acquire_writer(thread))
        if isinstance(wanted, str):
            assert set(found.values()) == {wanted}
            return
        for name, lease in found.items():
            assert not isinstance(lease, str), f"{name}: {lease}"
            assert (lease.fence, lease.expires_at) == (wanted.fence, wanted.expires)
        self.leases.append((wanted, found))

    def held(self, thread: str) -> tuple[Any, dict[str, Any]] | None:
        """The current lease of the thread, acquired if it is free."""
        if not isinstance(self.model.thread(thread).lease, ModelLease) or not self.model.holds(
            self.model.thread(thread).lease, thread
        ):
            self.acquire(thread)
        return next((pair for pair in self.leases[::-1] if self.model.holds(pair[0], thread)), None)

    def grown(self, thread: str, lease: tuple[Any, dict[str, Any]], seeds: list[str]) -> None:
        self.fresh += 1
        head = self.model.thread(thread).head
        given = SandboxCheckpoint(
            f"n{self.fresh}",
            thread,
            float(self.fresh % 3),
            head,
            files=[file(f"f{index}", seed) for index, seed in enumerate(seeds)],
            conversation=[f"n{self.fresh} says"],
        )
        wanted = self.model.append(lease[0], row_of(given), head)
        self.same(
            wanted,
            lambda name, store: store.append(given, expected_head_id=head, writer=lease[1][name]),
        )

    @rule(thread=THREADS, count=st.integers(1, 4), seeds=SEEDS)
    def grow(self, thread: str, count: int, seeds: list[str]) -> None:
        """Sound appends, so that there is something to delete and to fork."""
        lease = self.held(thread)
        for _ in range(count if lease else 0):
            assert lease is not None
            self.grown(thread, lease, seeds)

    @rule(thread=THREADS, keep=st.integers(1, 2), heads=st.integers(0, 3))
    def shrink(self, thread: str, keep: int, heads: int) -> None:
        """A sound prune, then sound deletes of the head, past the oldest that was kept."""
        lease = self.held(thread)
        if lease is None:
            return

        async def prune(name: str, store: Any) -> Any:
            done = await store.delete_checkpoints(thread, keep=keep, writer=lease[1][name])
            return list(done.deleted)

        self.same(self.model.delete_checkpoints(lease[0], thread, keep), prune)
        for _ in range(heads):
            head = self.model.thread(thread).head
            if head is not None:
                self.same(
                    self.model.delete_head(lease[0], thread, head),
                    lambda name, store, head=head: store.delete_head(
                        thread, head, writer=lease[1][name]
                    ),
                )

    @precondition(lambda self: self.model.checkpoints)
    @rule(source=st.integers(0, 9), into=st.sampled_from(["F1", "F2", "F3"]))
    def fork_fresh(self, source: int, into: str) -> None:
        """A fork whose destination may well be empty."""
        lease = self.held(into)
        if lease is not None:
            self.fresh += 1
            self.forked(lease, source, False, f"n{self.fresh}")

    @precondition(lambda self: self.leases)
    @rule(pick=st.integers(0, 5))
    def renew(self, pick: int) -> None:
        held, leases = self.lease(-1 - pick)

        async def call(name: str, store: Any) -> Any:
            await leases[name].renew()
            return leases[name].expires_at

        self.same(self.model.renew(held), call)

    @precondition(lambda self: self.leases)
    @rule(pick=st.integers(0, 5))
    def release(self, pick: int) -> None:
        held, leases = self.lease(-1 - pick)
        self.model.release(held)
        self.same(None, lambda name, _: leases[name].release())

    @rule(ms=JUMPS)
    def jump(self, ms: float) -> None:
        self.model.now += ms

    @precondition(lambda self: self.leases)
    @rule(
        pick=st.integers(0, 5), name=IDS, files=SEEDS, artifacts=SEEDS, at=TIMES,
        follow=st.sampled_from(["head", "head", "head", "head", "none", "id", "parent"]), other=IDS,
    )  # fmt: skip
    def append(
        self, pick: int, name: str, files: list[str], artifacts: list[str], at: float,
        follow: str, other: str,
    ) -> None:  # fmt: skip
        held, leases = self.lease(-1 - pick)
        head = self.model.thread(held.thread).head
        expected = {"none": None, "id": other}.get(follow, head)
        given = SandboxCheckpoint(
            name,
            held.thread,
            at,
            other if follow == "parent" else expected,
            files=[file(f"f{index}", seed) for index, seed in enumerate(files)],
            artifacts=[artifact("1", seed) for seed in artifacts],
            conversation=[f"{name} says"],
        )
        wanted = self.model.append(held, row_of(given), expected)
        self.same(
            wanted,
            lambda store_name, store: store.append(
                given, expected_head_id=expected, writer=leases[store_name]
            ),
        )

    @precondition(lambda self: self.leases)
    @rule(pick=st.integers(0, 5), head=st.booleans(), other=IDS)
    def delete_head(self, pick: int, head: bool, other: str) -> None:
        held, leases = self.lease(-1 - pick)
        target = (self.model.thread(held.thread).head if head else other) or other
        wanted = self.model.delete_head(held, held.thread, target)
        self.same(
            wanted,
            lambda name, store: store.delete_head(held.thread, target, writer=leases[name]),
        )

    @precondition(lambda self: self.leases)
    @rule(pick=st.integers(0, 5), keep=st.integers(0, 3))
    def delete_checkpoints(self, pick: int, keep: int) -> None:
        held, leases = self.lease(-1 - pick)

        async def call(name: str, store: Any) -> Any:
            done = await store.delete_checkpoints(held.thread, keep=keep, writer=leases[name])
            return list(done.deleted)

        self.same(self.model.delete_checkpoints(held, held.thread, keep), call)

    @precondition(lambda self: self.leases and self.model.checkpoints)
    @rule(pick=st.integers(0, 5), source=st.integers(0, 9), wrong=st.booleans(), name=IDS)
    def fork(self, pick: int, source: int, wrong: bool, name: str) -> None:
        self.forked(self.lease(-1 - pick), source, wrong, name)

    def forked(self, lease: tuple[Any, Any], source: int, wrong: bool, name: str) -> None:
        held, leases = lease
        ids = sorted(self.model.checkpoints)
        checkpoint = ids[source % len(ids)]
        thread = "A" if wrong else self.model.checkpoints[checkpoint]["thread"]
        wanted = self.model.fork(held, (thread, checkpoint), (held.thread, name))

        async def call(store_name: str, store: Any) -> Any:
            request = ForkRequest(
                thread, checkpoint, held.thread, name, self.model.now, leases[store_name]
            )
            return (await store.fork_from_checkpoint(request)).id

        self.same(wanted, call)

    @rule(thread=st.sampled_from(["A", "F3"]), messages=st.sampled_from([[], ["m"]]))
    def save_transcript(self, thread: str, messages: list[Any]) -> None:
        self.model.save_transcript(thread, messages)
        self.same(None, lambda _, store: store.save_transcript(thread, messages))

    @rule(thread=st.sampled_from(["A", "F2"]))
    def save_record(self, thread: str) -> None:
        self.model.save_record(thread)
        kind = ThreadRecordKind.RUN
        self.same(None, lambda _, store: store.save_thread_record(thread, kind, "1"))

    @rule()
    def everything_is_the_same(self) -> None:
        for thread in ("A", "b", "é", "\0", "F1", "F2", "F3"):
            self.same(self.model.thread(thread).head, lambda _, s, t=thread: s.get_head(t))
            wanted = self.model.thread(thread).transcript
            self.same(wanted, lambda _, s, t=thread: s.get_transcript(t))

            async def rows(_: str, store: Any, thread: str = thread) -> Any:
                return [row_of(item) for item in await store.list(thread)]

            self.same(self.model.listed(thread), rows)

        async def references(_: str, store: Any) -> Any:
            return [(item.key, item.count) async for item in store.list_blob_references()]

        self.same(self.model.references(), references)


@pytest.mark.timeout(280)
def test_the_stores_agree_with_a_plain_model(postgres_dsn: str, tmp_path: Path) -> None:
    Stores.dsn, Stores.folder = postgres_dsn, tmp_path
    Stores.schema = f"model_{secrets.token_hex(4)}"
    try:
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            Stores,
            settings=settings(
                max_examples=50,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        drop_schema(postgres_dsn, Stores.schema)
