"""What a sandbox store keeps: immutable checkpoints of a workspace, and who may write them.

Times are milliseconds since the epoch, as floats; sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol

FILES_PREFIX = "sandbox-files/"
ARTIFACTS_PREFIX = "sandbox-artifacts/"

Clock = Callable[[], float]
"""Returns the time now in milliseconds."""


class CheckpointReason(StrEnum):
    """Why a checkpoint was taken."""

    AUTOMATIC = "automatic"
    NAMED = "named"
    FORK_ROOT = "fork-root"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of the workspace; its bytes are the blob `blob_key`."""

    kind: ClassVar[str] = "file"
    path: str
    blob_key: str
    size: int


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A directory; one that holds entries may be left implicit."""

    kind: ClassVar[str] = "dir"
    path: str


@dataclass(frozen=True, slots=True)
class SymlinkEntry:
    """A symbolic link with its target as written; it has no blob."""

    kind: ClassVar[str] = "symlink"
    path: str
    target: str


Entry = FileEntry | DirectoryEntry | SymlinkEntry


@dataclass(frozen=True, slots=True)
class Artifact:
    """A product that the agent hands out; its bytes are the blob `blob_key`."""

    artifact_id: str
    name: str
    mime_type: str
    size: int
    blob_key: str
    created_at: float


@dataclass(frozen=True, slots=True)
class SandboxCheckpoint:
    """One point of a thread's chain: the files, the conversation and the artifacts.

    `conversation` is opaque JSON data. Stores copy what they are given and what they return.
    """

    id: str
    thread_id: str
    created_at: float
    parent_checkpoint_id: str | None = None
    reason: str = CheckpointReason.AUTOMATIC
    label: str | None = None
    source_run_id: str | None = None
    files: Sequence[Entry] = ()
    conversation: Sequence[Any] = ()
    artifacts: Sequence[Artifact] = ()


class WriterIdentity(Protocol):
    """What proves the right to write a thread: a `Writer`, or the lease itself."""

    @property
    def thread_id(self) -> str: ...
    @property
    def owner_token(self) -> str: ...
    @property
    def fence(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Writer:
    """The identity of a lease as plain data; `fence` rises with every lease of the thread."""

    thread_id: str
    owner_token: str = field(repr=False)  # whoever knows it may write
    fence: int


@dataclass(frozen=True, slots=True)
class BlobReference:
    """A blob key and the number of checkpoints that use it (1 or more)."""

    key: str
    count: int


@dataclass(frozen=True, slots=True)
class DeletedCheckpoints:
    """The ids that `delete_checkpoints` removed, oldest first."""

    deleted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """Copies one checkpoint of a thread into a new, empty thread as its root."""

    source_thread_id: str
    source_checkpoint_id: str
    destination_thread_id: str
    destination_checkpoint_id: str
    created_at: float
    writer: WriterIdentity


class ThreadRecordKind(StrEnum):
    """What else a host may have stored about a thread; each makes a fork destination used."""

    TRANSCRIPT = "transcript"
    RUN = "run"
    GENERATION = "generation"
    INTERRUPT = "interrupt"
    ARTIFACT = "artifact"


@dataclass(frozen=True, slots=True)
class SandboxInstance:
    """The provider's sandbox of a key. An optional field that was not stored is None."""

    key: str
    provider: str
    provider_sandbox_id: str
    thread_id: str
    updated_at: float
    latest_snapshot_id: str | None = None
    latest_run_id: str | None = None
