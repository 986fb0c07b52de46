"""What the parts of retention hand to one another: plans, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from savermark.history.lineage import BlobKey, CheckpointKey, KeepSet, WriteKey
from savermark.storage import Table

Handling = Literal["reparent", "move", "snapshot"]


@dataclass(frozen=True, slots=True)
class Freed:
    """Rows and the bytes of their payload as serialized, of one table."""

    rows: int = 0
    logical_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Graft:
    """The removal of one link: its children get its parent.

    `move`: the link's write rows go to the parent; `snapshot`: each child stores the value of
    `channels`, the delta channels that the link's writes belong to.
    """

    checkpoint_ns: str
    link_id: str
    parent_id: str
    children: tuple[str, ...]
    handling: Handling = "reparent"
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fold:
    """A checkpoint that gets the values of its delta channels stored onto it, under its own id."""

    checkpoint_ns: str
    checkpoint_id: str
    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """What a policy would do to one thread. Nothing is done where `refused` gives a reason.

    `kept` holds, by namespace, the checkpoints that stay: its targets are addressable afterwards,
    the others stay as support. `detached` are survivors whose parent goes, so that their parent
    link is cleared. Keys that are named for deletion exist in the image the plan was made from.
    """

    thread_id: str
    refused: str = ""
    whole: bool = False  # every row of the thread goes
    checkpoints: frozenset[CheckpointKey] = frozenset()
    writes: frozenset[WriteKey] = frozenset()
    blobs: frozenset[BlobKey] = frozenset()
    detached: frozenset[CheckpointKey] = frozenset()
    grafts: tuple[Graft, ...] = ()
    folds: tuple[Fold, ...] = ()
    kept: Mapping[str, KeepSet] = field(default_factory=dict)
    freed: Mapping[Table, Freed] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.checkpoints or self.writes or self.blobs or self.grafts or self.folds)

    @property
    def rows(self) -> int:
        """The rows that would go."""
        return sum(part.rows for part in self.freed.values())


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done to one thread: the plan as it was carried out, re-made inside the transaction.

    `refused` gives the reason why the thread was left untouched. Times in ns.
    """

    thread_id: str
    plan: ThreadPlan
    deleted: Mapping[Table, int] = field(default_factory=dict)  # rows by table
    refused: str = ""
    plan_ns: int = 0
    apply_ns: int = 0


class CacheLifecycle(Protocol):
    """Whoever caches histories of threads says here how they are forgotten.

    Retention calls it before it deletes. When it raises, nothing of the thread is deleted.
    """

    def invalidate(self, thread_id: str) -> None:
        """Forget everything cached of this thread."""
        ...
