"""Sums of what was done to many threads, or would be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from savermark.database.inspect import Largest
from savermark.retention.findings import CHECKS, Check
from savermark.retention.records import Freed
from savermark.storage import TABLES, Table
from savermark.units import amount

if TYPE_CHECKING:
    from savermark.retention.records import Applied
    from savermark.retention.verify import Verification

TOP = 20
_FAILURES = 100  # checks that are kept by name; all are counted
Stopped = Literal["", "interrupted", "max-threads", "verification", "error"]


@dataclass(frozen=True, slots=True)
class ThreadCut:
    """What goes of one thread: rows and bytes as serialized, by table.

    `kept` checkpoints stay addressable, `support` ones stay for these; `folded` get the values of
    their delta channels stored, `grafted` links are taken out of the line.
    """

    thread_id: str
    whole: bool
    tables: dict[Table, Freed]
    kept: int
    support: int
    folded: int
    grafted: int

    @property
    def rows(self) -> int:
        """All tables together."""
        return sum(part.rows for part in self.tables.values())

    @property
    def logical_bytes(self) -> int:
        """All tables together."""
        return sum(part.logical_bytes for part in self.tables.values())


@dataclass
class Tally:
    """Counts that grow with each thread; `top` threads are listed (0: all), every refusal is.

    `stopped` says why not every thread was looked at. Times in ns.
    """

    top: int = TOP
    seen: int = 0
    changed: int = 0
    tables: dict[Table, Freed] = field(default_factory=lambda: {t: Freed() for t in TABLES})
    refused: list[tuple[str, str]] = field(default_factory=list)
    checks: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in CHECKS})
    failures: list[Check] = field(default_factory=list)
    verified: int = 0
    failed_threads: int = 0
    unproven_threads: int = 0
    stopped: Stopped = ""
    plan_ns: int = 0
    apply_ns: int = 0
    verify_ns: int = 0

    def __post_init__(self) -> None:
        self._largest = Largest[ThreadCut](self.top)

    def add(self, applied: Applied, *, done: bool) -> None:
        """One thread; with `done` the rows are those that went, else those that would."""
        self.seen += 1
        self.plan_ns += applied.plan_ns
        self.apply_ns += applied.apply_ns
        plan = applied.plan
        if applied.refused:
            self.refused.append((applied.thread_id, applied.refused))
            return
        if plan.empty:
            return
        self.changed += 1
        tables = {table: plan.freed.get(table, Freed()) for table in TABLES}
        if done:
            tables = {
                table: Freed(applied.deleted.get(table, 0), each.logical_bytes)
                for table, each in tables.items()
            }
        for table, each in tables.items():
            was = self.tables[table]
            self.tables[table] = Freed(was.rows + each.rows, was.logical_bytes + each.logical_bytes)
        cut = ThreadCut(
            applied.thread_id,
            plan.whole,
            tables,
            kept=sum(len(keep.targets) for keep in plan.kept.values()),
            support=sum(len(keep.support) for keep in plan.kept.values()),
            folded=len(plan.folds),
            grafted=len(plan.grafts),
        )
        self._largest.offer((cut.logical_bytes, cut.rows), cut)

    def add_verification(self, found: Verification) -> None:
        """What a batch reads back as."""
        self.verified += found.threads
        for name, counts in found.counts().items():
            for verdict, count in counts.items():
                self.checks[name][verdict] = self.checks[name].get(verdict, 0) + count
        bad = {check.thread_id for check in found.failures if check.verdict == "failed"}
        self.failed_threads += len(bad)
        self.unproven_threads += len({check.thread_id for check in found.failures} - bad)
        self.failures += found.failures[: _FAILURES - len(self.failures)]

    @property
    def rows(self) -> int:
        """Rows of all tables."""
        return sum(part.rows for part in self.tables.values())

    @property
    def logical_bytes(self) -> int:
        """Payload as serialized of all tables."""
        return sum(part.logical_bytes for part in self.tables.values())

    @property
    def proven(self) -> bool:
        """Whether every thread that was read back passed."""
        return not (self.failed_threads or self.unproven_threads)

    @property
    def verdict(self) -> str:
        """One line on the verification."""
        if self.failed_threads:
            of = f"{self.failed_threads} of {amount(self.verified, 'thread')}"
            return f"FAILED: {of} do not read back as promised"
        if self.unproven_threads:
            return f"NOT PROVABLE for {self.unproven_threads} of {amount(self.verified, 'thread')}"
        if not self.verified:
            return "nothing was checked"
        return f"ok: {amount(self.verified, 'thread')} read back as promised"

    def threads(self) -> tuple[ThreadCut, ...]:
        """The threads that lose most bytes."""
        return self._largest.listed()
