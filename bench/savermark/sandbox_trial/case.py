"""What a sandbox trial measures: a sandbox workload on a checkpoint store with a blob store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from savermark.spec import SANDBOX, SandboxSpec, Schema, load_sandbox_workload
from savermark.trial.case import BaseCase


@dataclass(frozen=True)
class SandboxCase(BaseCase):
    """A sandbox workload on a pair of stores, named `sqlite+folder`."""

    spec: SandboxSpec
    schema: ClassVar[Schema] = SANDBOX


def make_sandbox_cases(
    workload: str, backends: tuple[str, ...], overrides: tuple[str, ...] = ()
) -> list[SandboxCase]:
    """One case for each variant of a workload (a name or a file) and each pair of stores."""
    return [
        SandboxCase(variant.spec.name, variant.label, variant.spec, backend)
        for variant in load_sandbox_workload(workload, overrides)
        for backend in backends
    ]
