"""Workload files: find, read, override, sweep."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from savermark.errors import WorkloadError, unknown
from savermark.spec.parse import parse_spec, spec_keys, unknown_key
from savermark.spec.sandbox import SANDBOX, SandboxSpec
from savermark.spec.schema import SAVERS, Schema
from savermark.spec.sweep import Axes, axis, combinations, dist_parts, is_axis, sweep_axes
from savermark.spec.types import Dist, WorkloadSpec
from savermark.spec.walks import WALKS, WalkSpec

_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


S = TypeVar("S", WorkloadSpec, SandboxSpec, WalkSpec)

#: The families of workloads, by what a file says in its key `family`.
SCHEMAS = {schema.family: schema for schema in (SAVERS, SANDBOX, WALKS)}


@dataclass(frozen=True)
class Variant(Generic[S]):
    """One combination of a workload's swept keys; the label is empty without a sweep."""

    label: str
    spec: S


def load_workload(name_or_path: str, overrides: Sequence[str] = ()) -> list[Variant[WorkloadSpec]]:
    """Every variant of a workload, by its name or the path of a TOML file.

    `overrides` are `key=value` with a TOML value or plain text; the end of a key is enough where
    it is unambiguous. An override replaces the file's value, or the sweep over that key; a list
    of values for a key that takes one is a sweep. Raises `WorkloadError`.
    """
    return _load(name_or_path, overrides, SAVERS)


def load_sandbox_workload(
    name_or_path: str, overrides: Sequence[str] = ()
) -> list[Variant[SandboxSpec]]:
    """Like `load_workload`, for the workloads of `savermark sandbox run`."""
    return _load(name_or_path, overrides, SANDBOX)


def load_walk_workload(name_or_path: str, overrides: Sequence[str] = ()) -> list[Variant[WalkSpec]]:
    """Like `load_workload`, for the workloads of `savermark walk`."""
    return _load(name_or_path, overrides, WALKS)


def _load(name_or_path: str, overrides: Sequence[str], schema: Schema) -> list[Variant[Any]]:
    path = _find(name_or_path, schema)
    try:
        data = _read(path)
        _check_family(data.pop("family", SAVERS.family), name_or_path, schema)
        return _variants(data, path.stem, overrides, schema)
    except WorkloadError as error:
        raise WorkloadError(f"workload {name_or_path}: {error}") from None


def _check_family(family: Any, name: str, schema: Schema) -> None:
    if family not in SCHEMAS:
        raise WorkloadError(unknown("family", str(family), SCHEMAS))
    if family != schema.family:
        other = SCHEMAS[family]
        raise WorkloadError(f"it is {other.noun}: use `{other.verb} {name}`")


def workload_names(family: str = SAVERS.family) -> list[str]:
    """The workloads of a family that ship with savermark."""
    return sorted(
        path.stem for path in _shipped() if _read(path).get("family", SAVERS.family) == family
    )


def _shipped() -> list[Path]:
    return [path for path in workload_folder().glob("*.toml") if not path.stem.startswith("_")]


def workload_folder() -> Path:
    """Where they are: beside the package in a wheel, at the root in a source tree."""
    package = Path(__file__).parents[1]
    installed = package / "workloads"
    return installed if installed.is_dir() else package.parents[1] / "workloads"


def _find(name_or_path: str, schema: Schema) -> Path:
    given = Path(name_or_path)
    if given.suffix == ".toml" or len(given.parts) > 1:
        return given
    if name_or_path not in {path.stem for path in _shipped()}:
        names = workload_names(schema.family)
        raise WorkloadError(unknown("workload", name_or_path, names))
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


def _variants(
    data: dict[str, Any], name: str, overrides: Sequence[str], schema: Schema
) -> list[Variant[Any]]:
    axes = sweep_axes(data.pop("sweep", {}), schema)
    data.setdefault("name", name)
    for override in overrides:
        _override(data, axes, override, schema)

    def read(key: str, chosen: dict[str, Any]) -> Any:
        return chosen.get(key, _get(data, key))

    variants = []
    for label, chosen in combinations(axes, read):
        resolved = deepcopy(data)
        for key, value in chosen.items():
            _set(resolved, key, value)
        variants.append(Variant(label, parse_spec(resolved, schema)))
    return variants


def _override(data: dict[str, Any], axes: Axes, override: str, schema: Schema) -> None:
    given, equals, text = override.partition("=")
    if not equals or not given.strip():
        raise WorkloadError(f"override {override!r}: must be key=value")
    key = resolve_key(given.strip(), schema)
    value = _toml_value(text.strip())
    swept = dist_parts(key, schema) or key
    axes.pop(swept, None)
    if swept == key and is_axis(key, value, schema):
        axes[key] = axis(key, value)
    else:
        _set(data, key, value)


def resolve_key(given: str, schema: Schema = SAVERS) -> str:
    """The full key for `given`, which may be only the end of it where that is unambiguous."""
    keys = spec_keys(schema)
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
    raise WorkloadError(unknown_key(given, list(keys), schema))


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
