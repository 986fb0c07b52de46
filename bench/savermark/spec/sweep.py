"""`[sweep]`: lists of values, their product, and a short label for each combination."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from types import GenericAlias
from typing import Any

from savermark.errors import WorkloadError
from savermark.spec.parse import spec_keys, unknown_key
from savermark.spec.schema import SAVERS, Schema
from savermark.spec.types import Dist

Axes = dict[str, list[Any]]

#: Last parts of keys that say nothing without the section before them.
_VAGUE = frozenset(
    {
        *("kind", "every", "back", "bytes", "count", "order", "writes", "seed", "width"),
        *("steps", "resume", "driven", "reads", "cold", "keep", "share", "files"),
    }
)

#: Swept keys that change nothing when another key has this value.
_INERT: dict[str, tuple[str, Any]] = {
    "state.messages.snapshot_frequency": ("state.messages.kind", "full"),
    "state.files.snapshot_frequency": ("state.files.kind", "full"),
    "state.extra.frequencies": ("state.extra.kind", "full"),
}


def sweep_axes(table: Any, schema: Schema = SAVERS) -> Axes:
    """The swept keys and their values, in the file's order; dotted keys or nested tables."""
    if not isinstance(table, Mapping):
        raise WorkloadError("[sweep] is a section: give each key in it a list of values")
    axes: Axes = {}
    for key, values in _flat(table, "", spec_keys(schema)):
        if key not in spec_keys(schema):
            line = unknown_key(key, list(spec_keys(schema)), schema)
            raise WorkloadError(f"{line} (in [sweep])")
        if key in ("name", "summary"):
            raise WorkloadError(f"sweep.{key}: a workload has one {key}")
        axes[key] = axis(key, values)
    return axes


def axis(key: str, values: Any) -> list[Any]:
    """The values to try for a key; raises `WorkloadError` when there are none."""
    if not isinstance(values, list) or not values:
        raise WorkloadError(f"sweep of {key} = {values!r}: must be a list of values to try")
    return values


def _flat(table: Mapping[str, Any], at: str, keys: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and f"{at}{key}" not in keys:
            yield from _flat(value, f"{at}{key}.", keys)
        else:
            yield f"{at}{key}", value


def is_axis(key: str, value: Any, schema: Schema = SAVERS) -> bool:
    """Whether an override gives a key several values to try, and not one value that is a list."""
    if not isinstance(value, list):
        return False
    listed = isinstance(spec_keys(schema)[key], GenericAlias)
    return bool(value) and isinstance(value[0], list) if listed else True


def combinations(axes: Axes, read: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(label, key -> value) of each combination; those that would repeat another are left out.

    `read(key, chosen)` tells the value a key has in a combination. A snapshot frequency means
    nothing for a channel in full mode: such a combination comes once, without it.
    """
    names = short_names(list(axes))
    seen: set[str] = set()
    for values in product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        for key, (decider, value) in _INERT.items():
            if key in chosen and read(decider, chosen) == value:
                del chosen[key]
        label = ",".join(f"{names[key]}={show(value)}" for key, value in chosen.items())
        if label not in seen:
            seen.add(label)
            yield label, chosen


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The shortest ending of each key that tells it from the others and says what it is."""
    names: dict[str, str] = {}
    for key in keys:
        parts = key.split(".")
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[-count:])
            clash = any(other != key and f".{other}".endswith(f".{name}") for other in keys)
            if not clash and not (count == 1 and name in _VAGUE):
                break
        names[key] = name
    return names


def show(value: Any) -> str:
    """A value in a label: `10`, `true`, `lognormal:20:1.2`, `2+5`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ":".join(str(part) for part in value.values())
    if isinstance(value, list):
        return "+".join(show(item) for item in value)
    return str(value)


def dist_parts(key: str, schema: Schema = SAVERS) -> str | None:
    """`conversation.turns` for `conversation.turns.median`; None when `key` is no such part."""
    path, _, part = key.rpartition(".")
    is_dist = spec_keys(schema).get(path) is Dist
    return path if is_dist and part in Dist.__dataclass_fields__ else None
