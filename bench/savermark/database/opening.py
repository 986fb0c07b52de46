"""Opening a database by its address."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.database.address import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from savermark.database.base import Database


def _file(target: str, write: bool, serde: SerializerProtocol | None) -> Database:
    from savermark.database.sqlite import SqliteDatabase

    return SqliteDatabase(Path(target).expanduser(), write=write, serde=serde)


def _server(target: str, write: bool, serde: SerializerProtocol | None) -> Database:
    from savermark.database.postgres import PostgresDatabase

    return PostgresDatabase(target, write=write)


_ENGINES: dict[str, Callable[[str, bool, SerializerProtocol | None], Database]] = {
    "file": _file,
    "server": _server,
}


@contextmanager
def open_database(
    uri: str, *, write: bool = False, serde: SerializerProtocol | None = None
) -> Iterator[Database]:
    """The database at a path, `sqlite:///PATH` or a Postgres connection string, while it is used.

    Without `write` the connection itself refuses every change. A file that does not exist is never
    made. Encrypted checkpoints of a file are read with `serde`, and not without it. Raises
    `UsageError` for an address that names nothing, `BackendError` for what cannot be opened or
    holds no tables of a saver, `Unsupported` for a layout that is not known.
    """
    address = parse_address(uri)
    database = _ENGINES[address.kind](address.target, write, serde)
    try:
        yield database
    finally:
        database.close()
