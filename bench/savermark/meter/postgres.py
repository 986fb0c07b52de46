"""Counts on a Postgres connection: libpq's own trace, and the server's count of this backend."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from typing import IO, TYPE_CHECKING, Any

from savermark.meter.counts import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

# Direction, length and kind of a message. A statement's own text may hold line breaks.
_MESSAGE = re.compile(rb"([FB])\t(\d+)\t(\w+)")
_STATEMENTS = (b"Execute", b"Query")

#: Buffers of the user's tables, indexes and TOAST that this backend has looked at and not yet
#: reported. Inside a transaction nothing is reported, so that the difference of two readings is
#: exact; it needs neither an extension nor a right. Catalogs are left out: they are the planner's.
BLOCKS = """
SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(oid)), 0)::bigint
FROM pg_class WHERE oid >= 16384 AND relkind IN ('r', 'i', 't', 'm')
"""


class Trace:
    """libpq's trace of one connection, from `start` to `stop`."""

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._pgconn = connection.pgconn
        self._file: IO[bytes] | None = None

    def start(self) -> None:
        """Begin; where libpq cannot trace (it can on Linux only), nothing is counted."""
        from psycopg import NotSupportedError
        from psycopg.pq import Trace as Flags

        file = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._pgconn.trace(file.fileno())
            self._pgconn.set_trace_flags(Flags.SUPPRESS_TIMESTAMPS)
        except NotSupportedError:
            file.close()
        else:
            self._file = file

    def stop(self) -> Counts:
        """End, and what was seen."""
        if self._file is None:
            return Counts()
        self._pgconn.untrace()
        with self._file as file:
            file.seek(0)
            return read_trace(file)


def read_trace(lines: Iterable[bytes]) -> Counts:
    """The counts of a trace, line by line."""
    seen: Counter[tuple[bytes, bytes]] = Counter()
    fetched = 0
    for line in lines:
        found = _MESSAGE.match(line)
        if found is None:
            continue
        direction, length, kind = found.groups()
        seen[direction, kind] += 1
        if kind == b"DataRow":
            fetched += int(length)
    return Counts(
        statements=sum(seen[b"F", kind] for kind in _STATEMENTS),
        round_trips=seen[b"B", b"ReadyForQuery"],
        rows=seen[b"B", b"DataRow"],
        bytes=fetched,
    )
