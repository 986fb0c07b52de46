"""Puts the thread of a walk workload, and others beside it, into a fresh store."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from savermark.history.kinds import is_sync_postgres, is_sync_sqlite
from savermark.walking.rows import PROBE, foreign_spec, thread_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.backends.base import Store
    from savermark.spec import WalkSpec
    from savermark.walking.rows import Row

FOREIGN_DEPTH = 100  # checkpoints of each other thread


def build(store: Store, spec: WalkSpec) -> int:
    """Fill a fresh store; returns how many checkpoints of other threads it holds.

    The thread is put by the saver itself, one superstep at a time; nothing but the speed of the
    disk is left out. Other threads are one such thread, copied by the engine.
    """
    with store.saver() as saver, _hurried(saver):
        put_rows(saver, PROBE, thread_rows(spec))
        others = -(-spec.store.foreign // FOREIGN_DEPTH)
        if others:
            put_rows(saver, "other-00000", thread_rows(foreign_spec(spec, FOREIGN_DEPTH)))
    if others > 1:
        store.clone_threads({"other-00000": [f"other-{n:05}" for n in range(1, others)]})
    store.settle()
    return others * FOREIGN_DEPTH


def put_rows(saver: BaseCheckpointSaver[Any], thread: str, rows: Iterable[Row]) -> None:
    """Put these checkpoints and their writes under a thread id."""
    for row in rows:
        place: dict[str, Any] = {"thread_id": thread, "checkpoint_ns": ""}
        if row.parent is not None:
            place["checkpoint_id"] = row.parent
        checkpoint, metadata = row.checkpoint, row.metadata
        put: Any = saver.put
        at = put({"configurable": place}, checkpoint, metadata, row.new_versions)
        if row.writes:
            saver.put_writes(at, row.writes, row.task, "~__pregel_pull, work")


@contextmanager
def _hurried(saver: BaseCheckpointSaver[Any]) -> Iterator[None]:
    """This connection does not wait for the disk: what is built is what is measured, not how fast.

    The connection closes after it was used, so nothing of it reaches a measurement.
    """
    if is_sync_sqlite(saver):
        saver.conn.execute("PRAGMA synchronous = OFF")
    elif is_sync_postgres(saver):
        with saver._cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
    yield
