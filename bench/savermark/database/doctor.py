"""The unsafe forms in a database, each with what it breaks and what to do.

Suspects are found by the same passes that `inspect` makes; only their threads are looked at row by
row. What is merely left over or odd is a notice: nothing reads back wrong because of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from savermark.database.inspect import GRACE, Loss, caller_of, losses_of
from savermark.database.links import head_of
from savermark.history.image import ThreadImage
from savermark.retention.age import seconds_of
from savermark.retention.damage import Damage, damages
from savermark.units import amount, format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from savermark.database.base import Clash, Database, Space

Severity = Literal["broken", "notice"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong (`broken`) or worth knowing (`notice`).

    `thread_id`, `checkpoint_ns` and `checkpoint_id` say where; of a notice that stands for many
    they name an example, and `count` says how many there are.
    """

    kind: str
    severity: Severity
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    what: str
    breaks: str
    fix: str
    count: int = 1


def diagnose(
    database: Database,
    *,
    threads: Sequence[str] | None = None,
    grace: timedelta = GRACE,
    everything: bool = False,
    values: bool = False,
    now: datetime | None = None,
) -> Iterator[Finding]:
    """Everything that is found, what is broken first.

    `everything` looks at every thread row by row, which also finds rows in the middle of a thread
    that cannot be read. `values` compares what checkpoints store under equal versions, for which
    every checkpoint is opened. Memory grows with the suspects' ids alone.
    """
    now = now or datetime.now(UTC)
    notes = _Notes()
    with database.reading() as reading:
        suspects = notes.take(reading.spaces(threads))
        suspects |= _among(reading.suspects(), threads)
        losses = losses_of(reading.orphans(threads), now, grace)
        clashes = [_clash(each) for each in reading.clashes(threads)] if values else []
    looked = threads if everything else sorted(suspects)
    if everything or looked:
        for image in database.rows.images(looked):
            for damage in damages(notes.unsealed(image)):
                yield _finding(damage)
    yield from clashes
    yield from notes.findings()
    yield from (_loss(loss) for loss in losses)


def is_broken(findings: Iterable[Finding]) -> bool:
    """Whether any finding is more than a notice."""
    return any(finding.severity == "broken" for finding in findings)


def _among(names: Iterable[str], threads: Sequence[str] | None) -> set[str]:
    return set(names) if threads is None else set(names).intersection(threads)


def _finding(damage: Damage) -> Finding:
    where = (damage.thread_id, damage.checkpoint_ns, damage.checkpoint_id)
    return Finding(damage.kind, "broken", *where, damage.what, damage.breaks, damage.fix)


def _clash(clash: Clash) -> Finding:
    return Finding(
        "equal-versions",
        "broken",
        clash.thread_id,
        clash.checkpoint_ns,
        clash.checkpoint_id,
        f"stores another value of {clash.channel!r} under version {clash.version} than "
        f"{clash.other_id}",
        "a saver that stores each version once would give one of them the other's value",
        "look for a node that changes its input in place; do not copy the thread to another saver",
    )


class _Notes:
    """What the links and names of all namespaces tell, one thread at a time."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, tuple[str, str, str]]] = {}

    def take(self, spaces: Iterable[Space]) -> set[str]:
        """Read a pass to its end; the threads that must be looked at closely."""
        suspects = set()
        for thread, group in groupby(spaces, attrgetter("thread_id")):
            roots = frozenset[str]()
            calls = []
            for space in group:
                head = head_of(space)
                if not head.sound or head.circle or space.unreadable:
                    suspects.add(thread)
                where = (thread, space.checkpoint_ns, space.head_id)
                undated = sum(1 for name in space.links if seconds_of(name) is None)
                if undated:
                    self._note("undated", where, undated)
                if not space.checkpoint_ns:
                    roots = frozenset(space.links)
                elif (caller := caller_of(space)) is not None:
                    calls.append((caller, where))
            for caller, where in calls:
                if caller not in roots:
                    self._note("dead-namespace", where)
            self._name(thread)
        return suspects

    def unsealed(self, image: ThreadImage) -> ThreadImage:
        """The image, empty where an encrypting serializer wrote it: that is no damage."""
        sealed = [row for row in image.checkpoints if "+" in row.unreadable]
        if not sealed:
            return image
        self._note("encrypted", (image.thread_id, *sealed[-1].key))
        return ThreadImage(image.thread_id)

    def _name(self, thread: str) -> None:
        if thread.isascii() and thread.lstrip("-").isdigit():
            self._note("integer-id", (thread, "", ""))
        if "\0" in thread:
            self._note("nul-in-id", (thread, "", ""))
        if thread != thread.strip() or not thread:
            self._note("blank-in-id", (thread, "", ""))

    def _note(self, kind: str, where: tuple[str, str, str], count: int = 1) -> None:
        before, first = self._found.get(kind, (0, where))
        self._found[kind] = (before + count, first)

    def findings(self) -> Iterator[Finding]:
        """One notice a kind."""
        for kind, (what, breaks, fix) in _NOTES.items():
            if kind in self._found:
                count, where = self._found[kind]
                text = what.format(n=format_count(count))
                yield Finding(kind, "notice", *where, text, breaks, fix, count)


_NOTES = {
    "encrypted": (
        "{n} threads are encrypted and were not judged",
        "nothing: what their checkpoints need of one another cannot be seen from here",
        "the application's own saver reads them; retention does with --graph and its serializer",
    ),
    "dead-namespace": (
        "{n} namespaces of subgraph calls whose calling checkpoint is gone",
        "nothing can reach their rows any more, and they stay for ever",
        "savermark db prune takes them, unless it refuses the thread",
    ),
    "undated": (
        "{n} checkpoints have ids that carry no time",
        "rules by age keep them for ever; which of them is the latest is decided by their spelling",
        "let the runtime make the ids",
    ),
    "integer-id": (
        "{n} threads have ids that look like whole numbers",
        "an application that passes them as numbers cannot read them back from Postgres",
        "pass thread ids as text",
    ),
    "nul-in-id": (
        "{n} threads have an id with a NUL character",
        "Postgres refuses it, so the thread cannot move there; tools that print it cut it off",
        "copy the thread to an id without it",
    ),
    "blank-in-id": (
        "{n} threads have an id that is empty, or begins or ends with blanks",
        "it is easily taken for another one",
        "copy the thread to an id without them",
    ),
}


def _loss(loss: Loss) -> Finding:
    total = loss.old + loss.undated + loss.young
    named = "no checkpoint is stored" if loss.table == "writes" else "no checkpoint names a version"
    young = f", {format_count(loss.young.rows)} of them too young to tell"
    return Finding(
        f"orphan-{loss.table}",
        "notice",
        loss.example,
        "",
        "",
        f"{format_count(total.rows)} {loss.table} ({format_bytes(total.logical_bytes)}) in "
        f"{amount(loss.threads, 'thread')} for which {named}{young if loss.young.rows else ''}",
        "they take space and nothing reads them",
        "savermark db prune takes them",
        total.rows,
    )
