"""Probes one case on one fresh store, in this process."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic_ns, perf_counter_ns
from typing import TYPE_CHECKING, Any

from langgraph.channels.delta import DeltaChannel

from savermark.backends.base import Capability
from savermark.backends.registry import get_backend
from savermark.environment import package_versions
from savermark.graphs import build_graph
from savermark.graphs.serde import make_serde
from savermark.history.walks import walk
from savermark.meter import WARMUP, acount, ametered, count, metered
from savermark.probe.model import EXACT, EXACT_WRITES, OWN, Ask, Pairs, Probe
from savermark.probe.versions import fix_versions
from savermark.records import Phase
from savermark.script import write_script
from savermark.trial.case import Case, location_from_json
from savermark.trial.driver import driver_for
from savermark.trial.failure import describe
from savermark.trial.ground import Ground
from savermark.trial.load import load
from savermark.trial.verify import check_states

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from langchain_core.runnables import RunnableConfig

    from savermark.backends.base import Store
    from savermark.meter import Counts

    Call = Callable[[], Awaitable[Any]]

#: Facts of `Store.describe()` that decide what is counted and stored.
ENGINE = (
    "sqlite", "server", "page_size", "pipeline", "pool", "prepare_threshold", "serializer",
    "collation", "place", "jit",
)  # fmt: skip
BLOCK_NS = 2_000_000  # the least length of a timed block: what a clock and a loop cost is nothing
FEWEST_WARM = 4  # calls, once warm, that tell how long one takes
MOST_CALLS = 200
LISTED = 10  # checkpoints that the counted `list` reads


def run_probe_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's side: a probe of a fresh store as JSON values, failures in it as a `cause`."""
    case = Case.from_json(job["case"])
    store = get_backend(case.backend).create(location_from_json(job["location"]))
    try:
        return probe_store(case, store, Ask.from_json(job["ask"])).to_json()
    except Exception as error:  # the process is the boundary: any failure becomes a row
        return Probe(case.case_id, case.fingerprint, cause=describe(error)).to_json()
    finally:
        store.destroy()


def probe_store(
    case: Case, store: Store, ask: Ask, clock: Callable[[], int] = perf_counter_ns
) -> Probe:
    """Probe a case on an empty store. A state that reads back wrong is the probe's `cause`."""
    driver = driver_for(case.spec)
    return driver.run(_probe(case, store, ask, clock))


async def _probe(case: Case, store: Store, ask: Ask, clock: Callable[[], int]) -> Probe:
    found = Probe(case.case_id, case.fingerprint, packages=package_versions())
    async with driver_for(case.spec).open(store, make_serde(case.spec)) as saver:
        notes = [] if fix_versions(saver) else ["versions of the saver's own kind: bytes may vary"]
        driver, graph = driver_for(case.spec), build_graph(case.spec, saver)
        ground = Ground(case, driver, store, saver, graph, write_script(case.spec), clock)
        counts = {"write path": _kept(await _load(ground), EXACT_WRITES)}
        store.settle()
        await check_states(ground, Phase.LOADED)
        wrong = [f"check {check.check}: {check.detail}" for check in ground.checks if not check.ok]
        if wrong:
            return replace(found, cause=wrong[0])
        calls, refused = await _reads(ground, ask)
        for op, call in calls.items():
            counts[op] = _kept(await _counted(ground, call), EXACT)
        return replace(
            found,
            counts={op: some for op, some in counts.items() if some},
            storage=_storage(ground),
            pairs=await _pairs(calls, ask, clock),
            engine={key: value for key, value in store.describe().items() if key in ENGINE},
            notes=(*notes, *refused),
        )


async def _load(ground: Ground) -> Counts:
    if ground.spec.run.api == "async":
        async with ametered(ground.saver) as meter:
            await load(ground, monotonic_ns())
    else:
        with metered(ground.saver) as meter:
            await load(ground, monotonic_ns())
    return meter.counts


async def _counted(ground: Ground, call: Call) -> Counts:
    """The counts of a read once it is warm."""
    if ground.spec.run.api == "async":
        return await acount(ground.saver, call)
    return count(ground.saver, lambda: ground.driver.run(_awaited(call)))


async def _awaited(call: Call) -> Any:
    return await call()


