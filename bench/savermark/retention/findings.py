"""What a check of a thread found, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from savermark.retention.digest import RANK, Verdict

CHECKS = {
    "latest": "latest resume",
    "resume": "resume of kept checkpoints",
    "branch": "branch from older turns",
    "orphans": "orphan rows",
    "values": "values",
    "pending": "pending writes and interrupts",
}
_SHOWN = 3  # problems a detail names


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one thread: a key of `CHECKS`, its verdict and what was found.

    `unproven` is no pass: the rows do not tell whether something was lost. `unsupported` is one
    that this saver cannot be asked, and is not held against it.
    """

    thread_id: str
    check: str
    verdict: Verdict
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is held against the policy."""
        return self.verdict in ("ok", "unsupported")


@dataclass
class Findings:
    """What one check found: problems, and how much was looked at."""

    problems: list[tuple[Verdict, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict, what: str) -> None:
        """A problem."""
        self.problems.append((verdict, what))

    def check(self, thread_id: str, name: str) -> Check:
        """The check, with its worst verdict and its first problems."""
        ordered = sorted(self.problems, key=lambda problem: RANK[problem[0]])
        verdict: Verdict = ordered[0][0] if ordered else "ok"
        told = [what for _, what in ordered[:_SHOWN]]
        if len(ordered) > _SHOWN:
            told.append(f"and {len(ordered) - _SHOWN} more")
        return Check(thread_id, name, verdict, "; ".join(told or self.notes))
