"""Calls sampled for themselves: warm in rounds, cold in a new process on new connections."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal

from savermark.errors import BackendError
from savermark.records import Phase, SampleSet
from savermark.sandbox.restore import restore_workspace
from savermark.sandbox_trial.ground import pair_at
from savermark.sandbox_trial.load import Player
from savermark.sandbox_trial.log import Log
from savermark.sandbox_trial.script import STEP_MS, Step, write_script
from savermark.trial.case import location_to_json
from savermark.trial.child import run_child

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from savermark.backends.base import Location
    from savermark.sandbox.blobs import BlobStore
    from savermark.sandbox_trial.case import SandboxCase
    from savermark.sandbox_trial.ground import Ground

#: Rounds before those that count: they fill caches, and let psycopg prepare its statements.
WARMUP_ROUNDS = 2
COLD_ROUNDS = 3
COLD_TIMEOUT_S = 60.0
#: Rounds stop after this time (but not before one that counts).
BUDGET_NS = 10_000_000_000

_READS = ("get", "get_head", "list", "list_blob_references", "restore")
_WRITES = ("acquire_writer", "renew")  # they leave a higher fence and nothing else


@dataclass(frozen=True, slots=True)
class Target:
    """One call on one thread; `depth` is what the thread holds."""

    op: str
    thread_id: str
    checkpoint_id: str
    depth: int
    number: int = 0  # capture: of the first new checkpoint


@dataclass
class Caller:
    """Does a call, off the clock what it needs, on the clock the call alone."""

    store: Any
    blobs: BlobStore
    scratch: Path
    clock: Callable[[], int]

    async def time(self, target: Target) -> int:
        """How long the call took, in ns."""
        if target.op == "restore":
            shutil.rmtree(self.scratch, ignore_errors=True)
            return await self._clocked(
                restore_workspace(self.store, self.blobs, target.checkpoint_id, self.scratch)
            )
        if target.op == "list_blob_references":
            return await self._clocked(self._references())
        if target.op in _WRITES:
            return await self._lease(target)
        argument = target.checkpoint_id if target.op == "get" else target.thread_id
        return await self._clocked(getattr(self.store, target.op)(argument))

    async def _clocked(self, work: Any) -> int:
        start = self.clock()
        await work
        return self.clock() - start

    async def _references(self) -> int:
        return len([reference async for reference in self.store.list_blob_references()])

    async def _lease(self, target: Target) -> int:
        start = self.clock()
        lease = await self.store.acquire_writer(target.thread_id)
        taken = self.clock() - start
        try:
            return taken if target.op == "acquire_writer" else await self._clocked(lease.renew())
        finally:
            await lease.release()


def targets(ground: Ground, depth: int) -> list[Target]:
    """Every read at the head of the probe thread, and the lease calls."""
    probe = ground.probe
    head = probe.chain[-1].checkpoint_id
    return [Target(op, probe.thread_id, head, depth) for op in (*_READS, *_WRITES)]


async def warm_calls(ground: Ground, phase: Phase, depth: int) -> None:
    """Sample every call in rounds, so that drift hits all alike."""
    chosen = targets(ground, depth)
    caller = Caller(ground.store, ground.blobs, ground.folder("restored"), ground.clock)
    times: list[list[int]] = [[] for _ in chosen]
    began = ground.clock()
    for number in range(WARMUP_ROUNDS + ground.spec.measure.reads):
        for target, ns in zip(chosen, times, strict=True):
            ns.append(await caller.time(target))
        if number >= WARMUP_ROUNDS and ground.clock() - began > BUDGET_NS:
            break
    shutil.rmtree(caller.scratch, ignore_errors=True)
    ground.samples += _sample_sets(phase, chosen, times, "warm", WARMUP_ROUNDS)


def cold_calls(ground: Ground, phase: Phase, depth: int, *, capture: bool = False) -> None:
    """Sample reads in a new process; with `capture` also captures, which add checkpoints."""
    if not ground.spec.measure.cold:
        return
    if not ground.pair.cold:
        ground.unsupported("cold calls", f"{ground.case.backend} lives in one process")
        return
    chosen = [target for target in targets(ground, depth) if target.op in _READS]
    if capture:
        number = len(ground.probe.steps) + 1
        chosen.append(Target("capture", ground.probe.thread_id, "", depth, number))
    job = {
        "kind": "cold",
        "case": ground.case.to_json(),
        "location": location_to_json(ground.location),
        "targets": [asdict(target) for target in chosen],
        "rounds": COLD_ROUNDS,
    }
    # In our process group: whoever kills this trial kills its reader too.
    end = run_child(job, ground.location.folder, COLD_TIMEOUT_S, own_group=False)
    if end.result is None:
        raise BackendError(f"cold calls: {end.cause}")
    ground.samples += _sample_sets(phase, chosen, end.result["ns"], "cold", 0)


async def call_cold(
    case: SandboxCase, location: Location, given: Sequence[dict[str, Any]], rounds: int
) -> list[list[int]]:
    """The new process's side: the times of each call, each on connections of its own."""
    chosen = [Target(**target) for target in given]
    pair = pair_at(case.backend, location)
    times: list[list[int]] = [[] for _ in chosen]
    for turn in range(rounds):
        for target, ns in zip(chosen, times, strict=True):
            pair.drop_caches()
            async with pair.open() as (store, blobs):
                if target.op == "capture":
                    ns.append(await _capture(case, location, target, turn, store, blobs))
                else:
                    scratch = location.folder / "restored-cold"
                    ns.append(await Caller(store, blobs, scratch, perf_counter_ns).time(target))
    return times


async def _capture(
    case: SandboxCase,
    location: Location,
    target: Target,
    turn: int,
    store: Any,
    blobs: BlobStore,
) -> int:
    """A capture of the probe thread's workspace after one more file."""
    (thread,) = [t for t in write_script(case.spec) if t.thread_id == target.thread_id]
    last, folder = thread.chain[-1], location.folder / f"work-{target.thread_id}"
    number = target.number + turn
    (folder / f"cold{number:05d}.txt").write_text(f"capture {number}", encoding="ascii")
    step = Step(
        f"{thread.thread_id}-cold{number:05d}", last.created_at + STEP_MS * number, last.state
    )
    log = Log()
    await Player(case.spec, store, blobs, log).capture(thread.thread_id, step, folder)
    ((start, end, _),) = log.spans["capture"]
    return end - start


def _sample_sets(
    phase: Phase,
    chosen: Sequence[Target],
    times: Sequence[Sequence[int]],
    temperature: Literal["warm", "cold"],
    warmup: int,
) -> list[SampleSet]:
    return [
        SampleSet(
            target.op, phase, temperature, "head", (target.depth,) * len(ns), tuple(ns), warmup
        )
        for target, ns in zip(chosen, times, strict=True)
    ]
