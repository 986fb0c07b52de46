"""What the verbs share that change many threads: stopping, progress, and how it is printed."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from savermark.cli.db_options import serde_of
from savermark.cli.output import Shown, emit_frame, emit_json, remark
from savermark.errors import ContractError, Interrupted, SavermarkError
from savermark.units import amount, format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.database.base import Database
    from savermark.database.fleet import Pace, Task
    from savermark.database.tally import Tally

_N, _B = format_count, format_bytes
_EVERY = 5.0  # seconds between two lines of progress where there is no terminal
# Section -> its title and its columns.
SECTIONS: dict[str, tuple[str, Shown]] = {
    "tables": (
        "Rows by table",
        {"table": ("table", str), "rows": ("rows", _N), "logical_bytes": ("logical", _B)},
    ),
    "threads": (
        "Threads that lose most",
        {
            "thread_id": ("thread", str),
            "rows": ("rows", _N),
            "logical_bytes": ("logical", _B),
            "checkpoints_rows": ("checkpoints", _N),
            "writes_rows": ("writes", _N),
            "blobs_rows": ("blobs", _N),
            "addressable": ("stay addressable", _N),
            "support": ("stay as support", _N),
        },
    ),
    "refused": (
        "Threads left untouched",
        {"thread_id": ("thread", repr), "reason": ("reason", str)},
    ),
}


class Stop:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked


@contextmanager
def stopping() -> Iterator[Stop]:
    """The first interrupt ends the job after the thread it is at, the second one at once.

    Either way each thread is as before or as after: what is undone is one transaction.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread is told of signals
        return
    known = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def asked(number: int, frame: object) -> None:
        stop.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        click.echo("stopping after this thread; again to stop at once", err=True)

    for each in known:
        signal.signal(each, asked)
    try:
        yield stop
    finally:
        for each, handler in known.items():
            signal.signal(each, handler)


@contextmanager
def shown_progress(count: Callable[[], int], *, quiet: bool) -> Iterator[Callable[[Tally], None]]:
    """A bar on a terminal's stderr, else a line now and then; `count` counts all threads."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    console = Console(stderr=True)
    if quiet:
        yield lambda tally: None
    elif not console.is_terminal:
        yield _Lines()
    else:
        columns = (MofNCompleteColumn(), TextColumn("threads, {task.description}"), Elapsed())
        with Progress(BarColumn(24), *columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=count())
            yield lambda tally: bar.update(task, completed=tally.seen, description=_so_far(tally))


class _Lines:
    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, tally: Tally) -> None:
        if tally.changed and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            click.echo(f"{amount(tally.seen, 'thread')} looked at, {_so_far(tally)}", err=True)


def _so_far(tally: Tally) -> str:
    refused = f", {len(tally.refused)} refused" if tally.refused else ""
    return f"{amount(tally.rows, 'row')} deleted in {_N(tally.changed)}{refused}"


@dataclass(frozen=True, slots=True)
class Work:
    """A job over the threads of a database, as the options of a verb say it."""

    database: Database
    tally: Tally
    pace: Pace
    report: Callable[[], None]
    graph: Any = None
    protect: frozenset[str] = frozenset()
    grace: timedelta = timedelta(hours=1)
    quiet: bool = False

    def foresee(self, task: Task) -> None:
        """Report what would be done; nothing is written."""
        from savermark.database.fleet import foresee

        foresee(self.database.rows, task, self.tally, self.pace)
        self.report()

    def do(self, task_of: Callable[[BaseCheckpointSaver[Any]], Task]) -> None:
        """Do it; whatever ends it, what was done by then is reported first.

        `task_of` makes the task from a saver that cannot write. Raises `Interrupted`.
        """
        from savermark.database.fleet import Check, carry_out

        self.database.check_writable()
        tally = self.tally
        try:
            with (
                stopping() as stop,
                self.database.reader(serde_of(self.graph)) as reader,
                shown_progress(self._count, quiet=self.quiet) as shown,
            ):
                carry_out(
                    self.database.rows,
                    task_of(reader),
                    tally,
                    replace(self.pace, stop=stop),
                    Check(reader, self.graph, self.protect, self.grace),
                    shown,
                )
        except KeyboardInterrupt:
            tally.stopped = "interrupted"
        except SavermarkError:
            tally.stopped = tally.stopped or "error"
            self.report()
            raise
        self.report()
        if tally.stopped == "interrupted":
            raise Interrupted(
                f"stopped after {amount(tally.seen, 'thread')}, {_N(tally.changed)} of them "
                "changed and whole: run the same command again to go on"
            )

    def _count(self) -> int:
        return sum(1 for _ in self.database.rows.threads())


def exit_code(tally: Tally) -> int:
    """3 where a thread was refused, or could not be proved."""
    return ContractError.exit_code if tally.refused or not tally.proven else 0


def emit_changes(
    document: dict[str, Any], lines: list[str], fmt: str, *, quiet: bool = False
) -> None:
    """The whole document, or summary and lists; a CSV holds the threads that change."""
    if fmt == "json":
        emit_json(document)
    elif fmt == "csv":
        emit_rows(document, "threads", fmt)
        for each in document["refused"]:
            remark(f"left untouched: {each['thread_id']!r}: {each['reason']}", quiet=quiet)
    else:
        for line in lines:
            click.echo(line)
        for section in SECTIONS:
            if document[section] and (section != "tables" or document["totals"]["rows"]):
                click.echo()
                emit_rows(document, section, fmt)
        _tell_verification(document, fmt)


def summary(document: dict[str, Any], what: str) -> list[str]:
    """What a person wants to know first."""
    totals, done = document["totals"], document["done"]
    lines = [
        f"{what} on {document['database']['address']}: "
        f"{amount(totals['threads'], 'thread')} looked at, "
        f"{_N(totals['changed'])} {'changed' if done else 'would change'}, "
        f"{_N(totals['refused'])} refused",
        f"{amount(totals['rows'], 'row')} with {_B(totals['logical_bytes'])} of payload "
        f"{'deleted' if done else 'would go'}",
    ]
    if document["stopped"] == "max-threads":
        lines.append("stopped at --max-threads: there may be more to do")
    if done and totals["rows"]:
        lines.append("the space stays with the database: savermark db compact gives it back")
    return lines


def emit_rows(document: dict[str, Any], section: str, fmt: str) -> None:
    """One list of a document."""
    import pandas as pd

    title, show = SECTIONS[section]
    rows = document[section]
    frame = pd.DataFrame(rows, columns=list(rows[0]) if rows else list(show), dtype=object)
    if fmt == "md":
        click.echo(f"**{title}**\n")
    emit_frame(frame, fmt, show=show, title=title)


def _tell_verification(document: dict[str, Any], fmt: str) -> None:
    from savermark.retention.findings import CHECKS
    from savermark.retention.verify import SHOWN

    found = document["verification"]
    if found is None:
        return
    mark = "**" if fmt == "md" else ""
    click.echo(f"\n{mark}Verification: {found['verdict']}{mark}")
    point = "- " if fmt == "md" else "  "
    if fmt == "md":
        click.echo()
    for name, counts in found["checks"].items():
        if told := ", ".join(f"{counts[v]} {SHOWN[v]}" for v in SHOWN if counts.get(v)):
            click.echo(f"{point}{CHECKS[name]}: {told}")
    for each in found["failures"]:
        what = f"{SHOWN[each['verdict']]} {CHECKS[each['check']]}: {each['detail']}"
        click.echo(f"{point}thread {each['thread_id']!r}: {what}")
