"""A workspace folder as entries, and the paths of entries that would leave it. No store, no blobs.

Only what entries can say is kept: paths, bytes, symlink targets. Modes, times and owners are not.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.sandbox.errors import SandboxWorkspaceError
from savermark.sandbox.records import DirectoryEntry, SymlinkEntry
from savermark.sandbox.validation import check_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

MOST_HOPS = 40  # links that a kernel follows in one path before it gives up


@dataclass(frozen=True, slots=True)
class Scan:
    """What a folder holds: directories and symlinks as entries, and the paths of its files.

    `skipped` are the sockets, pipes and devices, which no entry can stand for.
    """

    others: tuple[DirectoryEntry | SymlinkEntry, ...]
    files: tuple[str, ...]
    skipped: tuple[str, ...]


def scan_workspace(root: Path, ignore: Callable[[str], bool] | None = None) -> Scan:
    """Walks the folder without following symlinks; an ignored directory is not entered.

    Raises `SandboxWorkspaceError` for what cannot be read, INVALID_ENTRY for a name that no
    entry may have.
    """
    others: list[DirectoryEntry | SymlinkEntry] = []
    files: list[str] = []
    skipped: list[str] = []
    pending = [""]
    while pending:
        folder = pending.pop()
        for path, kind, target in _scan_folder(root, folder, ignore):
            if kind == "symlink":
                others.append(SymlinkEntry(path, target))
            elif kind == "dir":
                others.append(DirectoryEntry(path))
                pending.append(path)
            else:
                (files if kind == "file" else skipped).append(path)
    return Scan(
        tuple(sorted(others, key=lambda item: item.path)),
        tuple(sorted(files)),
        tuple(sorted(skipped)),
    )


def _scan_folder(
    root: Path, folder: str, ignore: Callable[[str], bool] | None
) -> list[tuple[str, str, str]]:
    """Path, kind and target of what is in the folder."""
    found: list[tuple[str, str, str]] = []
    with (
        _failing_as(f"cannot read the folder {folder or root!s}"),
        _opened(root, folder) as handle,
        os.scandir(handle) as items,
    ):
        for item in items:
            path = f"{folder}/{item.name}" if folder else item.name
            if ignore is not None and ignore(path):
                continue
            check_path(path)
            kind = _kind(item)
            target = os.readlink(item.name, dir_fd=handle) if kind == "symlink" else ""
            found.append((path, kind, target))
    return found


def _kind(item: os.DirEntry[str]) -> str:
    if item.is_symlink():
        return "symlink"
    if item.is_dir(follow_symlinks=False):
        return "dir"
    return "file" if item.is_file(follow_symlinks=False) else "other"


@contextmanager
def _opened(root: Path, folder: str) -> Iterator[int]:
    """The folder, reached step by step and never through a symlink.

    What runs in the workspace may put a symlink where a folder was a moment ago; captured through
    it, a file of the host would end up in a checkpoint.
    """
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in folder.split("/") if folder else ():
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _failing_as(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SandboxWorkspaceError(
            f"{what}: {error.strerror}; keep the workspace still while it is captured"
        ) from error


def read_file(root: Path, path: str) -> bytes:
    """The bytes of a regular file. A symlink in its place, or in its path, is an error."""
    folder, _, name = path.rpartition("/")
    with _failing_as(f"cannot read {path!a}"), _opened(root, folder) as above:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(name, flags, dir_fd=above), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SandboxWorkspaceError(f"{path!a} changed while it was captured; try again")
            return file.read()


def leaving_links(links: Iterable[SymlinkEntry]) -> list[str]:
    """The paths of the symlinks whose target is outside of the workspace, however they get there.

    Targets are followed through the other links, as a kernel would; a loop goes nowhere.
    """
    targets = {link.path: link.target for link in links}
    return sorted(path for path in targets if not _stays(path, targets))


def _stays(path: str, targets: Mapping[str, str]) -> bool:
    at = path.split("/")[:-1]
    pending = _parts(targets[path])
    hops = 0
    if targets[path].startswith("/"):
        return False
    while pending:
        part = pending.pop()
        if part == "..":
            if not at:
                return False
            at.pop()
            continue
        target = targets.get("/".join([*at, part]))
        if target is None:
            at.append(part)
        elif target.startswith("/"):
            return False
        else:
            hops += 1
            if hops > MOST_HOPS:
                return True
            pending += _parts(target)
    return True


def _parts(target: str) -> list[str]:
    """The parts of a target, last first."""
    return [part for part in reversed(target.split("/")) if part not in ("", ".")]
