"""Postgres at fleet size: 5,000 threads of 50 checkpoints and 200 writes, 1.25 million rows."""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from goals import Goal, seconds
from perf_storage_sqlite import THREADS, drive

from savermark.backends.base import Location
from savermark.backends.postgres import PostgresBackend

if TYPE_CHECKING:
    from collections.abc import Iterator


def measure() -> Iterator[Goal]:
    """Clones the fleet, then passes over it three times; takes 20 to 40 s and 2.5 GB of disk."""
    with (
        tempfile.TemporaryDirectory(prefix="savermark-perf-") as folder,
        PostgresBackend.service(Path(folder)) as dsn,
    ):
        store = PostgresBackend.create(Location(Path(folder), "fleet", dsn))
        drive(store, "source")
        clones = [f"t{number:05d}" for number in range(THREADS - 1)]
        taken = seconds(lambda: store.clone_threads({"source": clones}))
        store.settle()
        rows = sum(row.rows for row in store.storage())
        yield Goal("Postgres: clone", rows / taken, 120_000, "rows/s", at_most=False)
        passes = statistics.median(seconds(store.storage) for _ in range(3))
        yield Goal(f"Postgres: storage pass over {rows:,} rows", passes, 2.0, "s")
        store.destroy()


def main() -> None:
    """Print measured / goal."""
    for goal in measure():
        sys.stdout.write(f"{goal.what}: {goal.measured:,.2f} / {goal.goal:,.0f} {goal.unit}\n")


if __name__ == "__main__":
    main()
