"""What several backends need alike: row digests, the floor, zero rows, versions, clone targets."""

from __future__ import annotations

import marshal
import re
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from savermark.errors import BackendError
from savermark.storage import ALL_TABLES, TABLES, FloorRow, StorageRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from hashlib import _Hash

_WHOLE = 4096  # bytes up to which a value is its own key: hashing it would cost more than it saves
_SECRETS = (
    (re.compile(r"(://[^:/@\s]*):[^@\s]*@"), r"\1:***@"),
    (re.compile(r"(password\s*=\s*)('[^']*'|\S+)", re.IGNORECASE), r"\1***"),
)


class ThreadDigests:
    """SHA-256 of each thread's rows, fed table by table in key order.

    The thread id itself is no part of the digest, so a clone has the digest of its source.
    """

    def __init__(self) -> None:
        self._hashers: dict[str, _Hash] = {}

    def feed(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Take one table's rows, thread id first, each thread's together and in key order."""
        for thread, group in groupby(rows, key=itemgetter(0)):
            hasher = self._hashers.setdefault(thread, sha256())
            hasher.update(f"{table}:".encode())
            for row in group:
                # The fastest self-delimiting, typed encoding there is. Version 0 has neither
                # references nor interning, so equal rows give equal bytes; nothing is ever loaded.
                hasher.update(marshal.dumps(row[1:], 0))

    def result(self, threads: Iterable[str] | None = None) -> dict[str, str]:
        """Hex digests by thread id; a thread of `threads` without rows has the empty digest."""
        digests = {thread: hasher.hexdigest() for thread, hasher in self._hashers.items()}
        for thread in threads or ():
            digests.setdefault(thread, sha256().hexdigest())
        return digests


def floor_rows(
    writes: Iterable[tuple[str, str, bytes]],
    holders: Collection[str],
    threads: Sequence[str] | None,
) -> list[FloorRow]:
    """The floor (`savermark.storage.FloorRow`) from (thread, type tag, value) in thread order.

    `holders` are the threads that hold checkpoints. Memory stays at one thread's distinct values,
    the long ones as hashes.
    """
    rows = []
    for thread, items in groupby(writes, key=itemgetter(0)):
        sizes: dict[tuple[str, bytes | str], int] = {}
        for _, tag, value in items:
            size = len(value)
            sizes[tag, value if size <= _WHOLE else sha256(value).hexdigest()] = size
        rows.append(FloorRow(thread, len(sizes), sum(sizes.values())))
    known = {row.thread_id for row in rows} | set(holders)
    rows += [
        FloorRow(thread, 0, 0) for thread in dict.fromkeys(threads or ()) if thread not in known
    ]
    return sorted(rows, key=lambda row: row.thread_id)


def with_zero_rows(rows: list[StorageRow], threads: Sequence[str] | None) -> list[StorageRow]:
    """The rows sorted, with a row of zeros for each table a named thread holds nothing in."""
    found = {(row.thread_id, row.table) for row in rows}
    zeros = [
        StorageRow(thread, "", table, None, 0, 0, 0)
        for thread in dict.fromkeys(threads or ())
        for table in TABLES
        if (thread, table) not in found
    ]
    return sorted(
        rows + zeros,
        key=lambda row: (
            row.thread_id,
            row.checkpoint_ns,
            ALL_TABLES.index(row.table),
            row.channel or "",
        ),
    )


def versions(*distributions: str) -> dict[str, str]:
    """Installed versions by distribution name; what is not installed is left out."""
    found = {}
    for name in distributions:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def one_line(error: BaseException) -> str:
    """The error's type and first line, with passwords in connection strings struck out."""
    text = (str(error).strip().splitlines() or [""])[0]
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def check_targets(sources: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """(target, source) of a clone sorted by target; raises `BackendError` on a target named twice
    or a bare string where a list of ids belongs.
    """
    pairs: dict[str, str] = {}
    for source, targets in sources.items():
        if isinstance(targets, str):
            raise BackendError(f"clone targets of {source!r} must be a list of ids, not a string")
        for target in targets:
            if target in pairs:
                raise BackendError(f"clone target {target!r} is named twice: name each once")
            pairs[target] = source
    return sorted(pairs.items())
