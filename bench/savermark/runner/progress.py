"""Who is told how a run goes on, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from savermark.records import Status, TrialResult

if TYPE_CHECKING:
    from savermark.runner.plan import Planned


class Progress(Protocol):
    """Is told how a run goes on. `done` counts trials; skipped and resumed ones are not in it."""

    def started(self, total: int, resumed: int) -> None:
        """Before the first trial: `total` are to be run, `resumed` were found finished."""

    def trial_started(self, planned: Planned, done: int, total: int) -> None:
        """A trial's process is about to be started."""

    def trial_finished(self, result: TrialResult, done: int, total: int) -> None:
        """A trial has ended and is on disk."""


class Silent:
    """A `Progress` that tells nobody."""

    def started(self, total: int, resumed: int) -> None: ...

    def trial_started(self, planned: Planned, done: int, total: int) -> None: ...

    def trial_finished(self, result: TrialResult, done: int, total: int) -> None: ...


@dataclass(slots=True)
class RunSummary:
    """How a run ended."""

    path: Path  # of run.jsonl
    counts: dict[Status, int] = field(default_factory=lambda: dict.fromkeys(Status, 0))
    resumed: int = 0  # trials that an earlier run of this result had finished

    @property
    def exit_code(self) -> int:
        """1 when a trial failed or took too long, over the whole result; else 0."""
        return int(self.counts[Status.FAILED] + self.counts[Status.TIMEOUT] > 0)
