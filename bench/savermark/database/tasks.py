"""What is done to each thread of a database: a policy is carried out, or runs are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savermark.database.live import Touched, unharmed
from savermark.retention.records import Applied
from savermark.retention.runs import RunsApplied, settle_runs
from savermark.retention.runs_plan import Addressable, check_runs, plan_runs
from savermark.retention.settle import Job, foresee, settle
from savermark.retention.verify import Check, Verification

if TYPE_CHECKING:
    from savermark.history.image import ThreadImage
    from savermark.history.rows import RowAccess
    from savermark.retention.promises import ThreadReading


@dataclass(frozen=True, slots=True)
class PolicyTask:
    """Carry out a policy on these threads (None: all)."""

    job: Job
    threads: Sequence[str] | None = None

    def images(self, rows: RowAccess, batch: int) -> Iterator[ThreadImage]:
        """The images of the threads."""
        return rows.images(self.threads, batch=batch)

    def foresee(self, image: ThreadImage) -> Applied:
        """The plan."""
        return foresee(image, self.job)

    def unprovable(self, planned: Applied, before: ThreadReading) -> str:
        """A newest state that cannot be read now cannot be shown to read the same afterwards."""
        newest = before.latest
        if planned.plan.whole or newest is None or not newest.error:
            return ""
        return (
            f"its newest state cannot be read ({newest.error}), so nothing could be proven: give "
            "--graph module:name of a graph compiled with a checkpointer that has its serializer, "
            "or delete the thread whole"
        )

    def settle(self, rows: RowAccess, image: ThreadImage) -> Applied:
        """One transaction, planned anew inside it."""
        return settle(rows, image, self.job)

    def judge(self, rows: RowAccess, found: Verification, touched: Touched) -> Verification:
        """All of them: a policy promises each."""
        return found


_PROMISED = ("orphans", "values")


class RunsTask:
    """Delete what runs stored, wherever they stored it.

    `matched` checkpoints belong to the runs: `needed` of them stay for others, the rest goes but
    for those in refused threads. `cut` checkpoints of other runs no longer read back right.
    """

    def __init__(
        self,
        run_ids: Sequence[str],
        *,
        protect: frozenset[str] = frozenset(),
        addressable: Addressable = "every",
        dry_run: bool = False,
    ) -> None:
        self.dry_run = dry_run
        self.names = check_runs(run_ids)
        self.protect, self.addressable = protect, addressable
        self.matched = self.needed = self.cut = 0

    def images(self, rows: RowAccess, batch: int) -> Iterator[ThreadImage]:
        """The threads that such a run stored in."""
        return rows.images(rows.threads_of_runs(self.names), batch=batch)

    def foresee(self, image: ThreadImage) -> Applied:
        """The plan."""
        planned = plan_runs(image, self.names, protect=self.protect, addressable=self.addressable)
        applied = Applied(image.thread_id, planned.plan, refused=planned.plan.refused)
        if self.dry_run or (applied.plan.empty and not applied.refused):  # nobody will settle it
            self._count(RunsApplied(applied, planned.matched, planned.needed, planned.cut))
        return applied

    def unprovable(self, planned: Applied, before: ThreadReading) -> str:
        """What runs stored is deleted on demand, whether or not it can be read."""
        return ""

    def settle(self, rows: RowAccess, image: ThreadImage) -> Applied:
        """One transaction, planned anew inside it."""
        done = settle_runs(rows, image.thread_id, self.names, self.protect, self.addressable, None)
        self._count(done)
        return done.applied

    def judge(self, rows: RowAccess, found: Verification, touched: Touched) -> Verification:
        """Values and orphans, and whether each row that is to stay is as it was.

        That the newest state, a pending write or a subgraph's state went is what was asked for
        where they were those of the run.
        """
        checks = [check for check in found.checks if check.check in _PROMISED]
        for name, (before, applied) in touched.items():
            whole = unharmed(before, rows.image(name), applied.plan)
            detail = "" if whole else "rows that were to stay are gone or other than before"
            checks.append(Check(name, "resume", "ok" if whole else "failed", detail))
        return Verification(tuple(checks))

    def _count(self, done: RunsApplied) -> None:
        self.matched += done.matched
        if not done.applied.refused:
            self.needed += done.needed
            self.cut += done.cut
