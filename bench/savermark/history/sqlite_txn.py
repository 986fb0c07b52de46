"""One thread of a SQLite file in one transaction."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

from savermark.errors import UsageError
from savermark.history.rows import CHUNK, no_version, target_in_use
from savermark.history.streaming import chunks
from savermark.history.wire import outline, with_value

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping

    from savermark.history.image import BlobKey, CheckpointKey, ThreadImage, WriteKey
    from savermark.history.rows import Typed
    from savermark.history.sqlite import SqliteRows
    from savermark.storage import Table

_ONE = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"


class SqliteTxn:
    """One thread over the cursor of an open transaction (see `rows.ThreadTxn`)."""

    def __init__(self, rows: SqliteRows, cursor: sqlite3.Cursor, thread_id: str) -> None:
        self.thread_id = thread_id
        self._rows, self._cursor = rows, cursor

    @property
    def cursor(self) -> sqlite3.Cursor:
        """The cursor of the transaction."""
        return self._cursor

    def image(self) -> ThreadImage:
        """Two statements."""
        return self._rows.read_with(self._cursor, [self.thread_id])[0]

    def delete_checkpoints(self, keys: Iterable[CheckpointKey], *, chunk: int = CHUNK) -> int:
        """By primary key."""
        return self._each(f"DELETE FROM main.checkpoints {_ONE}", keys, chunk)

    def delete_writes(self, keys: Iterable[WriteKey], *, chunk: int = CHUNK) -> int:
        """By primary key."""
        statement = f"DELETE FROM main.writes {_ONE} AND task_id = ? AND idx = ?"
        return self._each(statement, keys, chunk)

    def delete_writes_of(self, keys: Iterable[CheckpointKey], *, chunk: int = CHUNK) -> int:
        """By the head of the primary key."""
        return self._each(f"DELETE FROM main.writes {_ONE}", keys, chunk)

    def delete_blobs(self, keys: Iterable[BlobKey], *, chunk: int = CHUNK) -> int:
        """There are none: values are part of the checkpoint."""
        return 0

    def delete_all(self) -> dict[Table, int]:
        """Two statements."""
        where = "WHERE thread_id = ?"
        return {
            "checkpoints": self._run(f"DELETE FROM main.checkpoints {where}", self.thread_id),
            "blobs": 0,
            "writes": self._run(f"DELETE FROM main.writes {where}", self.thread_id),
        }

    def reparent(self, checkpoint_ns: str, child_id: str, parent_id: str | None) -> int:
        """Set the parent of a checkpoint."""
        return self._run(
            f"UPDATE main.checkpoints SET parent_checkpoint_id = ? {_ONE}",
            parent_id,
            *(self.thread_id, checkpoint_ns, child_id),
        )

    def move_writes(self, checkpoint_ns: str, from_id: str, to_id: str) -> int:
        """Store one checkpoint's writes on another one."""
        clash = self._cursor.execute(
            f"SELECT task_id, idx FROM main.writes {_ONE} INTERSECT "
            f"SELECT task_id, idx FROM main.writes {_ONE}",
            (self.thread_id, checkpoint_ns, from_id, self.thread_id, checkpoint_ns, to_id),
        ).fetchone()
        if clash:
            raise UsageError(f"checkpoint {to_id} owns the write {clash} already")
        return self._run(
            f"UPDATE main.writes SET checkpoint_id = ? {_ONE}",
            to_id,
            *(self.thread_id, checkpoint_ns, from_id),
        )

    def store_value(
        self, checkpoint_ns: str, checkpoint_id: str, channel: str, value: Typed
    ) -> None:
        """Set the value inside the serialized checkpoint; nothing else in it is opened."""
        key = (self.thread_id, checkpoint_ns, checkpoint_id)
        found = self._cursor.execute(
            f"SELECT type, checkpoint FROM main.checkpoints {_ONE}", key
        ).fetchone()
        known = outline(found[0], found[1], self._rows.serde) if found else None
        if not known or channel not in known.versions:
            raise no_version(checkpoint_id, channel)
        changed = with_value(found, channel, value, self._rows.serde)
        self._run(f"UPDATE main.checkpoints SET type = ?, checkpoint = ? {_ONE}", *changed, *key)

    def update_metadata(
        self, checkpoint_ns: str, checkpoint_id: str, metadata: Mapping[str, Any]
    ) -> int:
        """Replace a checkpoint's metadata."""
        data = json.dumps(dict(metadata), ensure_ascii=False).encode("utf-8", "ignore")
        key = (self.thread_id, checkpoint_ns, checkpoint_id)
        return self._run(f"UPDATE main.checkpoints SET metadata = ? {_ONE}", data, *key)

    def copy_rows(
        self, target_thread: str, checkpoints: Collection[CheckpointKey] | None = None
    ) -> int:
        """INSERT .. SELECT, one statement a table; chosen checkpoints one by one."""
        target = self.beside(target_thread)
        if target.holds_rows():
            raise target_in_use(target_thread)
        if checkpoints is None:
            return self._copy(target_thread, "WHERE thread_id = ?", (self.thread_id,))
        count = 0
        keys = sorted(checkpoints)
        for space, group in groupby(keys, key=lambda key: key[0]):
            for _, name in group:
                count += self._copy(target_thread, _ONE, (self.thread_id, space, name))
        self._run(
            "UPDATE main.checkpoints SET parent_checkpoint_id = NULL WHERE thread_id = ?1 AND "
            "parent_checkpoint_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM main.checkpoints AS p "
            "WHERE p.thread_id = ?1 AND p.checkpoint_ns = checkpoints.checkpoint_ns "
            "AND p.checkpoint_id = checkpoints.parent_checkpoint_id)",
            target_thread,
        )
        return count

    def beside(self, thread_id: str | int) -> SqliteTxn:
        """Another thread in the same transaction."""
        return SqliteTxn(self._rows, self._cursor, str(thread_id))

    def holds_rows(self) -> bool:
        """Whether any table has a row of this thread."""
        found = self._cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM main.checkpoints WHERE thread_id = ?1) "
            "OR EXISTS (SELECT 1 FROM main.writes WHERE thread_id = ?1)",
            (self.thread_id,),
        )
        return bool(found.fetchone()[0])

    def _copy(self, target: str, where: str, values: tuple[str, ...]) -> int:
        count = 0
        for table in ("checkpoints", "writes"):
            described = self._cursor.execute(f"PRAGMA main.table_info({table})").fetchall()
            columns = ", ".join(row[1] for row in described if row[1] != "thread_id")
            count += self._run(
                f"INSERT INTO main.{table} (thread_id, {columns}) "
                f"SELECT ?, {columns} FROM main.{table} {where}",
                *(target, *values),
            )
        return count

    def _run(self, statement: str, *values: Any) -> int:
        return self._cursor.execute(statement, values).rowcount

    def _each(self, statement: str, keys: Iterable[tuple[Any, ...]], chunk: int) -> int:
        return sum(
            self._cursor.executemany(statement, [(self.thread_id, *key) for key in part]).rowcount
            for part in chunks(keys, chunk)
        )
