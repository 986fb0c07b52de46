"""The published figures that a run can be held against, where its workloads have any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from savermark.results import RunResult


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One published figure beside what this run measured."""

    source: str
    what: str
    published: str
    measured: str
    gate: str
    ok: bool | None


def rows(run: RunResult) -> list[PublishedRow]:
    """The figures that this run measured again; empty for a run of other workloads."""
    del run
    return []
