"""One thread of a Postgres database in one transaction."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from savermark.errors import UsageError
from savermark.history.rows import CHUNK, no_version, target_in_use
from savermark.history.streaming import chunks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from savermark.history.image import BlobKey, CheckpointKey, ThreadImage, WriteKey
    from savermark.history.postgres import Cursor, PostgresRows
    from savermark.history.rows import Typed
    from savermark.storage import Table

_NAMES: dict[Table, str] = {
    "checkpoints": "checkpoints",
    "blobs": "checkpoint_blobs",
    "writes": "checkpoint_writes",
}
_SPACE = "thread_id = %s AND checkpoint_ns = %s"
_ONE = f"{_SPACE} AND checkpoint_id = %s"
_COLUMNS = """
SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    AND attname <> 'thread_id'
"""
# Rows by their keys: `LIMIT 1` makes each key one search of the primary key. A join is planned
# from what is known of the table, which for a thread that has just grown is nothing.
_WRITES = f"""
ctid = ANY(ARRAY(
    SELECT w.ctid FROM unnest(%s::text[], %s::text[], %s::int[]) AS k (id, task, idx)
    CROSS JOIN LATERAL (
        SELECT ctid FROM checkpoint_writes
        WHERE {_SPACE} AND checkpoint_id = k.id AND task_id = k.task AND idx = k.idx LIMIT 1
    ) AS w
))
"""
_BLOBS = f"""
ctid = ANY(ARRAY(
    SELECT b.ctid FROM unnest(%s::text[], %s::text[]) AS k (channel, version)
    CROSS JOIN LATERAL (
        SELECT ctid FROM checkpoint_blobs
        WHERE {_SPACE} AND channel = k.channel AND version = k.version LIMIT 1
    ) AS b
))
"""
_NAMED = f"""
ctid = ANY(ARRAY(
    SELECT b.ctid FROM (
        SELECT DISTINCT v.key AS channel, v.value AS version FROM checkpoints
        CROSS JOIN LATERAL jsonb_each_text(checkpoint -> 'channel_versions') AS v
        WHERE {_SPACE} AND checkpoint_id = ANY(%s)
    ) AS k
    CROSS JOIN LATERAL (
        SELECT ctid FROM checkpoint_blobs
        WHERE {_SPACE} AND channel = k.channel AND version = k.version LIMIT 1
    ) AS b
))
"""


class PostgresTxn:
    """One thread over the cursor of an open transaction (see `rows.ThreadTxn`).

    Statements with lists of keys are planned anew each time: the plan that fits every list looks
    each row up in it one by one.
    """

    def __init__(self, rows: PostgresRows, cursor: Cursor, thread_id: str) -> None:
        self.thread_id = thread_id
        self._rows, self._cursor = rows, cursor

    def image(self) -> ThreadImage:
        """Three statements."""
        return self._rows.read_with(self._cursor, [self.thread_id])[0]

    def delete_checkpoints(self, keys: Iterable[CheckpointKey], *, chunk: int = CHUNK) -> int:
        """A statement for each namespace and chunk."""
        return self._delete_by_id("checkpoints", keys, chunk)

    def delete_writes(self, keys: Iterable[WriteKey], *, chunk: int = CHUNK) -> int:
        """A statement for each namespace and chunk."""
        return sum(
            self._run(
                f"DELETE FROM checkpoint_writes WHERE {_WRITES}", *columns, self.thread_id, space
            )
            for space, columns in _by_space(keys, chunk)
        )

    def delete_writes_of(self, keys: Iterable[CheckpointKey], *, chunk: int = CHUNK) -> int:
        """A statement for each namespace and chunk."""
        return self._delete_by_id("checkpoint_writes", keys, chunk)

    def delete_blobs(self, keys: Iterable[BlobKey], *, chunk: int = CHUNK) -> int:
        """A statement for each namespace and chunk."""
        return sum(
            self._run(
                f"DELETE FROM checkpoint_blobs WHERE {_BLOBS}", *columns, self.thread_id, space
            )
            for space, columns in _by_space(keys, chunk)
        )

    def delete_all(self) -> dict[Table, int]:
        """A statement for each table."""
        return {
            table: self._run(f"DELETE FROM {name} WHERE thread_id = %s", self.thread_id)
            for table, name in _NAMES.items()
        }

    def reparent(self, checkpoint_ns: str, child_id: str, parent_id: str | None) -> int:
        """Set the parent of a checkpoint, which the saver's own `put` never changes."""
        return self._run(
            f"UPDATE checkpoints SET parent_checkpoint_id = %s WHERE {_ONE}",
            *(parent_id, self.thread_id, checkpoint_ns, child_id),
        )

    def move_writes(self, checkpoint_ns: str, from_id: str, to_id: str) -> int:
        """Store one checkpoint's writes on another one."""
        keys = f"SELECT task_id, idx FROM checkpoint_writes WHERE {_ONE}"
        space = (self.thread_id, checkpoint_ns)
        clash = self._cursor.execute(
            f"{keys} INTERSECT {keys}", (*space, from_id, *space, to_id)
        ).fetchone()
        if clash:
            raise UsageError(f"checkpoint {to_id} owns the write {clash} already")
        return self._run(
            f"UPDATE checkpoint_writes SET checkpoint_id = %s WHERE {_ONE}", to_id, *space, from_id
        )

    def store_value(
        self, checkpoint_ns: str, checkpoint_id: str, channel: str, value: Typed
    ) -> None:
        """The blob at the checkpoint's version, and its mark in the checkpoint."""
        key = (self.thread_id, checkpoint_ns, checkpoint_id)
        version = self._cursor.execute(
            f"SELECT checkpoint -> 'channel_versions' ->> %s FROM checkpoints WHERE {_ONE}",
            (channel, *key),
        ).fetchone()
        if not version or version[0] is None:
            raise no_version(checkpoint_id, channel)
        self._run(
            "INSERT INTO checkpoint_blobs "
            "(thread_id, checkpoint_ns, channel, version, type, blob) "
            "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT "
            "(thread_id, checkpoint_ns, channel, version) "
            "DO UPDATE SET type = excluded.type, blob = excluded.blob",
            *(self.thread_id, checkpoint_ns, channel, version[0], *value),
        )
        self._run(
            "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{channel_values}', "
            "coalesce(checkpoint -> 'channel_values', '{}') || jsonb_build_object(%s::text, true))"
            f" WHERE {_ONE}",
            *(channel, *key),
        )

    def update_metadata(
        self, checkpoint_ns: str, checkpoint_id: str, metadata: Mapping[str, Any]
    ) -> int:
        """Replace a checkpoint's metadata."""
        return self._run(
            f"UPDATE checkpoints SET metadata = %s WHERE {_ONE}",
            *(Jsonb(dict(metadata)), self.thread_id, checkpoint_ns, checkpoint_id),
        )

    def copy_rows(
        self, target_thread: str, checkpoints: Collection[CheckpointKey] | None = None
    ) -> int:
        """INSERT .. SELECT, one statement a table; for chosen checkpoints in each namespace."""
        if self.beside(target_thread).holds_rows():
            raise target_in_use(target_thread)
        if checkpoints is None:
            where = ("thread_id = %s", (self.thread_id,))
            return sum(self._copy(table, target_thread, *where) for table in _NAMES)
        return sum(
            self._copy_chosen(target_thread, (self.thread_id, space), ids)
            for space, (ids,) in _by_space(checkpoints, len(checkpoints))
        )

    def _copy_chosen(self, target: str, space: tuple[str, str], ids: list[str]) -> int:
        chosen = (f"{_SPACE} AND checkpoint_id = ANY(%s)", (*space, ids))
        count = self._copy("checkpoints", target, *chosen) + self._copy("writes", target, *chosen)
        count += self._copy("blobs", target, _NAMED, (*space, ids, *space))
        self._run(
            f"UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE {_SPACE} "
            "AND parent_checkpoint_id <> ALL(%s)",
            *(target, space[1], ids),
        )
        return count

    def beside(self, thread_id: str | int) -> PostgresTxn:
        """Another thread in the same transaction, locked until its end."""
        self._rows.lock_within(self._cursor, str(thread_id))
        return PostgresTxn(self._rows, self._cursor, str(thread_id))

    def holds_rows(self) -> bool:
        """Whether any table has a row of this thread."""
        tests = " OR ".join(
            f"EXISTS (SELECT 1 FROM {name} WHERE thread_id = %(thread)s)"
            for name in _NAMES.values()
        )
        found = self._cursor.execute(f"SELECT {tests}", {"thread": self.thread_id}).fetchone()
        return bool(found and found[0])

    def _delete_by_id(self, name: str, keys: Iterable[CheckpointKey], chunk: int) -> int:
        return sum(
            self._run(
                f"DELETE FROM {name} WHERE {_SPACE} AND checkpoint_id = ANY(%s)",
                *(self.thread_id, space, *columns),
            )
            for space, columns in _by_space(keys, chunk)
        )

    def _copy(self, table: Table, target: str, where: str, values: Collection[Any]) -> int:
        name = _NAMES[table]
        columns = (self._cursor.execute(_COLUMNS, (name,)).fetchone() or ("",))[0]
        return self._run(
            f"INSERT INTO {name} (thread_id, {columns}) "
            f"SELECT %s, {columns} FROM {name} WHERE {where}",
            *(target, *values),
        )

    def _run(self, statement: str, *values: Any) -> int:
        cursor = self._cursor.execute(statement, values, prepare=False)
        if cursor.rowcount < 0:  # in pipeline mode the count comes with the next sync
            with cursor.connection.pipeline():
                pass
        return cursor.rowcount


def _by_space(keys: Iterable[tuple[Any, ...]], chunk: int) -> Iterator[tuple[str, list[list[Any]]]]:
    """The keys by namespace, in chunks, as columns without the namespace."""
    spaces: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for space, *rest in keys:
        spaces[space].append(tuple(rest))
    for space, found in spaces.items():
        for part in chunks(found, chunk):
            yield space, [list(column) for column in zip(*part, strict=True)]
