"""A bounded cache of delta histories: what the ancestors of a checkpoint say does not change.

Only reads of an explicit checkpoint id are cached. A miss looks a few ancestors back for a warm
entry and extends it by the writes in between; otherwise the saver walks once. Deleting, folding,
grafting and moving writes do change ancestors: whoever does it invalidates the thread first.

Entries hold serialized values, so a reducer that changes what it is given does not spoil them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savermark.errors import UsageError
from savermark.history.keepset import stops_at_none

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        BaseCheckpointSaver,
        CheckpointTuple,
        DeltaChannelHistory,
    )

Histories = Mapping[str, "DeltaChannelHistory"]
Walk = Callable[["RunnableConfig", Sequence[str]], Histories]
AsyncWalk = Callable[["RunnableConfig", Sequence[str]], Awaitable[Histories]]
Typed = tuple[str, bytes]
Key = tuple[str, str, str, str]  # thread, namespace, checkpoint id, channel

ENTRIES = 4096
MAX_BYTES = 64 * 2**20
REACH = 8  # ancestors that a miss looks back for a warm entry
_ROW = 128  # about what an entry or a write takes beside its value, in bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """One channel's history at one checkpoint: (task id, value) of each write, and the seed."""

    writes: tuple[tuple[str, Typed], ...]
    seed: Typed | None = None

    @property
    def bytes(self) -> int:
        """About the memory it takes, as if it shared nothing with other entries."""
        values = [typed for _, typed in self.writes] + ([self.seed] if self.seed else [])
        return _ROW * (1 + len(values)) + sum(len(value[1]) for value in values)


