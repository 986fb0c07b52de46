"""LangGraph's savers with `prune`, `delete_for_runs` and `copy_thread` that know delta channels.

Drop-in: constructors and `from_conn_string` are those of the originals. The rows are changed
directly, in one transaction a thread; what a deletion may take is decided by the retention planner
and by nothing else. A thread that cannot be judged is left untouched, the others go on, and a
`ContractError` at the end names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psycopg
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.conninfo import make_conninfo

from savermark.errors import ContractError
from savermark.history.arows import arow_access
from savermark.history.postgres import PostgresRows
from savermark.history.rows import row_access
from savermark.retention.apply import apply
from savermark.retention.copy import copy_rows
from savermark.retention.lifecycle import lifecycle_of
from savermark.retention.mixin import check_threads
from savermark.retention.policy import RetentionPolicy
from savermark.retention.runs import report_of_runs

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.history.rows import RowAccess
    from savermark.retention.records import Applied, CacheLifecycle

T = TypeVar("T")

_POLICIES = {
    "keep_latest": RetentionPolicy(keep_latest=True),
    "delete": RetentionPolicy(delete=True),
}


class _Retaining:
    """The three methods in both apis, over the rows of the saver that this is mixed into."""

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the latest state of each namespace with all it is rebuilt from, or delete threads.

        Unknown threads and an empty list are nothing to do. Raises `TypeError` for a single
        string, `ValueError` for an unknown strategy, `ContractError` that names the threads that
        were left untouched because they are damaged.
        """
        self._on_rows(_pruning(thread_ids, strategy, _caches(self)))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """The async twin of `prune`."""
        await self._on_rows_async(_pruning(thread_ids, strategy, _caches(self)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what these runs stored, and nothing that other runs are rebuilt from.

        Raises `ContractError` that names the threads that were left untouched.
        """
        self._on_rows(_deleting(run_ids, _caches(self)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """The async twin of `delete_for_runs`."""
        await self._on_rows_async(_deleting(run_ids, _caches(self)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all rows of a thread. Raises `UsageError` for an unknown source, a used target."""
        self._on_rows(_copying(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """The async twin of `copy_thread`."""
        await self._on_rows_async(_copying(source_thread_id, target_thread_id))

    def _on_rows(self, work: Callable[[RowAccess], None]) -> None:
        work(row_access(cast("BaseCheckpointSaver[Any]", self)))

    async def _on_rows_async(self, work: Callable[[RowAccess], None]) -> None:
        async with arow_access(cast("BaseCheckpointSaver[Any]", self)) as access:
            await access.run(work)


class _AsyncRetaining(_Retaining):
    """The same for a saver that lives on an event loop: sync calls come from other threads."""

    loop: asyncio.AbstractEventLoop

    def _on_rows(self, work: Callable[[RowAccess], None]) -> None:
        name = type(self).__name__
        _elsewhere(self.loop, name, lambda: self._on_rows_async(work))


def _elsewhere(
    loop: asyncio.AbstractEventLoop, name: str, ask: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    try:
        inside = asyncio.get_running_loop() is loop
    except RuntimeError:
        inside = False
    if inside:
        raise asyncio.InvalidStateError(
            f"a sync call to {name} from its own event loop would wait for itself: use the method "
            "with an `a` in front"
        )
    return asyncio.run_coroutine_threadsafe(ask(), loop).result()


def _caches(saver: object) -> CacheLifecycle:
    """The caches that lie on a saver of a subclass, which must forget what is deleted."""
    return lifecycle_of(cast("BaseCheckpointSaver[Any]", saver))


def _pruning(
    thread_ids: Sequence[str], strategy: str, caches: CacheLifecycle
) -> Callable[[RowAccess], None]:
    threads = check_threads(thread_ids, strategy)

    def work(rows: RowAccess) -> None:
        if threads:
            _raise_refused(apply(rows, _POLICIES[strategy], threads=threads, lifecycle=caches))

    return work


def _deleting(run_ids: Sequence[str], caches: CacheLifecycle) -> Callable[[RowAccess], None]:
    if isinstance(run_ids, str):
        raise TypeError("run_ids must be a sequence of run ids, not a str")

    def work(rows: RowAccess) -> None:
        report = report_of_runs(rows, run_ids, lifecycle=caches)
        _raise_refused(part.applied for part in report.threads)

    return work


def _copying(source: str, target: str) -> Callable[[RowAccess], None]:
    def work(rows: RowAccess) -> None:
        copy_rows(rows, source, target)

    return work


def _raise_refused(done: Iterable[Applied]) -> None:
    refused = [f"thread {each.thread_id!r}: {each.refused}" for each in done if each.refused]
    if refused:
        raise ContractError(f"left untouched, the others are done: {'; '.join(refused)}")


class RetainingInMemorySaver(_Retaining, InMemorySaver):
    """`InMemorySaver` that can prune, delete runs and copy threads."""


class RetainingSqliteSaver(_Retaining, SqliteSaver):
    """`SqliteSaver` that can prune, delete runs and copy threads."""


class RetainingPostgresSaver(_Retaining, PostgresSaver):
    """`PostgresSaver` whose `prune` takes threads with delta channels, too.

    In pipeline mode, where a statement does not tell its result, the methods open a connection of
    their own.
    """

    def _on_rows(self, work: Callable[[RowAccess], None]) -> None:
        if self.pipe is None:
            super()._on_rows(work)
            return
        with self.lock:
            self.pipe.sync()
            info = cast("psycopg.Connection[Any]", self.conn).info
            target = make_conninfo(info.dsn, password=info.password or None)
        with psycopg.connect(target, autocommit=True) as connection:
            work(PostgresRows(connection))


class AsyncRetainingInMemorySaver(RetainingInMemorySaver):
    """The same: an `InMemorySaver` carries both apis."""


class AsyncRetainingSqliteSaver(_AsyncRetaining, AsyncSqliteSaver):
    """`AsyncSqliteSaver` that can prune, delete runs and copy threads."""


class AsyncRetainingPostgresSaver(_AsyncRetaining, AsyncPostgresSaver):
    """`AsyncPostgresSaver` whose `aprune` takes threads with delta channels, too."""
