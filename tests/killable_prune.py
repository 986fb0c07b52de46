"""Maintenance in a process of its own, to be killed: reads jobs as JSON lines, forks for each.

Everything is imported before, so that a child costs a fork and not a start of Python. A child
prints its pid when it starts to work and `done` when it is through. Into the job's log go a `b` for
each transaction that begins and an `e` for each that has ended, so that a kill tells where it fell.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from fix_threads import Kept
from retention_world import Act, World, play
from savermark.history.arows import arow_access
from savermark.history.postgres import PostgresRows
from savermark.history.postgres_bulk import PostgresBulk
from savermark.history.rows import RowAccess, row_access
from savermark.history.sqlite import SqliteRows
from savermark.history.sqlite_bulk import SqliteBulk
from savermark.retention.apply import aapply, apply
from savermark.retention.copy import copy_thread
from savermark.retention.fold import graph_fold
from savermark.retention.policy import parse_policy
from savermark.retention.records import Applied
from savermark.retention.runs import report_of_runs

RUNS = ("run-1", "run-2")
SHAPE: Any = ("both", (3, 7, 2))


class Only:
    """Row access in which these runs are found in these threads alone."""

    def __init__(self, rows: RowAccess, threads: list[str]) -> None:
        self._rows, self._threads = rows, threads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    def threads_of_runs(self, run_ids: Any) -> list[str]:
        found = self._rows.threads_of_runs(run_ids)
        return [name for name in found if name in self._threads]


def work(job: dict[str, Any], saver: Any) -> list[Applied]:
    """What the job is, on these threads; what a policy did."""
    if job["op"] == "runs":
        rows: Any = Only(row_access(saver), job["threads"])
        report_of_runs(rows, RUNS, addressable="heads")
    elif job["op"] == "live":
        world, kept = World(*SHAPE, saver), Kept(job["name"], None, saver, row_access(saver))  # type: ignore[arg-type]
        for thread in job["threads"]:
            play(kept, world, thread, [Act(kind) for kind in job["acts"]])
    elif job["op"] == "copy":
        for thread in job["threads"]:
            copy_thread(saver, thread, f"{thread}-copy")
    else:
        policy, fold = parse_policy(job["op"]), graph_fold(World(*SHAPE, None).graph, saver)
        return list(apply(row_access(saver), policy, threads=job["threads"], fold=fold, batch=8))
    return []


async def awork(job: dict[str, Any], saver: Any) -> None:
    """The async twin of policies."""
    fold = graph_fold(World(*SHAPE, None).graph, saver)
    async with arow_access(saver) as rows:
        found = aapply(rows, parse_policy(job["op"]), threads=job["threads"], fold=fold, batch=8)
        async for _ in found:
            pass


def run(job: dict[str, Any]) -> None:
    """The job on a connection of its own."""
    uri = job["uri"]
    if job["how"] == "async":
        asyncio.run(_run(job))
    elif job["name"] == "postgres":
        with PostgresSaver.from_conn_string(uri) as saver:
            _told()
            work(job, saver)
    else:
        with closing(sqlite3.connect(uri, check_same_thread=False)) as connection:
            saver = SqliteSaver(connection)
            saver.setup()
            connection.execute("PRAGMA synchronous = off")  # a kill is no power cut
            _told()
            work(job, saver)


async def _run(job: dict[str, Any]) -> None:
    kind: Any = AsyncPostgresSaver if job["name"] == "postgres" else AsyncSqliteSaver
    async with kind.from_conn_string(job["uri"]) as saver:
        _told()
        await awork(job, saver)


def _told() -> None:
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()


def note_transactions(log: str) -> None:
    """Let every transaction note that it began, and that it ended."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for kind in (SqliteRows, PostgresRows, SqliteBulk, PostgresBulk):
        begin: Any = kind.transaction

        @functools.wraps(begin)
        @contextmanager
        def noted(self: Any, what: Any, *, begin: Any = begin) -> Iterator[Any]:
            with ExitStack() as stack:
                txn = stack.enter_context(begin(self, what))
                os.write(file, b"b")
                yield txn
            os.write(file, b"e")

        kind.transaction = noted  # type: ignore[method-assign]


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need no one to wait for them
    for line in sys.stdin:
        if os.fork() == 0:
            try:
                job = json.loads(line)
                note_transactions(job["log"])
                run(job)
                sys.stdout.write("done\n")
                sys.stdout.flush()
                os._exit(0)
            except BaseException as error:
                sys.stdout.write(f"failed: {error!r}\n")
                sys.stdout.flush()
                os._exit(1)


if __name__ == "__main__":
    main()
