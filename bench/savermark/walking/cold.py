"""Cold walks: a new process, a new connection, caches dropped before each call."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from savermark.backends.base import Capability
from savermark.backends.registry import get_backend
from savermark.errors import BackendError
from savermark.history.walks import walk
from savermark.records import Phase, SampleSet
from savermark.trial.case import location_to_json
from savermark.trial.child import run_child
from savermark.walking.ground import config
from savermark.walking.rows import channels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.backends.base import Location, Store
    from savermark.trial.driver import Driver
    from savermark.walking.case import WalkCase
    from savermark.walking.ground import Ground

ROUNDS = 3
BUDGET_NS = 2_000_000_000  # a walk that has taken this long in all is not made again
TIMEOUT_S = 120.0


def cold_reads(ground: Ground, ops: Sequence[str]) -> None:
    """Sample the walks in a new process, if the workload asks for it and the store allows."""
    if not ground.spec.measure.cold:
        return
    if Capability.COLD not in ground.store.capabilities:
        ground.unsupported("cold reads", f"{ground.case.backend} lacks the capability cold")
        return
    job = {
        "kind": "cold",
        "case": ground.case.to_json(),
        "location": location_to_json(ground.store.location),
        "targets": [{"op": op} for op in ops],
        "rounds": ROUNDS,
    }
    # In our process group: whoever kills this trial kills its reader too.
    end = run_child(job, ground.store.location.folder, TIMEOUT_S, own_group=False)
    if end.result is None:
        raise BackendError(f"cold reads: {end.cause}")
    depth = ground.spec.thread.depth
    ground.samples += [
        SampleSet(op, Phase.LOADED, "cold", "head", (depth,) * len(ns), tuple(ns))
        for op, ns in zip(ops, end.result["ns"], strict=True)
    ]


def walk_cold(
    case: WalkCase,
    location: Location,
    driver: Driver,
    targets: Sequence[dict[str, Any]],
    rounds: int,
) -> list[list[int]]:
    """The reader's side: the times of each walk, each on a connection of its own."""
    store = get_backend(case.backend).attach(location)
    try:
        return driver.run(_walk_cold(case, store, driver, [t["op"] for t in targets], rounds))
    finally:
        store.close()


async def _walk_cold(
    case: WalkCase, store: Store, driver: Driver, ops: Sequence[str], rounds: int
) -> list[list[int]]:
    times: list[list[int]] = [[] for _ in ops]
    walks = [walk(op.removeprefix("walk_")) for op in ops]  # none is loaded in a timed call
    head, wanted = config(case.spec.thread.depth - 1), channels(case.spec)
    for _ in range(rounds):
        for chosen, ns in zip(walks, times, strict=True):
            if sum(ns) > BUDGET_NS:
                continue
            store.drop_caches()
            async with driver.open(store, None) as saver:
                start = perf_counter_ns()
                await driver.call(chosen, "history", saver, head, wanted)
                ns.append(perf_counter_ns() - start)
    return times
