"""The run-history fast path: what deleting its cache leaf costs the next history read.

A host answers "how long did each run take" from the newest checkpoint's metadata, where a
duration-only leaf keeps the map of all runs. When the map lacks a run, the host works the answer
out and writes a fresh leaf. Here it works it out from the thread's own checkpoints, by `list`.

Each run of the script is followed by `READS` such reads. A leaf is never deleted (`kept`), deleted
by a retention pass after each read while the thread is idle (`idle`), or deleted when the next run
is admitted (`admission`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from savermark.backends.base import Capability
from savermark.errors import Unsupported
from savermark.graphs import build_graph
from savermark.graphs.serde import make_serde
from savermark.history.arows import arow_access
from savermark.history.rows import row_access
from savermark.meter import acount, ametered, count, metered
from savermark.records import CostRow, Phase, SampleSet
from savermark.retention.admission import aclean_admission, clean_admission
from savermark.retention.apply import apply_thread
from savermark.retention.duration import (
    DURATIONS,
    apersist_run_durations,
    is_duration_only,
    persist_run_durations,
    root_config,
)
from savermark.retention.policy import RetentionPolicy
from savermark.script import Turn, write_script
from savermark.trial.driver import SyncDriver, driver_for
from savermark.trial.ground import Ground
from savermark.trial.story import ended, in_store, measure_storage
from savermark.trial.verify import difference, read_tip

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from langgraph.checkpoint.base import CheckpointTuple

    from savermark.backends.base import Location, Store
    from savermark.history.rows import RowAccess
    from savermark.meter import Counts
    from savermark.records import TrialResult
    from savermark.script import ThreadScript
    from savermark.trial.policy_case import RetainCase

SCENARIO = "run-history"
# What is done to the leaf -> what that means, for people.
WAYS = {
    "kept": "the leaf is never deleted",
    "idle": "a retention pass deletes the leaf after each history read",
    "admission": "the leaf is deleted when the next run is admitted",
}
READS = 3  # history reads after each run
_LEAVES = RetentionPolicy(duration_leaves=True)


@dataclass(slots=True)
class Host:
    """The application: its thread, what it knows of the runs, what its reads came to."""

    ground: Ground
    thread: ThreadScript
    way: str
    depth: int = 0
    runs: list[str] = field(default_factory=list)
    truth: dict[str, int] = field(default_factory=dict)  # by run id, ms
    did: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    times: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # op -> depth, ns

    @property
    def sync(self) -> bool:
        return self.ground.spec.run.api == "sync"

    async def timed(self, op: str, work: Awaitable[Any]) -> Any:
        """The result of `work`, whose duration becomes a sample of `op`."""
        start = self.ground.clock()
        found = await work
        self.times.setdefault(op, []).append((self.depth, self.ground.clock() - start))
        return found

    async def run(self, event: Turn) -> None:
        """Admit and play one run."""
        if self.way == "admission" and self.runs:
            done = await self.timed("admission", self.admitted())
            self.did["deletes"] += bool(done.deleted)
        ground, one = self.ground, replace(self.thread, events=(event,))
        played = ground.driver.play(ground.graph, ground.saver, one, ground.spec, _unclocked)
        await self.timed("turn", played)
        self.runs.append(event.run_id)
        rows = await self.listed()
        self.depth, self.truth = len(rows), durations_of(rows)

    async def admitted(self) -> Any:
        saver, name = self.ground.saver, self.thread.thread_id
        if self.sync:
            return clean_admission(saver, name)
        return await aclean_admission(saver, name)

    async def read(self) -> None:
        """One history read, and what it sets off."""
        start = self.ground.clock()
        found = await self.fast()
        op = "history_fast"
        if found is None:
            found, op = durations_of(await self.listed()), "history_scan"
        self.times.setdefault(op, []).append((self.depth, self.ground.clock() - start))
        self.did["fast" if op == "history_fast" else "scans"] += 1
        if found != self.truth:
            self.wrong.append(f"run {len(self.runs)}: {op} answers {len(found)} of the runs")
        if op == "history_scan":
            self.did["writes"] += bool(await self.timed("leaf_write", self.written(found)))
        if self.way == "idle":
            self.did["deletes"] += await self.timed("leaf_delete", self.swept())

    async def fast(self) -> dict[str, int] | None:
        """The answer of the newest checkpoint's metadata; None where a run is missing."""
        ground = self.ground
        root = root_config(ground.saver, self.thread.thread_id)
        head = await ground.driver.call(ground.saver, "get_tuple", root)
        known = (head.metadata or {}).get(DURATIONS) or {}
        return dict(known) if known.keys() >= set(self.runs) else None

    async def scanned(self) -> dict[str, int]:
        """A read without the leaf: the newest checkpoint, then all of them."""
        await self.fast()
        return durations_of(await self.listed())

    async def listed(self) -> list[CheckpointTuple]:
        root = root_config(self.ground.saver, self.thread.thread_id)
        return await self.ground.driver.rows(self.ground.saver, "list", root)

    async def written(self, found: Mapping[str, int]) -> bool:
        saver, name = self.ground.saver, self.thread.thread_id
        if self.sync:
            return persist_run_durations(saver, name, found)
        return await apersist_run_durations(saver, name, found)

    async def swept(self) -> int:
        """A retention pass over the thread; the leaves that it deleted."""

        def work(rows: RowAccess) -> int:
            done = apply_thread(rows, self.thread.thread_id, _LEAVES)
            return done.deleted.get("checkpoints", 0)

        if self.sync:
            return work(row_access(self.ground.saver))
        async with arow_access(self.ground.saver) as access:
            return await access.run(work)


