"""Many threads at once: what a set-based deletion must know of each, and how it is carried out.

A thread is told by an outline: its namespaces as lines and their heads, and how many rows hang on
nothing. Who decides what goes (`retention.fast`) never sees single rows; what an outline cannot
tell is found out from the thread's image instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from savermark.history.image import NOTHING
from savermark.history.streaming import fitted

if TYPE_CHECKING:
    from savermark.history.image import CheckpointRow, ThreadImage
    from savermark.history.lineage import KeepSet
    from savermark.history.streaming import Reader
    from savermark.storage import Table

Place = tuple[str, str]  # thread, namespace

_NAMES = 500  # threads in one statement: the first SQLite builds take 999 parameters
ROWS = 200_000  # rows of the threads that are taken into one transaction, at most


@dataclass(frozen=True, slots=True)
class Space:
    """One namespace of a thread.

    `linear`: in id order the first checkpoint has no parent and each other the one before it, no
    version comes back after another one took its place, and every row is of a readable kind.
    `repeats`: the head has the versions of its parent. `callers` are the root checkpoints that the
    rows' metadata names, an empty text among them where one names none; they are told of
    namespaces with a `:` only.
    """

    checkpoint_ns: str
    rows: int
    head: CheckpointRow
    linear: bool
    repeats: bool
    callers: frozenset[str] = NOTHING


@dataclass(frozen=True, slots=True)
class Outline:
    """A thread without its single rows: `strays` hang on no checkpoint that is stored.

    `heads` is an image of the heads alone with their own writes. `roots` are the root checkpoints
    that a caller names and that are stored.
    """

    thread_id: str
    spaces: Mapping[str, Space]
    heads: ThreadImage
    strays: int = 0
    roots: frozenset[str] = NOTHING


@dataclass(frozen=True, slots=True)
class Cut:
    """What stays of one namespace: its newest checkpoints `kept`, or nothing.

    `detach`: the parent of the oldest of them goes.
    """

    thread_id: str
    checkpoint_ns: str
    kept: frozenset[str] = NOTHING
    detach: bool = False


class BulkTxn(Protocol):
    """Several threads inside one transaction, each held against other maintenance jobs.

    Those in somebody else's hands are left out.
    """

    def outlines(self) -> Iterable[Outline]:
        """What this transaction sees of its threads; those without any checkpoint are left out.

        To be read to the end before anything else is asked.
        """
        ...

    def holders(self, checkpoint_ids: Collection[str]) -> Collection[str]:
        """The threads that hold one of these checkpoints."""
        ...

    def keep_sets(self, wanted: Mapping[Place, Collection[str]]) -> Mapping[Place, KeepSet]:
        """The keep-sets of the heads of linear namespaces, for the channels that each must rebuild.

        `wanted` are these channels by thread and namespace, none of them empty. One that cannot be
        told is missing from the result.
        """
        ...

    def doubtful(self, cuts: Sequence[Cut]) -> Collection[str]:
        """The threads where a checkpoint that stays may have lost a snapshot."""
        ...

    def clear(self, cuts: Sequence[Cut]) -> Mapping[str, Mapping[Table, int]]:
        """Delete what the cuts leave out, with the writes and the blobs that nobody names then.

        The rows that went, by thread and table. The threads must be linear and without strays, and
        each of their namespaces have its cut. Raises `ThreadBusy` where other rows than those were
        met; the transaction must be left by an exception then.
        """
        ...


class BulkRows(Protocol):
    """A store whose threads can be taken many at a time."""

    reader: Reader

    def transaction(self, threads: Sequence[str]) -> AbstractContextManager[BulkTxn]:
        """One transaction on these threads. Raises `ThreadBusy`; nothing was changed then."""
        ...


def bulk_of(rows: object) -> BulkRows | None:
    """The store behind a `RowAccess` as one of many threads; None where it has no such form."""
    found: BulkRows | None = getattr(rows, "bulk", None)
    return found


def batches(
    bulk: BulkRows, threads: Sequence[str] | None, batch: int, rows: int = ROWS
) -> Iterator[list[str]]:
    """The threads, or all, in lists of at most `batch` with no more than `rows` rows, or of one."""
    return fitted(bulk.reader, threads, min(batch, _NAMES), rows)
