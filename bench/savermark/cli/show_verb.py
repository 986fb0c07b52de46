"""`savermark show`: a result's summary, or one of its frames."""

from __future__ import annotations

import click

from savermark.cli.output import emit_frame, format_option
from savermark.cli.summary import print_summary


@click.command("show", epilog="Example: savermark show latest --frame storage --format csv")
@click.argument("result", default="latest")
@click.option("--frame", "kind", metavar="NAME", help="A frame instead of the summary.")
@format_option
def command(result: str, kind: str | None, fmt: str) -> None:
    """Print the summary table of RESULT: latest, a run id, or a folder."""
    from savermark.frame import load_runs, to_frame
    from savermark.results import find_result

    (run,) = load_runs(find_result(result))
    if kind is None:
        print_summary(run, fmt)
    else:
        emit_frame(to_frame(run, kind), fmt)
