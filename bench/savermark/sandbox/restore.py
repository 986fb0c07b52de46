"""Writes a checkpoint's files back as a folder, byte for byte, or changes nothing.

The tree is built beside the target and put in its place when it is whole. Every blob is checked
against its hash, every path and symlink must stay inside, and symlinks are laid last, so that no
file is ever written through one.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.sandbox.blobs import read_blob
from savermark.sandbox.errors import SandboxCheckpointNotFoundError, SandboxWorkspaceError
from savermark.sandbox.records import DirectoryEntry, FileEntry, SymlinkEntry
from savermark.sandbox.validation import check_files
from savermark.sandbox.workspace import leaving_links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.sandbox.blobs import BlobStore
    from savermark.sandbox.protocols import SandboxCheckpointStore
    from savermark.sandbox.records import Entry, SandboxCheckpoint


async def restore_workspace(
    store: SandboxCheckpointStore,
    blobs: BlobStore,
    checkpoint_id: str,
    root: str | Path,
    *,
    replace: bool = False,
    at_once: int = 8,
) -> SandboxCheckpoint:
    """Writes the checkpoint's files to `root`, which must be missing or empty unless `replace`.

    The folder above `root` must be writable. Raises CHECKPOINT_NOT_FOUND, INVALID_ENTRY,
    `SandboxBlobError` for a missing or damaged blob, `SandboxWorkspaceError` for a symlink that
    leaves the folder or a folder that is in the way; then `root` is as it was.
    """
    checkpoint = await store.get(checkpoint_id)
    if checkpoint is None:
        raise SandboxCheckpointNotFoundError(f"no checkpoint {checkpoint_id!r:.80} to restore")
    entries = check_files(list(checkpoint.files))
    check_links(entries)
    target = Path(root).resolve()
    _check_target(target, replace)
    aside = target.with_name(f".{target.name}.restore-{secrets.token_hex(6)}")
    try:
        await asyncio.to_thread(_lay_folders, aside, entries)
        await _lay_files(aside, entries, blobs, at_once)
        await asyncio.to_thread(_lay_links, aside, entries)
        await asyncio.to_thread(_put_in_place, aside, target, replace)
    except (OSError, UnicodeEncodeError) as error:
        raise SandboxWorkspaceError(f"cannot write the workspace {root}: {error}") from error
    finally:
        await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)
    return checkpoint


def check_links(entries: Sequence[Entry]) -> None:
    """Raises `SandboxWorkspaceError` when a symlink leads out of the workspace."""
    outside = leaving_links(item for item in entries if isinstance(item, SymlinkEntry))
    if outside:
        raise SandboxWorkspaceError(f"symlink {outside[0]!a} would lead out of the workspace")


def _check_target(target: Path, replace: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise SandboxWorkspaceError(f"{target} is no folder; restore to a folder")
    if not replace and any(target.iterdir()):
        raise SandboxWorkspaceError(
            f"{target} is not empty; restore to an empty folder, or replace what is there"
        )


def _lay_folders(aside: Path, entries: Sequence[Entry]) -> None:
    aside.mkdir()
    for entry in entries:
        path = aside / entry.path
        folder = path if isinstance(entry, DirectoryEntry) else path.parent
        folder.mkdir(parents=True, exist_ok=True)


async def _lay_files(aside: Path, entries: Sequence[Entry], blobs: BlobStore, at_once: int) -> None:
    by_blob: dict[tuple[str, int], list[str]] = {}
    for entry in entries:
        if isinstance(entry, FileEntry):
            by_blob.setdefault((entry.blob_key, entry.size), []).append(entry.path)
    pending = iter(by_blob.items())

    async def worker() -> None:
        for (key, size), paths in pending:  # shared: each worker takes the next one
            data = await read_blob(blobs, key, size)
            await asyncio.to_thread(_write_all, aside, paths, data)

    workers = [asyncio.ensure_future(worker()) for _ in range(max(1, at_once))]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def _write_all(aside: Path, paths: Sequence[str], data: bytes) -> None:
    for path in paths:
        with (aside / path).open("xb") as file:  # never over something, never through a link
            file.write(data)


def _lay_links(aside: Path, entries: Sequence[Entry]) -> None:
    for entry in entries:
        if isinstance(entry, SymlinkEntry):
            (aside / entry.path).symlink_to(entry.target)


def _put_in_place(aside: Path, target: Path, replace: bool) -> None:
    try:
        aside.replace(target)  # takes the place of an empty folder too
        return
    except OSError:
        if not replace or not target.is_dir():
            raise
    old = target.with_name(f"{aside.name}-old")
    target.replace(old)
    try:
        aside.replace(target)
    except OSError:
        old.replace(target)
        raise
    shutil.rmtree(old)
