"""The baseline file: one JSON document, made to be committed beside the saver it is about."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from savermark.errors import ResultError, SavermarkError
from savermark.probe import Ask, Probe
from savermark.results import write_problem
from savermark.trial import Case

BASELINE_FILE = Path("savermark-baseline.json")
BASELINE_VERSION = 1
_KIND = "savermark-baseline"
_DIGITS = 4  # of a stored ratio: its noise is some per cent


@dataclass(frozen=True)
class Entry:
    """One case as it was: its counts and bytes, and the ratios of its timed pairs.

    `unsteady` names the counts that two probes did not agree on; they are not in the probe.
    """

    case: Case
    probe: Probe
    ratios: tuple[float, ...] = ()
    unsteady: tuple[str, ...] = ()


@dataclass(frozen=True)
class Baseline:
    """What a gate compares with."""

    ask: Ask
    entries: tuple[Entry, ...]
    created_at: str = ""

    @property
    def title(self) -> str:
        """What a comparison calls it."""
        return f"baseline of {self.created_at[:10]}"


def save_baseline(path: Path, baseline: Baseline) -> Path:
    """Write the file whole or not at all. Raises `ResultError` for a file that is no baseline."""
    if path.exists():
        load_document(path)  # never over something else
    document = {
        "kind": _KIND,
        "schema_version": BASELINE_VERSION,
        "created_at": baseline.created_at or datetime.now(UTC).isoformat(timespec="seconds"),
        "ask": baseline.ask.to_json(),
        "cases": [_stored(entry) for entry in baseline.entries],
    }
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_text(_text(document), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        problem = write_problem(path, error).replace("folder with --out", "file with --file")
        raise ResultError(problem) from error
    return path


def _stored(entry: Entry) -> dict[str, Any]:
    probe = replace(entry.probe, pairs=None).to_json()
    return {
        **entry.case.to_json(),
        "probe": {key: probe[key] for key in probe if key not in ("pairs", "cause")},
        "ratios": [round(ratio, _DIGITS) for ratio in entry.ratios],
        "unsteady": list(entry.unsteady),
    }


def _text(document: dict[str, Any]) -> str:
    """Readable line by line in a diff; only lists of numbers stay on one line."""
    text = json.dumps(document, indent=1, ensure_ascii=False)
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        bare = line.strip().rstrip(",").lstrip("-")
        number = bare.replace(".", "", 1).replace("e-", "", 1).isdigit()
        if inside and (number or line.strip().startswith("]")):
            space = "" if line.strip().startswith("]") or lines[-1].endswith("[") else " "
            lines[-1] += space + line.strip()
            inside = number
        else:
            lines.append(line)
            inside = line.endswith("[")
    return "\n".join(lines) + "\n"


def load_document(path: Path) -> dict[str, Any]:
    """The file as JSON; raises `ResultError` for what is no baseline that we read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ResultError(f"no baseline at {path}: `savermark baseline save` makes one") from error
    except (OSError, ValueError) as error:
        raise ResultError(f"{path} is no baseline: {error}") from error
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise ResultError(f"{path} is no baseline of savermark: name another file with --file")
    version = document.get("schema_version")
    if version != BASELINE_VERSION:
        raise ResultError(
            f"{path} has schema version {version}, and this savermark reads {BASELINE_VERSION}: "
            "save the baseline anew, or use the savermark that made it"
        )
    return document


def load_baseline(path: Path) -> Baseline:
    """Read a baseline; raises `ResultError` for what is none."""
    document = load_document(path)
    try:
        entries = tuple(_entry(item) for item in document["cases"])
        return Baseline(Ask.from_json(document["ask"]), entries, document["created_at"])
    except (KeyError, TypeError, SavermarkError) as error:
        raise ResultError(f"{path} cannot be read: {error}; save the baseline anew") from error


def _entry(item: dict[str, Any]) -> Entry:
    return Entry(
        case=Case.from_json(item),
        probe=Probe.from_json(item["probe"]),
        ratios=tuple(item["ratios"]),
        unsteady=tuple(item["unsteady"]),
    )
