"""Counts on a SQLite connection: its own trace, its progress handler and its row factory."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savermark.meter.counts import Counts
from savermark.meter.pages import page_requests, requests_between

if TYPE_CHECKING:
    from collections.abc import Callable

    Factory = Callable[[sqlite3.Cursor, tuple[Any, ...]], Any]

_NUMBER = 8  # bytes of a column that is a number


@dataclass(slots=True)
class SqliteProbe:
    """What to hang on a connection for the length of a block, and what came of it.

    Python counts each instruction of the virtual machine in a callback (`EVERY`): about twice as
    slow, and exact, also for statements that are finalised before anybody could ask them.
    """

    connection: sqlite3.Connection
    statements: int = 0
    rows: int = 0
    bytes: int = 0
    vm_steps: int = 0
    _pages: int | None = None
    _factory: Factory | None = None

    def statement(self, text: str) -> None:
        """The trace callback. What a trigger does comes as a comment and is no statement."""
        if not text.startswith("--"):
            self.statements += 1

    def step(self) -> int:
        """The progress handler; 0 lets the statement go on."""
        self.vm_steps += 1
        return 0

    def start(self) -> None:
        """Before the block, after the callbacks were set."""
        self._factory = self.connection.row_factory
        self.connection.row_factory = self._counted
        self._pages = page_requests(self.connection)

    def stop(self) -> Counts:
        """After the block."""
        self.connection.row_factory = self._factory
        return Counts(
            statements=self.statements,
            round_trips=0,
            rows=self.rows,
            bytes=self.bytes,
            blocks=requests_between(self._pages, page_requests(self.connection)),
            vm_steps=self.vm_steps,
        )

    def _counted(self, cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Any:
        self.rows += 1
        self.bytes += sum(map(_size, row))
        return row if self._factory is None else self._factory(cursor, row)


EVERY = 1  # instructions between two calls of the progress handler


def _size(value: Any) -> int:
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    return 0 if value is None else _NUMBER
