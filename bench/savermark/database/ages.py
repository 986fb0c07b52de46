"""Checkpoints by age and by day, from their time-ordered ids, at a price that a fleet can pay."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from savermark.retention.age import seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOUR, _DAY = 3_600, 86_400
# Label and the age in seconds below which it holds.
AGES = (
    ("under 1 hour", _HOUR),
    ("under 1 day", _DAY),
    ("under 7 days", 7 * _DAY),
    ("under 30 days", 30 * _DAY),
    ("under 90 days", 90 * _DAY),
    ("under 1 year", 365 * _DAY),
    ("older", float("inf")),
)
UNKNOWN = "unknown"  # the id carries no time
LABELS = (*(label for label, _ in AGES), UNKNOWN)
_NOWHERE = (len(AGES), None)

Place = tuple[int, int | None]  # index into LABELS, days since 1970


class Calendar:
    """Rows and bytes of checkpoints by age at `now` and by day (UTC), and threads by their newest.

    An id's first eight digits cover less than half a minute (versions 6) or about one (7): where
    both ends of it fall into one age and one day, all ids in it do.
    """

    def __init__(self, now: datetime) -> None:
        self._now = now.timestamp()
        self._known: dict[str, Place | None] = {}
        self._rows: Counter[Place] = Counter()
        self._bytes: Counter[Place] = Counter()
        self._idle: Counter[int] = Counter()

    def add(self, links: Mapping[str, tuple[str | None, int]]) -> None:
        """Count the checkpoints of one namespace."""
        known, rows, sizes = self._known, self._rows, self._bytes
        for name, (_, size) in links.items():
            place = known.get(name[:8] + name[14:15]) or self._place(name)
            rows[place] += 1
            sizes[place] += size

    def add_thread(self, newest: str) -> None:
        """Count a thread by the id of its newest checkpoint."""
        self._idle[self._place(newest)[0]] += 1

    def ages(self) -> dict[str, tuple[int, int]]:
        """Checkpoints and their bytes by age, every label."""
        found = dict.fromkeys(LABELS, (0, 0))
        for place, count in self._rows.items():
            rows, size = found[LABELS[place[0]]]
            found[LABELS[place[0]]] = (rows + count, size + self._bytes[place])
        return found

    def idle(self) -> dict[str, int]:
        """Threads by the age of their newest checkpoint, every label."""
        return {label: self._idle[place] for place, label in enumerate(LABELS)}

    def days(self) -> dict[date, tuple[int, int]]:
        """Checkpoints and their bytes by the day they were made, in order of days."""
        found: dict[int, tuple[int, int]] = {}
        for place, count in self._rows.items():
            if place[1] is not None:
                rows, size = found.get(place[1], (0, 0))
                found[place[1]] = (rows + count, size + self._bytes[place])
        return {datetime.fromtimestamp(day * _DAY, UTC).date(): found[day] for day in sorted(found)}

    def _place(self, name: str) -> Place:
        exact = self._at(seconds_of(name))
        key = name[:8] + name[14:15]
        if key not in self._known:
            self._known[key] = self._whole(name)
        return exact

    def _whole(self, name: str) -> Place | None:
        """The one place of all ids that begin like this one; None where they have several."""
        if name[14:15] not in ("6", "7") or seconds_of(name) is None:
            return None
        ends = (
            self._at(seconds_of(f"{name[:8]}-{four}-{name[14]}{three}-8000-000000000000"))
            for four, three in (("0000", "000"), ("ffff", "fff"))
        )
        first, last = ends
        return first if first == last else None

    def _at(self, seconds: float | None) -> Place:
        if seconds is None:
            return _NOWHERE
        age = self._now - seconds
        return next(n for n, (_, below) in enumerate(AGES) if age < below), int(seconds // _DAY)
