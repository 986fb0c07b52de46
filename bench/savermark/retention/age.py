"""When a checkpoint was made, by its id: time-ordered UUIDs of version 1, 6 and 7.

The checkpoint's own time field is not asked: on SQLite it lies inside the serialized form.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[167][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.I)
_GREGORIAN = 12_219_292_800  # seconds from 1582-10-15, where versions 1 and 6 count from, to 1970
_LATEST = 253_402_300_800  # seconds to the year 10000, which no datetime reaches


def seconds_of(checkpoint_id: str) -> float | None:
    """Seconds since 1970 at which the id was made; None for an id that carries no time."""
    if len(checkpoint_id) != 36 or _FORM.fullmatch(checkpoint_id) is None:
        return None
    first, second, third = checkpoint_id[:8], checkpoint_id[9:13], checkpoint_id[15:18]
    version = checkpoint_id[14]
    if version == "6":
        seconds = int(first + second + third, 16) / 1e7 - _GREGORIAN
    elif version == "7":
        seconds = int(first + second, 16) / 1e3
    else:
        seconds = int(third + second + first, 16) / 1e7 - _GREGORIAN
    return seconds if 0 <= seconds < _LATEST else None


def time_of(checkpoint_id: str) -> datetime | None:
    """The moment at which the id was made, in UTC; None for an id that carries no time."""
    seconds = seconds_of(checkpoint_id)
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def age_of(checkpoint_id: str, now: datetime) -> timedelta | None:
    """How old the id is at `now` (with a time zone); None where that is unknown."""
    made = time_of(checkpoint_id)
    return None if made is None else now - made
