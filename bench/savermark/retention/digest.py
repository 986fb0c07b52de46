"""What a channel reads back as, as a few digests that can be kept and compared.

A stored value has one digest. A rebuilt one has up to three, because no single one decides:

- `parts`: what it is rebuilt from, the seed and each write in order. The same parts give the same
  value whatever the reducer, even one that makes up ids. Folding a channel changes the parts.
- `value`: what the reducer makes of them, where the reducer is known. It decides unless two
  readings of the same rows differ (`stable`): then the value proves nothing.
- `flat`: the contributions in one list (the items of lists, the keys of mappings merged, what an
  `Overwrite` threw away left out). A plain appending or merging fold leaves it as it is; it stands
  in for `value` where the reducer is not known.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import ormsgpack
from langgraph._internal._typing import MISSING
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite

if TYPE_CHECKING:
    from langgraph.channels.base import BaseChannel
    from langgraph.checkpoint.base import DeltaChannelHistory
    from langgraph.checkpoint.serde.base import SerializerProtocol

Verdict = Literal["ok", "failed", "unproven", "unsupported"]

RANK: Mapping[Verdict, int] = {"failed": 0, "unproven": 1, "unsupported": 2, "ok": 3}  # worst first

_SIZE = 16  # bytes of a digest: collisions are no concern, memory per checkpoint is
_OVERWRITE = "__overwrite__"  # the key by which the runtime knows an Overwrite that became a dict
_PLAIN = (
    ormsgpack.OPT_SORT_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_BY_TEXT = (datetime, date, time, timedelta, Decimal, UUID)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one channel of one checkpoint reads back as. `count` is the length of `flat`."""

    stored: bool
    parts: bytes
    flat: bytes
    count: int
    value: bytes | None = None  # None: the reducer is not known
    stable: bool = True


def value_digest(value: Any, serde: SerializerProtocol | None = None) -> bytes:
    """The digest of a value: equal for equal values, whatever order a mapping or set has.

    What is neither plain data nor an object with fields is digested as `serde` serializes it.
    """

    def sealed(item: Any) -> ormsgpack.Ext:
        kind, plain = _taken_apart(item, serde)
        return ormsgpack.Ext(1, ormsgpack.packb([kind, plain], default=sealed, option=_PLAIN))

    try:
        packed = ormsgpack.packb(value, default=sealed, option=_PLAIN)
    except (TypeError, ValueError):  # a key that is no text, a lone surrogate, an int of 70 bits
        return _slow_digest(value, serde)
    return blake2b(packed, digest_size=_SIZE).digest()


def _taken_apart(value: Any, serde: SerializerProtocol | None) -> tuple[str, Any]:
    """What is not plain data as a name of its kind and plain data."""
    kind = type(value).__qualname__
    if isinstance(value, tuple):
        return kind, list(value)
    if isinstance(value, (set, frozenset)):
        return "set", sorted(value_digest(item, serde) for item in value)
    if isinstance(value, Enum):
        return kind, value.value
    if isinstance(value, _BY_TEXT):
        return kind, repr(value)
    if isinstance(value, Mapping):
        return kind, dict(value)
    if hasattr(type(value), "model_fields"):  # pydantic, and so every message
        return kind, {**value.__dict__, **(getattr(value, "__pydantic_extra__", None) or {})}
    if is_dataclass(value):
        return kind, {each.name: getattr(value, each.name) for each in fields(value)}
    return kind, list((serde or JsonPlusSerializer(pickle_fallback=True)).dumps_typed(value))


def _slow_digest(value: Any, serde: SerializerProtocol | None) -> bytes:
    """The digest of what msgpack cannot hold in one canonical form."""
    parts: list[bytes]
    if value is None or (
        isinstance(value, (bool, int, float, str)) and not isinstance(value, Enum)
    ):
        kind, parts = type(value).__name__, [repr(value).encode()]
    elif isinstance(value, (bytes, bytearray)):
        kind, parts = "bytes", [bytes(value)]
    elif isinstance(value, Mapping):
        pairs = ((_slow_digest(k, serde), _slow_digest(v, serde)) for k, v in value.items())
        kind, parts = "mapping", sorted(key + item for key, item in pairs)
    elif isinstance(value, list):
        kind, parts = "list", [_slow_digest(item, serde) for item in value]
    else:
        kind, plain = _taken_apart(value, serde)
        parts = [_slow_digest(plain, serde)]
    found = blake2b(kind.encode(), digest_size=_SIZE)
    for part in parts:
        found.update(struct.pack(">Q", len(part)))
        found.update(part)
    return found.digest()


