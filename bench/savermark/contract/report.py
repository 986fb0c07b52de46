"""What the contract found, for a person to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from savermark.contract.run import RULES
from savermark.retention.verify import SHOWN, cell

if TYPE_CHECKING:
    from savermark.contract.run import Row


class ContractBroken(AssertionError):
    """A prune that broke the contract; the message is the report."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        super().__init__(as_text(self.rows))


def _stages(rows: Iterable[Row]) -> Mapping[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.scenario, row.mode), []).append(row)
    return found


def as_text(rows: Iterable[Row]) -> str:
    """A line a scenario and mode, and below it what is held against the prune."""
    lines = []
    for (key, mode), found in _stages(rows).items():
        done = next((row.detail for row in found if row.check == "prune"), "")
        verdict = "ok" if all(row.ok for row in found) else "FAILED"
        lines.append(f"{key} {mode}: {verdict}: {found[0].title} ({done})")
        lines += [
            f"  {SHOWN[row.verdict]} {RULES[row.check]}: {row.detail}"
            for row in found
            if not row.ok
        ]
    return "\n".join(lines)


def as_markdown(rows: Iterable[Row]) -> str:
    """A table with a row a scenario and mode, fit for a pull request."""
    lines = ["| scenario | mode | prune | broken rules |", "| --- | --- | --- | --- |"]
    for (key, mode), found in _stages(rows).items():
        done = next((row.detail for row in found if row.check == "prune"), "")
        broken = [f"{RULES[row.check]}: {row.detail}" for row in found if not row.ok]
        cells = [f"{key}: {found[0].title}", mode, done, "; ".join(broken) or "none"]
        lines.append(f"| {' | '.join(cell(each) for each in cells)} |")
    return "\n".join(lines)
