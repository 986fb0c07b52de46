"""Deletion at fleet size: 1,000 threads of 100 checkpoints, the newest state of each kept.

Every ratio is of runs in turn on fresh copies of one thread. On Postgres the saver's own `prune` is
the reference, on threads of the same table; both must leave the same rows. It takes thread after
thread, each in a transaction of its own, so that a part of them tells its rate. The server makes no
checkpoint between the copying and the runs: after one the log takes each page whole once, which
takes either as long, and would be a sixth of the one and a fortieth of the other.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from goals import Goal, seconds
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph

from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.history.rows import row_access
from savermark.retention.apply import apply
from savermark.retention.policy import parse_policy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from savermark.backends.base import Store

THREADS, STEPS, ROUNDS = 1_000, 98, 3  # a thread of 98 supersteps has 100 checkpoints
PRUNED = 200  # of as many, threads that the saver prunes
RATED = 200  # threads of which a rate is taken
TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
SINGLE = 50  # threads that are taken one a transaction
LATEST = parse_policy("keep-latest")


def _extend(state: list[Any] | None, writes: Sequence[list[Any]]) -> list[Any]:
    return [*(state or []), *(item for write in writes for item in write)]


class _Plain(TypedDict):
    step: int
    note: dict[str, str]
    answer: dict[str, str]


class _Delta(TypedDict):
    step: int
    note: dict[str, str]
    items: Annotated[list[Any], DeltaChannel(_extend, snapshot_frequency=10)]


def drive(saver: Any, kind: str) -> None:
    """One thread, `source`, by the real loop."""

    def work(state: Any) -> dict[str, Any]:
        text = {"text": f"{state['step']:04}" * 75}
        more = {"answer": text} if kind == "plain" else {"items": [text]}
        return {"step": state["step"] + 1, "note": text, **more}

    graph = StateGraph(_Plain if kind == "plain" else _Delta)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if state["step"] < STEPS else END)
    config: Any = {"configurable": {"thread_id": "source"}, "recursion_limit": STEPS + 5}
    graph.compile(checkpointer=saver).invoke({"step": 0}, config)  # type: ignore[call-overload]


def named(kind: str, count: int) -> list[str]:
    """Names of copies."""
    return [f"{kind}-{number:05}" for number in range(count)]


@contextmanager
def stored(name: str, kind: str) -> Iterator[Store]:
    """An empty store with the source thread in it."""
    backend = get_backend(name)
    with tempfile.TemporaryDirectory(prefix="savermark-perf-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        with backend.service(place) as dsn:
            store = backend.create(Location(place, f"retention-{kind}", dsn))
            with store.saver() as saver:
                drive(saver, kind)
            yield store
            store.destroy()


def clear(rows: Any, threads: Sequence[str], batch: int = 250) -> int:
    """Keep the newest state of these; the rows that went."""
    done = apply(rows, LATEST, threads=threads, batch=batch)
    return sum(sum(each.deleted.values()) for each in done)


def _fresh(store: Store, *groups: Sequence[str]) -> None:
    """Copies under these names, and nothing left to do for the engine."""
    store.clone_threads({"source": [name for names in groups for name in names]})
    store.settle()
    gc.collect()


def _against_the_saver(store: Store) -> Iterator[Goal]:
    for batch, count, pruned, goal in ((250, THREADS, PRUNED, 6.0), (1, SINGLE, SINGLE, 1.0)):
        ratios = []
        with store.saver() as saver, store.saver() as other:
            rows = row_access(saver)
            other.conn.execute("ALTER SYSTEM SET max_wal_size = '16GB'")
            other.conn.execute("SELECT pg_reload_conf()")
            for number in range(ROUNDS):
                ours = named(f"ours{batch}-{number}", count)
                theirs = named(f"theirs{batch}-{number}", pruned)
                store.settle()
                store.clone_threads({"source": [*ours, *theirs]})
                other.conn.execute(f"VACUUM (ANALYZE) {', '.join(TABLES)}")
                gc.collect()
                runs = (lambda: clear(rows, ours, batch), lambda: other.prune(theirs))  # noqa: B023
                spent = {at: seconds(runs[at]) for at in ((0, 1) if number % 2 else (1, 0))}
                ratios.append(spent[1] / pruned * count / spent[0])
                left = [replace(rows.image(names[-1]), thread_id="") for names in (ours, theirs)]
                assert left[0] == left[1], "the survivors differ"
        what = f"postgres: keep-latest, {batch} threads a transaction, times the speed of prune"
        yield Goal(what, statistics.median(ratios), goal, "x", at_most=False)


def _rates(stores: Sequence[Store]) -> tuple[float, float]:
    """Rows deleted a second from the first store, and the rate of the second against it."""
    found, ratios = [], []
    for number in range(ROUNDS):
        threads, rates = named(f"rate{number}", RATED), []
        for store in stores:
            _fresh(store, threads)
        for store in stores if number % 2 else reversed(stores):
            counts = list[int]()
            with store.saver() as saver:
                rows = row_access(saver)
                spent = seconds(lambda: counts.append(clear(rows, threads)))  # noqa: B023
            rates.append(counts[0] / spent)
        plain, delta = rates if number % 2 else reversed(rates)
        found.append(plain)
        ratios.append(delta / plain)
    return statistics.median(found), statistics.median(ratios)


def _memory(name: str, store: Store) -> Goal:
    """The peak of what Python holds, for four times the threads; a few batches at the least."""
    peaks = []
    with store.saver() as saver:
        rows = row_access(saver)
        for count in (130, 520):
            threads = named(f"held{count}", count)
            _fresh(store, threads)
            tracemalloc.start()
            clear(rows, threads, batch=64)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    return Goal(
        f"{name}: peak memory for 520 threads, times that for 130", peaks[1] / peaks[0], 1.2, "x"
    )


def measure() -> Iterator[Goal]:
    """Takes two or three minutes on a quiet machine, and 4 GB of disk."""
    for name in ("postgres", "sqlite"):
        with stored(name, "plain") as plain, stored(name, "delta") as delta:
            if name == "postgres":
                yield from _against_the_saver(plain)
            rate, ratio = _rates((plain, delta))
            what = f"{name}: threads with a delta channel, times the rate of plain ones"
            yield Goal(what, ratio, 0.5, "x", at_most=False)
            if name == "sqlite":
                yield Goal("sqlite: deleted", rate, 200_000, "rows/s", at_most=False)
            yield _memory(name, plain)
