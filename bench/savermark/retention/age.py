"""When a checkpoint was made, by its id: time-ordered UUIDs of version 1, 6 and 7.

The checkpoint's own time field is not asked: on SQLite it lies inside the serialized form.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[167][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.I)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GREGORIAN = 12_219_292_800 * 10**6  # µs from 1582-10-15, where 1 and 6 count from, to 1970
_LATEST = 253_402_300_800 * 10**6  # µs to the year 10000, which no datetime reaches


def micros_of(checkpoint_id: str) -> int | None:
    """Whole µs since 1970 at which the id was made; None for an id that carries no time.

    In whole numbers: a float of seconds since 1582 tells no two µs apart.
    """
    if len(checkpoint_id) != 36 or _FORM.fullmatch(checkpoint_id) is None:
        return None
    first, second, third = checkpoint_id[:8], checkpoint_id[9:13], checkpoint_id[15:18]
    version = checkpoint_id[14]
    if version == "6":
        micros = int(first + second + third, 16) // 10 - _GREGORIAN
    elif version == "7":
        micros = int(first + second, 16) * 1000
    else:
        micros = int(third + second + first, 16) // 10 - _GREGORIAN
    return micros if 0 <= micros < _LATEST else None


def seconds_of(checkpoint_id: str) -> float | None:
    """Seconds since 1970 at which the id was made; None for an id that carries no time."""
    micros = micros_of(checkpoint_id)
    return None if micros is None else micros / 1e6


def time_of(checkpoint_id: str) -> datetime | None:
    """The moment at which the id was made, in UTC; None for an id that carries no time."""
    micros = micros_of(checkpoint_id)
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def age_of(checkpoint_id: str, now: datetime) -> timedelta | None:
    """How old the id is at `now` (with a time zone); None where that is unknown."""
    made = time_of(checkpoint_id)
    return None if made is None else now - made
