"""Delete what runs stored: find the threads, plan and apply each in one transaction, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from savermark.history.arows import arow_access
from savermark.history.rows import ThreadBusy, row_access
from savermark.retention.lifecycle import lifecycle_of
from savermark.retention.records import Applied
from savermark.retention.runs_plan import Addressable, RunsPlan, check_runs, plan_runs
from savermark.retention.settle import PAUSE, RETRIES
from savermark.retention.statements import execute
from savermark.storage import TABLES, Table

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.history.rows import RowAccess
    from savermark.retention.exhaustive import Protect
    from savermark.retention.records import CacheLifecycle


WHY_NONE = (
    "0 matched: no stored checkpoint names such a run. A run id is stored only when it is given "
    "in the config's metadata or configurable; a top-level run_id is not"
)


@dataclass(frozen=True, slots=True)
class RunsApplied:
    """What was done to one thread, or would be where `applied` deleted nothing in a dry run."""

    applied: Applied
    matched: int
    needed: int
    cut: int = 0


@dataclass(frozen=True, slots=True)
class RunsReport:
    """What deleting runs did. `matched` = `needed` + deleted + those in refused threads."""

    run_ids: tuple[str, ...]
    dry_run: bool = False
    threads: tuple[RunsApplied, ...] = field(default=())

    @property
    def matched(self) -> int:
        """Checkpoints that belong to the runs."""
        return sum(part.matched for part in self.threads)

    @property
    def needed(self) -> int:
        """Checkpoints of the runs that stay, because others are rebuilt from them."""
        return sum(part.needed for part in self.threads)

    @property
    def cut(self) -> int:
        """Checkpoints of other runs that no longer read back right (see `runs_plan`)."""
        return sum(part.cut for part in self.threads if not part.applied.refused)

    @property
    def deleted(self) -> int:
        """Checkpoints that went, or in a dry run would go."""
        return sum(
            len(part.applied.plan.checkpoints) for part in self.threads if not part.applied.refused
        )

    @property
    def refused(self) -> tuple[RunsApplied, ...]:
        """Threads that were left untouched, each with its reason."""
        return tuple(part for part in self.threads if part.applied.refused)

    @property
    def rows(self) -> dict[Table, int]:
        """Rows of each table that went, or in a dry run would go."""
        total: dict[Table, int] = dict.fromkeys(TABLES, 0)
        for part in self.threads:
            if not part.applied.refused:
                freed = {name: each.rows for name, each in part.applied.plan.freed.items()}
                for name, rows in (freed if self.dry_run else part.applied.deleted).items():
                    total[name] += rows
        return total

    def __str__(self) -> str:
        """One line for a person."""
        if not self.matched:
            return WHY_NONE
        verb = "would be deleted" if self.dry_run else "deleted"
        line = (
            f"{self.matched} matched (threads: {len(self.threads)}), "
            f"{self.needed} kept for checkpoints of other runs, {self.deleted} {verb}"
        )
        if self.cut:
            line += f", {self.cut} older checkpoints of other runs cut off from their history"
        return f"{line}; threads refused: {len(self.refused)}" if self.refused else line


def plans_of_runs(
    rows: RowAccess,
    run_ids: Collection[str],
    *,
    protect: Protect = (),
    addressable: Addressable = "every",
) -> Iterator[RunsPlan]:
    """The plan of every thread that holds a checkpoint of these runs; reads only, streaming."""
    names = check_runs(run_ids)
    if not names:
        return
    for image in rows.images(rows.threads_of_runs(names)):
        planned = plan_runs(image, names, protect=protect, addressable=addressable)
        if planned.matched:
            yield planned


def apply_runs(
    rows: RowAccess,
    run_ids: Collection[str],
    *,
    protect: Protect = (),
    addressable: Addressable = "every",
    lifecycle: CacheLifecycle | None = None,
) -> Iterator[RunsApplied]:
    """Delete these runs, one transaction a thread, each planned anew inside it; streaming.

    A thread that cannot be followed, whose cache cannot be invalidated, or that others keep
    changing is left untouched and says why; the others go on.
    """
    names = check_runs(run_ids)
    if not names:
        return
    for thread_id in rows.threads_of_runs(names):
        done = settle_runs(rows, thread_id, names, protect, addressable, lifecycle)
        if done.matched:
            yield done


def settle_runs(
    rows: RowAccess,
    thread_id: str,
    names: frozenset[str],
    protect: Protect,
    addressable: Addressable,
    lifecycle: CacheLifecycle | None,
) -> RunsApplied:
    """`apply_runs` on one thread; one that others keep changing is refused in the end."""
    for attempt in range(RETRIES + 1):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            return _one_thread(rows, thread_id, names, protect, addressable, lifecycle)
        except ThreadBusy as error:
            if attempt == RETRIES:
                plan = plan_runs(
                    rows.image(thread_id), names, protect=protect, addressable=addressable
                )
                refused = Applied(thread_id, plan.plan, refused=str(error))
                return RunsApplied(refused, plan.matched, 0)
    raise AssertionError("unreachable")


def _one_thread(
    rows: RowAccess,
    thread_id: str,
    names: frozenset[str],
    protect: Protect,
    addressable: Addressable,
    lifecycle: CacheLifecycle | None,
) -> RunsApplied:
    began = time.perf_counter_ns()
    with rows.transaction(thread_id) as txn:
        image = txn.image()
        planned = plan_runs(image, names, protect=protect, addressable=addressable)
        at, plan = time.perf_counter_ns(), planned.plan
        if plan.refused or plan.empty:
            applied = Applied(thread_id, plan, {}, plan.refused, at - began)
            return RunsApplied(applied, planned.matched, planned.needed, planned.cut)
        if lifecycle is not None:
            try:
                lifecycle.invalidate(thread_id)
            except Exception as error:  # foreign code: whatever it raises, the cache may be stale
                why = f"its cache could not be invalidated: {type(error).__name__}: {error}"
                return RunsApplied(Applied(thread_id, plan, refused=why), planned.matched, 0)
        deleted = execute(txn, plan, image, {})
    done = time.perf_counter_ns()
    applied = Applied(thread_id, plan, deleted, "", at - began, done - at)
    return RunsApplied(applied, planned.matched, planned.needed, planned.cut)


def delete_for_runs(
    saver: BaseCheckpointSaver[Any],
    run_ids: Collection[str],
    *,
    protect: Protect = (),
    addressable: Addressable = "every",
    dry_run: bool = False,
    lifecycle: CacheLifecycle | None = None,
) -> RunsReport:
    """Delete what these runs stored in all threads and namespaces of a sync saver.

    `protect` are checkpoint ids, or whole `checkpoint_map`s, that stay with what they need;
    `addressable` says what else must read back as before (see `runs_plan`). Raises `UsageError`
    for a bare string, `Unsupported` for a saver whose rows are not known.
    """
    caches = lifecycle_of(saver, lifecycle)
    return report_of_runs(row_access(saver), run_ids, protect, addressable, dry_run, caches)


async def adelete_for_runs(
    saver: BaseCheckpointSaver[Any],
    run_ids: Collection[str],
    *,
    protect: Protect = (),
    addressable: Addressable = "every",
    dry_run: bool = False,
    lifecycle: CacheLifecycle | None = None,
) -> RunsReport:
    """The async twin of `delete_for_runs`, for sync savers too."""
    caches = lifecycle_of(saver, lifecycle)
    async with arow_access(saver) as access:
        return await access.run(
            lambda rows: report_of_runs(rows, run_ids, protect, addressable, dry_run, caches)
        )


def report_of_runs(
    rows: RowAccess,
    run_ids: Collection[str],
    protect: Protect = (),
    addressable: Addressable = "every",
    dry_run: bool = False,
    lifecycle: CacheLifecycle | None = None,
    on_thread: Callable[[RunsApplied], object] = lambda done: None,
) -> RunsReport:
    """`delete_for_runs` on rows; `on_thread` hears of each thread when it is done."""
    parts: Iterable[RunsApplied]
    if dry_run:
        parts = (
            RunsApplied(
                Applied(each.plan.thread_id, each.plan, refused=each.plan.refused),
                each.matched,
                each.needed,
                each.cut,
            )
            for each in plans_of_runs(rows, run_ids, protect=protect, addressable=addressable)
        )
    else:
        parts = apply_runs(
            rows, run_ids, protect=protect, addressable=addressable, lifecycle=lifecycle
        )
    found = []
    for part in parts:
        found.append(part)
        on_thread(part)
    return RunsReport(tuple(sorted(check_runs(run_ids))), dry_run, tuple(found))
