"""The write path: play every driven thread through the recorded saver, clone the others."""

from __future__ import annotations

import resource
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from savermark.backends.base import Capability
from savermark.errors import Unsupported
from savermark.graphs import build_graph
from savermark.recording import Recorder, RecordingSaver
from savermark.records import ProcessCost
from savermark.script import Duration, Fork, Tip
from savermark.trial.usage import peak_rss_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from langchain_core.runnables import RunnableConfig

    from savermark.script import Event, ThreadScript
    from savermark.trial.driver import Graph
    from savermark.trial.ground import Ground

DEPTHS = (0.25, 0.5, 0.75)  # of a thread's runs: where reads of older checkpoints aim
_MARK = "savermark-depth-"


async def load(ground: Ground, began_ns: int) -> ProcessCost:
    """Play, then clone; tells what the process used while it played."""
    driven = [thread for thread in ground.threads if thread.source is None]
    keeps = Capability.KEEPS in ground.store.capabilities
    if not keeps and any(_reads_back(event) for thread in driven for event in thread.events):
        raise Unsupported(
            f"{ground.case.backend} keeps nothing: it cannot run branches or answer interrupts"
        )
    recorder = Recorder(ground.clock)
    saver = RecordingSaver(ground.saver, recorder)
    graph = build_graph(ground.spec, saver)
    probe = max(driven, key=lambda thread: thread.turns)
    marks = _marked_runs(probe) if keeps else ()
    ground.loaded.probe = probe.thread_id
    setup_ns = time.monotonic_ns() - began_ns
    before = resource.getrusage(resource.RUSAGE_SELF)
    for thread in driven:
        await _play(ground, recorder, (graph, saver), thread, marks if thread is probe else ())
    after = resource.getrusage(resource.RUSAGE_SELF)
    ground.samples += recorder.samples()
    cost = ProcessCost(
        setup_ns=setup_ns,
        run_wall_ns=recorder.wall_ns(),
        saver_busy_ns=recorder.busy_ns(),
        cpu_user_ns=int((after.ru_utime - before.ru_utime) * 1e9),
        cpu_system_ns=int((after.ru_stime - before.ru_stime) * 1e9),
        peak_rss_bytes=peak_rss_bytes(),
    )
    _clone(ground)
    return cost


async def _play(
    ground: Ground,
    recorder: Recorder,
    recorded: tuple[Graph, RecordingSaver],
    thread: ThreadScript,
    marks: Sequence[int],
) -> None:
    depths: dict[int, int] = {}

    @contextmanager
    def clock(number: int) -> Iterator[None]:
        with recorder.turn(number):
            yield
        if number in marks:
            depths[number] = recorder.depth()

    graph, saver = recorded
    recorder.begin_thread()
    outcome = await ground.driver.play(graph, saver, with_marks(thread, marks), ground.spec, clock)
    tips = dict(outcome.tips)
    for number in marks:
        if f"{_MARK}{number}" in tips:
            ground.loaded.older.append((depths[number], tips.pop(f"{_MARK}{number}")))
    ground.loaded.tips[thread.thread_id] = tips
    ground.loaded.checkpoints[thread.thread_id] = recorder.depth()


def with_marks(thread: ThreadScript, numbers: Collection[int]) -> ThreadScript:
    """The thread with the checkpoints after these runs remembered as further tips."""
    if not numbers:
        return thread
    events = tuple(
        replace(event, marks=(*event.marks, f"{_MARK}{event.number}"))
        if not isinstance(event, Duration) and event.number in numbers
        else event
        for event in thread.events
    )
    tips = {**thread.tips, **{f"{_MARK}{number}": Tip("") for number in numbers}}
    return replace(thread, events=events, tips=tips)


def _reads_back(event: Event) -> bool:
    """Whether playing this event needs a checkpoint that an earlier one left."""
    return not isinstance(event, Duration) and bool(
        isinstance(event, Fork) or event.marks or event.answers
    )


def _marked_runs(thread: ThreadScript) -> tuple[int, ...]:
    wanted = {int(thread.turns * share) for share in DEPTHS}
    return tuple(sorted(number for number in wanted if 0 < number < thread.turns))


def _clone(ground: Ground) -> None:
    """Copy driven threads by the store's bulk path; their tips are the sources'."""
    clones = [thread for thread in ground.threads if thread.source is not None]
    ground.notes["cloned_threads"] = len(clones)
    if not clones or not ground.can(Capability.CLONE, "cloned threads"):
        ground.threads = tuple(thread for thread in ground.threads if thread.source is None)
        ground.notes["cloned_threads"] = 0
        return
    targets: dict[str, list[str]] = {}
    for thread in clones:
        targets.setdefault(str(thread.source), []).append(thread.thread_id)
    start = ground.clock()
    rows = ground.store.clone_threads(targets)
    ground.notes["clone"] = {"rows": rows, "ns": ground.clock() - start}
    tips, checkpoints = ground.loaded.tips, ground.loaded.checkpoints
    for thread in clones:
        source = str(thread.source)
        tips[thread.thread_id] = {
            name: in_thread(config, thread.thread_id) for name, config in tips[source].items()
        }
        checkpoints[thread.thread_id] = checkpoints[source]


def in_thread(config: RunnableConfig, thread_id: str) -> RunnableConfig:
    """The same checkpoint in another thread."""
    return {"configurable": {**config["configurable"], "thread_id": thread_id}}
