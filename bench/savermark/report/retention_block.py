"""retention.md: before, after and the verdict, fit for a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from savermark.checks import busy_load
from savermark.frame.retention import FAMILY, verdicts
from savermark.report.markdown import cell, markdown_grid
from savermark.report.retention_grid import retention_grids
from savermark.retention.findings import CHECKS

if TYPE_CHECKING:
    from savermark.frame.retention import Judged
    from savermark.results import RunResult

NO_PROOF = "The scenario itself checks each answer and the final state; no policy is verified."


_LEGEND = (
    "Before: loaded. After: the policy was carried out. Space given back: the store was compacted, "
    "too. Payload: bytes as serialized; stored: as the engine keeps them. After / before: ratio "
    "of medians and its 95 % interval, which holds 1 where no change can be told."
)


def is_retention(run: RunResult) -> bool:
    """Whether any case of the run has a policy."""
    return any(case.get("family") == FAMILY for case in run.cases.values())


def retention_verdict(run: RunResult) -> str:
    """One line over all cases."""
    judged = verdicts(run)
    if not judged:
        return NO_PROOF
    bad = [each for each in judged if each.judged and not each.ok]
    none = len([each for each in judged if not each.judged])
    counted = f"{len(judged)} case{'s' if len(judged) != 1 else ''}"
    if bad:
        return f"Verification FAILED in {len(bad)} of {counted}: these have no numbers."
    if none:
        return f"No verification in {none} of {counted}; ok in the others."
    return f"Verification ok in {counted}: all threads that were read back are as promised."


def retention_markdown(run: RunResult) -> str:
    """The block: the verdict, the tables, each failure and refusal, how it was made."""
    parts = [
        "## savermark retain",
        "",
        f"**{retention_verdict(run)}**",
        "",
        *_grids(run),
        *_failures(verdicts(run)),
        *_made(run),
    ]
    return "\n".join(parts).strip() + "\n"


def _grids(run: RunResult) -> Iterator[str]:
    for grid in retention_grids(run):
        yield f"### {grid.workload}\n"
        yield from markdown_grid(grid)
        yield ""


def _failures(judged: list[Judged]) -> Iterator[str]:
    for each in judged:
        if each.failures:
            yield f"### What broke: `{each.case_id}`\n"
            yield "| thread | check | detail |"
            yield "| --- | --- | --- |"
            for one in each.failures:
                told = (one["thread_id"], CHECKS[one["check"]], one["detail"])
                yield f"| {' | '.join(cell(text) for text in told)} |"
            if each.more_failures:
                yield f"\nand {each.more_failures} more"
            yield ""
        if each.reasons:
            yield f"### Left untouched: `{each.case_id}`\n"
            yield from (f"- `{thread}`: {cell(why)}" for thread, why in each.reasons)
            if each.refused > len(each.reasons):
                yield f"- and {each.refused - len(each.reasons)} more"
            yield ""


def _made(run: RunResult) -> Iterator[str]:
    judged = verdicts(run)
    numbers = not judged or any(each.ok for each in judged)
    if judged and numbers:  # a scenario has no before and after
        yield _LEGEND
    if numbers and any(busy_load(run, trial) is not None for trial in run.trials):
        yield "\n**The machine was busy: rows and bytes hold, times do not.**"
    yield ""
    yield f"Run {run.run_id}:\n\n```\n{run.header.get('command', '')}\n```"
