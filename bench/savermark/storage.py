"""What a store holds: rows and bytes, in the same words for every backend.

Three tables of a saver, whatever the engine calls them (design.md, "Normalised storage"):
`checkpoints`, `blobs` (channel values kept apart; SQLite has none) and `writes`. A sandbox store
has tables of its own, and a blob store a "table" for each prefix of its keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Table = Literal["checkpoints", "blobs", "writes"]
TABLES: tuple[Table, ...] = ("checkpoints", "blobs", "writes")

SandboxTable = Literal[
    "checkpoints",
    "entries",
    "artifacts",
    "references",
    "threads",
    "ids",
    "records",
    "sandbox-files/",
    "sandbox-artifacts/",
]
SANDBOX_TABLES: tuple[SandboxTable, ...] = (
    "checkpoints",
    "entries",
    "artifacts",
    "references",
    "threads",
    "ids",
    "records",
    "sandbox-files/",
    "sandbox-artifacts/",
)
#: Those of them that are prefixes of blob keys.
BLOB_TABLES: tuple[SandboxTable, ...] = SANDBOX_TABLES[-2:]
#: Every table there is, in the order of pictures.
ALL_TABLES: tuple[str, ...] = tuple(dict.fromkeys((*TABLES, *SANDBOX_TABLES)))

SHARED = ""  # the thread id of what belongs to no single thread: blobs, blob counts, used ids


@dataclass(frozen=True, slots=True)
class StorageRow:
    """One group of rows of one thread.

    `thread_id` is `SHARED` for rows that belong to no single thread (sandbox stores only).
    `channel` is None where the engine does not keep the channel beside the row (checkpoints).
    `logical_bytes` is the payload as serialized; `stored_bytes` what the engine keeps of it after
    its own compression, or None where the engine cannot say. Neither contains row headers, keys,
    indexes or free space: those are in the footprint. Of a sandbox table, the payload is the text
    columns without the thread id; of a blob prefix, a row is a blob and its bytes are the payload.
    """

    thread_id: str
    checkpoint_ns: str
    table: Table | SandboxTable
    channel: str | None
    rows: int
    logical_bytes: int
    stored_bytes: int | None


@dataclass(frozen=True, slots=True)
class FootprintRow:
    """One part of the whole store's size in bytes.

    `component` is one of: `payload` (memory: serialized bytes held), `heap`, `toast`, `index`,
    `wal`, `free` (pages or tuples that hold nothing), `file` (database file on disk), `total`.
    `table` is None where the part belongs to no single table. `payload`, `heap`, `toast` and
    `index` add up to `total`; `free` and `file` say again what is contained in them. `wal` stands
    beside the total on every engine, which uses those files again: on SQLite the size of the WAL
    file now, on Postgres what the server wrote since the store was created. SQLite's heap of no
    table is the schema, statistics and free pages; without dbstat it is the whole file.

    A sandbox trial adds `captured` for each blob prefix: what the checkpoints' contents would take
    with a copy for each, which is no part of the total either.
    """

    component: str
    table: Table | SandboxTable | None
    bytes: int


@dataclass(frozen=True, slots=True)
class FloorRow:
    """The least bytes a thread's contents could take: each distinct payload once.

    A payload is the serialized value of one row of the `writes` table; two are the same when type
    tag and bytes are equal, in whatever channel or namespace of the thread they stand.
    `distinct_payloads` counts them (a `null` write is one of 0 bytes), `bytes` sums their length.
    Writes are the right unit because every state of a thread can be rebuilt from them, and because
    each engine keeps them as the same bytes: blobs, snapshots and channel values inside checkpoints
    are derived, and cut up differently by each. So the floor is equal on all backends.

    A thread that holds nothing has zeros. A thread that holds checkpoints but no writes has no
    row: the runtime did not store them (durability `exit` with full channels), and a floor of zero
    would be a lie. What `update_state` puts into a full channel, or into a delta channel of an
    older checkpoint, leaves no write either and is not in the floor. An encrypting serializer
    makes every payload distinct.

    A sandbox trial has one row, of the thread `SHARED`: the distinct contents of files, artifacts
    and messages that its checkpoints still hold, each once over all threads.
    """

    thread_id: str
    distinct_payloads: int
    bytes: int
