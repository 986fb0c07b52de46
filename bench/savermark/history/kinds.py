"""Which of the known savers a saver is, without importing a package that nobody uses."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver


def unwrapped(saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
    """The saver inside our own wrappers."""
    while True:
        inner = getattr(saver, "inner", None)
        if inner is None:
            return saver
        saver = inner


def _is(saver: BaseCheckpointSaver[Any], module: str, name: str) -> bool:
    # A saver can only be of a class whose module is imported already.
    known = getattr(sys.modules.get(f"langgraph.checkpoint.{module}"), name, None)
    return known is not None and isinstance(saver, known)


def is_memory(saver: BaseCheckpointSaver[Any]) -> TypeGuard[InMemorySaver]:
    """An `InMemorySaver`, in either api."""
    return _is(saver, "memory", "InMemorySaver")


def is_sqlite(saver: BaseCheckpointSaver[Any]) -> bool:
    """A `SqliteSaver` or an `AsyncSqliteSaver`."""
    return is_sync_sqlite(saver) or is_async_sqlite(saver)


def is_sync_sqlite(saver: BaseCheckpointSaver[Any]) -> TypeGuard[SqliteSaver]:
    """A `SqliteSaver`."""
    return _is(saver, "sqlite", "SqliteSaver")


def is_async_sqlite(saver: BaseCheckpointSaver[Any]) -> TypeGuard[AsyncSqliteSaver]:
    """An `AsyncSqliteSaver`."""
    return _is(saver, "sqlite.aio", "AsyncSqliteSaver")


def is_sync_postgres(saver: BaseCheckpointSaver[Any]) -> TypeGuard[PostgresSaver]:
    """A `PostgresSaver`; the shallow ones keep another layout and are none."""
    return _is(saver, "postgres", "PostgresSaver")


def is_async_postgres(saver: BaseCheckpointSaver[Any]) -> TypeGuard[AsyncPostgresSaver]:
    """An `AsyncPostgresSaver`."""
    return _is(saver, "postgres.aio", "AsyncPostgresSaver")
