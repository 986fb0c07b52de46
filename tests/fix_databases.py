"""Databases as somebody else left them: a SQLite file and a Postgres database, by address."""

from __future__ import annotations

import itertools
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from langgraph.checkpoint.base.id import uuid6

from savermark.backends.base import Location, Store
from savermark.backends.postgres_place import find_place
from savermark.backends.registry import get_backend
from savermark.backends.sqlite import store_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from fix_threads import Hand

_NUMBERS = itertools.count()
_TABLES = {"writes": "checkpoint_writes", "blobs": "checkpoint_blobs"}


@dataclass
class Left:
    """A database with an open saver to fill it, and SQL to spoil it."""

    name: str
    uri: str
    store: Store
    saver: BaseCheckpointSaver[Any]

    def hand(self, thread: str, space: str = "") -> Hand:
        """A thread to build by hand."""
        from fix_threads import Hand  # a plugin must not import another while both load

        return Hand(self.saver, thread, space)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """One statement in SQLite's spelling, with the savers' own names of tables."""
        if self.name == "sqlite":
            connection = sqlite3.connect(self.uri, isolation_level=None)
            try:
                return connection.execute(statement, values).fetchall()
            finally:
                connection.close()
        for ours, theirs in _TABLES.items():
            statement = statement.replace(f" {ours}", f" {theirs}")
        with psycopg.connect(self.uri, autocommit=True) as connection:
            cursor = connection.execute(statement.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description else []


def identity(number: int, age: float = 0.0) -> str:
    """A time-ordered id; later numbers sort above earlier ones of the same age (seconds)."""
    if not age:
        return str(uuid6(clock_seq=number))
    import time
    import uuid

    ticks = int((time.time() - age + 12_219_292_800) * 1e7) + number
    digits = f"{ticks:015x}"
    return str(uuid.UUID(f"{digits[:8]}{digits[8:12]}6{digits[12:]}8000{number:012x}"))


@pytest.fixture(params=["sqlite", "postgres"])
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Left]:
    """A fresh database on each engine."""
    name = request.param
    dsn = request.getfixturevalue("postgres_dsn") if name == "postgres" else None
    location = Location(tmp_path, f"left-{tmp_path.name}-{next(_NUMBERS)}", dsn)
    store = get_backend(name).create(location)
    uri = str(store_path(location)) if dsn is None else find_place(dsn, location.name).dsn
    with store.saver() as saver:
        if name == "sqlite":
            saver.conn.execute("PRAGMA synchronous = off")  # type: ignore[attr-defined]
        yield Left(name, uri, store, saver)
    store.destroy()
