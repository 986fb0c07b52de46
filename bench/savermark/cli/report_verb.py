"""`savermark report`: the report of a result, written again."""

from __future__ import annotations

import click

from savermark.cli.output import quiet_option, remark


@click.command("report", epilog="Example: savermark report latest")
@click.argument("result", default="latest")
@quiet_option
def command(result: str, quiet: bool) -> None:
    """Write page, Markdown, plots and frames of RESULT from its raw samples; print the page's path.

    RESULT is latest, a run id, or a folder.
    """
    from savermark.report import write_report
    from savermark.results import find_result

    report = write_report(find_result(result).parent)
    click.echo(report.page)
    remark(f"{len(report.plots)} plots, {len(report.frames)} frames", quiet=quiet)
