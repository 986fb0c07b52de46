"""The rows of one thread as plain records: keys, links, names and sizes, never values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

CheckpointKey = tuple[str, str]  # namespace, checkpoint id
WriteKey = tuple[str, str, str, int]  # namespace, checkpoint id, task id, idx
BlobKey = tuple[str, str, str]  # namespace, channel, version

COUNTERS = "counters_since_delta_snapshot"
COUNTERS_OF_OLD = "delta_updates_since_snapshot"  # what the first delta releases wrote
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One row of the checkpoints table, without its values.

    `stored` names the channels whose value this checkpoint stores by its backend's own rule, so
    that a walk that comes here stops: a snapshot or a plain value; on memory and Postgres also one
    that an earlier checkpoint put under the same version. `nulls` names those it stores a None for
    that the backend's walk passes over, though a read of this checkpoint itself finds them
    (Postgres). `snapshots` is the part of `stored` known to be delta snapshots, `markers` names
    those it carries the mark of a snapshot kept apart for (Postgres; a plain True looks the same,
    and one that is no snapshot has lost its blob or never had one). `unreadable` is
    the type tag of a row that could not be read, else empty. `bytes` is the serialized size of
    checkpoint and metadata, as `StorageRow.logical_bytes` counts it.
    """

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    versions: Mapping[str, str]
    stored: frozenset[str] = NOTHING
    metadata: Mapping[str, Any] = field(default_factory=dict)
    v: int = 4
    bytes: int = 0
    nulls: frozenset[str] = NOTHING
    snapshots: frozenset[str] = NOTHING
    markers: frozenset[str] = NOTHING
    unreadable: str = ""

    @property
    def key(self) -> CheckpointKey:
        """Namespace and id."""
        return self.checkpoint_ns, self.checkpoint_id

    @property
    def counted(self) -> frozenset[str]:
        """The delta channels that the metadata counts updates of."""
        return counted_channels(self.metadata)


@dataclass(frozen=True, slots=True)
class WriteRow:
    """One row of the writes table, without its value; `bytes` is the value's serialized size."""

    checkpoint_ns: str
    checkpoint_id: str
    task_id: str
    idx: int
    channel: str
    task_path: str
    bytes: int

    @property
    def key(self) -> WriteKey:
        """Namespace, checkpoint id, task id and index."""
        return self.checkpoint_ns, self.checkpoint_id, self.task_id, self.idx

    @property
    def order(self) -> tuple[str, str, int]:
        """The order in which the writes of one checkpoint are applied."""
        return self.task_path, self.task_id, self.idx


@dataclass(frozen=True, slots=True)
class BlobRow:
    """One row of the blobs table (SQLite has none), without its value; `type` `empty` is no value.

    `version` is text whatever the saver's own type is.
    """

    checkpoint_ns: str
    channel: str
    version: str
    type: str
    bytes: int

    @property
    def key(self) -> BlobKey:
        """Namespace, channel and version."""
        return self.checkpoint_ns, self.channel, self.version


@dataclass(frozen=True)
class ThreadImage:
    """All rows of one thread at one moment: checkpoints by (namespace, id), writes in the order
    in which they are applied, blobs by key. An unknown thread has none.
    """

    thread_id: str
    checkpoints: tuple[CheckpointRow, ...] = ()
    writes: tuple[WriteRow, ...] = ()
    blobs: tuple[BlobRow, ...] = ()

    @cached_property
    def spaces(self) -> Mapping[str, Mapping[str, CheckpointRow]]:
        """The checkpoints of each namespace by id, in id order."""
        found: dict[str, dict[str, CheckpointRow]] = {}
        for row in sorted(self.checkpoints, key=lambda row: row.key):
            found.setdefault(row.checkpoint_ns, {})[row.checkpoint_id] = row
        return found

    @cached_property
    def heads(self) -> Mapping[str, CheckpointRow]:
        """The newest checkpoint of each namespace: the one with the greatest id."""
        return {space: rows[max(rows)] for space, rows in self.spaces.items()}

    @cached_property
    def children(self) -> Mapping[CheckpointKey, tuple[CheckpointRow, ...]]:
        """The checkpoints that name a checkpoint as parent, by its key; leaves are not in it."""
        found: dict[CheckpointKey, list[CheckpointRow]] = {}
        for space, rows in self.spaces.items():
            for row in rows.values():
                if row.parent_id is not None:
                    found.setdefault((space, row.parent_id), []).append(row)
        return {key: tuple(rows) for key, rows in found.items()}

    @cached_property
    def own_writes(self) -> Mapping[CheckpointKey, tuple[WriteRow, ...]]:
        """The writes stored on each checkpoint, in the order in which they are applied.

        Keys of checkpoints that are not stored occur too: those writes are orphans, or their
        checkpoint is not committed yet.
        """
        found: dict[CheckpointKey, list[WriteRow]] = {}
        for row in self.writes:
            found.setdefault((row.checkpoint_ns, row.checkpoint_id), []).append(row)
        return {key: tuple(sorted(rows, key=lambda row: row.order)) for key, rows in found.items()}

    @property
    def rows(self) -> int:
        """The rows in all tables."""
        return len(self.checkpoints) + len(self.writes) + len(self.blobs)

    def cut(self, keys: Collection[CheckpointKey]) -> ThreadImage:
        """Only these checkpoints, their writes and the blobs their versions name.

        A parent that is not among them becomes None.
        """
        wanted = set(keys)
        kept = tuple(
            row if (row.checkpoint_ns, row.parent_id) in wanted else replace(row, parent_id=None)
            for row in self.checkpoints
            if row.key in wanted
        )
        named = {(row.checkpoint_ns, *pair) for row in kept for pair in row.versions.items()}
        return ThreadImage(
            self.thread_id,
            kept,
            tuple(row for row in self.writes if row.key[:2] in wanted),
            tuple(row for row in self.blobs if row.key in named),
        )

    def row(self, checkpoint_ns: str, checkpoint_id: str) -> CheckpointRow | None:
        """The checkpoint of this id, or None."""
        return self.spaces.get(checkpoint_ns, {}).get(checkpoint_id)


def counted_channels(metadata: Mapping[str, Any]) -> frozenset[str]:
    """The delta channels whose updates a checkpoint's metadata counts."""
    counters = metadata.get(COUNTERS) or metadata.get(COUNTERS_OF_OLD)
    return frozenset(counters) if isinstance(counters, Mapping) else NOTHING


def run_of(metadata: Any) -> str | None:
    """The run that metadata names, None where it names none.

    Only a run id given in the config's `metadata` or `configurable` is ever stored.
    """
    found = metadata.get("run_id") if isinstance(metadata, Mapping) else None
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    return str(found)
