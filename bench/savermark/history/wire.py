"""Reads what a serialized checkpoint says of itself without building a value.

Extension objects (messages, snapshots, anything that could run code) stay sealed: their bytes are
carried along and never opened. An encrypted form is decrypted with the saver's own cipher.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ormsgpack
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from savermark.errors import UsageError
from savermark.history.image import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langgraph.checkpoint.serde.base import SerializerProtocol

_SNAPSHOT = 7  # the msgpack extension code of a delta snapshot
# The code stands after a header of one byte (fixed sizes) or of one and a length of 1, 2, 4 bytes.
_CODE_AT = {0xC7: 2, 0xC8: 3, 0xC9: 5} | dict.fromkeys(range(0xD4, 0xD9), 1)
_ENCODING = ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_REPLACE_SURROGATES


class Sealed:
    """An extension object as it lies on the wire."""

    __slots__ = ("code", "data")

    def __init__(self, code: int, data: bytes) -> None:
        self.code = code
        self.data = data


@dataclass(frozen=True, slots=True)
class Outline:
    """What a serialized checkpoint names: its format, its versions and the channels it values.

    `exact` are the versions in the saver's own type, `versions` as text.
    """

    v: int
    exact: Mapping[str, Any]
    valued: frozenset[str] = NOTHING
    snapshots: frozenset[str] = NOTHING

    @property
    def versions(self) -> dict[str, str]:
        """The versions as text."""
        return {name: str(version) for name, version in self.exact.items()}


def outline(tag: str | None, data: Any, serde: SerializerProtocol | None) -> Outline | None:
    """The outline of a serialized checkpoint; None when it cannot be read."""
    fields = unsealed(tag, data, serde)
    if not isinstance(fields, dict) or not isinstance(fields.get("channel_versions"), dict):
        return None
    values = fields.get("channel_values") or {}
    return Outline(
        v=int(fields.get("v") or 1),
        exact=fields["channel_versions"],
        valued=frozenset(values),
        snapshots=frozenset(name for name, value in values.items() if _is_snapshot(value)),
    )


def _is_snapshot(value: Any) -> bool:
    # A serializer of the application's own gives the object itself, known here by its name only.
    return (isinstance(value, Sealed) and value.code == _SNAPSHOT) or (
        type(value).__name__ == "_DeltaSnapshot"
    )


def holds_snapshot(tag: str, data: bytes | None) -> bool:
    """Whether a serialized value is a delta snapshot, as far as its first bytes tell."""
    if tag != "msgpack" or not data:
        return False
    at = _CODE_AT.get(data[0], len(data))
    return at < len(data) and data[at] == _SNAPSHOT


def unsealed(tag: str | None, data: Any, serde: SerializerProtocol | None) -> Any:
    """The containers and plain values of a serialized form, with everything else sealed.

    None when it cannot be read: a pickle, a cipher without its key, damaged bytes, or a form of
    the application's own without its serializer.
    """
    if isinstance(data, str):
        data = data.encode()
    tag = tag or "msgpack"
    if data is None or tag.partition("+")[0] == "pickle":
        return None
    try:
        tag, data = _decrypted(tag, data, serde)
        if tag == "msgpack":
            return ormsgpack.unpackb(data, ext_hook=Sealed, option=ormsgpack.OPT_NON_STR_KEYS)
        if tag == "json":
            return json.loads(data)
        if serde is not None and not isinstance(serde, JsonPlusSerializer | EncryptedSerializer):
            return serde.loads_typed((tag, data))
    except Exception:  # damaged bytes, a wrong key, a foreign serializer: whatever they raise
        return None
    return None


def _decrypted(tag: str, data: bytes, serde: SerializerProtocol | None) -> tuple[str, bytes]:
    plain, plus, cipher = tag.partition("+")
    if plus and isinstance(serde, EncryptedSerializer):
        return plain, serde.cipher.decrypt(cipher, data)
    return tag, data


def with_value(
    checkpoint: tuple[str | None, Any],
    channel: str,
    value: tuple[str, bytes],
    serde: SerializerProtocol | None,
) -> tuple[str, bytes]:
    """A serialized checkpoint with one channel value set from its serialized form.

    Raises `UsageError` for a form that cannot be written.
    """
    tag = checkpoint[0] or "msgpack"
    plain, plus, _ = tag.partition("+")
    fields = unsealed(tag, checkpoint[1], serde)
    if plain != "msgpack" or not isinstance(fields, dict):
        raise UsageError(f"a value cannot be stored in a checkpoint of type {tag!r}")
    values = fields.get("channel_values") or {}
    fields["channel_values"] = {**values, channel: _part(value, serde)}
    # What was read as an encrypted form has proven that the serializer is the one that seals it.
    return sealed(fields, serde if plus else None)


def sealed(fields: Any, serde: SerializerProtocol | None) -> tuple[str, bytes]:
    """The serialized form of what `unsealed` gave, by the saver's own rule."""
    if serde is not None and not isinstance(serde, JsonPlusSerializer | EncryptedSerializer):
        return serde.dumps_typed(fields)
    data = ormsgpack.packb(fields, default=_seal, option=_ENCODING)
    if not isinstance(serde, EncryptedSerializer):
        return "msgpack", data
    name, closed = serde.cipher.encrypt(data)
    return f"msgpack+{name}", closed


def _part(value: tuple[str, bytes], serde: SerializerProtocol | None) -> Any:
    tag, data = _decrypted(*value, serde)
    if tag == "msgpack":
        return ormsgpack.Fragment(data)
    if tag in ("null", "bytes"):
        return None if tag == "null" else data
    raise UsageError(f"a value of type {value[0]!r} cannot be stored inside a checkpoint")


def _seal(value: Any) -> Any:
    if isinstance(value, Sealed):
        return ormsgpack.Ext(value.code, value.data)
    raise TypeError(type(value).__name__)


def packed_names(names: Iterable[str]) -> dict[bytes, str]:
    """Each name by the bytes it has as a msgpack text."""
    return {ormsgpack.packb(name): name for name in names}
