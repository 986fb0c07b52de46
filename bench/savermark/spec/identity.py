"""A spec as JSON and back, and the fingerprint that says whether two are the same."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from savermark.spec.parse import DIST_KEYS, parse_spec
from savermark.spec.schema import SAVERS, Schema
from savermark.spec.types import Dist
from savermark.spec.walks import WalkSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from savermark.spec.sandbox import SandboxSpec
    from savermark.spec.types import WorkloadSpec

#: Counts changes of the payloads or of the script that give other bytes for the same spec, by the
#: class of the spec; 1 for those not named.
_GENERATIONS: dict[type, int] = {WalkSpec: 2}

#: Keys that say how often something is measured, not what: more of it may be added to a run.
_HOW_OFTEN = ("repetitions", "reads", "cold", "timeout_s")


def spec_to_json(spec: WorkloadSpec | SandboxSpec | WalkSpec) -> dict[str, Any]:
    """The spec with every key, as JSON values in the shape of its TOML file."""
    plain: dict[str, Any] = _plain(spec)
    return plain


def spec_from_json(data: Mapping[str, Any], schema: Schema = SAVERS) -> Any:
    """The inverse of `spec_to_json`; raises `WorkloadError` for a foreign shape."""
    return parse_spec(data, schema)


def fingerprint(spec: WorkloadSpec | SandboxSpec | WalkSpec) -> str:
    """16 hex digits of everything that decides what is measured.

    Not in it: the summary, and the keys of `[measure]` that say only how often.
    """
    data = spec_to_json(spec)
    del data["summary"]
    for key in _HOW_OFTEN:
        del data["measure"][key]
    text = json.dumps(
        [_GENERATIONS.get(type(spec), 1), data], sort_keys=True, separators=(",", ":")
    )
    return sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, Dist):
        return _dist(value)
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return list(value) if isinstance(value, tuple) else value


def _dist(dist: Dist) -> Any:
    if dist.dist == "fixed":
        return dist.value
    needed, optional = DIST_KEYS[dist.dist]
    return {"dist": dist.dist, **{key: getattr(dist, key) for key in (*needed, *optional)}}
