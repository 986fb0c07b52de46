"""report.md: the same story, short enough for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from savermark.report import background
from savermark.report.picture import Picture
from savermark.report.published import published_rows
from savermark.report.story import Chapter
from savermark.report.table import MISSING, lines, shown_columns
from savermark.report.walk_grid import Grid, walk_grids

if TYPE_CHECKING:
    import pandas as pd

    from savermark.results import RunResult

MOST_LINES = 40  # rows of the table; the page has all of them
MOST_WALKS = 120  # of a table of walks: a sweep on three backends
MOST_SUBJECTS = 3  # cases that a finding names


def markdown(
    run: RunResult,
    frames: dict[str, pd.DataFrame],
    chapters: Sequence[Chapter],
    pictures: Sequence[Picture],
) -> str:
    """The whole report as Markdown."""
    sentence, _ = background.verdict(run, frames["findings"])
    quick = " Quick profile: a first look, never a baseline." if run.quick else ""
    parts = [
        f"# savermark: run {run.run_id}",
        f"**{sentence}**{quick}",
        *(f"- **{chapter.workload}**: {' '.join(chapter.sentences)}" for chapter in chapters),
        "",
        *_table(frames["summary"]),
        *_walks(frames),
        *_published(frames),
        *_troubles(run),
        *_findings(frames["findings"]),
        *_plots(pictures),
        "## Reproduce\n",
        f"```\n{run.header.get('command', '')}\n```",
    ]
    return "\n".join(parts).strip() + "\n"


def cell(text: str) -> str:
    """Text that stands in a table cell whatever it holds."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(summary: pd.DataFrame) -> Iterator[str]:
    columns = [column for column in shown_columns(summary) if column.short]
    every = lines(summary, columns)
    varied = any(line.variant for line in every)
    moded = any(line.mode != MISSING for line in every)  # sandbox stores have no modes
    optional = [name for name, there in (("mode", moded), ("variant", varied)) if there]
    names = ["workload", "backend", *optional]
    yield _row([*names, *(column.title for column in columns), "status"])
    yield _row([*["---"] * len(names), *["---:"] * len(columns), "---"])
    for line in every[:MOST_LINES]:
        head = [getattr(line, name) for name in names]
        yield _row([*map(cell, head), *(item.text for item in line.cells), line.status])
    if len(every) > MOST_LINES:
        yield f"\n{len(every) - MOST_LINES} more cases stand in report.html and frames/summary.csv."
    yield ""


def markdown_grid(grid: Grid) -> Iterator[str]:
    """A table of text as lines of Markdown, numbers to the right."""
    yield _row(grid.headings)
    yield _row([*["---"] * grid.words, *["---:"] * (len(grid.headings) - grid.words)])
    for row in grid.rows:
        yield _row([cell(text) for text in row])


def _walks(frames: dict[str, pd.DataFrame]) -> Iterator[str]:
    grids = list(walk_grids(frames["walks"], brief=True)) if "walks" in frames else []
    if grids:
        yield "\n## Walks\n"
        yield "Reads of a graph through each walk stand in report.html.\n"
    for grid in grids:
        yield f"{grid.workload}, growth:\n" if grid.words == 2 else f"{grid.workload}:\n"
        yield from markdown_grid(replace(grid, rows=grid.rows[:MOST_WALKS]))
        if len(grid.rows) > MOST_WALKS:
            yield f"\n{len(grid.rows) - MOST_WALKS} more rows stand in report.html."
        yield ""


def _published(frames: dict[str, pd.DataFrame]) -> Iterator[str]:
    rows = published_rows(frames)
    if not rows:
        return
    yield "## Against published figures\n"
    yield "| workload | figure | where | published | measured | gate | |"
    yield "| --- | --- | --- | ---: | ---: | --- | --- |"
    for row in rows:
        told = (row.workload, row.figure, row.where, row.published, row.measured, row.gate)
        yield _row([*map(cell, told), "met" if row.ok else "**missed**"])
    yield ""


def _troubles(run: RunResult) -> Iterator[str]:
    found = background.troubles(run)
    if found:
        yield "## Cases without numbers\n"
        yield from (f"- `{item.case_id}`: **{item.status}**, {cell(item.cause)}" for item in found)
        yield ""


def _findings(findings: pd.DataFrame) -> Iterator[str]:
    groups = background.group_findings(findings)
    if groups:
        yield "## Findings\n"
    for group in groups:
        subjects = group.subjects[:MOST_SUBJECTS]
        told = "; ".join(f"`{subject}`: {cell(detail)}" for subject, detail in subjects)
        more = len(group.subjects) - len(subjects)
        yield (
            f"- **{group.severity}, {group.finding}**: {told}"
            f"{f'; and {more} more' if more else ''}. Remedy: {cell(group.remedy)}."
        )
    if groups:
        yield ""


def _plots(pictures: Sequence[Picture]) -> Iterator[str]:
    drawn = [picture for picture in pictures if picture.paths]
    if drawn:
        yield "## Plots\n"
    for workload in dict.fromkeys(picture.workload for picture in drawn):
        links = [
            f"[{picture.title.lower()}](plots/{picture.paths[0].name})"
            for picture in drawn
            if picture.workload == workload
        ]
        yield f"- {workload}: {', '.join(links)}"
    if drawn:
        yield ""
