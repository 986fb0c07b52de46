"""One trial, from a spec to its samples."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter_ns
from typing import TYPE_CHECKING

from savermark.backends.base import Capability
from savermark.backends.registry import get_backend
from savermark.graphs import build_graph
from savermark.graphs.serde import make_serde
from savermark.records import Phase, PhaseStorage, Status, TrialResult
from savermark.script import write_script
from savermark.trial.driver import driver_for
from savermark.trial.failure import failed_trial, is_unsupported
from savermark.trial.ground import Ground
from savermark.trial.load import load
from savermark.trial.reads import check_walks, cold_reads, read_targets, warm_reads
from savermark.trial.retention import Retain, Retained, delete_share
from savermark.trial.verify import (
    check_clone_rows,
    check_continuation,
    check_deletion,
    check_gone,
    check_states,
    check_sums,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from savermark.backends.base import Location, Store
    from savermark.trial.case import Case
    from savermark.trial.driver import Driver


def run_trial(
    case: Case,
    location: Location,
    repetition: int = 0,
    *,
    retain: Retain = delete_share,
    walks: tuple[str, ...] = (),
    clock: Callable[[], int] = perf_counter_ns,
    began_ns: int | None = None,
    keep: bool = False,
) -> TrialResult:
    """Measure one case on a fresh store at `location`, in this process.

    `began_ns` is when this process was asked for, on the monotonic clock. What the case cannot do
    comes back as an `unsupported` row; any other error is raised. The store is destroyed at the
    end, unless `keep`.
    """
    began = time.monotonic_ns() if began_ns is None else began_ns

    def measure(store: Store) -> TrialResult:
        driver = driver_for(case.spec)
        return driver.run(_measure(case, store, driver, retain, walks, clock, began))

    return in_store(case, location, repetition, measure, clock=clock, keep=keep)


def in_store(
    case: Case,
    location: Location,
    repetition: int,
    measure: Callable[[Store], TrialResult],
    *,
    clock: Callable[[], int] = perf_counter_ns,
    keep: bool = False,
) -> TrialResult:
    """What `measure` finds on a fresh store, which is destroyed at the end, unless `keep`."""
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    start = clock()
    try:
        store = get_backend(case.backend).create(location)
        try:
            result = measure(store)
        finally:
            (store.close if keep else store.destroy)()
    except Exception as error:
        if not is_unsupported(error):
            raise
        result = failed_trial(case, repetition, error)
    return replace(
        result, repetition=repetition, started_at=started_at, duration_ns=clock() - start
    )


async def _measure(
    case: Case,
    store: Store,
    driver: Driver,
    retain: Retain,
    walks: tuple[str, ...],
    clock: Callable[[], int],
    began_ns: int,
) -> TrialResult:
    async with driver.open(store, make_serde(case.spec)) as saver:
        graph = build_graph(case.spec, saver)
        script = write_script(case.spec)
        ground = Ground(case, driver, store, saver, graph, script, clock, walks)
        ground.notes["load_average"] = round(os.getloadavg()[0], 2)
        ground.notes["cores"] = os.cpu_count()

        cost = await load(ground, began_ns)
        ground.notes["thread_turns"] = {t.thread_id: t.turns for t in ground.threads}
        store.settle()
        await check_states(ground, Phase.LOADED)
        targets = await read_targets(ground)
        await check_walks(ground, targets)
        await warm_reads(ground, targets)
        cold_reads(ground, targets)
        measure_storage(ground, Phase.LOADED)
        done = await _retain(ground, retain)
        if ground.can(Capability.COMPACT, "compaction"):
            store.compact()
            measure_storage(ground, Phase.COMPACTED)
            if done.after is not None and not done.broken:
                await done.after(Phase.COMPACTED)
        if not done.broken:
            await check_continuation(ground, done.deleted)
        return replace(ended(ground), process=cost)


def ended(ground: Ground) -> TrialResult:
    """What a trial found; one with a broken check has failed."""
    broken = [check for check in ground.checks if not check.ok]
    return TrialResult(
        case_id=ground.case.case_id,
        repetition=0,
        status=Status.FAILED if broken else Status.OK,
        cause=f"check {broken[0].check}: {broken[0].detail}" if broken else "",
        samples=tuple(ground.samples),
        phases=tuple(ground.phases),
        checks=tuple(ground.checks),
        backend=ground.store.describe(),
        notes=ground.notes,
    )


def measure_storage(ground: Ground, phase: Phase) -> PhaseStorage:
    """What the store holds now, filed under `phase`; threads that hold nothing are zeros."""
    store, names = ground.store, [thread.thread_id for thread in ground.threads]
    counted = ground.can(Capability.STORAGE, "storage")
    sized = ground.can(Capability.FOOTPRINT, "footprint")
    found = PhaseStorage(
        phase,
        storage=tuple(store.storage(names)) if counted else (),
        footprint=tuple(store.footprint()) if sized else (),
        floor=tuple(store.floor(names)) if counted else (),
    )
    if counted:
        check_sums(ground, phase, found.storage)
    ground.phases.append(found)
    return found


async def _retain(ground: Ground, retain: Retain) -> Retained:
    """Let a retention delete; prove what it left alone. Returns what it did."""
    names = {thread.thread_id for thread in ground.threads}
    counted = Capability.STORAGE in ground.store.capabilities
    before = ground.store.row_digests() if counted and len(names) > 1 else {}
    if before:
        check_clone_rows(ground, before)
    done = await retain(ground)
    ground.store.settle()
    storage = measure_storage(ground, Phase.RETAINED).storage
    if counted:
        untouched = names - done.deleted - done.pruned if before else set()
        check_deletion(ground, before, untouched, done.deleted, storage)
    elif Capability.KEEPS in ground.store.capabilities:
        await check_gone(ground, done.deleted)
    if not done.broken:
        await check_states(ground, Phase.RETAINED, done.deleted, done.dropped)
        if done.after is not None:
            await done.after(Phase.RETAINED)
    return done