def _kept(counts: Counts, names: tuple[str, ...]) -> dict[str, int]:
    return {name: value for name, value in counts.known().items() if name in names}


async def _reads(ground: Ground, ask: Ask) -> tuple[dict[str, Call], list[str]]:
    """The reads at the head of the longest thread, and what of them the saver cannot do."""
    if Capability.KEEPS not in ground.store.capabilities:
        return {}, [f"{ground.case.backend} keeps nothing: no read is counted"]
    driver, saver = ground.driver, ground.saver
    head: RunnableConfig = {"configurable": {"thread_id": ground.loaded.probe, "checkpoint_ns": ""}}
    calls: dict[str, Call] = {
        "get_tuple": lambda: driver.call(saver, "get_tuple", head),
        f"list {LISTED}": lambda: driver.rows(saver, "list", head, limit=LISTED),
        "get_state": lambda: driver.call(ground.graph, "get_state", head),
    }
    found = await calls["get_tuple"]()
    versions = found.checkpoint["channel_versions"]
    channels = [
        name
        for name, channel in ground.graph.channels.items()
        if isinstance(channel, DeltaChannel) and name in versions
    ]
    if not channels:
        return calls, []
    asked = dict.fromkeys((*ask.walks, *((ask.tested, ask.reference) if ask.rounds else ())))
    refused = []
    for name in asked:
        if name != OWN and not walk(name).supports(saver):
            refused.append(f"the walk {name!r} cannot read this saver")
            continue
        calls[f"walk {name}"] = _walk(ground, name, found.config, channels)
    return calls, refused


def _walk(ground: Ground, name: str, config: RunnableConfig, channels: list[str]) -> Call:
    driver, saver = ground.driver, ground.saver
    if name == OWN:
        asked = {"config": config, "channels": channels}
        return lambda: driver.call(saver, "get_delta_channel_history", **asked)
    return lambda: driver.call(walk(name), "history", saver, config, channels)


def _storage(ground: Ground) -> dict[str, int]:
    """Rows and payload bytes of each table."""
    if Capability.STORAGE not in ground.store.capabilities:
        return {}
    sums: dict[str, int] = {}
    for row in ground.store.storage([thread.thread_id for thread in ground.threads]):
        for what, value in (("rows", row.rows), ("bytes", row.logical_bytes)):
            name = f"{row.table} {what}"
            sums[name] = sums.get(name, 0) + value
    return dict(sorted(sums.items()))


async def _pairs(calls: Mapping[str, Call], ask: Ask, clock: Callable[[], int]) -> Pairs | None:
    """The two walks in turn; the order within a pair alternates, the collector waits outside.

    The quicker one is called as often as the slower one takes long. On a busy machine what runs
    for longer is interrupted more often, so that blocks of unlike length cannot be compared: the
    ratio of two walks moved threefold under load, and by some per cent with blocks of one length.
    """
    walks = [calls.get(f"walk {name}") for name in (ask.tested, ask.reference)]
    tested, reference = walks
    if not ask.rounds or tested is None or reference is None:
        return None
    often = await _often((tested, reference), clock)
    times: tuple[list[int], list[int]] = ([], [])
    with _quiet():
        for number in range(ask.rounds):
            for side in ((0, 1), (1, 0))[number % 2]:
                call, repeat = (tested, reference)[side], range(often[side])
                start = clock()
                for _ in repeat:
                    await call()
                times[side].append((clock() - start) // often[side])
            gc.collect(0)
    return Pairs(ask.tested, ask.reference, tuple(times[0]), tuple(times[1]), often)


async def _often(calls: tuple[Call, Call], clock: Callable[[], int]) -> tuple[int, int]:
    """How often each is called in a block, from its quickest call of a few; warms them up, too."""
    quickest = []
    for call in calls:
        seen = []
        for _ in range(WARMUP + FEWEST_WARM):
            start = clock()
            await call()
            seen.append(clock() - start)
        quickest.append(max(1, min(seen[WARMUP:])))
    length = max(*quickest, BLOCK_NS)
    tested, reference = (min(MOST_CALLS, max(1, round(length / ns))) for ns in quickest)
    return tested, reference


@contextmanager
def _quiet() -> Iterator[None]:
    """No garbage collection inside the block but what it asks for."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
