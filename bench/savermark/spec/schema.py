"""A family of workloads: its root dataclass, the ranges of its keys and what must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from savermark.spec.limits import RANGES, check_spec
from savermark.spec.types import WorkloadSpec

Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Schema:
    """What the parser, sweeps and overrides need to know of a family.

    A file says its family in its first key; one that says none is a saver workload.
    """

    family: str
    root: type[Any]
    ranges: Ranges  # dotted key -> the least and the greatest value
    check: Callable[[Any], None]  # raises `WorkloadError` for values that make no sense together
    template: str  # the file that lists every key
    verb: str  # what runs it
    noun: str  # what a workload of it is called


SAVERS = Schema(
    family="savers",
    root=WorkloadSpec,
    ranges=RANGES,
    check=check_spec,
    template="workloads/_template.toml",
    verb="savermark run",
    noun="a saver workload",
)
