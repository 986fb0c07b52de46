"""How `savermark retain` prints: tables for people, one document of frames for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savermark.cli.output import emit_frame, emit_json, print_table

if TYPE_CHECKING:
    from savermark.results import RunResult


def print_retention(run: RunResult, fmt: str) -> None:
    """Before and after. CSV holds the sizes by table, or the scenario where that was run."""
    from savermark.report.retention_block import retention_markdown

    if fmt == "json":
        emit_json(document(run))
    elif fmt == "csv":
        from savermark.frame.retention import space_table
        from savermark.frame.run_history import history_table

        space = space_table([run])
        emit_frame(history_table([run]) if space.empty else space, fmt)
    elif fmt == "md":
        click.echo(retention_markdown(run), nl=False)
    else:
        _print_tables(run)


def document(run: RunResult) -> dict[str, object]:
    """Everything that was found, in base units: verdicts, sizes, effort, reads, the scenario."""
    import json
    from dataclasses import asdict

    from savermark.frame.retention import (
        effort_table,
        reads_table,
        space_table,
        verdicts,
    )
    from savermark.frame.run_history import history_table

    tables = {
        "space": space_table,
        "effort": effort_table,
        "reads": reads_table,
        "run_history": history_table,
    }
    frames = {
        name: json.loads(table([run]).to_json(orient="records", force_ascii=False))
        for name, table in tables.items()
    }
    return {
        "run_id": run.run_id,
        "verdicts": [asdict(each) for each in verdicts(run)],
        **frames,
    }


def _print_tables(run: RunResult) -> None:
    from savermark.frame.retention import verdicts
    from savermark.report.retention_block import retention_verdict
    from savermark.report.retention_grid import retention_grids
    from savermark.retention.findings import CHECKS

    for grid in retention_grids(run):
        print_table(list(grid.headings), [list(row) for row in grid.rows], grid.workload)
        click.echo()
    for judged in verdicts(run):
        for one in judged.failures:
            what = f"{CHECKS[one['check']]}: {one['detail']}"
            click.echo(f"{judged.case_id}: thread {one['thread_id']!r}: {what}")
        for thread, why in judged.reasons:
            click.echo(f"{judged.case_id}: thread {thread!r} left untouched: {why}")
    click.echo(retention_verdict(run))
