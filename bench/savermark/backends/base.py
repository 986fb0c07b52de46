"""The contract of a backend: a saver plus all that is needed to open, measure and maintain it.

A backend is one file and one line in the entry-point group `savermark.backends`. Nothing outside
this folder asks which backend it has; it asks for a capability or calls a method. A backend holds
no clock: `savermark.recording` times saver calls from outside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from savermark.meter import ametered, metered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from savermark.meter import Meter
    from savermark.storage import FloorRow, FootprintRow, StorageRow


class Capability(StrEnum):
    """What a store can do beyond running a graph. What it cannot is a row `unsupported`."""

    STORAGE = "storage"  # storage() and floor()
    FOOTPRINT = "footprint"
    COMPACT = "compact"
    COLD = "cold"  # another process can open the same store, and caches can be dropped
    CLONE = "clone"
    KEEPS = "keeps"  # reads give back what was written (the null backend does not)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a store lives. It travels to worker processes as JSON, so it holds plain values.

    `folder` is an existing scratch folder of the caller's for anything file-like; `dsn` a server;
    `name` tells stores on one server apart (database or schema name is made from it).
    """

    folder: Path
    name: str
    dsn: str | None = field(default=None, repr=False)  # it may hold a password


class Store(ABC):
    """One opened store. Closing it leaves nothing behind but the files in `location.folder`."""

    capabilities: ClassVar[frozenset[Capability]]
    location: Location

    @abstractmethod
    def saver(
        self, serde: SerializerProtocol | None = None
    ) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
        """A sync saver on a connection of its own, opened as its documentation tells."""

    @abstractmethod
    def asaver(
        self, serde: SerializerProtocol | None = None
    ) -> AbstractAsyncContextManager[BaseCheckpointSaver[Any]]:
        """The async twin of `saver`."""

    def cost(self, saver: BaseCheckpointSaver[Any]) -> AbstractContextManager[Meter]:
        """Count what is done inside the block through a saver of this store (`savermark.meter`).

        What a backend cannot count is None. One with an engine that `savermark.meter` does not
        know overrides this and `acost`.
        """
        return metered(saver)

    def acost(self, saver: BaseCheckpointSaver[Any]) -> AbstractAsyncContextManager[Meter]:
        """The async twin of `cost`."""
        return ametered(saver)

    @abstractmethod
    def storage(self, threads: Sequence[str] | None = None) -> list[StorageRow]:
        """Rows and bytes of each thread, namespace, table and channel.

        A constant number of set-based statements whatever the number of threads. A thread named
        in `threads` has a row of zeros for each table in which it holds nothing.
        """

    @abstractmethod
    def floor(self, threads: Sequence[str] | None = None) -> list[FloorRow]:
        """The distinct payload bytes of each thread (`savermark.storage.FloorRow`)."""

    @abstractmethod
    def footprint(self) -> list[FootprintRow]:
        """The size of the whole store by component, after outstanding work is flushed."""

    @abstractmethod
    def row_digests(self, threads: Sequence[str] | None = None) -> dict[str, str]:
        """SHA-256 over every stored row of each thread, to prove that a thread is untouched."""

    @abstractmethod
    def compact(self) -> None:
        """Give space back the engine's own way (VACUUM and its like)."""

    @abstractmethod
    def settle(self) -> None:
        """Bring the store to a steady state before reads: checkpoint the WAL, analyse."""

    @abstractmethod
    def drop_caches(self) -> None:
        """Forget what is cached for this store, as far as the engine and the system allow."""

    @abstractmethod
    def clone_threads(self, sources: Mapping[str, Sequence[str]]) -> int:
        """Copy each source thread's rows under the new thread ids, by the engine's bulk path.

        Returns the number of rows written. Checkpoint, task and blob keys stay as they are: only
        the thread id changes. Refuses (`BackendError`) a target that already holds rows.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Versions and the settings that decide the numbers, as JSON values without secrets."""

    @abstractmethod
    def close(self) -> None:
        """Close connections; the data stays for another process (`Backend.attach`)."""

    @abstractmethod
    def destroy(self) -> None:
        """Close, and remove what `Backend.create` made. Never touches anything else."""


class Backend(ABC):
    """How to create a fresh store, attach to one, and run the services it needs."""

    name: ClassVar[str]
    title: ClassVar[str]  # one line for `savermark list backends`
    distribution: ClassVar[str] = ""  # the package that brings its saver, where that is one
    store_type: ClassVar[type[Store]]

    @classmethod
    def service(cls, folder: Path, dsn: str | None = None) -> AbstractContextManager[str | None]:
        """What must run for the length of a benchmark run, for instance an embedded server.

        Yields the dsn that goes into each `Location`. Raises `BackendError` with one clear line
        when the server cannot be reached or written to. The default needs nothing.
        """
        from contextlib import nullcontext

        return nullcontext(dsn)

    @classmethod
    @abstractmethod
    def create(cls, location: Location) -> Store:
        """A fresh, empty store with its schema set up. Raises `BackendError` if it cannot."""

    @classmethod
    @abstractmethod
    def attach(cls, location: Location) -> Store:
        """The store that `create` made at this location, perhaps in another process."""
