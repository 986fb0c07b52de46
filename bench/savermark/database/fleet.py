"""Many threads handled one after the other: foreseen without writing, or done and read back.

What is done to a thread is a `Task`; here are the batches, the pauses, the check of every thread
that was touched, and the sums. Memory grows with the refusals and the threads listed, not with the
threads handled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from savermark.database.live import Touched, beside_runs
from savermark.database.tally import Tally
from savermark.errors import ContractError, SavermarkError, UsageError
from savermark.history.rows import BATCH, CHUNK
from savermark.retention.keep import GRACE
from savermark.retention.verify import Verification, snapshot_promises, verify_retention

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.history.image import ThreadImage
    from savermark.history.rows import RowAccess
    from savermark.retention.promises import ThreadReading
    from savermark.retention.records import Applied
    from savermark.retention.verify import Promises

_SLICE = 0.1  # seconds; a pause ends this soon when the job is stopped


class Task(Protocol):
    """What is done to each thread."""

    def images(self, rows: RowAccess, batch: int) -> Iterator[ThreadImage]:
        """The threads it is about."""
        ...

    def foresee(self, image: ThreadImage) -> Applied:
        """The plan, as the result of having done nothing."""
        ...

    def unprovable(self, planned: Applied, before: ThreadReading) -> str:
        """Why nobody could show afterwards that the thread is unharmed; empty: go on."""
        ...

    def settle(self, rows: RowAccess, image: ThreadImage) -> Applied:
        """Do it, or leave the thread untouched and say why."""
        ...

    def judge(self, rows: RowAccess, found: Verification, touched: Touched) -> Verification:
        """The checks that hold of what was done, from those that were made."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast: `batch` threads between two pauses of `sleep` seconds, at most `max_threads`
    changed, and `stop` asked after each thread. Raises `UsageError` for what cannot be.
    """

    batch: int = BATCH
    sleep: float = 0.0
    max_threads: int | None = None
    stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise UsageError(f"batch={self.batch}: the number of threads must be 1 or more")
        if not self.sleep >= 0:
            raise UsageError(f"sleep={self.sleep}: the seconds must be 0 or more")
        if self.max_threads is not None and self.max_threads < 1:
            raise UsageError(f"max-threads={self.max_threads}: the number must be 1 or more")

    def left(self, changed: int) -> int | None:
        """How many more threads may be changed."""
        return None if self.max_threads is None else self.max_threads - changed


@dataclass(frozen=True, slots=True)
class Check:
    """How the threads that are touched are read back: through a saver that cannot write."""

    reader: BaseCheckpointSaver[Any]
    graph: Any = None
    protect: frozenset[str] = frozenset()
    grace: timedelta = GRACE
    now: datetime | None = None


def foresee(rows: RowAccess, task: Task, tally: Tally, pace: Pace) -> None:
    """Sum up what the task would do; nothing is written."""
    for image in task.images(rows, pace.batch):
        tally.add(task.foresee(image), done=False)
        if pace.left(tally.changed) == 0:
            tally.stopped = "max-threads"
            return
        if pace.stop():
            tally.stopped = "interrupted"
            return


def carry_out(
    rows: RowAccess,
    task: Task,
    tally: Tally,
    pace: Pace,
    check: Check,
    on_progress: Callable[[Tally], object] = lambda tally: None,
) -> None:
    """Do it batch by batch; each batch is read before and after.

    A thread that is refused is left as it was and named, and the rest goes on. Raises
    `ContractError` right after the batch in which a thread does not read back as promised. What
    the engine raises ends the job too; `tally` tells what was done by then.
    """
    rested_at = 0
    for part in _batches(rows, task, tally, pace, on_progress):
        if tally.changed > rested_at:
            _rest(pace)
            rested_at = tally.changed
        if pace.stop():
            tally.stopped = "interrupted"
            return
        _do(rows, task, tally, pace, check, part)
        on_progress(tally)
        if tally.failed_threads:
            tally.stopped = "verification"
            raise ContractError(
                f"VERIFICATION FAILED: {tally.failed_threads} threads do not read back as "
                "promised, and the job was stopped: restore them from a backup and report this"
            )
        if pace.left(tally.changed) == 0:
            tally.stopped = tally.stopped or "max-threads"
        if tally.stopped:
            return


@dataclass(frozen=True, slots=True)
class _Planned:
    image: ThreadImage
    first: Applied


def _batches(
    rows: RowAccess,
    task: Task,
    tally: Tally,
    pace: Pace,
    on_progress: Callable[[Tally], object],
) -> Iterator[Sequence[_Planned]]:
    """The threads with something to do or refuse; no more of them than a batch's rows."""
    part: list[_Planned] = []
    held = 0
    for image in task.images(rows, pace.batch):
        if pace.stop():
            tally.stopped = "interrupted"
            return
        first = task.foresee(image)
        if first.plan.empty and not first.refused:
            tally.add(first, done=True)
            on_progress(tally)
            continue
        part.append(_Planned(image, first))
        held += image.rows
        room = pace.left(tally.changed)
        if len(part) >= pace.batch or held >= CHUNK or (room is not None and len(part) >= room):
            yield part
            part, held = [], 0
    if part:
        yield part


def _do(
    rows: RowAccess,
    task: Task,
    tally: Tally,
    pace: Pace,
    check: Check,
    part: Sequence[_Planned],
) -> None:
    """One batch. What was done before the engine failed is read back too."""
    before = _promises(tally, check, [each.first for each in part if not each.first.refused])
    touched: dict[str, tuple[ThreadImage, Applied]] = {}
    try:
        for each in part:
            if pace.stop():
                tally.stopped = "interrupted"
                break
            reading = before.threads.get(each.first.thread_id)
            if reading is not None and (why := task.unprovable(each.first, reading)):
                tally.add(replace(each.first, refused=why), done=True)
                continue
            applied = task.settle(rows, each.image)
            tally.add(applied, done=True)
            if applied.thread_id in before.threads and not applied.refused:
                touched[applied.thread_id] = each.image, applied
    except SavermarkError:
        with suppress(SavermarkError):  # the first is the one to tell
            _verify(rows, task, tally, check, before, touched)
        raise
    _verify(rows, task, tally, check, before, touched)


def _promises(tally: Tally, check: Check, plans: Sequence[Applied]) -> Promises:
    began = time.perf_counter_ns()
    found = snapshot_promises(
        check.reader,
        [each.thread_id for each in plans],
        protect=check.protect,
        graph=check.graph,
        plans=plans,
    )
    tally.verify_ns += time.perf_counter_ns() - began
    return found


def _verify(
    rows: RowAccess, task: Task, tally: Tally, check: Check, before: Promises, touched: Touched
) -> None:
    began = time.perf_counter_ns()
    found = verify_retention(
        replace(before, threads={name: before.threads[name] for name in touched}),
        check.reader,
        plans=[applied for _, applied in touched.values()],
        grace=check.grace,
        now=check.now or datetime.now(UTC),
    )
    found = task.judge(rows, found, touched)
    tally.add_verification(beside_runs(rows, found, touched))
    tally.verify_ns += time.perf_counter_ns() - began


def _rest(pace: Pace) -> None:
    until = time.monotonic() + pace.sleep
    while not pace.stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _SLICE))
