"""What a trial needs of a store beyond the store's own methods: open, count, compact, remove.

Places hold no clock, and nothing outside this folder asks which place it has.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from savermark.storage import SHARED, FootprintRow, StorageRow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from pathlib import Path

    from savermark.backends.base import Location
    from savermark.sandbox.blobs import BlobInfo, BlobStore
    from savermark.sandbox.protocols import SandboxCheckpointStore
    from savermark.storage import SandboxTable

#: Table -> its name in a database, what gives a row's thread, and its text columns.
KEPT: dict[SandboxTable, tuple[str, str, tuple[str, ...]]] = {
    "checkpoints": (
        "sandbox_checkpoints",
        "thread_id",
        ("checkpoint_id", "parent_id", "reason", "label", "source_run_id", "conversation"),
    ),
    "entries": ("sandbox_checkpoint_entries", "seq", ("kind", "path", "blob_key", "target")),
    "artifacts": (
        "sandbox_checkpoint_artifacts",
        "seq",
        ("artifact_id", "name", "mime_type", "blob_key"),
    ),
    "references": ("sandbox_checkpoint_blob_references", "", ("blob_key",)),
    "threads": ("sandbox_checkpoint_threads", "thread_id", ("head_id", "owner_token")),
    "ids": ("sandbox_checkpoint_ids", "", ("checkpoint_id",)),
    "records": ("sandbox_thread_records", "thread_id", ("kind", "record_id", "value")),
}
TABLE_NAMES = {name: table for table, (name, _, _) in KEPT.items()}


class Place(ABC):
    """One store of a trial at a location."""

    service_name: ClassVar[str] = ""  # what must run for it, shared by all pairs that need it
    cold: ClassVar[bool] = True  # another process can open the same store

    def __init__(self, location: Location) -> None:
        self.location = location

    @classmethod
    def service(
        cls, folder: Path, given: Mapping[str, str | None]
    ) -> AbstractContextManager[str | None]:
        """What `service_name` stands for: yields how a location reaches it; None: nowhere."""
        return nullcontext(None)

    def served(self) -> str | None:
        """What the service yielded, out of the location's dsn."""
        services: dict[str, str | None] = json.loads(self.location.dsn or "{}")
        return services.get(self.service_name)

    @abstractmethod
    def create(self) -> None:
        """Make the store, fresh and empty. Raises `BackendError` or `Unsupported`."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Versions and the settings that decide the numbers, as JSON values without secrets."""

    @abstractmethod
    def destroy(self) -> None:
        """Remove what `create` made; nothing when it made nothing."""

    def settle(self) -> None:  # noqa: B027 - most places have nothing to do
        """Bring the store to a steady state before reads."""

    def compact(self) -> None:  # noqa: B027
        """Give space back the engine's own way."""

    def drop_caches(self) -> None:  # noqa: B027
        """Forget what is cached, as far as the engine and the system allow."""


class StorePlace(Place):
    """A checkpoint store."""

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[SandboxCheckpointStore]:
        """The store on connections of its own."""

    @abstractmethod
    def storage(self) -> list[StorageRow]:
        """Rows and bytes by thread and table, in a constant number of statements."""

    @abstractmethod
    def footprint(self) -> list[FootprintRow]:
        """The size of the store by component, without a total of pairs."""


class BlobPlace(Place):
    """A blob store."""

    component: ClassVar[str] = "payload"  # what its bytes are called in a footprint

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[BlobStore]:
        """The store on connections of its own."""

    def space(self, blob: BlobInfo) -> int:
        """The bytes that a blob takes where it lies."""
        return blob.size


def blob_storage(blobs: Mapping[SandboxTable, list[BlobInfo]]) -> list[StorageRow]:
    """Rows and bytes of each prefix."""
    return [
        StorageRow(SHARED, "", table, None, len(found), size, size)
        for table, found in blobs.items()
        for size in (sum(blob.size for blob in found),)
    ]