def durations_of(rows: Iterable[CheckpointTuple]) -> dict[str, int]:
    """How long each run took by the times of its own checkpoints, in whole ms."""
    spans: dict[str, list[datetime]] = {}
    for row in rows:
        told = row.metadata or {}
        if told.get("run_id") and told.get("source") != "update":  # a copy is no step of a run
            at = datetime.fromisoformat(row.checkpoint["ts"])
            spans.setdefault(str(told["run_id"]), []).append(at)
    return {run: int((max(t) - min(t)).total_seconds() * 1000) for run, t in spans.items()}


def run_history_trial(
    case: RetainCase,
    location: Location,
    repetition: int = 0,
    *,
    clock: Callable[[], int] = perf_counter_ns,
    keep: bool = False,
) -> TrialResult:
    """Play the scenario on a fresh store at `location`, in this process."""

    def measure(store: Store) -> TrialResult:
        driver = driver_for(case.spec)
        return driver.run(_measure(case, store, clock))

    return in_store(case, location, repetition, measure, clock=clock, keep=keep)


async def _measure(case: RetainCase, store: Store, clock: Callable[[], int]) -> TrialResult:
    if Capability.KEEPS not in store.capabilities:
        raise Unsupported(f"{case.backend} keeps nothing: there is no history to read")
    driver = driver_for(case.spec)
    async with driver.open(store, make_serde(case.spec)) as saver:
        graph = build_graph(case.spec, saver)
        script = write_script(case.spec)[:1]
        ground = Ground(case, driver, store, saver, graph, script, clock)
        ground.notes["load_average"] = round(os.getloadavg()[0], 2)
        ground.notes["cores"] = os.cpu_count()
        host = Host(ground, script[0], case.policy)
        for event in script[0].events:
            if not isinstance(event, Turn):
                raise Unsupported("the scenario plays plain turns: no branches, no durations")
            await host.run(event)
            for _ in range(READS):
                await host.read()
        ground.check(Phase.LOADED, "answers", len(host.runs) * READS, host.wrong)
        seen = await read_tip(ground, {"configurable": {"thread_id": host.thread.thread_id}})
        wrong = difference(seen, script[0].tips["head"])
        ground.check(Phase.LOADED, "final_state", 1, [wrong] if wrong else [])
        ground.notes["run_history"] = await _told(host)
        measure_storage(ground, Phase.LOADED)
        for op, pairs in host.times.items():
            depths, ns = zip(*pairs, strict=True)
            ground.samples.append(SampleSet(op, Phase.LOADED, "warm", "head", depths, ns))
        costs = [await _round(host)]
        costs += [await _cost(host, op) for op in ("history_fast", "history_scan")]
        return replace(ended(ground), costs=tuple(costs))


async def _told(host: Host) -> dict[str, Any]:
    def links(rows: RowAccess) -> tuple[int, int]:
        image = rows.image(host.thread.thread_id)
        copies = [row for row in image.checkpoints if is_duration_only(image, row)]
        return len(image.checkpoints), len(copies)

    if host.sync:
        stored, copies = links(row_access(host.ground.saver))
    else:
        async with arow_access(host.ground.saver) as access:
            stored, copies = await access.run(links)
    names = ("fast", "scans", "writes", "deletes")
    return {
        "way": host.way,
        "runs": len(host.runs),
        "reads": len(host.runs) * READS,
        **{name: host.did[name] for name in names},
        "checkpoints": stored,
        "duration_copies": copies,
    }


async def _round(host: Host) -> CostRow:
    """The counts of all reads that follow one run, with what they write and a pass deletes.

    The thread is made as it is right after a run; a pass of an async saver has a connection of its
    own, whose statements are not in it.
    """
    await host.swept()
    saver = host.ground.saver
    if host.sync:
        with metered(saver) as meter:
            for _ in range(READS):
                await host.read()
    else:
        async with ametered(saver) as meter:
            for _ in range(READS):
                await host.read()
    return CostRow("idle_round", Phase.LOADED, "head", host.depth, meter.counts, ())


async def _cost(host: Host, op: str) -> CostRow:
    """What one read costs, by either way; counted twice."""
    read = host.fast if op == "history_fast" else host.scanned
    once, again = [await _counted(host, read) for _ in range(2)]
    exact = tuple(name for name, n in once.known().items() if again.known().get(name) == n)
    return CostRow(op, Phase.LOADED, "head", host.depth, once, exact)


async def _counted(host: Host, read: Callable[[], Awaitable[Any]]) -> Counts:
    if not host.sync:
        return await acount(host.ground.saver, read)

    async def step() -> Any:
        return await read()

    return count(host.ground.saver, lambda: SyncDriver().run(step()))


def _unclocked(number: int) -> Any:
    return nullcontext()
