"""A run's progress on stderr, with an estimate of the time left; nothing without a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from savermark.records import Status
from savermark.runner import Silent

if TYPE_CHECKING:
    from savermark.records import TrialResult
    from savermark.runner import Planned, Progress


@contextmanager
def progress_for(*, quiet: bool) -> Iterator[Progress]:
    """A bar on a terminal's stderr; only failed trials are named where there is none."""
    console = Console(stderr=True)
    if quiet:
        yield Silent()
    elif not console.is_terminal:
        yield _Failures(console)
    else:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        with Bar(*columns, console=console, transient=True) as bar:
            yield _Shown(console, bar)


class _Failures(Silent):
    """Names each trial that did not end well, as it ends."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def trial_finished(self, result: TrialResult, done: int, total: int) -> None:
        if result.status is not Status.OK:
            line = f"{result.status}: {result.case_id} ({result.cause})"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Shown(_Failures):
    """Adds a bar whose remaining time follows from the trials so far."""

    def __init__(self, console: Console, bar: Bar) -> None:
        super().__init__(console)
        self.bar = bar
        self.task = bar.add_task("starting", total=None)

    def started(self, total: int, resumed: int) -> None:
        if resumed:
            self.console.print(f"{resumed} trials were finished before", highlight=False)
        self.bar.update(self.task, total=total)

    def trial_started(self, planned: Planned, done: int, total: int) -> None:
        self.bar.update(self.task, description=_short(planned.case.case_id))

    def trial_finished(self, result: TrialResult, done: int, total: int) -> None:
        super().trial_finished(result, done, total)
        self.bar.update(self.task, completed=done)


def _short(name: str, width: int = 48) -> str:
    from rich.markup import escape

    return escape(name if len(name) <= width else name[: width - 1] + "…").ljust(width)
