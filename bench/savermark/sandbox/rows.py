"""Rows of the SQL stores, to and from values; text is escaped on the way (`codec.to_text`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from savermark.sandbox.codec import (
    from_optional_text,
    from_text,
    to_optional_text,
    to_text,
)
from savermark.sandbox.records import (
    Artifact,
    DirectoryEntry,
    FileEntry,
    SandboxInstance,
    SymlinkEntry,
)
from savermark.sandbox.rules import Snapshot
from savermark.sandbox.validation import check_id, check_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from savermark.sandbox.records import Entry

EntryRow = tuple[str, str, str | None, int | None, str | None]
ArtifactRow = tuple[str, str, str, int, str, float]


def checkpoint_row(snapshot: Snapshot) -> tuple[Any, ...]:
    """id, thread, parent, time, reason, label, run, conversation."""
    return (
        to_text(snapshot.id),
        to_text(snapshot.thread_id),
        to_optional_text(snapshot.parent_id),
        snapshot.created_at,
        to_text(snapshot.reason),
        to_optional_text(snapshot.label),
        to_optional_text(snapshot.source_run_id),
        snapshot.conversation,
    )


def entry_row(entry: Entry) -> EntryRow:
    """kind, path, blob key, size, target."""
    if isinstance(entry, FileEntry):
        return entry.kind, to_text(entry.path), entry.blob_key, entry.size, None
    target = to_text(entry.target) if isinstance(entry, SymlinkEntry) else None
    return entry.kind, to_text(entry.path), None, None, target


def artifact_row(artifact: Artifact) -> ArtifactRow:
    """id, name, MIME type, size, blob key, time."""
    return (
        to_text(artifact.artifact_id),
        to_text(artifact.name),
        to_text(artifact.mime_type),
        artifact.size,
        artifact.blob_key,
        artifact.created_at,
    )


def _entry(row: Sequence[Any]) -> Entry:
    kind, path, blob_key, size, target = row
    if kind == FileEntry.kind:
        return FileEntry(from_text(path), blob_key, size)
    if kind == SymlinkEntry.kind:
        return SymlinkEntry(from_text(path), from_text(target))
    return DirectoryEntry(from_text(path))


def _artifact(row: Sequence[Any]) -> Artifact:
    artifact_id, name, mime_type, size, blob_key, created_at = row
    return Artifact(
        from_text(artifact_id),
        from_text(name),
        from_text(mime_type),
        size,
        blob_key,
        float(created_at),
    )


def snapshot_from(
    row: Sequence[Any], entries: Iterable[Sequence[Any]], artifacts: Iterable[Sequence[Any]]
) -> Snapshot:
    """The checkpoint of a `checkpoint_row` and the rows of its entries and artifacts."""
    checkpoint_id, thread_id, parent, created_at, reason, label, run, conversation = row
    return Snapshot(
        id=from_text(checkpoint_id),
        thread_id=from_text(thread_id),
        parent_id=from_optional_text(parent),
        created_at=float(created_at),
        reason=from_text(reason),
        label=from_optional_text(label),
        source_run_id=from_optional_text(run),
        files=tuple(_entry(item) for item in entries),
        artifacts=tuple(_artifact(item) for item in artifacts),
        conversation=conversation,
    )


def check_instance(record: SandboxInstance) -> SandboxInstance:
    """The record with a float time. Raises INVALID_ID or INVALID_ENTRY."""
    for what, value in (
        ("instance key", record.key),
        ("provider", record.provider),
        ("provider sandbox id", record.provider_sandbox_id),
        ("thread id", record.thread_id),
    ):
        check_id(value, what)
    for what, optional in (
        ("latest snapshot id", record.latest_snapshot_id),
        ("latest run id", record.latest_run_id),
    ):
        if optional is not None:
            check_id(optional, what)
    return SandboxInstance(
        key=record.key,
        provider=record.provider,
        provider_sandbox_id=record.provider_sandbox_id,
        thread_id=record.thread_id,
        updated_at=check_time(record.updated_at, "updated_at"),
        latest_snapshot_id=record.latest_snapshot_id,
        latest_run_id=record.latest_run_id,
    )


def instance_row(record: SandboxInstance) -> tuple[Any, ...]:
    """key, provider, provider's id, snapshot, thread, run, time."""
    return (
        to_text(record.key),
        to_text(record.provider),
        to_text(record.provider_sandbox_id),
        to_optional_text(record.latest_snapshot_id),
        to_text(record.thread_id),
        to_optional_text(record.latest_run_id),
        record.updated_at,
    )


def instance_from(row: Sequence[Any]) -> SandboxInstance:
    """The record of an `instance_row`."""
    key, provider, provider_id, snapshot, thread_id, run, updated_at = row
    return SandboxInstance(
        key=from_text(key),
        provider=from_text(provider),
        provider_sandbox_id=from_text(provider_id),
        thread_id=from_text(thread_id),
        updated_at=float(updated_at),
        latest_snapshot_id=from_optional_text(snapshot),
        latest_run_id=from_optional_text(run),
    )
