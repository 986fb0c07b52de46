"""What a conformance rule is, and the bench that it works at: a fresh store and a hand-set clock.

Rules raise `ConformanceError` by themselves rather than by `assert`, so that they also hold under
`python -O` and say what was expected without pytest's help.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from savermark.sandbox.errors import SandboxCheckpointError
from savermark.sandbox.lease import LeaseTimes
from savermark.sandbox.protocols import StoreCapability, store_capabilities
from savermark.sandbox.records import (
    Artifact,
    BlobReference,
    Clock,
    FileEntry,
    SandboxCheckpoint,
)

if TYPE_CHECKING:
    from savermark.sandbox.protocols import WriterLease
    from savermark.sandbox.records import WriterIdentity

START_MS = 1_000.0


class ConformanceError(AssertionError):
    """A rule that the store breaks."""


class SkipRuleError(Exception):
    """A rule that does not apply to this store."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What the factory must give its store: the clock (ms) and the lease times."""

    clock: Clock
    lease: LeaseTimes


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now: float = START_MS) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time in ms."""
        return self.now

    def advance(self, ms: float) -> None:
        """Moves the time, back too if `ms` is negative."""
        self.now += ms


StoreFactory = Callable[[StoreOptions], Any]
"""Returns a fresh, empty store: as an async context manager, an awaitable, or the store itself."""

Plant = Callable[[Any, SandboxCheckpoint], Awaitable[None]]
"""Stores a checkpoint beside the head chain, behind the protocol's back."""


@dataclass
class Bench:
    """One fresh store and all that a rule needs to use it."""

    store: Any
    clock: ManualClock
    lease: LeaseTimes
    plant: Plant | None = None
    _threads: set[str] = field(default_factory=set)

    async def writer(self, thread_id: str = "thread") -> WriterLease:
        """A new lease of the thread."""
        self._threads.add(thread_id)
        lease: WriterLease = await self.store.acquire_writer(thread_id)
        return lease

    async def add(self, checkpoint: SandboxCheckpoint, writer: WriterIdentity) -> str:
        """Appends it after its own parent."""
        head: str = await self.store.append(
            checkpoint, expected_head_id=checkpoint.parent_checkpoint_id, writer=writer
        )
        return head

    async def chain(
        self, writer: WriterIdentity, ids: str | list[str], **fields: Any
    ) -> list[SandboxCheckpoint]:
        """Appends a chain of these ids to an empty thread, oldest first."""
        made: list[SandboxCheckpoint] = []
        for at, checkpoint_id in enumerate(ids):
            parent = made[-1].id if made else None
            made.append(
                checkpoint(
                    checkpoint_id,
                    writer.thread_id,
                    parent,
                    **{"created_at": START_MS + at, **fields},
                )
            )
            await self.add(made[-1], writer)
        return made

    async def listed(self, thread_id: str = "thread") -> list[str]:
        """The ids that `list` returns."""
        return [item.id for item in await self.store.list(thread_id)]

    async def references(self) -> dict[str, int]:
        """Blob keys and counts, in the order given."""
        return {item.key: item.count for item in await self.reference_list()}

    async def reference_list(self) -> list[BlobReference]:
        """All that `list_blob_references` yields."""
        return [item async for item in self.store.list_blob_references()]

    async def state(self) -> dict[str, Any]:
        """All that the protocol shows of the threads used so far."""
        threads = {
            thread: (
                await self.store.get_head(thread),
                [plain(item) for item in await self.store.list(thread)],
            )
            for thread in sorted(self._threads)
        }
        return {"threads": threads, "references": await self.references()}

    async def refused(
        self, call: Awaitable[Any], error: type[SandboxCheckpointError], why: str
    ) -> None:
        """The call raises the error's code and changes nothing."""
        before = await self.state()
        await refused(call, error, why)
        expect_equal(await self.state(), before, f"the store after a refused write ({why})")


def checkpoint(
    checkpoint_id: str, thread_id: str = "thread", parent: str | None = None, **fields: Any
) -> SandboxCheckpoint:
    """A small checkpoint with one file and one artifact of its own."""
    files = [file("a.txt", checkpoint_id)]
    artifacts = [artifact("report", checkpoint_id)]
    base = SandboxCheckpoint(
        id=checkpoint_id,
        thread_id=thread_id,
        created_at=START_MS,
        parent_checkpoint_id=parent,
        files=files,
        artifacts=artifacts,
        conversation=[{"role": "user", "content": f"hello {checkpoint_id!a}"}],
    )
    return replace(base, **fields)


