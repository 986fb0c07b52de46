"""What is counted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Counts:
    """What one block of code cost. None: this cannot be counted here, which is not zero.

    - `statements`: that the engine was given, transaction control included.
    - `round_trips`: waits for a server. An engine inside the process has none: 0.
    - `rows`, `bytes`: fetched. SQLite: of the values, text as UTF-8, a number as 8. Postgres: of
      the DataRow messages, as they came over the wire.
    - `blocks`: of tables, indexes and TOAST that were looked at, in cache or not, one count a
      visit. SQLite: page requests. Postgres: buffers of the user's relations, without catalogs.
    - `vm_steps`: instructions of SQLite's virtual machine.
    - `values`, `value_bytes`: calls of the serializer's `loads_typed`, and what it was given.
    """

    statements: int | None = None
    round_trips: int | None = None
    rows: int | None = None
    bytes: int | None = None
    blocks: int | None = None
    vm_steps: int | None = None
    values: int | None = None
    value_bytes: int | None = None

    def to_json(self) -> dict[str, int | None]:
        """The counts by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Counts:
        """The inverse of `to_json`; a count that is not there was not made."""
        return cls(**{name: data.get(name) for name in FIELDS})

    def known(self) -> dict[str, int]:
        """The counts that were made."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def over(self, other: Counts) -> Counts:
        """These counts, and `other`'s where there are none here."""
        return replace(other, **self.known())


FIELDS: tuple[str, ...] = tuple(item.name for item in fields(Counts))


@dataclass(slots=True)
class Meter:
    """What a metered block counted; complete when the block is left."""

    counts: Counts = Counts()
