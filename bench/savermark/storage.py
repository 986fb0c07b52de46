"""What a store holds: rows and bytes, in the same words for every backend.

Three tables, whatever the engine calls them (design.md, "Normalised storage"):
`checkpoints`, `blobs` (channel values kept apart; SQLite has none) and `writes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Table = Literal["checkpoints", "blobs", "writes"]
TABLES: tuple[Table, ...] = ("checkpoints", "blobs", "writes")


@dataclass(frozen=True, slots=True)
class StorageRow:
    """One group of rows of one thread.

    `channel` is None where the engine does not keep the channel beside the row (checkpoints).
    `logical_bytes` is the payload as serialized; `stored_bytes` what the engine keeps of it after
    its own compression, or None where the engine cannot say. Neither contains row headers, keys,
    indexes or free space: those are in the footprint.
    """

    thread_id: str
    checkpoint_ns: str
    table: Table
    channel: str | None
    rows: int
    logical_bytes: int
    stored_bytes: int | None


@dataclass(frozen=True, slots=True)
class FootprintRow:
    """One part of the whole store's size in bytes.

    `component` is one of: `payload` (memory: serialized bytes held), `heap`, `toast`, `index`,
    `wal`, `free` (pages or tuples that hold nothing, part of the others), `file` (database file
    on disk), `total`. `table` is None where the part belongs to no single table. `live` parts add
    up to `total`; `free` is contained in them.
    """

    component: str
    table: Table | None
    bytes: int


@dataclass(frozen=True, slots=True)
class FloorRow:
    """The least bytes a thread's contents could take: each distinct payload once."""

    thread_id: str
    distinct_payloads: int
    bytes: int
