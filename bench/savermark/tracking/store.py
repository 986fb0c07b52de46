"""The file of a package's releases: JSON Lines, oldest first, one line a version."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from savermark.errors import ResultError
from savermark.probe import Probe
from savermark.results import write_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

HISTORY_VERSION = 1


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median ratio of some rounds; `low` and `high` are its extremes, None for one round."""

    value: float
    low: float | None
    high: float | None
    rounds: int


@dataclass(frozen=True, slots=True)
class Version:
    """One release of a package, as it was probed.

    `to_base` is the time of the saver's own walk as a ratio to the base class's walk, which took
    turns with it in the same process; `to_newest` as a ratio to that of the release `newest`, whose
    process took turns with its own (None for the newest itself). Both are of whole rounds.
    """

    package: str
    version: str
    measured_at: str  # ISO 8601, UTC
    probe: Probe
    newest: str = ""
    walk_ns: float | None = None  # the median, on the machine of that day
    to_base: Ratio | None = None
    to_newest: Ratio | None = None

    def to_json(self) -> dict[str, Any]:
        """The line of the file."""
        return {"record": "version", "schema_version": HISTORY_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Version:
        """The inverse of `to_json`; raises `KeyError`, `TypeError` or `ValueError`."""
        if data["record"] != "version" or data["schema_version"] != HISTORY_VERSION:
            raise ValueError(f"schema version {data.get('schema_version')}")
        return cls(
            package=data["package"],
            version=data["version"],
            measured_at=data["measured_at"],
            probe=Probe.from_json(data["probe"]),
            newest=data["newest"],
            walk_ns=data["walk_ns"],
            to_base=Ratio(**data["to_base"]) if data["to_base"] else None,
            to_newest=Ratio(**data["to_newest"]) if data["to_newest"] else None,
        )


def history_file(folder: Path, package: str) -> Path:
    """Where the releases of a package stand."""
    return folder / f"{package}.jsonl"


def read_history(path: Path) -> list[Version]:
    """The lines of a file, none for one that is not there. Raises `ResultError`."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            found.append(Version.from_json(json.loads(line)))
        except (KeyError, TypeError, ValueError) as error:
            raise ResultError(f"{path}, line {number}: no version of a package ({error})") from None
    return found


def merged(old: Iterable[Version], new: Iterable[Version]) -> list[Version]:
    """Old and new lines, oldest release first; a new one replaces the old one of its version."""
    lines = {line.version: line for line in (*old, *new)}
    return sorted(lines.values(), key=lambda line: release_order(line.version))


def release_order(version: str) -> tuple[tuple[int, int | str], ...]:
    """A key by which `3.1.10` comes after `3.1.9`, and a pre-release before its release."""
    parts = re.findall(r"\d+|[a-z]+", version.lower())
    keys = [(1, int(part)) if part.isdigit() else (-1, part) for part in parts]
    return (*keys, (0, 0))


def write_history(path: Path, lines: Sequence[Version]) -> None:
    """Write the file whole or not at all; raises `ResultError` where that cannot be."""
    text = "".join(json.dumps(line.to_json(), separators=(",", ":")) + "\n" for line in lines)
    partial = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise ResultError(write_problem(path, error)) from error
