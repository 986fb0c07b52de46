"""The format of ids, paths, entries and artifacts. Nothing here touches a store."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from savermark.sandbox.errors import (
    SandboxCheckpointInvalidEntryError,
    SandboxCheckpointInvalidIdError,
)
from savermark.sandbox.records import Artifact, DirectoryEntry, FileEntry, SymlinkEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from savermark.sandbox.records import Entry

MAX_SAFE_INTEGER = 2**53 - 1

_SURROGATE = re.compile("[\ud800-\udfff]")
_DRIVE = re.compile("[A-Za-z]:(?:/|$)")
_FILE_KEY = re.compile("sandbox-files/sha256/[0-9a-f]{64}")
_ARTIFACT_KEY = re.compile("sandbox-artifacts/sha256/[0-9a-f]{64}")


def _bad(message: str) -> SandboxCheckpointInvalidEntryError:
    return SandboxCheckpointInvalidEntryError(message)


def is_id(value: Any) -> bool:
    """Whether the value is a non-empty, well-formed Unicode string."""
    return isinstance(value, str) and value != "" and _SURROGATE.search(value) is None


def check_id(value: Any, what: str) -> None:
    """Raises INVALID_ID unless the value is a valid id."""
    if not is_id(value):
        raise SandboxCheckpointInvalidIdError(
            f"{what} must be a non-empty string of well-formed Unicode, not {value!r:.60}"
        )


def check_optional_id(value: Any, what: str) -> None:
    """Raises INVALID_ID unless the value is None or a valid id."""
    if value is not None:
        check_id(value, what)


def check_time(value: Any, what: str) -> float:
    """The value as a float. Raises INVALID_ENTRY unless it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _bad(f"{what} must be a number of milliseconds, not {value!r:.60}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _bad(f"{what} must be finite, not {value!r:.60}")
    return number


def _is_integer(value: Any, low: int) -> bool:
    return type(value) is int and low <= value <= MAX_SAFE_INTEGER


def check_keep(keep: Any) -> None:
    """Raises INVALID_ENTRY unless `keep` is an integer from 1 to 2**53 - 1."""
    if not _is_integer(keep, 1):
        raise _bad(f"keep must be an integer of 1 or more, not {keep!r:.60}")


def check_path(path: Any) -> None:
    """Raises INVALID_ENTRY unless the path is relative, normal and uses forward slashes."""
    if not isinstance(path, str) or path == "":
        raise _bad(f"a path must be a non-empty string, not {path!r:.60}")
    if "\0" in path or "\\" in path:
        raise _bad(f"path {path!r:.80} holds a NUL or a backslash")
    if path.startswith("/") or _DRIVE.match(path):
        raise _bad(f"path {path!r:.80} is absolute; paths are relative to the workspace")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise _bad(f"path {path!r:.80} has an empty, '.' or '..' part")


def _check_size(size: Any, what: str) -> None:
    if not _is_integer(size, 0):
        raise _bad(f"{what}: size must be an integer of 0 or more, not {size!r:.60}")


def _check_key(key: Any, pattern: re.Pattern[str], what: str) -> None:
    if not isinstance(key, str) or pattern.fullmatch(key) is None:
        raise _bad(f"{what}: blob key {key!r:.100} is not a prefix and 64 lowercase hex digits")


def _check_entry(entry: Any, symlinks: bool) -> None:
    if isinstance(entry, FileEntry):
        check_path(entry.path)
        _check_key(entry.blob_key, _FILE_KEY, f"file {entry.path!r:.80}")
        _check_size(entry.size, f"file {entry.path!r:.80}")
    elif isinstance(entry, DirectoryEntry):
        check_path(entry.path)
    elif isinstance(entry, SymlinkEntry) and symlinks:
        check_path(entry.path)
        if not isinstance(entry.target, str) or entry.target == "" or "\0" in entry.target:
            raise _bad(f"symlink {entry.path!r:.80} needs a target, not {entry.target!r:.60}")
    else:
        raise _bad(f"{type(entry).__name__} {entry!r:.60} is no entry that this store keeps")


def _ancestors(path: str) -> Iterable[str]:
    at = path.rfind("/")
    while at > 0:
        yield path[:at]
        at = path.rfind("/", 0, at)


def check_files(files: Any, *, symlinks: bool = True) -> tuple[Entry, ...]:
    """The entries as a tuple. Raises INVALID_ENTRY for a bad entry, path or tree.

    Paths are unique, and only a directory may be above another entry, in whatever order.
    """
    entries: Sequence[Entry] = _as_list(files, "files")
    kinds: dict[str, str] = {}
    for entry in entries:
        _check_entry(entry, symlinks)
        if entry.path in kinds:
            raise _bad(f"path {entry.path!r:.80} occurs twice")
        kinds[entry.path] = entry.kind
    for path in kinds:
        for above in _ancestors(path):
            if kinds.get(above, DirectoryEntry.kind) != DirectoryEntry.kind:
                raise _bad(f"{above!r:.80} is no directory but {path!r:.80} is below it")
    return tuple(entries)


def check_artifacts(artifacts: Any) -> tuple[Artifact, ...]:
    """The artifacts as a tuple with float times. Raises INVALID_ENTRY for a bad one."""
    return tuple(_check_artifact(item) for item in _as_list(artifacts, "artifacts"))


def _check_artifact(item: Any) -> Artifact:
    if not isinstance(item, Artifact):
        raise _bad(f"{item!r:.60} is no artifact")
    if not is_id(item.artifact_id):
        raise _bad(f"an artifact id must be a non-empty string, not {item.artifact_id!r:.60}")
    for what, value in (("name", item.name), ("MIME type", item.mime_type)):
        if not isinstance(value, str) or value == "":
            raise _bad(f"artifact {item.artifact_id!r:.80} needs a {what}, not {value!r:.60}")
    _check_size(item.size, f"artifact {item.artifact_id!r:.80}")
    _check_key(item.blob_key, _ARTIFACT_KEY, f"artifact {item.artifact_id!r:.80}")
    made = check_time(item.created_at, f"created_at of artifact {item.artifact_id!r:.80}")
    return Artifact(item.artifact_id, item.name, item.mime_type, item.size, item.blob_key, made)


def _as_list(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise _bad(f"{what} must be a list, not {type(value).__name__}")
    return tuple(value)


def check_words(**words: Any) -> None:
    """Raises INVALID_ENTRY unless each value is a string or None: no content rules apply."""
    for what, value in words.items():
        if value is not None and not isinstance(value, str):
            raise _bad(f"{what} must be a string, not {value!r:.60}")
