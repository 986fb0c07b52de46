"""Checkpoints of an agent's workspace: files, conversation and artifacts, one chain a thread.

The names below are imported when they are asked for, so that the store in memory needs no driver
of a database. See docs/sandbox.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "records": (
        "Artifact",
        "BlobReference",
        "CheckpointReason",
        "DeletedCheckpoints",
        "DirectoryEntry",
        "FileEntry",
        "ForkRequest",
        "SandboxCheckpoint",
        "SandboxInstance",
        "SymlinkEntry",
        "ThreadRecordKind",
        "Writer",
    ),
    "protocols": (
        "SandboxCheckpointStore",
        "SandboxInstanceStore",
        "StoreCapability",
        "WriterLease",
        "fork_checkpoint",
        "keep_newest",
        "store_capabilities",
    ),
    "lease": ("LeaseTimes",),
    "memory": ("MemoryInstanceStore", "MemorySandboxStore"),
    "sqlite": ("SqliteInstanceStore", "SqliteSandboxStore"),
    "postgres": ("PostgresInstanceStore", "PostgresSandboxStore"),
    "blobs": ("BlobInfo", "BlobStore", "MemoryBlobStore", "artifact_key", "file_key", "read_blob"),
    "folder_blobs": ("FolderBlobStore",),
    "object_blobs": ("ObjectBlobStore", "open_s3_blobs"),
    "capture": (
        "ArtifactSource",
        "Capture",
        "CaptureNotes",
        "CaptureOptions",
        "capture_workspace",
    ),
    "restore": ("restore_workspace",),
    "sweep": ("sweep_sandbox_blobs",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """The public names of the modules of this folder."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
