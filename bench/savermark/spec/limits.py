"""What values a key may take, and which keys must agree with one another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from savermark.errors import WorkloadError, unknown
from savermark.spec.types import GRAPHS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from savermark.spec.types import Dist, PayloadSpec, WorkloadSpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_COUNT = (0, 1_000_000)
_BYTES = (0, 100_000_000)  # one value; a store's own limits come first
_FREQUENCY = (1, 1_000_000_000)  # a huge one means: never snapshot

#: Dotted key -> the least and the greatest value; a distribution's key holds for its sizes.
RANGES: dict[str, tuple[float, float]] = {
    "state.messages.snapshot_frequency": _FREQUENCY,
    "state.files.snapshot_frequency": _FREQUENCY,
    "state.files.writes": (1, 10_000),
    "state.files.file_bytes": _BYTES,
    "state.static.bytes": _BYTES,
    "state.extra.count": (0, 100),
    "state.extra.frequencies": _FREQUENCY,
    "state.extra.item_bytes": _BYTES,
    "conversation.threads": (1, 99_999),  # thread ids have five digits
    "conversation.turns": (1, 99_999),
    "conversation.human_bytes": _BYTES,
    "conversation.model_bytes": _BYTES,
    "tools.calls": (0, 1_000),
    "tools.output_bytes": _BYTES,
    "tools.externalize_over": _BYTES,
    "tools.preview_bytes": _BYTES,
    "branching.every": _COUNT,
    "branching.back": (1, 99_999),
    "subgraph.steps": (1, 1_000),
    "fan_out.width": (0, 10_000),
    "fan_out.item_bytes": _BYTES,
    "interrupts.every": _COUNT,
    "durations.every": _COUNT,
    "payload.compressibility": (0.0, 1.0),
    "payload.seed": (0, 2**63 - 1),
    "fleet.driven": (0, 99_999),
    "measure.repetitions": (1, 1_000),
    "measure.reads": (1, 10_000),
    "measure.history_limits": (1, 1_000_000),
    "measure.delete_share": (0.0, 1.0),
    "measure.timeout_s": (1.0, 86_400.0),
}

#: Keys of a distribution's table with a range of their own, whatever they are a distribution of.
_DIST_RANGES: dict[str, tuple[float, float]] = {"sigma": (0.0, 5.0), "every": (1, 1_000_000)}

#: What `savermark.payload` can make of these kinds; the others have a compressibility of their own.
COMPRESSIBILITY: dict[str, tuple[float, float]] = {
    "text": (0.3, 0.9),
    "json": (0.3, 0.9),
    "code": (0.3, 0.9),
}


def check_number(
    key: str, value: float, ranges: Mapping[str, tuple[float, float]] = RANGES
) -> None:
    """Raise `WorkloadError` when `value` is out of the range of `key`."""
    path, _, part = key.rpartition(".")
    limits = ranges.get(key) or _DIST_RANGES.get(part) or ranges.get(path)
    if limits is None or limits[0] <= value <= limits[1]:
        return
    if part in ("min", "max") and value == 0 and path in ranges:
        return  # no limit
    raise WorkloadError(f"{key} = {value}: must be from {_plain(limits[0])} to {_plain(limits[1])}")


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def check_spec(spec: WorkloadSpec) -> None:
    """Raise `WorkloadError` for values that are fine alone and make no sense together."""
    _check_name(spec.name)
    if spec.graph not in GRAPHS:
        raise WorkloadError(unknown("graph", spec.graph, GRAPHS))
    if spec.fleet.driven > spec.conversation.threads:
        raise WorkloadError(
            f"fleet.driven = {spec.fleet.driven}: must be from 0 to conversation.threads, "
            f"which is {spec.conversation.threads}"
        )
    check_common(
        spec.name,
        spec.payload,
        {
            "conversation.turns": spec.conversation.turns,
            "conversation.human_bytes": spec.conversation.human_bytes,
            "conversation.model_bytes": spec.conversation.model_bytes,
            "tools.output_bytes": spec.tools.output_bytes,
            "state.files.file_bytes": spec.state.files.file_bytes,
            "state.extra.item_bytes": spec.state.extra.item_bytes,
            "fan_out.item_bytes": spec.fan_out.item_bytes,
        },
    )


def check_common(name: str, payload: PayloadSpec, dists: Mapping[str, Dist]) -> None:
    """What every family's name, payloads and distributions must be."""
    _check_name(name)
    low, high = COMPRESSIBILITY.get(payload.kind, (0.0, 1.0))
    if not low <= payload.compressibility <= high:
        raise WorkloadError(
            f"payload.compressibility = {payload.compressibility}: must be from {low:g} to "
            f"{high:g} for payload.kind = {payload.kind!r}"
        )
    for key, dist in dists.items():
        if dist.dist == "lognormal" and dist.max and dist.max < dist.min:
            raise WorkloadError(
                f"{key}.max = {dist.max}: must be 0 (no limit) or at least {dist.min}"
            )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise WorkloadError(
            f"name = {name!r}: must be letters, digits, '.', '-' and '_', and not begin with a sign"
        )
