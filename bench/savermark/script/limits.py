"""Refuses what a graph shape cannot do, by the name of the section that asks for it."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from savermark.errors import WorkloadError
from savermark.spec import WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How a workload is named, driven and measured concerns no shape.
_ALWAYS = frozenset({"name", "summary", "graph", "run", "payload", "fleet", "measure"})


def only(spec: WorkloadSpec, *sections: str) -> None:
    """Raise `WorkloadError` where another section than these (`tools`, `state.extra`) is set."""
    for name, value, default in _sections(spec):
        if value != default and name not in sections:
            known = ", ".join(f"[{section}]" for section in sections)
            raise WorkloadError(
                f"graph {spec.graph!r} has no [{name}]: leave it out; it has {known}"
            )


def _sections(spec: WorkloadSpec) -> Iterator[tuple[str, Any, Any]]:
    plain = WorkloadSpec(name=spec.name)
    for item in fields(WorkloadSpec):
        if item.name not in _ALWAYS and item.name != "state":
            yield item.name, getattr(spec, item.name), getattr(plain, item.name)
    for item in fields(spec.state):
        value, default = getattr(spec.state, item.name), getattr(plain.state, item.name)
        yield f"state.{item.name}", value, default
