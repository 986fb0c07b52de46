"""Workload files: find, read, override, sweep."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from savermark.errors import WorkloadError, unknown
from savermark.spec.parse import parse_spec, spec_keys, unknown_key
from savermark.spec.sweep import Axes, axis, combinations, dist_parts, is_axis, sweep_axes
from savermark.spec.types import Dist, WorkloadSpec

_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination of a workload's swept keys; the label is empty without a sweep."""

    label: str
    spec: WorkloadSpec


def load_workload(name_or_path: str, overrides: Sequence[str] = ()) -> list[Variant]:
    """Every variant of a workload, by its name or the path of a TOML file.

    `overrides` are `key=value` with a TOML value or plain text; the end of a key is enough where
    it is unambiguous. An override replaces the file's value, or the sweep over that key; a list
    of values for a key that takes one is a sweep. Raises `WorkloadError`.
    """
    path = _find(name_or_path)
    try:
        return _variants(_read(path), path.stem, overrides)
    except WorkloadError as error:
        raise WorkloadError(f"workload {name_or_path}: {error}") from None


def workload_names() -> list[str]:
    """The workloads that ship with savermark."""
    files = workload_folder().glob("*.toml")
    return sorted(path.stem for path in files if not path.stem.startswith("_"))


def workload_folder() -> Path:
    """Where they are: beside the package in a wheel, at the root in a source tree."""
    package = Path(__file__).parents[1]
    installed = package / "workloads"
    return installed if installed.is_dir() else package.parents[1] / "workloads"


def _find(name_or_path: str) -> Path:
    given = Path(name_or_path)
    if given.suffix == ".toml" or len(given.parts) > 1:
        return given
    if name_or_path not in workload_names():
        raise WorkloadError(unknown("workload", name_or_path, workload_names()))
    return workload_folder() / f"{name_or_path}.toml"


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise WorkloadError("no such file") from None
    except OSError as error:
        raise WorkloadError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise WorkloadError(f"is not UTF-8 text (byte {error.start})") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WorkloadError(_syntax(str(error), text)) from None


def _syntax(message: str, text: str) -> str:
    found = _POSITION.search(message)
    line, column = found.groups() if found else (None, None)
    if line is None:  # tomllib names no place for what the end of the file cuts off
        last = text.rpartition("\n")[2]
        line, column = str(text.count("\n") + 1), f"{len(last) + 1} (the end)"
    cause = message[: found.start()] if found else message
    return f"TOML syntax error at line {line}, column {column}: {cause.lower()}"


def _variants(data: dict[str, Any], name: str, overrides: Sequence[str]) -> list[Variant]:
    axes = sweep_axes(data.pop("sweep", {}))
    data.setdefault("name", name)
    for override in overrides:
        _override(data, axes, override)

    def read(key: str, chosen: dict[str, Any]) -> Any:
        return chosen.get(key, _get(data, key))

    variants = []
    for label, chosen in combinations(axes, read):
        resolved = deepcopy(data)
        for key, value in chosen.items():
            _set(resolved, key, value)
        variants.append(Variant(label, parse_spec(resolved)))
    return variants


def _override(data: dict[str, Any], axes: Axes, override: str) -> None:
    given, equals, text = override.partition("=")
    if not equals or not given.strip():
        raise WorkloadError(f"override {override!r}: must be key=value")
    key = resolve_key(given.strip())
    value = _toml_value(text.strip())
    swept = dist_parts(key) or key
    axes.pop(swept, None)
    if swept == key and is_axis(key, value):
        axes[key] = axis(key, value)
    else:
        _set(data, key, value)


def resolve_key(given: str) -> str:
    """The full key for `given`, which may be only the end of it where that is unambiguous."""
    keys = spec_keys()
    if given in keys:
        return given
    found = [key for key in keys if f".{key}".endswith(f".{given}")]
    path, _, part = given.rpartition(".")
    if not found and part in Dist.__dataclass_fields__:
        found = [
            f"{key}.{part}"
            for key, kind in keys.items()
            if kind is Dist and f".{key}".endswith(f".{path}")
        ]
    if len(found) > 1:
        raise WorkloadError(f"key {given!r} is ambiguous: {', '.join(found)}")
    if found:
        return found[0]
    if any(key.startswith(f"{given}.") for key in keys):
        raise WorkloadError(f"{given} is a section, not a value: set one of its keys")
    raise WorkloadError(unknown_key(given, list(keys)))


def _toml_value(text: str) -> Any:
    """A TOML value; anything that is none is plain text."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if list(parsed) == ["value"] else text


def _get(data: dict[str, Any], key: str) -> Any:
    here: Any = data
    for part in key.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return here


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    here = data
    for part in path:
        inner = here.setdefault(part, {})
        if not isinstance(inner, dict):
            inner = here[part] = {}
        here = inner
    here[last] = value