def _hex(seed: str) -> str:
    from hashlib import sha256

    return sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()


def file_blob(seed: str) -> str:
    """A well-formed key of a file's blob."""
    return f"sandbox-files/sha256/{_hex(seed)}"


def artifact_blob(seed: str) -> str:
    """A well-formed key of an artifact's blob."""
    return f"sandbox-artifacts/sha256/{_hex(seed)}"


def file(path: str, seed: str = "content", size: int = 7) -> FileEntry:
    """A file entry whose key comes from the seed."""
    return FileEntry(path, file_blob(seed), size)


def artifact(artifact_id: str, seed: str = "content", **fields: Any) -> Artifact:
    """An artifact whose key comes from the seed."""
    base = Artifact(artifact_id, "report.pdf", "application/pdf", 9, artifact_blob(seed), 5.0)
    return replace(base, **fields)


def plain(item: SandboxCheckpoint) -> dict[str, Any]:
    """A checkpoint as values that compare equal whatever sequence type holds its parts."""
    return {
        "id": item.id,
        "thread_id": item.thread_id,
        "created_at": item.created_at,
        "parent": item.parent_checkpoint_id,
        "reason": str(item.reason),
        "label": item.label,
        "source_run_id": item.source_run_id,
        "files": list(item.files),
        "conversation": list(item.conversation),
        "artifacts": list(item.artifacts),
    }


def expect(holds: bool, what: str) -> None:
    """Raises `ConformanceError` unless it holds."""
    if not holds:
        raise ConformanceError(what)


def expect_equal(found: Any, wanted: Any, what: str) -> None:
    """Raises `ConformanceError` with both values unless they are equal."""
    if found != wanted:
        raise ConformanceError(f"{what}: expected {wanted!r:.600}, got {found!r:.600}")


async def refused(call: Awaitable[Any], error: type[SandboxCheckpointError], why: str) -> Exception:
    """The exception of a call that must raise the code of `error`."""
    try:
        result = await call
    except Exception as raised:
        code = getattr(raised, "code", None)
        if code != error.code:
            raise ConformanceError(
                f"{why}: expected {error.code}, got {code or type(raised).__name__}: {raised}"
            ) from raised
        return raised
    raise ConformanceError(f"{why}: expected {error.code}, but it returned {result!r:.200}")


@dataclass(frozen=True, slots=True)
class Rule:
    """One promise of a store: its name, what it says, and how it is tried."""

    group: str
    name: str
    says: str
    run: Callable[[Bench], Awaitable[None]]
    needs: frozenset[StoreCapability] = frozenset()

    def __str__(self) -> str:
        """The rule's name, under its group."""
        return f"{self.group}-{self.name}"


RuleBody = Callable[[Bench], Awaitable[None]]


class RuleBook(list[Rule]):
    """The rules of one group, in the order they were written down."""

    def __init__(self, group: str, *needs: StoreCapability) -> None:
        super().__init__()
        self._group = group
        self._needs = frozenset(needs)

    def rule(self, *needs: StoreCapability) -> Callable[[RuleBody], RuleBody]:
        """Adds the function as a rule; its docstring is what the rule says."""

        def add(body: RuleBody) -> RuleBody:
            name = body.__name__.replace("_", "-")
            says = " ".join((body.__doc__ or "").split())
            self.append(Rule(self._group, name, says, body, self._needs | set(needs)))
            return body

        return add


@asynccontextmanager
async def opened(made: Any) -> AsyncIterator[Any]:
    """The store that a factory made, in any of the forms that `StoreFactory` allows."""
    if inspect.isawaitable(made):
        made = await made
    if isinstance(made, AbstractAsyncContextManager):
        async with made as store:
            yield store
        return
    try:
        yield made
    finally:
        close = getattr(made, "aclose", None) or getattr(made, "close", None)
        if close is not None:
            closing = close()
            if inspect.isawaitable(closing):
                await closing


async def run_rule(
    rule: Rule, factory: StoreFactory, lease: LeaseTimes, plant: Plant | None = None
) -> None:
    """Tries one rule on a fresh store. Raises `ConformanceError` or `SkipRuleError`."""
    clock = ManualClock()
    async with opened(factory(StoreOptions(clock, lease))) as store:
        missing = rule.needs - store_capabilities(store)
        if missing:
            raise SkipRuleError(f"the store has no {', '.join(sorted(missing))}")
        await rule.run(Bench(store, clock, lease, plant))
