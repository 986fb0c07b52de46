"""WorkloadSpec -> what will happen, and the state it must lead to, without LangGraph.

`write_script` is the oracle: it says before a run which events each thread goes through and what
every tip (the head, abandoned branches, pending interrupts) must read back as. One module a graph
shape writes its threads; the table below names them, so a new shape adds one line here and one in
`savermark.graphs`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from savermark.errors import WorkloadError, unknown
from savermark.payload import spread
from savermark.script.digest import state_digest
from savermark.script.events import (
    Duration,
    Event,
    Fork,
    Message,
    ThreadBody,
    ThreadScript,
    Tip,
    Turn,
)

if TYPE_CHECKING:
    from savermark.spec import WorkloadSpec

__all__ = [
    "SHAPES",
    "Duration",
    "Event",
    "Fork",
    "Message",
    "ThreadBody",
    "ThreadScript",
    "Tip",
    "Turn",
    "estimate_bytes",
    "state_digest",
    "thread_turns",
    "write_script",
]

#: Graph shape -> module with `write_thread` and `estimate_thread_bytes`, imported when it is used.
SHAPES: dict[str, str] = {
    "agent": "savermark.script.agent",
    "human-ai": "savermark.script.published",
    "ai-only": "savermark.script.published",
    "channels": "savermark.script.published",
    "deep-agent": "savermark.script.deep_agent",
}


class Writer(Protocol):
    """What a shape's script module offers."""

    def write_thread(self, spec: WorkloadSpec, thread_id: str, turns: int) -> ThreadBody:
        """The events and the tips of one driven thread of `turns` turns."""

    def estimate_thread_bytes(self, spec: WorkloadSpec, turns: int) -> int:
        """Logical bytes that one thread of `turns` turns leaves, to the order of magnitude."""


def _writer(spec: WorkloadSpec) -> Writer:
    if spec.graph not in SHAPES:
        raise WorkloadError(unknown("graph", spec.graph, SHAPES))
    return cast("Writer", import_module(SHAPES[spec.graph]))


def thread_id(index: int) -> str:
    """The id of the thread at `index`: `t00000`, `t00001`, ..."""
    return f"t{index:05d}"


def thread_turns(spec: WorkloadSpec) -> list[int]:
    """Turns of each driven thread: a seeded, evenly spread sample of `conversation.turns`."""
    return spread(spec.conversation.turns, driven_threads(spec), spec.payload.seed, "turns")


def driven_threads(spec: WorkloadSpec) -> int:
    """How many threads go through the real graph; the others are clones of them."""
    threads = spec.conversation.threads
    return min(spec.fleet.driven, threads) if spec.fleet.driven else threads


def write_script(spec: WorkloadSpec) -> tuple[ThreadScript, ...]:
    """Every thread of the workload: the driven ones first, then clones of them in turn."""
    writer = _writer(spec)
    driven = []
    for index, turns in enumerate(thread_turns(spec)):
        body = writer.write_thread(spec, thread_id(index), turns)
        driven.append(ThreadScript(thread_id(index), None, body.turns, body.events, body.tips))
    clones = [
        ThreadScript(thread_id(index), source.thread_id, source.turns, (), source.tips)
        for index in range(len(driven), spec.conversation.threads)
        for source in (driven[index % len(driven)],)
    ]
    return (*driven, *clones)


def estimate_bytes(spec: WorkloadSpec) -> int:
    """Logical bytes of the whole case, to the order of magnitude: what the safety cap looks at.

    A channel in full mode is stored whole at each step, so its share grows with the square of the
    turns; a delta channel grows with the turns times turns over the snapshot frequency.
    """
    writer = _writer(spec)
    sizes = [writer.estimate_thread_bytes(spec, turns) for turns in thread_turns(spec)]
    threads = spec.conversation.threads
    return sum(sizes[index % len(sizes)] for index in range(threads))
