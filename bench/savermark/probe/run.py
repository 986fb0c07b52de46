"""Probes one case on one fresh store, in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import monotonic_ns, perf_counter_ns
from typing import TYPE_CHECKING, Any

from langgraph.channels.delta import DeltaChannel

from savermark.backends.base import Capability
from savermark.backends.registry import get_backend
from savermark.environment import package_versions
from savermark.graphs import build_graph
from savermark.graphs.serde import make_serde
from savermark.history.walks import walk
from savermark.meter import acount, ametered, count, metered
from savermark.probe.model import EXACT, EXACT_WRITES, OWN, Ask, Probe
from savermark.probe.pairs import timed_pairs
from savermark.probe.stored import storage_of
from savermark.probe.turns import take_turns
from savermark.probe.versions import fixed_versions
from savermark.records import Phase
from savermark.script import write_script
from savermark.trial.case import Case, location_from_json
from savermark.trial.driver import driver_for
from savermark.trial.failure import describe
from savermark.trial.ground import Ground
from savermark.trial.load import load
from savermark.trial.verify import check_states

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from langchain_core.runnables import RunnableConfig

    from savermark.backends.base import Store
    from savermark.meter import Counts

    Call = Callable[[], Awaitable[Any]]

#: Facts of `Store.describe()` that decide what is counted and stored.
ENGINE = (
    "sqlite", "server", "page_size", "pipeline", "pool", "prepare_threshold", "serializer",
    "collation", "place", "jit",
)  # fmt: skip
LISTED = 10  # checkpoints that the counted `list` reads


def run_probe_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's side: a probe of a fresh store as JSON values, failures in it as a `cause`."""
    case = Case.from_json(job["case"])
    store = get_backend(case.backend).create(location_from_json(job["location"]))
    try:
        turns = Path(job["turns"]) if job.get("turns") else None
        return probe_store(case, store, Ask.from_json(job["ask"]), turns=turns).to_json()
    except Exception as error:  # the process is the boundary: any failure becomes a row
        return Probe(case.case_id, case.fingerprint, cause=describe(error)).to_json()
    finally:
        store.destroy()


def probe_store(
    case: Case,
    store: Store,
    ask: Ask,
    clock: Callable[[], int] = perf_counter_ns,
    turns: Path | None = None,
) -> Probe:
    """Probe a case on an empty store. A state that reads back wrong is the probe's `cause`.

    With a folder `turns`, the walk `ask.tested` is timed as another process tells it to.
    """
    driver = driver_for(case.spec)
    return driver.run(_probe(case, store, ask, clock, turns))


async def _probe(
    case: Case, store: Store, ask: Ask, clock: Callable[[], int], turns: Path | None
) -> Probe:
    driver = driver_for(case.spec)
    async with driver.open(store, make_serde(case.spec)) as saver:
        with fixed_versions(saver) as fixed:
            graph = build_graph(case.spec, saver)
            ground = Ground(case, driver, store, saver, graph, write_script(case.spec), clock)
            found = await _found(ground, ask, turns)
    if not fixed:
        found = replace(found, notes=("versions of the saver's own kind: bytes vary", *found.notes))
    return found


async def _found(ground: Ground, ask: Ask, turns: Path | None) -> Probe:
    case, store = ground.case, ground.store
    found = Probe(case.case_id, case.fingerprint, packages=package_versions())
    counts = {"write path": _kept(await _load(ground), EXACT_WRITES)}
    store.settle()
    await check_states(ground, Phase.LOADED)
    wrong = [f"check {check.check}: {check.detail}" for check in ground.checks if not check.ok]
    if wrong:
        return replace(found, cause=wrong[0])
    calls, refused = await _reads(ground, ask)
    for op, call in calls.items():
        counts[op] = _kept(await _counted(ground, call), EXACT)
    if turns is not None and (walked := calls.get(f"walk {ask.tested}")) is not None:
        await take_turns(walked, turns, ground.clock)
    return replace(
        found,
        counts={op: some for op, some in counts.items() if some},
        storage=storage_of(ground),
        pairs=await timed_pairs(calls, ask, ground.clock),
        engine={key: value for key, value in store.describe().items() if key in ENGINE},
        notes=tuple(refused),
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
    chosen = walk(name)  # looked up among the installed packages: once, and not in a timed call
    return lambda: driver.call(chosen, "history", saver, config, channels)
