"""What the steps of a sandbox trial share: the case, the opened stores, and what they found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savermark.records import Check, Phase, PhaseStorage, SampleSet
from savermark.sandbox_trial.places import blob_place, store_place

if TYPE_CHECKING:
    from savermark.backends.base import Location
    from savermark.sandbox.blobs import BlobStore
    from savermark.sandbox_trial.case import SandboxCase
    from savermark.sandbox_trial.places.base import BlobPlace, StorePlace
    from savermark.sandbox_trial.script import Content, ThreadScript
    from savermark.spec import SandboxSpec

SHOWN = 3  # broken things that a check's detail spells out


@dataclass(frozen=True)
class Pair:
    """A checkpoint store and a blob store at one location."""

    store: StorePlace
    blobs: BlobPlace

    @property
    def cold(self) -> bool:
        """Whether another process can open both."""
        return self.store.cold and self.blobs.cold

    def create(self) -> None:
        """Make both, fresh and empty."""
        self.blobs.create()
        self.store.create()

    def drop_caches(self) -> None:
        """Forget what is cached of both."""
        self.store.drop_caches()
        self.blobs.drop_caches()

    def destroy(self) -> None:
        """Remove both."""
        self.store.destroy()
        self.blobs.destroy()

    def describe(self) -> dict[str, Any]:
        """What both say about themselves."""
        return {**self.store.describe(), **self.blobs.describe()}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Any, BlobStore]]:
        """Both stores on connections of their own."""
        async with self.store.open() as store, self.blobs.open() as blobs:
            yield store, blobs


def pair_at(name: str, location: Location) -> Pair:
    """The pair of stores of this name. Raises `UsageError` for an unknown one."""
    return Pair(store_place(name)(location), blob_place(name)(location))


@dataclass
class Ground:
    """One trial: what it works on, and what it yields."""

    case: SandboxCase
    location: Location
    pair: Pair
    store: Any  # a checkpoint store with all optional parts; not recorded
    blobs: BlobStore
    threads: tuple[ThreadScript, ...]
    clock: Callable[[], int]
    hashes: dict[Content, str] = field(default_factory=dict)
    pruned: frozenset[str] = frozenset()  # threads that retention shortened
    samples: list[SampleSet] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    phases: list[PhaseStorage] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> SandboxSpec:
        return self.case.spec

    @property
    def probe(self) -> ThreadScript:
        """The thread that reads aim at: the longest."""
        return max(self.threads, key=lambda thread: len(thread.chain))

    def folder(self, name: str) -> Path:
        """A scratch folder's path, not made."""
        return self.location.folder / name

    def unsupported(self, what: str, why: str) -> None:
        """Note that `what` could not be done or measured here."""
        self.notes.setdefault("unsupported", {})[what] = why

    def check(self, phase: Phase, name: str, tested: int, broken: list[str]) -> None:
        """File one check over `tested` things, of which `broken` did not hold."""
        detail = f"{tested} checked"
        if broken:
            rest = f"; {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
            detail = f"{len(broken)} of {tested} wrong: {'; '.join(broken[:SHOWN])}{rest}"
        self.checks.append(Check(phase, name, not broken, detail))
