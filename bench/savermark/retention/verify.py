"""Proof that nothing needed was lost: read before, run a policy, read again, compare.

    before = snapshot_promises(saver, threads, protect=protected, graph=graph)
    done = list(apply(rows, policy, threads=threads, protect=protected))
    print(verify_retention(before, saver, plans=done).as_text())

Both readings go through the saver's public methods, the latest state by itself and every other
checkpoint by its id; a delta channel by its history. The tables are read besides for orphans.
What a value is compared by is described in `digest`. `verified` does it batch by batch.
"""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from savermark.history.rows import BATCH
from savermark.history.streaming import chunks
from savermark.retention.asking import Reader, adrive, drive
from savermark.retention.digest import Verdict
from savermark.retention.findings import CHECKS, Check
from savermark.retention.leftovers import GRACE
from savermark.retention.promises import (
    Promises,
    ThreadReading,
    asnapshot_promises,
    read_thread,
    snapshot_promises,
)
from savermark.retention.rechecks import thread_checks
from savermark.retention.scope import scope_of
from savermark.retention.told import Told, named, told_plans
from savermark.units import amount

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = [
    "CHECKS",
    "Check",
    "Promises",
    "Verification",
    "asnapshot_promises",
    "averified",
    "averify_retention",
    "snapshot_promises",
    "verified",
    "verify_retention",
]

SHOWN: Mapping[Verdict, str] = {
    "ok": "ok",
    "failed": "FAILED",
    "unproven": "NOT PROVABLE",
    "unsupported": "unsupported",
}


