"""`db inspect` at fleet size: 5,000 threads of some 50 checkpoints and 200 writes, both engines."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from goals import Goal, seconds
from perf_storage_sqlite import THREADS, drive

from savermark.backends.base import Location
from savermark.backends.postgres import PostgresBackend
from savermark.backends.postgres_place import find_place
from savermark.backends.sqlite import SqliteBackend, store_path
from savermark.database.doctor import diagnose
from savermark.database.inspect import inspect
from savermark.database.opening import open_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from savermark.backends.base import Store

GOAL_S = 4.0
ROUNDS = 3


def measure() -> Iterator[Goal]:
    """Clones a fleet on each engine and looks at it; takes a minute and 2.5 GB of disk."""
    with tempfile.TemporaryDirectory(prefix="savermark-perf-") as folder:
        location = Location(Path(folder), "inspect")
        store: Store = SqliteBackend.create(location)
        _fleet(store)
        yield from _looks("SQLite", str(store_path(location)))
        store.destroy()
        with PostgresBackend.service(Path(folder)) as dsn:
            store = PostgresBackend.create(Location(Path(folder), "inspect", dsn))
            _fleet(store)
            yield from _looks("Postgres", find_place(dsn, "inspect").dsn)
            store.destroy()


def _fleet(store: Store) -> None:
    drive(store, "source")
    store.clone_threads({"source": [f"t{number:05d}" for number in range(THREADS - 1)]})
    store.settle()


def _looks(name: str, uri: str) -> Iterator[Goal]:
    with open_database(uri) as database:
        assert inspect(database).thread_count == THREADS
        taken = statistics.median(seconds(lambda: inspect(database)) for _ in range(ROUNDS))
        yield Goal(f"{name}: inspect of {THREADS:,} threads", taken, GOAL_S, "s")
        taken = seconds(lambda: list(diagnose(database)))
        yield Goal(f"{name}: doctor of {THREADS:,} sound threads", taken, GOAL_S, "s")


def main() -> None:
    """Print measured / goal."""
    import sys

    for goal in measure():
        sys.stdout.write(f"{goal.what}: {goal.measured:,.2f} / {goal.goal:,.0f} {goal.unit}\n")


if __name__ == "__main__":
    main()
