"""Rows and bytes of a SQLite file's tables: one set-based pass a table, streamed by thread."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from savermark.storage import StorageRow

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

SqliteTable = Literal["checkpoints", "writes"]

# One packed sum a channel: the number of rows above, their bytes below this bit. No group can
# reach 2^40 bytes in a file that is smaller, and 2^23 rows overflow loudly ("integer overflow").
_PACK = 40
# Beyond, one filtered sum a channel costs more than sorting all rows (measured: 20 to 40).
_MAX_FILTERED = 16
# Rows that are looked through for channel names before the sums are made.
_SAMPLE = 50_000


def bytes_of(column: str) -> str:
    """The byte length of a value; asks a blob only for its header, so overflow pages stay unread.

    `length` of a text counts characters, hence the cast; old files hold metadata as text.
    """
    return (
        f"ifnull(CASE typeof({column}) WHEN 'blob' THEN length({column}) "
        f"ELSE length(CAST({column} AS BLOB)) END, 0)"
    )


def pragma(connection: sqlite3.Connection, name: str) -> Any:
    """The value of a pragma, run to its end: one only begun keeps the database locked."""
    return connection.execute(f"PRAGMA {name}").fetchall()[0][0]


def storage(connection: sqlite3.Connection, where: str) -> list[StorageRow]:
    """Rows and bytes of the checkpoints by namespace, of the writes by namespace and channel."""
    return [*checkpoint_groups(connection, where), *write_groups(connection, where)]


def checkpoint_groups(
    connection: sqlite3.Connection, where: str, parameters: Sequence[Any] = ()
) -> Iterator[StorageRow]:
    """The checkpoints by thread and namespace, streamed in this order."""
    size = f"{bytes_of('checkpoint')} + {bytes_of('metadata')}"
    for thread, space, count, total in connection.execute(
        f"SELECT thread_id, checkpoint_ns, count(*), sum({size}) "
        f"FROM main.checkpoints {where} GROUP BY thread_id, checkpoint_ns",
        parameters,
    ):
        yield _row(thread, space, "checkpoints", None, count, total)


def _row(
    thread: str, space: str, table: SqliteTable, channel: str | None, count: int, size: int
) -> StorageRow:
    return StorageRow(thread, space, table, channel, count, size, stored_bytes=size)


def write_groups(
    connection: sqlite3.Connection, where: str, parameters: Sequence[Any] = ()
) -> Iterator[StorageRow]:
    """The writes by thread, namespace and channel, streamed in order of threads.

    The primary key delivers (thread, namespace) in order, but not the channel: grouping by all
    three sorts every row. A filtered sum for each channel takes a third of that. Channels are
    guessed from the first rows; a thread with another one is read again with that one in the list,
    so there are never more statements than a fixed number for each channel.
    """
    rest, given = where, tuple(parameters)
    channels = _sampled(connection, where, parameters)
    database = pragma(connection, "page_count") * pragma(connection, "page_size")
    while database < 1 << _PACK and len(channels) <= _MAX_FILTERED:
        wanting = None
        for thread, rows in _filtered(connection, rest, given, channels):
            if rows is None:
                wanting = thread
                break
            yield from rows
            rest, given = f"{where or 'WHERE 1'} AND thread_id > ?", (*parameters, thread)
        if wanting is None:
            return
        channels += _others(connection, wanting, channels)
    for thread, space, channel, count, size in connection.execute(
        f"SELECT thread_id, checkpoint_ns, channel, count(*), sum({bytes_of('value')}) "
        f"FROM main.writes {rest} GROUP BY thread_id, checkpoint_ns, channel",
        given,
    ):
        yield _row(thread, space, "writes", channel, count, size)


def _sampled(connection: sqlite3.Connection, where: str, parameters: Sequence[Any]) -> list[str]:
    """The channels of the first rows."""
    query = (
        f"SELECT DISTINCT channel FROM (SELECT channel FROM main.writes {where} LIMIT {_SAMPLE})"
    )
    return [name for (name,) in connection.execute(query, parameters)]


def _others(connection: sqlite3.Connection, thread: str, channels: Sequence[str]) -> list[str]:
    """The channels of a thread that are not among these."""
    query = "SELECT DISTINCT channel FROM main.writes WHERE thread_id = ?"
    found = (name for (name,) in connection.execute(query, (thread,)).fetchall())
    return [name for name in found if name not in channels]


def _filtered(
    connection: sqlite3.Connection, where: str, parameters: Sequence[Any], channels: list[str]
) -> Iterator[tuple[str, list[StorageRow] | None]]:
    """Each thread with its rows of these channels, None where it has others as well."""
    packed = f"sum({bytes_of('value')} + {1 << _PACK}) FILTER (WHERE channel = ?)"
    sums = "".join(f", {packed}" for _ in channels)
    groups = connection.execute(
        f"SELECT thread_id, checkpoint_ns, count(*){sums} FROM main.writes {where} "
        "GROUP BY thread_id, checkpoint_ns",
        (*channels, *parameters),
    )
    for thread, group in groupby(groups, itemgetter(0)):
        rows, missed = [], 0
        for _, space, every, *numbers in group:
            missed += every
            for channel, number in zip(channels, numbers, strict=True):
                if number is not None:
                    count, size = divmod(number, 1 << _PACK)
                    missed -= count
                    rows.append(_row(thread, space, "writes", channel, count, size))
        yield thread, None if missed else rows
