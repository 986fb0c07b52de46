"""The read path: what is read where, and the warm and cold samples of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver

from savermark.backends.base import Capability
from savermark.backends.registry import get_backend
from savermark.errors import BackendError
from savermark.graphs import build_graph
from savermark.graphs.serde import make_serde
from savermark.recording import overrides
from savermark.records import Phase, SampleSet
from savermark.trial.case import location_to_json
from savermark.trial.child import run_child
from savermark.trial.driver import driver_for
from savermark.trial.verify import history_gap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import RunnableConfig

    from savermark.backends.base import Location, Store
    from savermark.history.walks import Walk
    from savermark.trial.case import Case
    from savermark.trial.driver import Driver, Graph, Saver
    from savermark.trial.ground import Ground, Loaded

#: Rounds before those that count. One fills caches, and in it each statement is used often enough
#: for psycopg to prepare it.
WARMUP_ROUNDS = 1
#: A read that has taken this long in all is not repeated beyond the fewest samples that count, and
#: one that has taken ten times as long not even so far: a huge thread must not take the timeout.
BUDGET_NS = 1_000_000_000
FEWEST = 3
COLD_ROUNDS = 3
COLD_BUDGET_NS = 500_000_000
COLD_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Target:
    """One read: an operation at one place of a thread."""

    op: str
    at: str  # "head" or "depth:<n>"
    depth: int  # checkpoints that the thread has
    configurable: dict[str, str]
    limit: int = 0  # history
    channels: tuple[str, ...] = ()  # walks

    @property
    def config(self) -> RunnableConfig:
        return {"configurable": dict(self.configurable)}


async def read(driver: Driver, graph: Graph, saver: Saver, target: Target) -> Any:
    """Do one read as an application does it."""
    config = target.config
    if target.limit:
        return await driver.rows(graph, "get_state_history", config, limit=target.limit)
    walk = {"config": config, "channels": target.channels}
    method = "get_delta_channel_history"
    if target.op == "walk_base":
        return await driver.call(BaseCheckpointSaver, method, saver, **walk)
    if target.op == "walk_native":
        return await driver.call(saver, method, **walk)
    if target.op.startswith("walk_"):
        chosen = _walk(target.op.removeprefix("walk_"))
        return await driver.call(chosen, "history", saver, config, target.channels)
    return await driver.call(graph, "get_state", config)


async def read_targets(ground: Ground, loaded: Loaded | None = None) -> list[Target]:
    """What is read of the probe thread: its head, and older checkpoints of it."""
    loaded = loaded or ground.loaded
    depth = loaded.checkpoints[loaded.probe]
    head = {"thread_id": loaded.probe}
    found = [Target("get_state", "head", depth, head)]
    found += [
        Target(f"history_{limit}", "head", depth, head, limit=limit)
        for limit in ground.spec.measure.history_limits
    ]
    places = [(f"depth:{n}", _plain(config)) for n, config in loaded.older]
    found += [Target("resume", at, depth, place) for at, place in places]
    if "head" in loaded.tips[loaded.probe]:
        places.insert(0, ("head", _plain(loaded.tips[loaded.probe]["head"])))
    walks = ["walk_base"]
    if overrides(ground.saver, _twin(ground, "get_delta_channel_history")):
        walks.append("walk_native")
    else:
        ground.unsupported("walk_native", f"{ground.case.backend} has no walk of its own")
    for name in ground.walks:
        if _walk(name).supports(ground.saver):
            walks.append(f"walk_{name}")
        else:
            why = f"it cannot read a {type(ground.saver).__name__}"
            ground.unsupported(f"walk_{name}", why)
    for at, place in places:
        channels = await _delta_channels(ground, place)
        if channels:
            found += [Target(op, at, depth, place, channels=channels) for op in walks]
    return found


async def warm_reads(
    ground: Ground, targets: Sequence[Target], phase: Phase = Phase.LOADED
) -> None:
    """Sample every target in rounds, so that drift hits all alike; check listed histories once."""
    times: list[list[int]] = [[] for _ in targets]
    gaps: dict[str, str | None] = {}
    for number in range(WARMUP_ROUNDS + ground.spec.measure.reads):
        for target, ns in zip(targets, times, strict=True):
            if enough(ns):
                continue
            start = ground.clock()
            reading = read(ground.driver, ground.graph, ground.saver, target)
            if number == 0 and target.limit:  # a warm-up: its time does not count
                gaps[target.op] = history_gap(await reading, target.limit)
            else:
                await reading
            ns.append(ground.clock() - start)
    if gaps and Capability.KEEPS in ground.store.capabilities:
        wrong = [f"{op}: {gap}" for op, gap in gaps.items() if gap]
        ground.check(phase, "history", len(gaps), wrong)
    ground.samples += _sample_sets(targets, times, "warm", phase, WARMUP_ROUNDS)


def enough(ns: Sequence[int]) -> bool:
    """Whether a read of these times is too slow to be sampled once more."""
    counted, spent = len(ns) - WARMUP_ROUNDS, sum(ns)
    if counted < 1 or spent <= BUDGET_NS:
        return False
    return counted >= FEWEST or spent > 10 * BUDGET_NS


async def check_walks(
    ground: Ground, targets: Sequence[Target], phase: Phase = Phase.LOADED
) -> None:
    """Every walk must find what the base class's walk finds on the same rows."""
    found: dict[str, dict[str, Any]] = {}
    for target in targets:
        if target.op.startswith("walk_"):
            walked = await read(ground.driver, ground.graph, ground.saver, target)
            found.setdefault(target.at, {})[target.op] = _comparable(walked)
    pairs = {at: walks for at, walks in found.items() if len(walks) > 1}
    wrong = [
        f"{at} by {op}"
        for at, walks in pairs.items()
        for op, seen in walks.items()
        if seen != walks["walk_base"]
    ]
    if pairs:
        ground.check(phase, "walks", len(pairs), wrong)


