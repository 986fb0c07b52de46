"""One sandbox trial, from a spec to its samples."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter_ns
from typing import TYPE_CHECKING

from savermark.records import Phase, Status, TrialResult
from savermark.sandbox_trial.ground import Ground, pair_at
from savermark.sandbox_trial.load import load
from savermark.sandbox_trial.measure import measure
from savermark.sandbox_trial.reads import cold_calls, warm_calls
from savermark.sandbox_trial.retain import retain
from savermark.sandbox_trial.script import write_script
from savermark.sandbox_trial.verify import check_all, expected
from savermark.trial.failure import failed_trial, is_unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from savermark.backends.base import Location
    from savermark.sandbox_trial.case import SandboxCase
    from savermark.sandbox_trial.ground import Pair


def run_sandbox_trial(
    case: SandboxCase,
    location: Location,
    repetition: int = 0,
    *,
    clock: Callable[[], int] = perf_counter_ns,
    began_ns: int | None = None,
    keep: bool = False,
) -> TrialResult:
    """Measure one case on a fresh pair of stores at `location`, in this process.

    What the case cannot do comes back as an `unsupported` row; any other error is raised. The
    stores are destroyed at the end, unless `keep`.
    """
    began = time.monotonic_ns() if began_ns is None else began_ns
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    start = clock()
    try:
        pair = pair_at(case.backend, location)
        try:
            pair.create()
            result = asyncio.run(_measure(case, location, pair, clock, began))
        finally:
            if not keep:
                pair.destroy()
    except Exception as error:
        if not is_unsupported(error):
            raise
        result = failed_trial(case, repetition, error)
    return replace(
        result, repetition=repetition, started_at=started_at, duration_ns=clock() - start
    )


async def _measure(
    case: SandboxCase, location: Location, pair: Pair, clock: Callable[[], int], began_ns: int
) -> TrialResult:
    async with pair.open() as (store, blobs):
        ground = Ground(case, location, pair, store, blobs, write_script(case.spec), clock)
        ground.notes["load_average"] = round(os.getloadavg()[0], 2)
        ground.notes["cores"] = os.cpu_count()
        cost = await load(ground, began_ns)
        pair.store.settle()
        await check_all(ground, Phase.LOADED)
        await measure(ground, Phase.LOADED)
        depth = _depth(ground, Phase.LOADED)
        await warm_calls(ground, Phase.LOADED, depth)
        cold_calls(ground, Phase.LOADED, depth)
        await retain(ground)
        pair.store.settle()
        await check_all(ground, Phase.RETAINED)
        await measure(ground, Phase.RETAINED)
        pair.store.compact()
        await measure(ground, Phase.COMPACTED)
        depth = _depth(ground, Phase.COMPACTED)
        await warm_calls(ground, Phase.COMPACTED, depth)
        cold_calls(ground, Phase.COMPACTED, depth, capture=True)  # last: a capture adds rows
        broken = [check for check in ground.checks if not check.ok]
        return TrialResult(
            case_id=case.case_id,
            repetition=0,
            status=Status.FAILED if broken else Status.OK,
            cause=f"check {broken[0].check}: {broken[0].detail}" if broken else "",
            samples=tuple(ground.samples),
            phases=tuple(ground.phases),
            checks=tuple(ground.checks),
            process=cost,
            backend={"backend": case.backend, **pair.describe()},
            notes=ground.notes,
        )


def _depth(ground: Ground, phase: Phase) -> int:
    held = expected(ground, pruned=phase is not Phase.LOADED)
    return len(held[ground.probe.thread_id])
