"""What an open database offers, whatever its engine; `opening` makes one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from savermark.history.image import NOTHING

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from savermark.history.rows import RowAccess
    from savermark.storage import FootprintRow, StorageRow, Table

Threads = Sequence[str] | None  # None for all


@dataclass(frozen=True, slots=True)
class Space:
    """The checkpoints of one namespace of one thread: ids, links and sizes, in no order.

    `links` maps an id to its parent and to the bytes that the engine keeps of its row
    (`StorageRow.stored_bytes`). `delta` are
    the delta channels that the head counts or snapshots, and `seeds` tells for each id at which
    one of them is stored which these are. `parents` is what the head's metadata says of the
    checkpoints that launched this namespace. `unreadable` are rows in a form that is not known.
    """

    thread_id: str
    checkpoint_ns: str
    head_id: str
    links: Mapping[str, tuple[str | None, int]]
    delta: frozenset[str] = NOTHING
    seeds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    parents: Mapping[str, Any] = field(default_factory=dict)
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class Orphan:
    """Rows that nothing names: the writes of a checkpoint that is not stored, or one blob.

    `checkpoint_id` is None for a blob, which carries no time.
    """

    table: Table
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None
    rows: int
    logical_bytes: int


@dataclass(frozen=True, slots=True)
class Clash:
    """Two checkpoints that store different values of a channel under one version."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    other_id: str
    channel: str
    version: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What was opened: the address without a password, the engine, and the tables' age.

    `task_path` is False for tables of the first savers.
    """

    address: str
    engine: str
    saver: str
    task_path: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class Compaction:
    """What giving space back would run, what it locks, needs and gives, in words.

    `free_disk_bytes` is None where the disk is not this machine's.
    """

    statements: tuple[str, ...]
    locks: str
    needs: str
    gives: str
    needed_bytes: int
    free_disk_bytes: int | None = None


class Database(Protocol):
    """An open database. Reads go through `reading()`, on one snapshot of everything.

    Nothing here builds a value, and a database that was not opened for writing refuses every
    change by itself, whoever asks. Errors of the engine come as `BackendError` of one line.
    """

    @property
    def facts(self) -> Facts:
        """What was opened."""
        ...

    @property
    def rows(self) -> RowAccess:
        """The rows of threads (`savermark.history`), over the same connection."""
        ...

    def saver(self, serde: SerializerProtocol | None = None) -> BaseCheckpointSaver[Any]:
        """A saver over the same connection. Raises `Unsupported` where this is read-only.

        The saver's tables are not altered unless the caller asks it to `setup()`.
        """
        ...

    def reader(
        self, serde: SerializerProtocol | None = None
    ) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
        """A saver on a connection of its own that cannot write and alters no table."""
        ...

    def check_writable(self) -> None:
        """Raises `BackendError` where nothing can be changed: read-only, locked, or not allowed."""
        ...

    def held(self, checkpoint_ids: Collection[str], threads: Threads = None) -> set[str]:
        """Which of these checkpoint ids are stored, in these threads or anywhere."""
        ...

    def compaction(self, *, full: bool = False) -> Compaction:
        """What `compact` would do; `full` matters where the engine has two ways."""
        ...

    def compact(self, *, full: bool = False) -> list[str]:
        """Give back space that deleted rows left; remarks on what could not be done.

        Raises `BackendError` where it was not done.
        """
        ...

    def reading(self) -> AbstractContextManager[Reading]:
        """One snapshot for several passes; `rows` must not be used inside."""
        ...

    def footprint(self) -> list[FootprintRow]:
        """The whole database's size, and what of it holds nothing."""
        ...

    def dead_rows(self) -> Mapping[Table, tuple[int, int]]:
        """Live and dead rows of each table as the engine estimates them; SQLite keeps none."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Reading(Protocol):
    """The passes over an open database: each a fixed number of statements, streamed.

    One pass is read to its end before the next begins.
    """

    def storage(self, threads: Threads = None) -> Iterator[StorageRow]:
        """Rows and bytes by thread, namespace, table and channel.

        All of one thread come together.
        """
        ...

    def spaces(self, threads: Threads = None) -> Iterator[Space]:
        """Every namespace that holds checkpoints, those of one thread together."""
        ...

    def orphans(self, threads: Threads = None) -> Iterator[Orphan]:
        """What nothing names, all of one table and thread together."""
        ...

    def values(self, threads: Threads = None) -> Iterator[tuple[str, int, int]]:
        """Channel, rows and bytes of the values that are kept inside checkpoints, summed up."""
        ...

    def clashes(self, threads: Threads = None) -> Iterator[Clash]:
        """Values kept inside checkpoints that differ under one version, one a channel and version.

        What a version names apart from the checkpoint is one value by its key.
        """
        ...

    def suspects(self) -> Iterator[str]:
        """Threads that the engine itself has reason to look at closely (`doctor`)."""
        ...
