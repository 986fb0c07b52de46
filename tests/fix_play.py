"""Plays a workload on a real saver and compares every tip with the oracle."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from savermark.graphs import build_graph
from savermark.graphs.play import Outcome, aplay, play
from savermark.graphs.serde import make_serde
from savermark.script import ThreadScript, state_digest, write_script
from savermark.spec import WorkloadSpec


@dataclass(frozen=True)
class Opener:
    """How to open one kind of saver, in both apis, in a folder."""

    sync: Callable[[Path, Any], AbstractContextManager[Any]]
    asynchronous: Callable[[Path, Any], AbstractAsyncContextManager[Any]]


def _memory(folder: Path, serde: Any) -> AbstractContextManager[Any]:
    return nullcontext(InMemorySaver(serde=serde))


@asynccontextmanager
async def _amemory(folder: Path, serde: Any) -> AsyncIterator[Any]:
    yield InMemorySaver(serde=serde)


@contextmanager
def _sqlite(folder: Path, serde: Any) -> Iterator[Any]:
    with closing(sqlite3.connect(folder / "play.db", check_same_thread=False)) as conn:
        conn.execute("pragma synchronous = off")  # these tests read no times
        yield SqliteSaver(conn, serde=serde)


@asynccontextmanager
async def _asqlite(folder: Path, serde: Any) -> AsyncIterator[Any]:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "play.db")) as saver:
        saver.serde = serde or saver.serde
        await saver.conn.execute("pragma synchronous = off")
        yield saver


OPENERS = {"memory": Opener(_memory, _amemory), "sqlite": Opener(_sqlite, _asqlite)}


@dataclass
class Played:
    """A played thread: its script, where its tips are, and what they read back as."""

    thread: ThreadScript
    outcome: Outcome
    snapshots: dict[str, Any]  # tip -> StateSnapshot

    def wrong(self) -> list[str]:
        """What differs from the oracle."""
        found = [] if set(self.outcome.tips) == set(self.thread.tips) else ["other tips"]
        for name, tip in self.thread.tips.items():
            seen = self.snapshots[name]
            if state_digest(seen.values) != tip.digest:
                sizes = {k: len(v) for k, v in seen.values.items()}
                found.append(f"{name}: other state {sizes}")
            if (seen.next, len(seen.interrupts)) != (tip.next, tip.interrupts):
                found.append(f"{name}: next {seen.next}, {len(seen.interrupts)} interrupts")
        return found


def run_spec(spec: WorkloadSpec, opener: Opener, folder: Path) -> list[Played]:
    """Play every driven thread of `spec` and read every tip back."""
    serde = make_serde(spec)
    threads = [thread for thread in write_script(spec) if thread.source is None]
    if spec.run.api == "async":
        return asyncio.run(_arun(spec, opener, folder, serde, threads))
    played = []
    with opener.sync(folder, serde) as saver:
        graph = build_graph(spec, saver)
        for thread in threads:
            outcome = play(graph, saver, thread, spec, lambda number: nullcontext())
            seen = {name: graph.get_state(config) for name, config in outcome.tips.items()}
            played.append(Played(thread, outcome, seen))
    return played


async def _arun(
    spec: WorkloadSpec, opener: Opener, folder: Path, serde: Any, threads: list[ThreadScript]
) -> list[Played]:
    played = []
    async with opener.asynchronous(folder, serde) as saver:
        graph = build_graph(spec, saver)
        for thread in threads:
            outcome = await aplay(graph, saver, thread, spec, lambda number: nullcontext())
            seen = {name: await graph.aget_state(at) for name, at in outcome.tips.items()}
            played.append(Played(thread, outcome, seen))
    return played


def with_run(spec: WorkloadSpec, **values: Any) -> WorkloadSpec:
    """`spec` with other values in `[run]`."""
    return replace(spec, run=replace(spec.run, **values))
