"""Plain TOML or JSON values -> frozen dataclasses; every mistake names its key and the fix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from types import GenericAlias
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from savermark.errors import WorkloadError, unknown
from savermark.spec.limits import check_number
from savermark.spec.schema import SAVERS, Schema
from savermark.spec.types import Dist

Data = Mapping[str, Any]
T = TypeVar("T")

#: The keys of each distribution: (needed, optional).
DIST_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fixed": (("value",), ()),
    "lognormal": (("median", "sigma"), ("min", "max")),
    "mixture": (("small", "large", "every"), ()),
}


def parse_spec(data: Data, schema: Schema = SAVERS) -> Any:
    """The spec that `data` describes; raises `WorkloadError` for the first mistake."""
    spec = _Reader(schema).table(schema.root, data, "")
    schema.check(spec)
    return spec


@cache
def spec_keys(schema: Schema = SAVERS) -> dict[str, Any]:
    """Every dotted key and the type of its value, in the order of the dataclasses."""
    return dict(_keys(schema.root, ""))


def _keys(cls: type, at: str) -> Iterator[tuple[str, Any]]:
    for name, kind in _hints(cls).items():
        if is_dataclass(kind) and kind is not Dist:
            yield from _keys(kind, f"{at}{name}.")  # type: ignore[arg-type]
        else:
            yield f"{at}{name}", kind


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def unknown_key(key: str, siblings: list[str], schema: Schema = SAVERS) -> str:
    """One line for an unknown key: the nearest in its section, else the nearest anywhere."""
    if get_close_matches(key, siblings, n=1):
        return unknown("key", key, siblings)
    tails = {known.rpartition(".")[2]: known for known in reversed(spec_keys(schema))}
    tail = key.rpartition(".")[2]
    near = get_close_matches(tail, tails, n=1)
    if near:
        return f"unknown key {key!r}: did you mean {tails[near[0]]!r}?"
    return f"unknown key {key!r}: {schema.template} lists every key"


class _Reader:
    """Reads values into dataclasses by one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def table(self, cls: type[T], data: Any, at: str) -> T:
        if not isinstance(data, Mapping):
            raise WorkloadError(f"{at.rstrip('.')} is a section, not a value: set one of its keys")
        hints: dict[str, Any] = _hints(cast("Any", cls))
        for key in data:
            if key not in hints:
                known = [f"{at}{name}" for name in hints]
                raise WorkloadError(unknown_key(f"{at}{key}", known, self.schema))
        values = {key: self._value(hints[key], value, f"{at}{key}") for key, value in data.items()}
        for item in fields(cls):  # type: ignore[arg-type]
            needed = item.default is MISSING and item.default_factory is MISSING
            if needed and item.name not in values:
                raise WorkloadError(f"key {at}{item.name} is missing")
        return cls(**values)

    def _value(self, kind: Any, value: Any, key: str) -> Any:
        if kind is Dist:
            return self._dist(value, key)
        if is_dataclass(kind):
            return self.table(kind, value, f"{key}.")  # type: ignore[arg-type]
        if get_origin(kind) is Literal:
            choices = get_args(kind)
            if value not in choices:
                known = ", ".join(repr(choice) for choice in choices)
                near = get_close_matches(str(value), choices, n=1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                raise WorkloadError(f"{key} = {value!r}: must be one of {known}{hint}")
            return value
        if isinstance(kind, GenericAlias):
            return self._numbers(value, key)
        return self._scalar(kind, value, key)

    def _numbers(self, value: Any, key: str) -> tuple[int, ...]:
        if not isinstance(value, (list, tuple)) or not value:
            raise WorkloadError(f"{key} = {value!r}: must be a list of one or more whole numbers")
        return tuple(self._scalar(int, item, key) for item in value)

    def _scalar(self, kind: Any, value: Any, key: str) -> Any:
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
            raise WorkloadError(f"{key} = {value!r}: must be {names[kind]}")
        if isinstance(value, (int, float)) and kind is not bool:
            check_number(key, value, self.schema.ranges)
        return value

    def _dist(self, value: Any, key: str) -> Dist:
        if isinstance(value, Mapping):
            return self._dist_table(value, key)
        if type(value) is not int:
            raise WorkloadError(
                f"{key} = {value!r}: must be a whole number or a distribution such as "
                '{ dist = "lognormal", median = 20, sigma = 1.2 }'
            )
        check_number(key, value, self.schema.ranges)
        return Dist(value=value)

    def _dist_table(self, table: Data, key: str) -> Dist:
        name = table.get("dist")
        if name not in DIST_KEYS:
            known = ", ".join(repr(known) for known in DIST_KEYS)
            raise WorkloadError(f"{key}.dist = {name!r}: must be one of {known}")
        needed, optional = DIST_KEYS[name]
        for part in table:
            if part not in ("dist", *needed, *optional):
                raise WorkloadError(
                    unknown(f"key of a {name} distribution", part, ("dist", *needed, *optional))
                    + f" (in {key})"
                )
        missing = [part for part in needed if part not in table]
        if missing:
            raise WorkloadError(f"{key}: a {name} distribution needs {', '.join(missing)}")
        hints = _hints(Dist)
        values: dict[str, Any] = {
            part: self._scalar(hints[part], number, f"{key}.{part}")
            for part, number in table.items()
            if part != "dist"
        }
        return Dist(dist=name, **values)
