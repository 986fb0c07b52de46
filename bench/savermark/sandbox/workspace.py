"""A workspace folder as entries, and the paths of entries that would leave it. No store, no blobs.

Only what entries can say is kept: paths, bytes, symlink targets. Modes, times and owners are not.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.sandbox.errors import SandboxWorkspaceError
from savermark.sandbox.records import DirectoryEntry, SymlinkEntry
from savermark.sandbox.validation import check_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
        for item in _scan_folder(root, folder):
            path = f"{folder}/{item.name}" if folder else item.name
            if ignore is not None and ignore(path):
                continue
            check_path(path)
            if item.is_symlink():
                target = os.readlink(item.path)  # noqa: PTH115 - a Path would tidy the target
                others.append(SymlinkEntry(path, target))
            elif item.is_dir(follow_symlinks=False):
                others.append(DirectoryEntry(path))
                pending.append(path)
            elif item.is_file(follow_symlinks=False):
                files.append(path)
            else:
                skipped.append(path)
    return Scan(
        tuple(sorted(others, key=lambda item: item.path)),
        tuple(sorted(files)),
        tuple(sorted(skipped)),
    )


def _scan_folder(root: Path, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root / folder) as found:
            return list(found)
    except OSError as error:
        where = folder or str(root)
        raise SandboxWorkspaceError(f"cannot read the folder {where}: {error.strerror}") from error


def read_file(root: Path, path: str) -> bytes:
    """The bytes of a regular file; a symlink that took its place since the scan is an error."""
    try:
        handle = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SandboxWorkspaceError(f"{path!a} changed while it was captured; try again")
            return file.read()
    except OSError as error:
        raise SandboxWorkspaceError(
            f"cannot read {path!a}: {error.strerror}; keep the workspace still while it is captured"
        ) from error


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
