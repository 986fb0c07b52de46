"""An append beside the same rows inserted by hand in one transaction: for `make perf`."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "perf")]

from goals import Goal, interleaved_ratio  # noqa: E402
from sandbox_stores import drop_schema  # noqa: E402

from savermark.backends.postgres_server import serve  # noqa: E402
from savermark.sandbox.postgres import PostgresSandboxStore  # noqa: E402
from savermark.sandbox.rules import blob_keys, freeze  # noqa: E402
from savermark.sandbox.sqlite import SqliteSandboxStore  # noqa: E402
from savermark.sandbox.testkit.harness import artifact, checkpoint, file  # noqa: E402

FILES = 50
AT_A_TIME = 20  # appends a timed round
ROUNDS = 15
GOAL = 3.0


def given(thread: str, parent: str | None) -> Any:
    files = [file(f"src/f{at}.py", secrets.token_hex(4)) for at in range(FILES)]
    artifacts = [artifact("1", secrets.token_hex(4))]
    return checkpoint(secrets.token_hex(16), thread, parent, files=files, artifacts=artifacts)


def rows_of(seq: int, item: Any) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of a checkpoint, table by table."""
    snapshot = freeze(item, symlinks=True)
    head = (snapshot.id, snapshot.thread_id, snapshot.parent_id, snapshot.created_at)
    return {
        "sandbox_checkpoint_ids": [(snapshot.id,)],
        "sandbox_checkpoints": [(seq, *head, snapshot.reason, None, None, snapshot.conversation)],
        "sandbox_checkpoint_entries": [
            (seq, at, "file", e.path, e.blob_key, e.size, None)
            for at, e in enumerate(snapshot.files)
        ],
        "sandbox_checkpoint_artifacts": [
            (seq, at, a.artifact_id, a.name, a.mime_type, a.size, a.blob_key, a.created_at)
            for at, a in enumerate(snapshot.artifacts)
        ],
        "sandbox_checkpoint_blob_references": [(key, 1) for key in blob_keys(snapshot)],
    }


class Chain:
    """Appends on and on to one thread through the store."""

    def __init__(self, runner: asyncio.Runner, store: Any) -> None:
        self._runner, self._store = runner, store
        self._lease = runner.run(store.acquire_writer("t"))
        self._head: str | None = None

    def grow(self) -> None:
        self._runner.run(self._grow())

    async def _grow(self) -> None:
        for _ in range(AT_A_TIME):
            item = given("t", self._head)
            self._head = await self._store.append(
                item, expected_head_id=self._head, writer=self._lease
            )


class ByHand:
    """Inserts the same rows, each checkpoint in one transaction, with nothing checked."""

    def __init__(self, connection: Any, mark: str, system: str) -> None:
        self._connection, self._mark, self._system = connection, mark, system
        self._seq = 0  # and down: no seq of the store

    def grow(self) -> None:
        for _ in range(AT_A_TIME):
            self._seq -= 1
            with closing(self._connection.cursor()) as cursor:
                cursor.execute("BEGIN")
                for table, rows in rows_of(self._seq, given("h", None)).items():
                    marks = ", ".join([self._mark] * len(rows[0]))
                    identity = self._system if table == "sandbox_checkpoints" else ""
                    cursor.executemany(f"INSERT INTO {table} {identity} VALUES ({marks})", rows)
                cursor.execute("COMMIT")


@contextmanager
def sqlite_pair(folder: Path) -> Iterator[tuple[Any, Any]]:
    path = folder / "perf.db"
    with asyncio.Runner() as runner:
        opened = SqliteSandboxStore.open(path)
        store = runner.run(opened.__aenter__())
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            yield Chain(runner, store), ByHand(connection, "?", "")
        runner.run(opened.__aexit__(None, None, None))


@contextmanager
def postgres_pair(folder: Path) -> Iterator[tuple[Any, Any]]:
    with serve(folder) as dsn, asyncio.Runner() as runner:
        schema = f"perf_{secrets.token_hex(4)}"
        opened = PostgresSandboxStore.open(dsn, schema=schema)
        store = runner.run(opened.__aenter__())
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
            yield Chain(runner, store), ByHand(connection, "%s", "OVERRIDING SYSTEM VALUE")
        runner.run(opened.__aexit__(None, None, None))
        drop_schema(dsn, schema)


PAIRS: dict[str, Callable[[Path], Any]] = {"SQLite": sqlite_pair, "Postgres": postgres_pair}


def measure() -> Iterator[Goal]:
    """An append of 50 files through each SQL store, as a multiple of the plain inserts."""
    for name, pair in PAIRS.items():
        with tempfile.TemporaryDirectory() as folder, pair(Path(folder)) as (ours, by_hand):
            ours.grow()
            by_hand.grow()
            ratio = interleaved_ratio(ours.grow, by_hand.grow, ROUNDS)
        yield Goal(f"sandbox append on {name}, beside its rows by hand", ratio, GOAL, "times")


if __name__ == "__main__":
    for goal in measure():
        sys.stdout.write(f"{goal.what}: {goal.measured:.2f} (at most {goal.goal})\n")
