"""Values deserialized: a serializer that counts, and is otherwise the one it was made from."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol


@dataclass(slots=True)
class Tally:
    """Calls of `loads_typed` and the bytes that they were given."""

    values: int = 0
    value_bytes: int = 0


def counting_serde(serde: SerializerProtocol, tally: Tally) -> SerializerProtocol | None:
    """A copy of `serde` that files what it loads in `tally`; None where it cannot be copied so.

    The copy is of a subclass, not a wrapper: allowlists, ciphers and every check of its type stay,
    so what the original refuses is refused.
    """
    kind: Any = type(serde)

    def loads_typed(self: Any, data: tuple[str, bytes]) -> Any:
        tally.values += 1
        tally.value_bytes += len(data[1])
        return kind.loads_typed(self, data)

    body = {"__slots__": (), "loads_typed": loads_typed, "__module__": kind.__module__}
    try:
        counting = copy.copy(serde)
        counting.__class__ = type(kind.__name__, (kind,), body)
    except TypeError:  # a serializer written in C
        return None
    return counting
