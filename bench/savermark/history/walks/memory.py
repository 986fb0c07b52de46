"""The one-pass walk in memory: from the target to the seed, and no further."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from savermark.history.walks import peek
from savermark.history.walks.found import Trail, Where, Write
from savermark.history.wire import packed_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.checkpoint.serde.base import SerializerProtocol


def walk(saver: InMemorySaver, where: Where) -> Trail:
    """The histories of `where`. Raises `LineageError` for a chain that is a circle."""
    space = saver.storage.get(where.thread, {}).get(where.space, {})
    target = space.get(where.id or max(space, default=""))
    left: dict[str, list[Write]] = {name: [] for name in where.channels}  # latest first
    found = Trail()
    for name, written in left.items():
        found.histories[name] = {"writes": written}
    blobs, loads, versions = saver.blobs, saver.serde.loads_typed, _Versions(saver.serde, left)
    current, most = target[2] if target else None, len(space)
    while current and left:
        entry = space.get(current)
        if entry is None:
            found.broken.update(dict.fromkeys(left, current))
            break
        most -= 1
        if most < 0:  # more steps than checkpoints
            raise where.circle(current)
        kept = saver.writes.get((where.thread, where.space, current))
        if kept:
            for (task, _), (_, name, value, _) in _latest_first(kept):
                if name in left:
                    left[name].append((task, name, loads(value)))
        for name, version in versions.of(entry[0]):
            held = blobs.get((where.thread, where.space, name, version))
            if held is not None and held[0] != "empty":
                found.histories[name]["seed"] = loads(held)
                del left[name]
                versions.drop(name)
        current = entry[2]
    for history in found.histories.values():
        history["writes"].reverse()
    return found


Kept = dict[tuple[str, int], tuple[str, str, tuple[str, bytes], str]]


def _latest_first(kept: Kept) -> Iterable[tuple[tuple[str, int], Any]]:
    """A checkpoint's writes against the order in which they are applied."""
    if len(kept) == 1:
        return kept.items()
    return sorted(kept.items(), key=_order, reverse=True)


def _order(write: tuple[tuple[str, int], Any]) -> tuple[str, str, int]:
    (task, idx), (_, _, _, path) = write
    return path, task, idx


class _Versions:
    """Finds the versions of the channels left in serialized checkpoints."""

    def __init__(self, serde: SerializerProtocol, names: Iterable[str]) -> None:
        self._serde = serde
        self._peek = peek.readable(serde)
        self._keys = packed_names(names)

    def drop(self, channel: str) -> None:
        """This channel is found."""
        self._keys = {key: name for key, name in self._keys.items() if name != channel}

    def of(self, checkpoint: tuple[str, bytes]) -> list[tuple[str, Any]]:
        """The channels that have a version, with it."""
        tag, data = checkpoint
        if self._peek and tag == "msgpack":
            try:
                return peek.versions(data, self._keys)
            except (ValueError, IndexError):
                pass  # not as the runtime writes it
        held = self._serde.loads_typed(checkpoint).get("channel_versions", {})
        return [(name, held[name]) for name in self._keys.values() if name in held]
