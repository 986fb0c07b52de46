"""Savers whose cleanup comes from the mixin: one sync, one that lives on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from savermark.retention.mixin import DeltaChannelAwarePruneMixin

if TYPE_CHECKING:
    from savermark.history.lineage import CheckpointKey


def _heads(thread_id: str, keys: set[CheckpointKey]) -> list[Any]:
    newest = {space: max(name for at, name in keys if at == space) for space, _ in keys}
    return [
        {"configurable": {"thread_id": thread_id, "checkpoint_ns": space, "checkpoint_id": name}}
        for space, name in newest.items()
    ]


class MixedMemorySaver(DeltaChannelAwarePruneMixin, InMemorySaver):
    """The hooks on dictionaries."""

    def _list_thread_checkpoint_ids(self, thread_id: str) -> set[CheckpointKey]:
        spaces = self.storage.get(thread_id, {})
        return {(space, name) for space, held in spaces.items() for name in held}

    def _list_thread_heads(self, thread_id: str) -> list[Any]:
        return _heads(thread_id, self._list_thread_checkpoint_ids(thread_id))

    def _delete_checkpoint_rows(self, thread_id: str, keys: set[CheckpointKey]) -> None:
        for space, name in keys:
            del self.storage[thread_id][space][name]
            self.writes.pop((thread_id, space, name), None)
        named = set()
        for space, held in self.storage[thread_id].items():
            for name, (checkpoint, metadata, parent) in held.items():
                if (space, parent) in keys:
                    held[name] = (checkpoint, metadata, None)
                versions = self.serde.loads_typed(checkpoint)["channel_versions"]
                named |= {(thread_id, space, *pair) for pair in versions.items()}
        for key in [key for key in self.blobs if key[0] == thread_id and key not in named]:
            del self.blobs[key]

    def _copy_thread_rows(self, source_id: str, target_id: str) -> None:
        for space, held in self.storage[source_id].items():
            self.storage[target_id][space].update(held)
        for table in (self.writes, self.blobs):
            for key, value in list(table.items()):
                if key[0] == source_id:
                    table[(target_id, *key[1:])] = value  # type: ignore[index]


class MixedAsyncSqliteSaver(DeltaChannelAwarePruneMixin, AsyncSqliteSaver):
    """The async hooks in SQL, and no sync ones."""

    async def _alist_thread_checkpoint_ids(self, thread_id: str) -> set[CheckpointKey]:
        sql = "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ?"
        await self.setup()
        async with self.conn.execute(sql, (thread_id,)) as cursor:
            return {(row[0], row[1]) for row in await cursor.fetchall()}

    async def _alist_thread_heads(self, thread_id: str) -> list[Any]:
        return _heads(thread_id, await self._alist_thread_checkpoint_ids(thread_id))

    async def _adelete_checkpoint_rows(self, thread_id: str, keys: set[CheckpointKey]) -> None:
        rows = [(thread_id, *key) for key in keys]
        for table in ("checkpoints", "writes"):
            await self.conn.executemany(
                f"DELETE FROM {table} "
                "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                rows,
            )
        await self.conn.executemany(
            "UPDATE checkpoints SET parent_checkpoint_id = NULL "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND parent_checkpoint_id = ?",
            rows,
        )
        await self.conn.commit()

    async def _acopy_thread_rows(self, source_id: str, target_id: str) -> None:
        for table, columns in (
            ("checkpoints", "parent_checkpoint_id, type, checkpoint, metadata"),
            ("writes", "task_id, task_path, idx, channel, type, value"),
        ):
            names = f"checkpoint_ns, checkpoint_id, {columns}"
            await self.conn.execute(
                f"INSERT INTO {table} (thread_id, {names}) "
                f"SELECT ?, {names} FROM {table} WHERE thread_id = ?",
                (target_id, source_id),
            )
        await self.conn.commit()


def async_sqlite(folder: Any) -> Any:
    """A factory for the command line and for `run_conformance`."""
    return MixedAsyncSqliteSaver.from_conn_string(str(folder / "mixed.db"))
