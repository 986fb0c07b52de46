"""Walk workloads: a thread whose delta channels are rebuilt, and everything that could matter.

Every section of the file is one dataclass below and every key one field;
`workloads/_walk-template.toml` lists them all with a comment each (a test keeps the two equal).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from savermark.errors import WorkloadError
from savermark.spec.limits import RANGES, check_common
from savermark.spec.schema import Schema
from savermark.spec.types import PayloadSpec

_BYTES = (0, 100_000_000)


@dataclass(frozen=True, slots=True)
class WalkThreadSpec:
    """`[thread]`: the chain of checkpoints whose head is read.

    `forks`: every n-th checkpoint has a second child, which is on no chain that is walked.
    """

    depth: int = 1_000
    forks: int = 0  # 0: none


@dataclass(frozen=True, slots=True)
class WalkChannelsSpec:
    """`[channels]`: delta channels; each is written once in every superstep.

    The channels take the snapshot frequencies in turn, and the head is one update short of the
    next snapshot: as far from the last one as the frequency allows. A frequency of the depth or
    more is no snapshot. `snapshots`: all that the thread would have taken, as its bytes need, or
    the last one of each channel, which is all that a walk sees.
    """

    count: int = 1
    frequencies: tuple[int, ...] = (1_000_000,)
    snapshots: Literal["all", "last"] = "all"
    snapshot_items: int = 0  # 0: what was written by then
    kind: Literal["plain", "message"] = "plain"
    item_bytes: int = 350
    other_bytes: int = 0  # a value of another channel that changes with every checkpoint


@dataclass(frozen=True, slots=True)
class WalkStoreSpec:
    """`[store]`: what else is in the same tables."""

    foreign: int = 0  # checkpoints of other threads


@dataclass(frozen=True, slots=True)
class WalkReadsSpec:
    """`[reads]`: through which api what is read.

    `walks`: names apart by commas, or `all` that are registered. `states`: also the whole reads of
    a graph, at the head and half way, and a history of `history` states.
    """

    api: Literal["sync", "async"] = "sync"
    walks: str = "all"
    states: bool = True
    history: int = 10


@dataclass(frozen=True, slots=True)
class WalkMeasureSpec:
    """`[measure]`: how often."""

    repetitions: int = 1  # trials of each case
    reads: int = 25  # warm samples of each read; fewer where one takes long
    cold: bool = False  # also read in a new process with caches dropped
    timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class WalkSpec:
    """A whole walk workload."""

    name: str
    summary: str = ""
    thread: WalkThreadSpec = WalkThreadSpec()
    channels: WalkChannelsSpec = WalkChannelsSpec()
    store: WalkStoreSpec = WalkStoreSpec()
    reads: WalkReadsSpec = WalkReadsSpec()
    payload: PayloadSpec = field(default_factory=PayloadSpec)
    measure: WalkMeasureSpec = WalkMeasureSpec()

    def frequency(self, channel: int) -> int:
        """The snapshot frequency of a channel by its number."""
        return self.channels.frequencies[channel % len(self.channels.frequencies)]


def check_walk(spec: WalkSpec) -> None:
    """Raise `WorkloadError` for values that are fine alone and make no sense together."""
    check_common(spec.name, spec.payload, {})
    if not spec.reads.walks.strip():
        raise WorkloadError("reads.walks is empty: name walks apart by commas, or 'all'")


WALKS = Schema(
    family="walks",
    root=WalkSpec,
    ranges={
        "thread.depth": (2, 1_000_000),
        "thread.forks": (0, 1_000_000),
        "channels.count": (1, 100),
        "channels.frequencies": (2, 1_000_000_000),  # 1 stores every value and leaves no walk
        "channels.snapshot_items": (0, 1_000_000),
        "channels.item_bytes": _BYTES,
        "channels.other_bytes": _BYTES,
        "store.foreign": (0, 10_000_000),
        "reads.history": (0, 1_000_000),
        **{
            key: RANGES[key]
            for key in (
                "payload.compressibility",
                "payload.seed",
                "measure.repetitions",
                "measure.reads",
                "measure.timeout_s",
            )
        },
    },
    check=check_walk,
    template="workloads/_walk-template.toml",
    verb="savermark walk",
    noun="a walk workload",
)