@dataclass(frozen=True, slots=True)
class Verification:
    """The checks of every thread that was read twice."""

    checks: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every check passed. What cannot be proved has not passed."""
        return all(check.ok for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.ok)

    @property
    def threads(self) -> int:
        """How many threads were checked."""
        return len({check.thread_id for check in self.checks})

    def __add__(self, other: Verification) -> Verification:
        """The checks of both, as of two batches."""
        return Verification(self.checks + other.checks)

    def counts(self) -> dict[str, dict[Verdict, int]]:
        """How many threads have which verdict, by check."""
        found: dict[str, dict[Verdict, int]] = {}
        for name in CHECKS:
            verdicts = [check.verdict for check in self.checks if check.check == name]
            found[name] = {verdict: verdicts.count(verdict) for verdict in SHOWN}
        return found

    @property
    def verdict(self) -> str:
        """One line."""
        if not self.checks:
            return "nothing was checked"
        if self.ok:
            return f"ok: {amount(self.threads, 'thread')} read back as promised"
        bad = len({check.thread_id for check in self.failures})
        return f"FAILED: {bad} of {self.threads} threads do not read back as promised"

    def as_text(self, limit: int = 20) -> str:
        """The verdict, a line a check, and the first failures."""
        lines = [self.verdict]
        for name, counts in self.counts().items():
            told = ", ".join(f"{n} {SHOWN[verdict]}" for verdict, n in counts.items() if n)
            lines.append(f"  {CHECKS[name]}: {told or 'not asked'}")
        for check in self.failures[:limit]:
            what = f"{SHOWN[check.verdict]} {CHECKS[check.check]}: {check.detail}"
            lines.append(f"thread {check.thread_id!r}: {what}")
        if len(self.failures) > limit:
            lines.append(f"and {len(self.failures) - limit} more")
        return "\n".join(lines)

    def as_markdown(self, limit: int = 20) -> str:
        """The same as a table, fit for a pull request."""
        lines = [f"**{self.verdict}**", "", "| check | ok | failed | not provable | unsupported |"]
        lines.append("| --- | ---: | ---: | ---: | ---: |")
        for name, n in self.counts().items():
            row = [CHECKS[name], *(str(n[verdict]) for verdict in SHOWN)]
            lines.append(f"| {' | '.join(row)} |")
        if self.failures:
            lines += ["", "| thread | check | verdict | detail |", "| --- | --- | --- | --- |"]
        for check in self.failures[:limit]:
            cells = [check.thread_id, CHECKS[check.check], SHOWN[check.verdict], check.detail]
            lines.append(f"| {' | '.join(cell(each) for each in cells)} |")
        if len(self.failures) > limit:
            lines += ["", f"and {len(self.failures) - limit} more"]
        return "\n".join(lines)


def cell(text: str) -> str:
    """A text that stays one cell of a Markdown table."""
    flat = " ".join(text.split())
    return flat.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def verify_retention(
    before: Promises,
    after: BaseCheckpointSaver[Any] | Promises,
    *,
    plans: Told = None,
    grace: timedelta = GRACE,
    now: datetime | None = None,
) -> Verification:
    """Compare what the threads promised with what they read back as now.

    `after` is the saver, or a second `snapshot_promises`. `plans` is what the policy says it did:
    plans, what `apply` returned, or for each thread the ids that stay addressable. Without it the
    latest states and the protected ids must hold, and whatever else stayed must read as before
    unless those need it: such a row may be mere support.
    """
    if not isinstance(after, Promises):
        lens = before.lens
        after = replace(before, threads=drive(after, lens.graph, _again(before)))
    return _compared(before, after, plans, grace, now)


async def averify_retention(
    before: Promises,
    after: BaseCheckpointSaver[Any] | Promises,
    *,
    plans: Told = None,
    grace: timedelta = GRACE,
    now: datetime | None = None,
) -> Verification:
    """The async twin of `verify_retention`."""
    if not isinstance(after, Promises):
        lens = before.lens
        after = replace(before, threads=await adrive(after, lens.graph, _again(before)))
    return _compared(before, after, plans, grace, now)


def _again(before: Promises) -> Reader[dict[str, ThreadReading]]:
    """What was read, once more."""
    found = {}
    for thread, old in before.threads.items():
        found[thread] = yield from read_thread(
            thread, before.lens, only=old.readings, deltas=old.deltas
        )
    return found


def _compared(
    before: Promises, after: Promises, told: Told, grace: timedelta, now: datetime | None
) -> Verification:
    plans = told_plans(told)
    at = now or datetime.now(UTC)
    checks: list[Check] = []
    for thread, old in before.threads.items():
        new = after.threads[thread]
        scope = scope_of(old, new, plans.get(thread), before.protect)
        checks += thread_checks(old, new, scope, now=at, grace=grace)
    return Verification(tuple(checks))


Prune = Callable[[list[str], Collection[str]], Told | Awaitable[Told]]


def verified(
    saver: BaseCheckpointSaver[Any],
    prune: Callable[[list[str], Collection[str]], Told],
    threads: Iterable[str],
    *,
    protect: Collection[str] = (),
    graph: Any = None,
    channels: Mapping[str, Any] | None = None,
    planned: Callable[[list[str]], Told] | None = None,
    batch: int = BATCH,
) -> Iterator[Verification]:
    """Read, prune and verify a batch of threads at a time, so that memory does not grow.

    `prune(threads, protect)` may say what it did (see `verify_retention`). Where `planned(threads)`
    says beforehand what will stay addressable, only that is read, and not every checkpoint.
    """
    named([] if not isinstance(threads, (str, bytes)) else threads)
    for part in chunks(threads, batch):
        plans = _taken(planned(part)) if planned else None
        before = snapshot_promises(
            saver, part, protect=protect, graph=graph, channels=channels, plans=plans
        )
        yield verify_retention(before, saver, plans=_taken(prune(part, protect)))


async def averified(
    saver: BaseCheckpointSaver[Any],
    prune: Prune,
    threads: Iterable[str],
    *,
    protect: Collection[str] = (),
    graph: Any = None,
    channels: Mapping[str, Any] | None = None,
    planned: Callable[[list[str]], Told | Awaitable[Told]] | None = None,
    batch: int = BATCH,
) -> AsyncIterator[Verification]:
    """The async twin of `verified`; `prune` may be a coroutine function."""
    named([] if not isinstance(threads, (str, bytes)) else threads)
    for part in chunks(threads, batch):
        plans = planned(part) if planned else None
        plans = _taken(await plans if inspect.isawaitable(plans) else plans)
        before = await asnapshot_promises(
            saver, part, protect=protect, graph=graph, channels=channels, plans=plans
        )
        done = prune(part, protect)
        told = await done if inspect.isawaitable(done) else done
        yield await averify_retention(before, saver, plans=_taken(told))


def _taken(told: Told) -> Told:
    """A prune that answers one thread after another has done its work once it is read."""
    return list(told) if isinstance(told, Iterator) else told
