"""The one-pass walk in memory: from the target to the seed, and no further."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from savermark.history.walks import peek
from savermark.history.walks.found import Trail, Where, Write
from savermark.history.wire import packed_names

if TYPE_CHECKING:
    from langgraph.checkpoint.memory import InMemorySaver


def walk(saver: InMemorySaver, where: Where) -> Trail:
    """The histories of `where`. Raises `LineageError` for a chain that is a circle."""
    space = saver.storage.get(where.thread, {}).get(where.space, {})
    target = space.get(where.id or max(space, default=""))
    runs: dict[str, list[list[Write]]] = {name: [] for name in where.channels}
    seeds: dict[str, Any] = {}
    left, broken = list(where.channels), {}
    versions = _Versions(saver, where)
    current, passed = target[2] if target else None, set[str]()
    while current and left:
        entry = space.get(current)
        if entry is None:
            broken = dict.fromkeys(left, current)
            break
        if current in passed:
            raise where.circle(current)
        passed.add(current)
        for name in left:
            if written := _writes(saver, where, current, name):
                runs[name].append(written)
        for name, version in versions.of(entry[0], left):
            held = saver.blobs.get((where.thread, where.space, name, version))
            if held is not None and held[0] != "empty":
                seeds[name] = saver.serde.loads_typed(held)
                left.remove(name)
        current = entry[2]
    found = Trail(broken=broken)
    for name in where.channels:
        history: Any = {"writes": [write for run in reversed(runs[name]) for write in run]}
        if name in seeds:
            history["seed"] = seeds[name]
        found.histories[name] = history
    return found


def _writes(saver: InMemorySaver, where: Where, name: str, channel: str) -> list[Write]:
    """A checkpoint's writes for a channel, in the order in which they are applied."""
    kept = saver.writes.get((where.thread, where.space, name))
    if not kept:
        return []
    rows = [
        (path, task, idx, value)
        for (task, idx), (_, wrote, value, path) in kept.items()
        if wrote == channel
    ]
    if len(rows) > 1:
        rows.sort(key=lambda row: row[:3])
    loads = saver.serde.loads_typed
    return [(task, channel, loads(value)) for _, task, _, value in rows]


class _Versions:
    """Finds the versions of channels in serialized checkpoints."""

    def __init__(self, saver: InMemorySaver, where: Where) -> None:
        self._serde = saver.serde
        self._peek = peek.readable(saver.serde)
        self._keys = {name: key for key, name in packed_names(where.channels).items()}

    def of(self, checkpoint: tuple[str, bytes], names: list[str]) -> list[tuple[str, Any]]:
        """The channels among these that have a version, with it."""
        tag, data = checkpoint
        if self._peek and tag == "msgpack":
            try:
                found = [(name, peek.version(data, self._keys[name])) for name in names]
                return [(name, version) for name, version in found if version is not None]
            except (ValueError, IndexError):
                pass  # not as the runtime writes it
        versions = self._serde.loads_typed(checkpoint).get("channel_versions", {})
        return [(name, versions[name]) for name in names if name in versions]
