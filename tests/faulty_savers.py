"""Savers with one planted fault each; `FAULTS` says where conformance must see it, and only there.

The command line loads them as `faulty_savers:<name>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from savermark.history.keepset import keep_set
from savermark.history.rows import row_access
from savermark.retention.savers import RetainingInMemorySaver

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class NullSeed(RetainingInMemorySaver):
    """Tells a seed of None where there is none."""

    def get_delta_channel_history(self, **asked: Any) -> Any:
        found = super().get_delta_channel_history(**asked)
        return {name: {"seed": None, **each} for name, each in found.items()}


class OwnWrites(RetainingInMemorySaver):
    """Its walk begins at the target instead of its parent."""

    def get_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Any:
        found = super().get_delta_channel_history(config=config, channels=channels)
        target = self.get_tuple(config)
        own = target.pending_writes or [] if target else []
        for name, each in found.items():
            each["writes"] = [*each["writes"], *(write for write in own if write[1] == name)]
        return found


class FirstChannelOnly(RetainingInMemorySaver):
    """Brings a keep-set of its own that forgets every channel but the first."""

    def get_delta_channel_keepset(self, *, config: Any, channels: Sequence[str]) -> set[str]:
        return set(keep_set(self, config, channels[:1]))

    async def aget_delta_channel_keepset(self, **asked: Any) -> set[str]:
        return self.get_delta_channel_keepset(**asked)


class Unwrapped(RetainingInMemorySaver):
    """Gives a snapshot back as its bare value."""

    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        if found:
            values = found.checkpoint["channel_values"]
            for name, value in values.items():
                values[name] = value.value if isinstance(value, _DeltaSnapshot) else value
        return found


class ByArrival(RetainingInMemorySaver):
    """Writes come in the order in which they were stored."""

    def _ordered_writes(self, *where: str) -> Any:
        return list(self.writes.get(where, {}).values())  # type: ignore[call-overload]


class TextNumbers(RetainingInMemorySaver):
    """Sorts the numbers of writes as text: 0, 1, 10, 11, 2."""

    def _ordered_writes(self, *where: str) -> Any:
        held = self.writes.get(where, {})  # type: ignore[call-overload]
        keys = sorted(held, key=lambda key: (held[key][3], key[0], str(key[1])))
        return [held[key] for key in keys]


class Unfiltered(RetainingInMemorySaver):
    """Its list passes the filter by."""

    def list(self, config: Any, *, filter: Any = None, **options: Any) -> Iterator[Any]:
        return super().list(config, **options)


class NoGet(RetainingInMemorySaver):
    """`get` does not go through `get_tuple`."""

    def get(self, config: Any) -> Any:
        return None


class OrdinaryNumbers(RetainingInMemorySaver):
    """Numbers writes to control channels like any others."""

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        where = config["configurable"]
        space = where.get("checkpoint_ns", "")
        held = self.writes[where["thread_id"], space, where["checkpoint_id"]]
        for number, (channel, value) in enumerate(writes):
            row = (task_id, channel, self.serde.dumps_typed(value), task_path)
            held.setdefault((task_id, number), row)


class NoNamespace(RetainingInMemorySaver):
    """Stores the writes of all namespaces under the root's."""

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        where = {**config["configurable"], "checkpoint_ns": ""}
        super().put_writes({"configurable": where}, writes, task_id, task_path)

    def _ordered_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Any:
        return super()._ordered_writes(thread_id, "", checkpoint_id)


class FewWords(RetainingInMemorySaver):
    """Keeps no fractions in metadata."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        told = {key: value for key, value in metadata.items() if not isinstance(value, float)}
        return super().put(config, checkpoint, told, new_versions)  # type: ignore[arg-type]


class TwoMinds(RetainingInMemorySaver):
    """The async `get` says something else."""

    async def aget(self, config: Any) -> Any:
        return None


class LeavesWrites(RetainingInMemorySaver):
    """Deletes a thread's checkpoints and forgets its writes."""

    def delete_thread(self, thread_id: str) -> None:
        self.storage.pop(thread_id, None)


class NaivePrune(RetainingInMemorySaver):
    """Keeps the newest checkpoint of each namespace, whatever it is rebuilt from."""

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        rows = row_access(self)
        for thread in thread_ids:
            with rows.transaction(thread) as txn:
                image = txn.image()
                heads = {row.key for row in image.heads.values() if strategy == "keep_latest"}
                gone = [row.key for row in image.checkpoints if row.key not in heads]
                txn.delete_writes_of(gone)
                txn.delete_checkpoints(gone)

    async def aprune(self, *args: Any, **options: Any) -> None:
        self.prune(*args, **options)


class NaiveRuns(RetainingInMemorySaver):
    """Deletes whatever names the run."""

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        rows = row_access(self)
        for thread in rows.threads_of_runs(run_ids):
            with rows.transaction(thread) as txn:
                found = txn.image().checkpoints
                gone = [row.key for row in found if row.metadata.get("run_id") in run_ids]
                txn.delete_writes_of(gone)
                txn.delete_checkpoints(gone)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.delete_for_runs(run_ids)


class HalfCopy(RetainingInMemorySaver):
    """Copies every checkpoint, but only the newest one's writes."""

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        super().copy_thread(source_thread_id, target_thread_id)
        rows = row_access(self)
        with rows.transaction(target_thread_id) as txn:
            image = txn.image()
            heads = {row.key for row in image.heads.values()}
            txn.delete_writes_of(row.key for row in image.checkpoints if row.key not in heads)

    async def acopy_thread(self, *args: Any) -> None:
        self.copy_thread(*args)


_HISTORY = ("delta", "delta_channel_history")
_KEEPSET = ("delta", "delta_channel_keepset")
_VALUES = ("delta", "delta_channel_reconstruction")
_TUPLE = ("interface", "what a tuple tells")

FAULTS: dict[type[InMemorySaver], set[tuple[str, str]]] = {
    NullSeed: {_HISTORY},
    OwnWrites: {_HISTORY, _VALUES},
    FirstChannelOnly: {_KEEPSET},
    Unwrapped: {_VALUES},
    ByArrival: {_HISTORY, _VALUES, _TUPLE},
    TextNumbers: {_HISTORY, _VALUES, _TUPLE},
    Unfiltered: {("public", "list"), ("interface", "metadata")},
    NoGet: {("interface", "get through get_tuple"), ("interface", "sync and async")},
    OrdinaryNumbers: {("interface", "control channels")},
    NoNamespace: {("interface", "namespace in every key"), _HISTORY},
    FewWords: {("interface", "metadata")},
    TwoMinds: {("interface", "get through get_tuple"), ("interface", "sync and async")},
    LeavesWrites: {("interface", "thread id as the key")},
    NaivePrune: {("cleanup", "prune")},
    NaiveRuns: {("cleanup", "delete_for_runs")},
    HalfCopy: {("cleanup", "copy_thread")},
}