def contributions(seed: Any, writes: Iterable[Any]) -> list[Any]:
    """The items that a seed and the writes after it bring, in order (see `flat` above)."""
    items: list[Any] = []
    merged: dict[Any, Any] = {}
    for value in ([] if seed is MISSING else [seed], *([write] for write in writes)):
        for found in value:
            over, found = overwritten(found)
            if over:
                items, merged = [], {}
            if isinstance(found, Mapping):
                merged.update(found)
            elif isinstance(found, (list, tuple, set, frozenset)):
                items.extend(found)
            elif found is not None:
                items.append(found)
    return [*items, *sorted(merged.items(), key=lambda pair: repr(pair[0]))]


def overwritten(value: Any) -> tuple[bool, Any]:
    """Whether a write throws away what came before it, and the value without that wrapping."""
    if isinstance(value, Overwrite):
        return True, value.value
    if isinstance(value, Mapping):
        if set(value) == {_OVERWRITE}:
            return True, value[_OVERWRITE]
        if value.get("type") == _OVERWRITE and "value" in value:
            return True, value["value"]
    return False, value


def stored_evidence(value: Any, serde: SerializerProtocol | None = None) -> Evidence:
    """The evidence of a value that the checkpoint itself stores."""
    plain = value.value if isinstance(value, _DeltaSnapshot) else value
    digest = value_digest(plain, serde)
    flat = plain if isinstance(plain, list) else contributions(plain, ())
    flat_digest = digest if flat is plain else value_digest(flat, serde)
    return Evidence(True, digest, flat_digest, len(flat), digest)


def rebuilt_evidence(
    histories: Sequence[DeltaChannelHistory],
    spec: BaseChannel[Any, Any, Any] | None,
    serde: SerializerProtocol | None = None,
) -> Evidence:
    """The evidence of a rebuilt value, from one reading of its history or from several.

    `spec` is the channel whose reducer makes the value, None when it is not known.
    """
    history = histories[0]
    stored = history.get("seed", MISSING)
    seed = stored.value if isinstance(stored, _DeltaSnapshot) else stored
    writes = [value for _, _, value in history["writes"]]
    known = [] if seed is MISSING else [seed]
    parts = value_digest([len(known), *known, *writes], serde)
    flat = contributions(seed, writes)
    flat_digest = value_digest(flat, serde)
    if spec is None:
        return Evidence(False, parts, flat_digest, len(flat))
    values = [value_digest(replayed(spec, each), serde) for each in histories]
    return Evidence(False, parts, flat_digest, len(flat), values[0], len(set(values)) == 1)


def replayed(spec: BaseChannel[Any, Any, Any], history: DeltaChannelHistory) -> Any:
    """The value that a channel makes of its history, None when it makes none."""
    channel = spec.from_checkpoint(history.get("seed", MISSING))
    if isinstance(channel, DeltaChannel):
        channel.replay_writes(list(history["writes"]))
    else:  # a reducer of two values, on a thread that was written as delta
        for _, _, value in history["writes"]:
            channel.update([value])
    return channel.get() if channel.is_available() else None


def judged(before: Evidence, after: Evidence | None) -> tuple[Verdict, str]:
    """Whether a channel reads back as before, and if not, what is known of it."""
    if after is None:
        return "failed", "is gone"
    if before.parts == after.parts and before.stored == after.stored:
        return "ok", ""
    if not (before.stable and after.stable):
        return "unproven", "two readings of the same rows differ: its reducer is not deterministic"
    if before.value is not None and after.value is not None:
        same = before.value == after.value
        return ("ok", "") if same else ("failed", _lost(before, after, "another value"))
    if before.flat == after.flat:
        return "ok", ""
    if after.count < before.count and not after.stored:
        return "failed", _lost(before, after, "")
    return "unproven", "was folded, and its reducer is not known: give the graph or the channels"


def _lost(before: Evidence, after: Evidence, otherwise: str) -> str:
    if after.count < before.count or not otherwise:
        return f"reads back {after.count} of {before.count} items"
    return otherwise