class HistoryCache:
    """The least recently used entries go first; safe among threads. Implements `CacheLifecycle`.

    Raises `UsageError` for a bound below 1.
    """

    def __init__(self, entries: int = ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        if entries < 1 or max_bytes < 1:
            raise UsageError("a history cache needs room: entries and max_bytes must be 1 or more")
        self.entries, self.max_bytes = entries, max_bytes
        self.bytes = self.hits = self.extended = self.misses = 0
        self._held: OrderedDict[Key, Entry] = OrderedDict()
        self._threads: defaultdict[str, set[Key]] = defaultdict(set)
        self._lock = threading.Lock()
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._held)

    def invalidate(self, thread_id: str) -> None:
        """Forget a thread, and what reads that are under way would add."""
        with self._lock:
            self._epoch += 1
            for key in self._threads.pop(str(thread_id), ()):
                self.bytes -= self._held.pop(key).bytes

    def clear(self) -> None:
        """Forget every thread."""
        with self._lock:
            self._epoch += 1
            self._held.clear()
            self._threads.clear()
            self.bytes = 0

    def knows(self, thread_id: str) -> bool:
        """Whether anything of a thread is held."""
        with self._lock:
            return thread_id in self._threads

    def epoch(self) -> int:
        """Moves with every invalidation: what was read before it is not added after it."""
        with self._lock:
            return self._epoch

    def get(self, key: Key) -> Entry | None:
        """An entry, which counts as used."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def add(self, key: Key, entry: Entry, epoch: int) -> None:
        """Hold an entry that was read at `epoch`."""
        with self._lock:
            if epoch != self._epoch or key in self._held or entry.bytes > self.max_bytes:
                return
            self._held[key] = entry
            self._threads[key[0]].add(key)
            self.bytes += entry.bytes
            while len(self._held) > self.entries or self.bytes > self.max_bytes:
                oldest, dropped = self._held.popitem(last=False)
                self.bytes -= dropped.bytes
                self._threads[oldest[0]].discard(oldest)
                if not self._threads[oldest[0]]:
                    del self._threads[oldest[0]]


def cached_history(
    saver: BaseCheckpointSaver[Any],
    cache: HistoryCache,
    config: RunnableConfig,
    channels: Sequence[str],
    walk: Walk,
) -> Histories:
    """`get_delta_channel_history` through the cache; `walk` is what reads on a miss."""
    plan = _Read(saver, cache, config, channels).plan()
    answer: Any = None
    while True:
        try:
            where, names = plan.send(answer)
        except StopIteration as stop:
            found: Histories = stop.value
            return found
        answer = saver.get_tuple(where) if names is None else walk(where, names)


async def acached_history(
    saver: BaseCheckpointSaver[Any],
    cache: HistoryCache,
    config: RunnableConfig,
    channels: Sequence[str],
    walk: AsyncWalk,
) -> Histories:
    """The async twin of `cached_history`."""
    plan = _Read(saver, cache, config, channels).plan()
    answer: Any = None
    while True:
        try:
            where, names = plan.send(answer)
        except StopIteration as stop:
            found: Histories = stop.value
            return found
        answer = await (saver.aget_tuple(where) if names is None else walk(where, names))


# A config alone asks for a checkpoint, with channels for their histories by the saver's own walk.
Asked = tuple["RunnableConfig", Sequence[str] | None]


class _Read:
    """One read: what to ask the saver, and what to make of the answers."""

    def __init__(
        self,
        saver: BaseCheckpointSaver[Any],
        cache: HistoryCache,
        config: RunnableConfig,
        channels: Sequence[str],
    ) -> None:
        self.saver, self.cache, self.config = saver, cache, config
        self.channels = list(dict.fromkeys(channels))
        self.epoch = cache.epoch()

    def plan(self) -> Generator[Asked, Any, Histories]:
        """Yields what to ask; returns the histories."""
        given = self.config["configurable"]
        if not self.channels:
            return {}
        if not given.get("checkpoint_id"):  # the latest moves: never cached
            return (yield self.config, self.channels)  # type: ignore[no-any-return]
        found = {
            name: self._open(name, entry)
            for name in self.channels
            if (entry := self.cache.get(self._key(self.config, name))) is not None
        }
        self.cache.hits += len(found)
        missing = [name for name in self.channels if name not in found]
        if missing and self.cache.knows(str(given["thread_id"])):
            entries = yield from self._extended(missing)
            self.cache.extended += len(entries)
            for name, entry in entries.items():
                self.cache.add(self._key(self.config, name), entry, self.epoch)
                found[name] = self._open(name, entry)
            missing = [name for name in missing if name not in entries]
        if missing:
            self.cache.misses += len(missing)
            walked = yield self.config, missing
            self._keep(walked)
            found |= walked
        return {name: found[name] for name in self.channels}

    def _extended(self, missing: list[str]) -> Generator[Asked, Any, dict[str, Entry]]:
        """Entries made of a warm one, or of a seed, a few ancestors back."""
        none_stops = stops_at_none(self.saver)
        sought: dict[str, list[tuple[str, Typed]]] = {name: [] for name in missing}
        done: dict[str, Entry] = {}
        row: CheckpointTuple | None = yield self.config, None
        for _ in range(REACH):
            if row is None or row.parent_config is None or not sought:
                break
            where = row.parent_config
            row = yield where, None
            if row is None:  # a broken chain: the saver's own walk has its answer to that
                break
            values = row.checkpoint["channel_values"]
            for name, newer in list(sought.items()):
                own = [w for w in row.pending_writes or () if w[1] == name]
                newer[:0] = [(task, self._seal(value)) for task, _, value in own]
                seeded = name in values and (none_stops or values[name] is not None)
                warm = None if seeded else self.cache.get(self._key(where, name))
                if seeded:
                    done[name] = Entry(tuple(newer), self._seal(values[name]))
                elif warm is not None:
                    done[name] = Entry((*warm.writes, *newer), warm.seed)
                else:
                    continue
                del sought[name]
        return done

    def _keep(self, walked: Histories) -> None:
        for name, history in walked.items():
            writes = tuple((task, self._seal(value)) for task, _, value in history["writes"])
            seed = self._seal(history["seed"]) if "seed" in history else None
            if writes or seed:  # a checkpoint that is not stored yet has nothing either
                self.cache.add(self._key(self.config, name), Entry(writes, seed), self.epoch)

    def _open(self, channel: str, entry: Entry) -> DeltaChannelHistory:
        load = self.saver.serde.loads_typed
        made: DeltaChannelHistory = {
            "writes": [(task, channel, load(typed)) for task, typed in entry.writes]
        }
        if entry.seed is not None:
            made["seed"] = load(entry.seed)
        return made

    def _seal(self, value: Any) -> Typed:
        return self.saver.serde.dumps_typed(value)

    @staticmethod
    def _key(config: RunnableConfig, channel: str) -> Key:
        where = config["configurable"]
        space = where.get("checkpoint_ns", "")
        return str(where["thread_id"]), space, where["checkpoint_id"], channel
