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
    from collections.abc import Iterable

    from langgraph.checkpoint.serde.base import SerializerProtocol

_VALUES = b"\xaechannel_values"
_VERSIONS = b"\xb0channel_versions"
_WITHIN = 160  # bytes in which the first of them starts
_LONG = 1_024  # bytes from which on jumping over values beats searching through them
_REMEMBERED = 4  # shapes of values that hold no channel sought
_SHAPE = 512  # bytes of the longest of them

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
    """Tells whether serialized checkpoints may value any of some channels."""

    def __init__(self, channels: Iterable[str]) -> None:
        self._sought = packed_names(channels)
        self._at = 0
        self._without: tuple[bytes, ...] = ()

    def drop(self, channel: str) -> None:
        """This channel is found."""
        self._sought = {key: name for key, name in self._sought.items() if name != channel}

    def may(self, data: bytes) -> bool:
        """False when none of the channels can have a value in it."""
        at = self._at
        if data.startswith(self._without, at):
            return False
        if not data.startswith(_VALUES, at):
            at = self._at = data.find(_VALUES, 0, _WITHIN)
            if at < 0:
                self._at = 0
                return True
        if len(data) > _LONG:
            found = self._among(data, at + len(_VALUES))
            if found is not None:
                return found
        end = data.rfind(_VERSIONS)
        if end < at or any(data.find(key, at, end) >= 0 for key in self._sought):
            return True
        end += len(_VERSIONS)
        if end - at <= _SHAPE:
            # What begins with the same bytes up to the next key has the same values.
            self._without = (data[at:end], *self._without[: _REMEMBERED - 1])
        return False

    def _among(self, data: bytes, at: int) -> bool | None:
        """Whether a key of the map at this place is sought; None where one cannot step over."""
        count, at = _entries(data, at)
        for _ in range(count):
            end = after(data, at)
            if end is None or data[at:end] in self._sought:
                return None if end is None else True
            beyond = after(data, end)
            if beyond is None or beyond > len(data):
                return None
            at = beyond
        return False if count >= 0 else None


def version(data: bytes, key: bytes) -> Any:
    """The version of a channel, by its packed name, in a checkpoint without values.

    None when it has none. Raises `ValueError` where only the whole checkpoint tells.
    """
    at = data.find(_VERSIONS, 0, _WITHIN)
    count, at = _entries(data, at + len(_VERSIONS)) if at >= 0 else (-1, 0)
    if count < 0:
        raise ValueError("another layout")
    for _ in range(count):
        end = after(data, at)
        if end is None:
            raise ValueError("another kind of key")
        beyond = after(data, end)
        if beyond is None:
            raise ValueError("another kind of version")
        if data[at:end] == key:
            return _plain(data, end, beyond)
        at = beyond
    return None


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


def after(data: bytes, at: int) -> int | None:
    """Where the token at this place ends; None for a container."""
    first = data[at]
    size = _TAKES[first]
    if size:
        return at + size
    tells = _TELLS.get(first)
    if tells is None:
        return None
    length, header = tells
    return at + header + int.from_bytes(data[at + 1 : at + 1 + length], "big")
