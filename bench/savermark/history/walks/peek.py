"""Reads single facts off a serialized checkpoint without building it.

Written for the layout in which the runtime fills a checkpoint: format, time, id, channel values
(not on memory), channel versions, what follows. Any other layout is told as unknown, and the
caller then reads the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from savermark.history.wire import packed_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from sqlite3 import Blob

    from langgraph.checkpoint.serde.base import SerializerProtocol

VALUES = b"\xaechannel_values"
_VERSIONS = b"\xb0channel_versions"
WITHIN = 160  # bytes in which the first of them starts
_REMEMBERED = 4  # shapes of values that hold no channel sought
_SHAPE = 512  # bytes of the longest of them
_HEAD = 512  # bytes of a blob read at a time
_TOKEN = 300  # bytes that a channel's name or the header of a value may take
_STEPS = 500  # values stepped over before the blob is read as a whole

# Bytes that a msgpack token takes by its first one, header included; 0 for what tells its length.
_TAKES = [1 if at < 0x80 or at >= 0xE0 or at in (0xC0, 0xC2, 0xC3) else 0 for at in range(256)]
for _at, _size in ((0xCA, 5), (0xCB, 9), (0xCC, 2), (0xCD, 3), (0xCE, 5), (0xCF, 9)):
    _TAKES[_at] = _size
for _at, _size in ((0xD0, 2), (0xD1, 3), (0xD2, 5), (0xD3, 9), (0xD4, 3), (0xD5, 4), (0xD6, 6)):
    _TAKES[_at] = _size
_TAKES[0xD7], _TAKES[0xD8] = 10, 18
for _at in range(0xA0, 0xC0):
    _TAKES[_at] = 1 + (_at & 0x1F)
# First byte -> (bytes of the length that follows, bytes of the header).
_TELLS = {0xD9: (1, 2), 0xDA: (2, 3), 0xDB: (4, 5), 0xC4: (1, 2), 0xC5: (2, 3), 0xC6: (4, 5)}
_TELLS |= {0xC7: (1, 3), 0xC8: (2, 4), 0xC9: (4, 6)}


def readable(serde: SerializerProtocol) -> bool:
    """Whether the serializer writes what is read here."""
    return isinstance(serde, JsonPlusSerializer)


class Values:
    """Tells whether serialized checkpoints may value any of some channels.

    Where `VALUES` is first found `at` this place, `data.startswith(without, at)` proves that one
    values none, without a call of ours: what begins with the same bytes, up to the key behind the
    values, has the same values.
    """

    def __init__(self, channels: Iterable[str]) -> None:
        self._sought = packed_names(channels)
        self.at = 0
        self.without: tuple[bytes, ...] = ()
        self._heads: tuple[bytes, ...] = ()
        self._reach = _HEAD  # bytes that tell whether a blob begins with one of them

    def drop(self, channel: str) -> None:
        """This channel is found."""
        self._sought = {key: name for key, name in self._sought.items() if name != channel}

    def may(self, data: bytes) -> bool:
        """False when none of the channels can have a value in it."""
        at = self.at
        found = data.find(VALUES, 0, WITHIN)
        if found == at and data.startswith(self.without, at):
            return False
        if found < 0:
            return True
        self.at = at = found
        end = data.rfind(_VERSIONS)
        if end < at or any(data.find(key, at, end) >= 0 for key in self._sought):
            return True
        end += len(_VERSIONS)
        if end - at <= _SHAPE:
            self.without = (data[at:end], *self.without[: _REMEMBERED - 1])
        return False

    def may_in(self, blob: Blob) -> bool:
        """`may` for a blob that is not read as a whole: its values are stepped over."""
        head: bytes = blob.read(self._reach)
        found = head.find(VALUES, 0, WITHIN)
        if found == self.at and head.startswith(self._heads, found):
            return False
        head += blob.read(_HEAD - len(head))
        found = head.find(VALUES, 0, WITHIN)
        if found < 0:
            return True
        start, at = 0, found + len(VALUES)
        count, at = _entries(head, at)
        if count < 0 or any(len(key) > _TOKEN for key in self._sought):
            return True
        tokens, looked = 2 * count, at
        for _ in range(_STEPS):
            if not tokens:
                break
            if at - start + _TOKEN > len(head) and start + len(head) < len(blob):
                start = at
                blob.seek(at)
                head = blob.read(_HEAD)
            end, inside = _step(head, at - start)
            # Keys inside a value are looked at, too: that costs nothing and can only err to yes.
            if head[at - start : end] in self._sought:
                return True
            # Of what is longer than any name sought only the header counts.
            large = end - at + start > _TOKEN
            looked = at + _TELLS[head[at - start]][1] if large else start + end
            tokens, at = tokens - 1 + inside, start + end
        if tokens:
            return True
        if not start and looked <= len(head):
            # What begins with the same bytes as far as they were looked at holds the same keys.
            self.at = found
            # No byte beyond is read again: the next page of a large row would have to be fetched.
            self._heads = (head[found:looked], *self._heads[: _REMEMBERED - 1])
            self._reach = min(_HEAD, found + max(map(len, self._heads)))
        return False


def versions(data: bytes, keys: Mapping[bytes, str]) -> list[tuple[str, Any]]:
    """The versions of channels, by their packed names, in a checkpoint without values.

    Those without one are left out. Raises `ValueError` or `IndexError` where only the whole
    checkpoint tells.
    """
    at = data.find(_VERSIONS, 0, WITHIN)
    count, at = _entries(data, at + len(_VERSIONS)) if at >= 0 else (-1, 0)
    if count < 0:
        raise ValueError("another layout")
    found: list[tuple[str, Any]] = []
    for _ in range(count):
        first = data[at]
        end = at + first - 0x9F if 0xA0 <= first < 0xC0 else _step(data, at)[0]
        first = data[end]
        # Names and versions are short texts, as a rule: told here, without a call.
        if first == 0xD9:
            beyond = end + 2 + data[end + 1]
        else:
            beyond = end + first - 0x9F if 0xA0 <= first < 0xC0 else _step(data, end)[0]
        name = keys.get(data[at:end])
        if name is not None:
            found.append((name, _plain(data, end, beyond)))
            if len(found) == len(keys):
                break
        at = beyond
    return found


def _plain(data: bytes, at: int, end: int) -> Any:
    """A short text or number at this place."""
    first = data[at]
    if first < 0x80:
        return first
    if 0xA0 <= first < 0xC0 or first == 0xD9:
        return data[at + (2 if first == 0xD9 else 1) : end].decode()
    raise ValueError("another kind of version")


def _entries(data: bytes, at: int) -> tuple[int, int]:
    """The entries of the map at this place, and where they begin; -1 when there is no map."""
    first = data[at]
    if 0x80 <= first < 0x90:
        return first & 0x0F, at + 1
    if first == 0xDE:
        return int.from_bytes(data[at + 1 : at + 3], "big"), at + 3
    return -1, at


def _step(data: bytes, at: int) -> tuple[int, int]:
    """Where the token at this place ends, and how many tokens of it follow if it is a container."""
    first = data[at]
    size = _TAKES[first]
    if size:
        return at + size, 0
    if first in _TELLS:
        length, header = _TELLS[first]
        return at + header + int.from_bytes(data[at + 1 : at + 1 + length], "big"), 0
    if first < 0xA0:
        return at + 1, (first & 0x0F) * (2 if first < 0x90 else 1)
    length = 2 if first in (0xDC, 0xDE) else 4
    count = int.from_bytes(data[at + 1 : at + 1 + length], "big")
    return at + 1 + length, count * (2 if first >= 0xDE else 1)
