"""One walk trial, from a spec to its samples and counts."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from savermark.backends.base import Capability
from savermark.backends.registry import get_backend
from savermark.errors import Unsupported
from savermark.records import Phase, PhaseStorage, Status, TrialResult
from savermark.trial.driver import AsyncDriver, SyncDriver
from savermark.trial.failure import failed_trial, is_unsupported
from savermark.walking.build import build
from savermark.walking.cold import cold_reads
from savermark.walking.ground import Ground, floor_read, state_reads, walk_reads
from savermark.walking.measure import (
    affordable,
    check_states,
    check_walks,
    count_reads,
    time_reads,
)
from savermark.walking.rows import PROBE

if TYPE_CHECKING:
    from collections.abc import Callable

    from savermark.backends.base import Location, Store
    from savermark.trial.driver import Driver
    from savermark.walking.case import WalkCase

_UPKEEP = ("autovacuum_runs", "autoanalyze_runs")  # counts since the tables were made


def run_walk_trial(
    case: WalkCase,
    location: Location,
    repetition: int = 0,
    *,
    clock: Callable[[], int] = perf_counter_ns,
    keep: bool = False,
) -> TrialResult:
    """Measure one case on a fresh store at `location`, in this process.

    What the case cannot do comes back as an `unsupported` row; any other error is raised. The
    store is destroyed at the end, unless `keep`.
    """
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    start = clock()
    try:
        store = get_backend(case.backend).create(location)
        try:
            if Capability.KEEPS not in store.capabilities:
                raise Unsupported(f"{case.backend} keeps nothing: there is no chain to walk")
            foreign = build(store, case.spec)
            driver, before = driver_of(case), store.describe()
            result = driver.run(_measure(case, store, driver, clock, foreign))
            result = replace(result, backend=_since(before, result.backend))
        finally:
            (store.close if keep else store.destroy)()
    except Exception as error:
        if not is_unsupported(error):
            raise
        result = failed_trial(case, repetition, error)
    return replace(
        result, repetition=repetition, started_at=started_at, duration_ns=clock() - start
    )


def _since(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What a store says of itself, its counts of upkeep without those while it was filled."""
    done = {name: after[name] - before.get(name, 0) for name in _UPKEEP if name in after}
    return {**after, **done}


def driver_of(case: WalkCase) -> Driver:
    """The driver of the case's api."""
    return AsyncDriver() if case.spec.reads.api == "async" else SyncDriver()


async def _measure(
    case: WalkCase, store: Store, driver: Driver, clock: Callable[[], int], foreign: int
) -> TrialResult:
    async with driver.open(store, None) as saver:
        ground = Ground(case, driver, store, saver, clock)
        ground.notes["load_average"] = round(os.getloadavg()[0], 2)
        ground.notes["cores"] = os.cpu_count()
        ground.notes["foreign_checkpoints"] = foreign
        walks, floor = walk_reads(ground), floor_read(ground)
        await check_walks(ground, walks, floor)
        compared = [*([] if floor is None else [floor]), *walks]
        await time_reads(ground, compared)
        states = await affordable(ground, state_reads(ground))
        await check_states(ground, states)
        await time_reads(ground, states)
        await count_reads(ground, [*compared, *states])
        cold_reads(ground, [read.op for read in walks])
        _measure_storage(ground)
        broken = [check for check in ground.checks if not check.ok]
        return TrialResult(
            case_id=case.case_id,
            repetition=0,
            status=Status.FAILED if broken else Status.OK,
            cause=f"check {broken[0].check}: {broken[0].detail}" if broken else "",
            samples=tuple(ground.samples),
            phases=tuple(ground.phases),
            checks=tuple(ground.checks),
            backend=store.describe(),
            notes=ground.notes,
            costs=tuple(ground.costs),
        )


def _measure_storage(ground: Ground) -> None:
    """What the walked thread holds: the other side of what a snapshot frequency saves."""
    store = ground.store
    if Capability.STORAGE not in store.capabilities:
        ground.unsupported("storage", f"{ground.case.backend} lacks the capability storage")
        return
    ground.phases.append(
        PhaseStorage(
            Phase.LOADED,
            storage=tuple(store.storage([PROBE])),
            footprint=(),
            floor=tuple(store.floor([PROBE])),
        )
    )
