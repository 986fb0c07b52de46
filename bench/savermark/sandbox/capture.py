"""Turns a workspace folder into a checkpoint: uploads what is missing first, appends after.

Everything happens under the writer lease of the thread. The blobs of the head need no look at the
blob store: while the lease is held nobody can remove the head, so the sweep keeps them.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savermark.sandbox.blobs import artifact_key, file_key
from savermark.sandbox.errors import SandboxWorkspaceError
from savermark.sandbox.leases import with_lease
from savermark.sandbox.memory import system_clock
from savermark.sandbox.records import (
    Artifact,
    CheckpointReason,
    Clock,
    Entry,
    FileEntry,
    SandboxCheckpoint,
    SymlinkEntry,
)
from savermark.sandbox.workspace import Scan, leaving_links, read_file, scan_workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from savermark.sandbox.blobs import BlobStore
    from savermark.sandbox.protocols import SandboxCheckpointStore, WriterLease


@dataclass(frozen=True, slots=True)
class ArtifactSource:
    """An artifact to capture, with its bytes. `created_at` is that of the capture by default."""

    artifact_id: str
    name: str
    mime_type: str
    data: bytes
    created_at: float | None = None


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """How a workspace is captured.

    `ignore` is asked for each path. A symlink out of the workspace is refused, or left out with
    `skip_outside_links`. `at_once` files are read and uploaded at one time, whole, in memory.
    `refresh_after_ms` uploads again what is stored but older than that, which protects it from a
    sweep that runs meanwhile: its `older_than_ms` must be longer than this and a capture together.
    """

    ignore: Callable[[str], bool] | None = None
    skip_outside_links: bool = False
    at_once: int = 8
    refresh_after_ms: float | None = None
    clock: Clock = system_clock


@dataclass(frozen=True, slots=True)
class Capture:
    """A finished capture: its checkpoint, what went up, what was there, and what was left out."""

    checkpoint: SandboxCheckpoint
    uploaded: int
    uploaded_bytes: int
    reused: int
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CaptureNotes:
    """What a checkpoint says beside the files: the parts that the caller knows."""

    checkpoint_id: str | None = None  # a new random one
    conversation: Sequence[Any] = ()
    artifacts: Sequence[ArtifactSource] = ()
    reason: str = CheckpointReason.AUTOMATIC
    label: str | None = None
    source_run_id: str | None = None
    created_at: float | None = None  # the time of the capture


async def capture_workspace(
    store: SandboxCheckpointStore,
    blobs: BlobStore,
    thread_id: str,
    root: str | Path,
    notes: CaptureNotes | None = None,
    options: CaptureOptions | None = None,
) -> Capture:
    """Captures the folder as the new head of the thread.

    Raises `SandboxWorkspaceError` for a folder that cannot be captured, and what acquire and
    append raise. A capture that fails leaves at most unused blobs, for the sweep to delete.
    """
    notes, options = notes or CaptureNotes(), options or CaptureOptions()
    folder = Path(root)
    if not await asyncio.to_thread(folder.is_dir):
        raise SandboxWorkspaceError(f"{root} is no folder; give the workspace's folder")

    async def work(lease: WriterLease) -> Capture:
        scan = await asyncio.to_thread(_scan, folder, options)
        head = await store.get_head(thread_id)
        known = _keys_of(await store.get(head) if head is not None else None)
        uploads = _Uploads(blobs, options, known)
        files = await _capture_files(folder, scan.files, uploads, options.at_once)
        artifacts = [await _capture_artifact(item, uploads) for item in notes.artifacts]
        checkpoint = _checkpoint(thread_id, head, _merged(scan, files), artifacts, notes, options)
        await store.append(checkpoint, expected_head_id=head, writer=lease)
        return Capture(
            checkpoint, uploads.count, uploads.size, uploads.reused, tuple(sorted(scan.skipped))
        )

    return await with_lease(store, thread_id, work)


def _scan(folder: Path, options: CaptureOptions) -> Scan:
    scan = scan_workspace(folder, options.ignore)
    outside = leaving_links(item for item in scan.others if isinstance(item, SymlinkEntry))
    if not outside:
        return scan
    if not options.skip_outside_links:
        raise SandboxWorkspaceError(
            f"symlink {outside[0]!a} leads out of the workspace; remove it, ignore it, "
            "or set skip_outside_links"
        )
    left_out = set(outside)
    kept = tuple(item for item in scan.others if item.path not in left_out)
    return Scan(kept, scan.files, (*scan.skipped, *outside))


def _keys_of(checkpoint: SandboxCheckpoint | None) -> set[str]:
    if checkpoint is None:
        return set()
    keys = {item.blob_key for item in checkpoint.files if isinstance(item, FileEntry)}
    return keys | {item.blob_key for item in checkpoint.artifacts}


@dataclass
class _Uploads:
    """Makes sure that blobs are stored, each at most once."""

    blobs: BlobStore
    options: CaptureOptions
    known: set[str]
    count: int = 0
    size: int = 0
    reused: int = 0
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def ensure(self, key: str, data: bytes) -> None:
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key in self.known or await self._is_stored(key, len(data)):
                self.reused += 1
            else:
                await self.blobs.put(key, data)
                self.count += 1
                self.size += len(data)
            self.known.add(key)

    async def _is_stored(self, key: str, size: int) -> bool:
        info = await self.blobs.head(key)
        if info is None or info.size != size:
            return False
        limit = self.options.refresh_after_ms
        return limit is None or self.options.clock() - info.uploaded_at < limit


async def _capture_files(
    folder: Path, paths: Iterable[str], uploads: _Uploads, at_once: int
) -> list[FileEntry]:
    found: list[FileEntry] = []
    pending = iter(paths)

    async def worker() -> None:
        for path in pending:  # shared: each worker takes the next one
            data, key = await asyncio.to_thread(_read, folder, path)
            await uploads.ensure(key, data)
            found.append(FileEntry(path, key, len(data)))

    workers = [asyncio.ensure_future(worker()) for _ in range(max(1, at_once))]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return found


def _read(folder: Path, path: str) -> tuple[bytes, str]:
    data = read_file(folder, path)
    return data, file_key(data)


async def _capture_artifact(source: ArtifactSource, uploads: _Uploads) -> Artifact:
    key = await asyncio.to_thread(artifact_key, source.data)
    await uploads.ensure(key, source.data)
    made = uploads.options.clock() if source.created_at is None else source.created_at
    return Artifact(source.artifact_id, source.name, source.mime_type, len(source.data), key, made)


def _merged(scan: Scan, files: Sequence[FileEntry]) -> list[Entry]:
    return sorted([*scan.others, *files], key=lambda item: item.path)


def _checkpoint(
    thread_id: str,
    head: str | None,
    files: Sequence[Entry],
    artifacts: Sequence[Artifact],
    notes: CaptureNotes,
    options: CaptureOptions,
) -> SandboxCheckpoint:
    return SandboxCheckpoint(
        id=notes.checkpoint_id or str(uuid.uuid4()),
        thread_id=thread_id,
        created_at=options.clock() if notes.created_at is None else notes.created_at,
        parent_checkpoint_id=head,
        reason=notes.reason,
        label=notes.label,
        source_run_id=notes.source_run_id,
        files=files,
        conversation=notes.conversation,
        artifacts=artifacts,
    )