def cold_reads(ground: Ground, targets: Sequence[Target], phase: Phase = Phase.LOADED) -> None:
    """Sample some targets in a new process, on new connections, with caches dropped."""
    if not ground.spec.measure.cold or not ground.can(Capability.COLD, "cold reads"):
        return
    chosen = _cold_targets(targets)
    job = {
        "kind": "cold",
        "case": ground.case.to_json(),
        "location": location_to_json(ground.store.location),
        "targets": [asdict(target) for target in chosen],
        "rounds": COLD_ROUNDS,
    }
    # In our process group: whoever kills this trial kills its reader too.
    end = run_child(job, ground.store.location.folder, COLD_TIMEOUT_S, own_group=False)
    if end.result is None:
        raise BackendError(f"cold reads: {end.cause}")
    ground.samples += _sample_sets(chosen, end.result["ns"], "cold", phase, 0)


def read_cold(
    case: Case, location: Location, targets: Sequence[dict[str, Any]], rounds: int
) -> list[list[int]]:
    """The reader's side: the times of each target, each on a connection of its own."""
    chosen = [Target(**{**t, "channels": tuple(t["channels"])}) for t in targets]
    driver = driver_for(case.spec)
    store = get_backend(case.backend).attach(location)
    try:
        return driver.run(_read_cold(case, store, driver, chosen, rounds))
    finally:
        store.close()


async def _read_cold(
    case: Case, store: Store, driver: Driver, targets: Sequence[Target], rounds: int
) -> list[list[int]]:
    times: list[list[int]] = [[] for _ in targets]
    for _ in range(rounds):
        for target, ns in zip(targets, times, strict=True):
            if sum(ns) > COLD_BUDGET_NS:
                continue
            store.drop_caches()
            async with driver.open(store, make_serde(case.spec)) as saver:
                graph = build_graph(case.spec, saver)
                start = perf_counter_ns()
                await read(driver, graph, saver, target)
                ns.append(perf_counter_ns() - start)
    return times


def _cold_targets(targets: Sequence[Target]) -> list[Target]:
    """Every read at the head, and the resume half way."""
    resumes = [target for target in targets if target.op == "resume"]
    middle = resumes[len(resumes) // 2 : len(resumes) // 2 + 1]
    return [target for target in targets if target.at == "head" or target in middle]


def _sample_sets(
    targets: Sequence[Target],
    times: Sequence[Sequence[int]],
    temperature: Literal["warm", "cold"],
    phase: Phase,
    warmup: int,
) -> list[SampleSet]:
    return [
        SampleSet(
            target.op,
            phase,
            temperature,
            target.at,
            (target.depth,) * len(ns),
            tuple(ns),
            warmup,
        )
        for target, ns in zip(targets, times, strict=True)
    ]


async def _delta_channels(ground: Ground, place: dict[str, str]) -> tuple[str, ...]:
    """The delta channels that were written to by then: only those have a history."""
    found = await ground.driver.call(ground.saver, "get_tuple", {"configurable": dict(place)})
    versions = found.checkpoint["channel_versions"] if found else {}
    return tuple(
        name
        for name, channel in ground.graph.channels.items()
        if isinstance(channel, DeltaChannel) and name in versions
    )


def _comparable(walked: Any) -> Any:
    return {
        channel: ([tuple(write) for write in history["writes"]], history.get("seed", "no seed"))
        for channel, history in walked.items()
    }


@cache
def _walk(name: str) -> Walk:
    """A walk by its name, which is looked up among the installed packages: once, not in a read."""
    from savermark.history.walks import walk  # few trials need it

    return walk(name)


def _plain(config: RunnableConfig) -> dict[str, str]:
    return {key: str(value) for key, value in config["configurable"].items()}


def _twin(ground: Ground, method: str) -> str:
    return f"a{method}" if ground.spec.run.api == "async" else method
