"""Times, counts and checks of what is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from savermark.meter import WARMUP, Counts, acount, count
from savermark.records import CostRow, Phase, SampleSet
from savermark.trial.driver import SyncDriver
from savermark.walking.ground import ALL, BASE, FLOOR
from savermark.walking.rows import channels, expected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from savermark.walking.ground import Ground, Read

#: A read that has taken this long in all is not repeated beyond the fewest samples that count, nor
#: warmed up further.
BUDGET_NS = 1_000_000_000
FEWEST = 3
#: A history walks once for each of its states. One of few states that would take longer than the
#: first is left out, and said; that of the whole thread, whose time is quadratic, past the second.
LONGEST_NS = 3_000_000_000
LONGEST_WHOLE_NS = 500_000_000


async def check_walks(ground: Ground, walks: Sequence[Read], floor: Read | None) -> None:
    """Right before fast: base finds what was put there, every other walk what base finds."""
    found = {read.op: comparable(await read.call()) for read in walks}
    script = _script(ground)
    base = found.get(f"walk_{BASE}") or next(iter(found.values()), {})
    values = {
        name: ([value for _, _, value in writes], seed) for name, (writes, seed) in base.items()
    }
    missed = [] if values == script else ["the walk finds something else than was written"]
    ground.check("thread", len(script), missed)
    wrong = [op for op, seen in found.items() if seen != base]
    ground.check("walks", len(found), wrong)
    if floor is not None:
        needed = [value for writes, seed in script.values() for value in (*writes, *seed)]
        seen = [repr(_plain(value)) for value in await floor.call()]
        alike = sorted(seen) == sorted(repr(value) for value in needed)
        ground.check(FLOOR, len(needed), [] if alike else ["it does not fetch what a walk needs"])


async def check_states(ground: Ground, reads: Sequence[Read]) -> None:
    """Every walk gives a graph the same states."""
    first: dict[str, tuple[str, Any]] = {}
    wrong = []
    for read in reads:
        kind = read.op.rpartition("_")[0]
        seen = _states(await read.call())
        known, values = first.setdefault(kind, (read.op, seen))
        if seen != values:
            wrong.append(f"{read.op} differs from {known}")
    if reads:
        ground.check("states", len(reads), wrong)


async def time_reads(ground: Ground, reads: Sequence[Read]) -> None:
    """Sample the reads in turn, so that drift hits all alike; every other round backwards."""
    times: list[list[int]] = [[] for _ in reads]
    warm = [0] * len(reads)
    for number in range(WARMUP):
        for place, read in enumerate(reads):
            if not number or sum(times[place]) <= BUDGET_NS / 2:
                times[place].append(await _timed(ground, read))
                warm[place] += 1
    order = list(enumerate(reads))
    for number in range(ground.spec.measure.reads):
        for place, read in order if number % 2 else reversed(order):
            counted = times[place][warm[place] :]
            if len(counted) < FEWEST or sum(counted) <= BUDGET_NS:
                times[place].append(await _timed(ground, read))
    ground.samples += [
        sample_set(ground, read.op, read.at, ns, warmup)
        for read, ns, warmup in zip(reads, times, warm, strict=True)
    ]


def sample_set(ground: Ground, op: str, at: str, ns: Sequence[int], warmup: int) -> SampleSet:
    """Warm samples of a read."""
    depth = (ground.spec.thread.depth,) * len(ns)
    return SampleSet(op, Phase.LOADED, "warm", at, depth, tuple(ns), warmup)


async def affordable(ground: Ground, reads: Sequence[Read]) -> list[Read]:
    """The reads without the histories that would take too long, by what single states take.

    A history of few states lies at the head; those of the whole thread are as the one half way. A
    cache answers a second read at once but not a thread, so for it the least first read counts.
    """
    taken: dict[str, int] = {}
    first: dict[str, int] = {}
    for read in reads:
        if read.op.startswith(("get_state_", "resume_")):
            times = [await _timed(ground, read)]
            for _ in range(2 if times[0] < LONGEST_WHOLE_NS else 0):
                times.append(await _timed(ground, read))
            taken[read.op], first[read.op] = min(times), times[0]
    least = min((ns for op, ns in first.items() if op.startswith("resume_")), default=0)
    kept = []
    for read in reads:
        what, _, name = read.op.rpartition("_")
        ns, most = 0, LONGEST_NS
        if what == f"history_{ALL}":
            ns = max(taken[f"resume_{name}"], least) * ground.spec.thread.depth
            most = LONGEST_WHOLE_NS
        elif what.startswith("history_"):
            ns = taken[f"get_state_{name}"] * ground.spec.reads.history
        if ns > most:
            ground.unsupported(read.op, f"it would take about {ns / 1e9:.1f} s a call")
        else:
            kept.append(read)
    return kept


async def count_reads(ground: Ground, reads: Sequence[Read]) -> None:
    """Count each read, warm by now, twice: the counts that agree are exact.

    One that takes longer than the budget is counted once, and none of its counts called exact.
    """
    slow = {item.op for item in ground.samples if min(item.ns) > BUDGET_NS / 2}
    for read in reads:
        once = await _counted(ground, read)
        again = Counts() if read.op in slow else await _counted(ground, read)
        exact = tuple(n for n, v in once.known().items() if again.known().get(n) == v)
        depth = ground.spec.thread.depth
        ground.costs.append(CostRow(read.op, Phase.LOADED, read.at, depth, once, exact))


async def _counted(ground: Ground, read: Read) -> Counts:
    if ground.spec.reads.api == "async":
        return await acount(read.saver, read.call, warmup=0)
    return count(read.saver, _without_loop(read.call), warmup=0)


def _without_loop(call: Callable[[], Awaitable[Any]]) -> Callable[[], Any]:
    async def step() -> Any:
        return await call()

    return lambda: SyncDriver().run(step())


async def _timed(ground: Ground, read: Read) -> int:
    start = ground.clock()
    await read.call()
    return ground.clock() - start


def comparable(walked: Any) -> dict[str, tuple[list[Any], list[Any]]]:
    """Histories as what can be compared: each channel's writes in order, and its seed if any."""
    return {
        name: (
            [(task, channel, _plain(value)) for task, channel, value in history["writes"]],
            [_plain(history["seed"])] if "seed" in history else [],
        )
        for name, history in walked.items()
    }


def _script(ground: Ground) -> dict[str, tuple[list[Any], list[Any]]]:
    """What a walk must find, by the spec alone."""
    told = {}
    for number, name in enumerate(channels(ground.spec)):
        seed, writes = expected(ground.spec, number)
        told[name] = (
            [_plain(value) for value in writes],
            [] if seed is None else [_plain(seed)],
        )
    return told


def _plain(value: Any) -> Any:
    """A value without the snapshot's wrapper, messages as their type and all their fields."""
    value = getattr(value, "value", value) if type(value).__name__ == "_DeltaSnapshot" else value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return (type(value).__name__, value.model_dump_json()) if hasattr(value, "content") else value


def _states(read: Any) -> Any:
    """The values of one state or of a list of them."""
    states = read if isinstance(read, list) else [read]
    return [
        (state.config["configurable"].get("checkpoint_id"), _plained(state.values))
        for state in states
    ]


def _plained(values: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in values.items()}
