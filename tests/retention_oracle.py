"""What must hold of a thread after retention, judged without any of the code under test.

Rows are read by SQL or from the memory saver's dicts as they are; values through the public
methods and the base class's own walk, reduced here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Overwrite

from fix_threads import at

Rows = dict[str, frozenset[tuple[Any, ...]]]
Key = tuple[str, str]  # namespace, checkpoint id

_SQLITE = {"checkpoints": "checkpoints", "writes": "writes"}
_POSTGRES = {
    "checkpoints": "checkpoints",
    "blobs": "checkpoint_blobs",
    "writes": "checkpoint_writes",
}


def whole_rows(saver: Any, thread: str) -> Rows:
    """Every byte of a thread, by table."""
    if isinstance(saver, InMemorySaver):
        return _memory(saver, thread)
    return sql_rows(saver.conn, [thread], isinstance(saver, SqliteSaver))[thread]


def sql_rows(connection: Any, threads: Sequence[str], sqlite: bool) -> dict[str, Rows]:
    """`whole_rows` of many threads over a connection; the thread's own id is no part of a row."""
    found: dict[str, dict[str, set[tuple[Any, ...]]]] = {
        name: {table: set() for table in (_SQLITE if sqlite else _POSTGRES)} for name in threads
    }
    for table, name in (_SQLITE if sqlite else _POSTGRES).items():
        cursor = connection.cursor()
        if sqlite:
            marks = ", ".join("?" * len(threads))
            cursor.execute(f"SELECT * FROM {name} WHERE thread_id IN ({marks})", list(threads))
        else:
            cursor.execute(
                f"SELECT thread_id, (to_jsonb(t) - 'thread_id')::text FROM {name} AS t "
                "WHERE thread_id = ANY(%s)",
                (list(threads),),
            )
        for row in cursor.fetchall():
            thread, *rest = row.values() if isinstance(row, dict) else row
            found[thread][table].add(tuple(rest))
        cursor.close()
    return {
        name: {table: frozenset(rows) for table, rows in tables.items()}
        for name, tables in found.items()
    }


def _memory(saver: InMemorySaver, thread: str) -> Rows:
    spaces: Any = saver.storage.get(thread, {})
    return {
        "checkpoints": frozenset(
            (space, name, *held) for space, rows in spaces.items() for name, held in rows.items()
        ),
        "blobs": frozenset(
            (*key[1:], held) for key, held in saver.blobs.items() if key[0] == thread
        ),
        "writes": frozenset(
            (*key[1:], *where, *held)
            for key, rows in saver.writes.items()
            if key[0] == thread
            for where, held in rows.items()
        ),
    }


# --- values -------------------------------------------------------------------------------------


def reduced(history: Mapping[str, Any]) -> Any:
    """Seed and writes as lists that grow, or mappings that are merged."""
    value = history.get("seed")
    value = value.value if isinstance(value, _DeltaSnapshot) else value
    for _, _, write in history["writes"]:
        if isinstance(write, Overwrite):
            value = write.value
        elif isinstance(write, dict):
            value = {**(value or {}), **write}
        else:
            value = [*(value or []), *write]
    return value


def reading(
    saver: BaseCheckpointSaver[Any], thread: str, key: Key, deltas: Collection[str]
) -> tuple[Any, ...]:
    """A checkpoint as any reader gets it: values by either walk, versions, writes."""
    found = saver.get_tuple(at(thread, key[1], key[0]))
    assert found is not None, f"{key} is gone"
    checkpoint = found.checkpoint
    values = {
        name: each.value if isinstance(each, _DeltaSnapshot) else each
        for name, each in checkpoint["channel_values"].items()
    }
    names = [c for c in checkpoint["channel_versions"] if c in deltas and c not in values]
    where = at(thread, key[1], key[0])
    read = []
    for walk in (
        BaseCheckpointSaver.get_delta_channel_history,
        type(saver).get_delta_channel_history,
    ):
        walked = walk(saver, config=where, channels=names) if names else {}
        read.append({**values, **{name: reduced(walked[name]) for name in names}})
    shown = [{k: v for k, v in each.items() if v not in (None, [], {})} for each in read]
    seen = checkpoint["versions_seen"]
    return shown, checkpoint["channel_versions"], seen, found.pending_writes


def keys(saver: BaseCheckpointSaver[Any], thread: str, spaces: Iterable[str]) -> set[Key]:
    """Every checkpoint of these namespaces by the saver's own `list`."""
    return {
        (space, found.checkpoint["id"])
        for space in spaces
        for found in saver.list(at(thread, space=space))
    }


def listed(graph: Any, thread: str, names: Collection[str]) -> dict[str, Any]:
    """The rows of `get_state_history` with these ids, as a person sees them."""
    return {
        each.config["configurable"]["checkpoint_id"]: (
            each.values,
            each.next,
            each.interrupts,
            each.created_at,
        )
        for each in graph.get_state_history(at(thread))
        if each.config["configurable"]["checkpoint_id"] in names
    }


# --- time ---------------------------------------------------------------------------------------


def made_at(checkpoint_id: str) -> datetime:
    """When an id of version 6 was made."""
    digits = checkpoint_id.replace("-", "")
    assert digits[12] == "6"
    ticks = int(digits[:12] + digits[13:16], 16)
    return datetime(1582, 10, 15, tzinfo=UTC) + timedelta(microseconds=ticks // 10)
