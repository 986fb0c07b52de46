"""What a saver stores: rows and payload bytes of each table, as plain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from savermark.backends.base import Capability
from savermark.errors import Unsupported
from savermark.history.rows import row_access
from savermark.storage import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.trial.ground import Ground


def storage_of(ground: Ground) -> dict[str, int]:
    """Rows and payload bytes of each table; nothing where they cannot be told."""
    threads = [thread.thread_id for thread in ground.threads]
    if Capability.STORAGE in ground.store.capabilities:
        rows = ground.store.storage(threads)
        return _sums((str(row.table), row.rows, row.logical_bytes) for row in rows)
    try:
        return stored_rows(ground.saver, threads)
    except Unsupported:
        return {}


def stored_rows(
    saver: BaseCheckpointSaver[Any], threads: Sequence[str] | None = None
) -> dict[str, int]:
    """Rows and payload bytes of each table of a sync saver, of these threads or of all.

    Raises `Unsupported` for a saver whose tables are unknown.
    """
    tables: list[tuple[str, int, int]] = [(table, 0, 0) for table in TABLES]
    for image in row_access(saver).images(threads):
        for table in TABLES:
            tables += [(table, 1, row.bytes) for row in getattr(image, table)]
    return _sums(tables)


def _sums(tables: Iterable[tuple[str, int, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for table, rows, size in tables:
        for what, value in (("rows", rows), ("bytes", size)):
            sums[f"{table} {what}"] = sums.get(f"{table} {what}", 0) + value
    return dict(sorted(sums.items()))
