"""What a walk trial measures: a walk workload on one backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from savermark.spec import WALKS, Schema, WalkSpec, load_walk_workload
from savermark.trial.case import BaseCase


@dataclass(frozen=True)
class WalkCase(BaseCase):
    """A walk workload on one saver; every walk is a part of the same trial."""

    spec: WalkSpec
    schema: ClassVar[Schema] = WALKS


def make_walk_cases(
    workload: str, backends: tuple[str, ...], overrides: tuple[str, ...] = ()
) -> list[WalkCase]:
    """One case for each variant of a workload (a name or a file) and each backend."""
    return [
        WalkCase(variant.spec.name, variant.label, variant.spec, backend)
        for variant in load_walk_workload(workload, overrides)
        for backend in backends
    ]
