"""Threads built row by row through a saver's own `put` and `put_writes`, on each kind of store."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from savermark.backends.base import Location, Store
from savermark.backends.registry import get_backend
from savermark.history.rows import RowAccess, row_access

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig

STORES = ("memory", "sqlite", "postgres")
_NUMBERS = itertools.count()


def at(thread: Any, name: str | None = None, space: str = "") -> RunnableConfig:
    """The config of a checkpoint, or of a namespace's newest."""
    where: dict[str, Any] = {"thread_id": thread, "checkpoint_ns": space}
    if name is not None:
        where["checkpoint_id"] = name
    return {"configurable": where}


def snapshot(*items: Any) -> _DeltaSnapshot:
    """A snapshot of a list."""
    return _DeltaSnapshot(list(items))


@dataclass
class Hand:
    """One namespace of one thread, written by hand.

    A channel's version moves where `values` or `moved` name it; otherwise a checkpoint has its
    parent's, as the runtime leaves it.
    """

    saver: BaseCheckpointSaver[Any]
    thread: str
    space: str = ""
    versions: dict[str, dict[str, str]] = field(default_factory=dict)

    def put(
        self,
        name: str,
        parent: str | None = None,
        values: Mapping[str, Any] | None = None,
        *,
        moved: Sequence[str] = (),
        counts: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        v: int = 4,
    ) -> Hand:
        """One checkpoint; `counts` are the delta channels its metadata counts."""
        values = dict(values or {})
        number = next(_NUMBERS)
        new = dict.fromkeys(dict.fromkeys([*values, *moved]), f"{number:032}.{number % 7}")
        self.versions[name] = {**self.versions.get(parent or "", {}), **new}
        checkpoint: Any = {
            "v": v,
            "ts": "2026-01-01T00:00:00+00:00",
            "id": name,
            "channel_values": values,
            "channel_versions": self.versions[name],
            "versions_seen": {},
            "updated_channels": None,
        }
        told: dict[str, Any] = dict(metadata or {})
        if counts:
            told["counters_since_delta_snapshot"] = {c: [1, 1] for c in counts}
        self.saver.put(at(self.thread, parent, self.space), checkpoint, told, new)  # type: ignore[arg-type]
        return self

    def write(self, name: str, *items: tuple[str, Any], task: str = "task", path: str = "") -> Hand:
        """The writes of one task, stored on a checkpoint."""
        self.saver.put_writes(at(self.thread, name, self.space), list(items), task, path)
        return self


@dataclass
class Kept:
    """A store with an open saver and access to its rows."""

    name: str
    store: Store
    saver: BaseCheckpointSaver[Any]
    rows: RowAccess

    def hand(self, thread: str | None = None, space: str = "") -> Hand:
        """A thread of its own to build by hand."""
        return Hand(self.saver, thread or f"thread-{next(_NUMBERS)}", space)


@pytest.fixture(scope="session", params=STORES)
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kept]:
    """A store shared by the tests of this process: each takes threads of its own."""
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    folder = tmp_path_factory.mktemp("kept")
    store = get_backend(request.param).create(Location(folder, f"kept-{folder.name}", dsn))
    with store.saver() as saver:
        if request.param == "sqlite":
            saver.conn.execute("PRAGMA synchronous = off")  # these tests read no times
        yield Kept(request.param, store, saver, row_access(saver))
    store.destroy()


def history(kept: Kept, thread: str, name: str, channels: Sequence[str], space: str = "") -> Any:
    """What the base class's own walk finds on this saver."""
    walk = BaseCheckpointSaver.get_delta_channel_history
    return walk(kept.saver, config=at(thread, name, space), channels=channels)


def clone(kept: Kept, thread: str) -> str:
    """A copy of a thread under a new id."""
    target = f"{thread}-{next(_NUMBERS)}"
    with kept.rows.transaction(thread) as txn:
        txn.copy_rows(target)
    return target


def delete_others(
    kept: Kept, thread: str, keep: set[str] | frozenset[str], space: str = ""
) -> None:
    """Delete every checkpoint outside `keep` with its writes, and the blobs none names then."""
    with kept.rows.transaction(thread) as txn:
        gone = [row.key for row in txn.image().checkpoints if row.checkpoint_id not in keep]
        txn.delete_writes_of(gone)
        txn.delete_checkpoints(gone)
        left = txn.image()
        named = {
            (row.checkpoint_ns, *pair) for row in left.checkpoints for pair in row.versions.items()
        }
        txn.delete_blobs(row.key for row in left.blobs if row.key not in named)
