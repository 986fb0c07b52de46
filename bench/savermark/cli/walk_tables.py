"""How `savermark walk` prints: one row a case and walk, growth laws, a recommendation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from savermark.cli.output import Shown, emit_frame, emit_json, print_table
from savermark.units import format_bytes, format_ns

if TYPE_CHECKING:
    from savermark.results import RunResult


def print_walks(run: RunResult, fmt: str) -> None:
    """Every read of every case, then how each grows with the depth, where depths were swept."""
    from savermark.frame.walks import walk_table
    from savermark.report.markdown import markdown_grid
    from savermark.report.walk_grid import growth_grid, shown_of, told

    table = walk_table([run])
    if fmt in ("json", "csv"):
        emit_frame(table, fmt)
        return
    for workload, rows in table.groupby("workload", sort=False):
        shown = told(rows)
        emit_frame(shown, fmt, show=shown_of(shown), title=f"{workload} ({run.run_id})")
        grown = growth_grid(str(workload), rows)
        if grown is None:
            continue
        click.echo()
        if fmt == "md":
            for line in markdown_grid(grown):
                click.echo(line)
        else:
            title = "how it grows with the depth (exponent, 95 % interval)"
            print_table(list(grown.headings), [list(row) for row in grown.rows], title)


def print_recommendation(run: RunResult, budget_ns: float, fmt: str) -> None:
    """The answer first, one line a backend and walk, then the numbers behind it."""
    import pandas as pd

    from savermark.frame.walks import choices_of
    from savermark.walking.recommend import recommend

    answers = recommend(choices_of(run), budget_ns)
    rows = [
        {
            "workload": choice.workload,
            "backend": choice.backend,
            "walk": choice.walk,
            "snapshot": choice.name,
            "snapshot_frequency": choice.frequency,
            "stored_bytes": choice.stored_bytes,
            "read_p50_ns": choice.read_ns,
            "read_high_ns": choice.high_ns,
            "within_budget": choice.sure_ns <= budget_ns,
            "recommended": choice is answer.chosen,
        }
        for answer in answers
        for choice in answer.choices
    ]
    if fmt == "json":
        emit_json({"budget_ns": budget_ns, "answers": [str(a) for a in answers], "choices": rows})
        return
    frame = pd.DataFrame(rows).astype({"snapshot_frequency": "Int64", "read_high_ns": "float64"})
    if fmt == "csv":
        emit_frame(frame, fmt)
        return
    for answer in answers:
        click.echo(f"- {answer}" if fmt == "md" else str(answer))
    click.echo()
    several = frame["workload"].astype(bool).any()
    shown = {name: how for name, how in _CHOICES.items() if several or name != "workload"}
    emit_frame(frame, fmt, show=shown, title="what it was chosen from")


def _mark(value: Any) -> str:
    return "yes" if value else ""


_CHOICES: Shown = {
    "workload": ("workload", str),
    "backend": ("backend", str),
    "walk": ("walk", str),
    "snapshot": ("snapshot", str),
    "stored_bytes": ("bytes a thread", format_bytes),
    "read_p50_ns": ("read p50", format_ns),
    "read_high_ns": ("upper end", format_ns),
    "within_budget": ("within budget", _mark),
    "recommended": ("recommended", _mark),
}
