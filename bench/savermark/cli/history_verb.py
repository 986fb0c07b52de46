"""`savermark history`: what the releases of a package cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from savermark.cli.output import emit_frame, format_option, quiet_option, remark
from savermark.cli.run_options import cache_option, dsn_option, overrides_option

if TYPE_CHECKING:
    import pandas as pd

    from savermark.tracking import Version

FOLDER = "results/history"


@click.command("history", epilog="Example: savermark history langgraph-checkpoint-sqlite --last 4")
@click.argument("package")
@click.option("--last", default=4, show_default=True, help="Newest releases that are measured.")
@click.option("--workload", default="chat", show_default=True, help="One that is no sweep.")
@click.option("-b", "--backend", "--saver", "backend", metavar="NAME", help="As in `ab`.")
@overrides_option
@click.option("--rounds", default=5, show_default=True, help="Probes of each release, in turn.")
@dsn_option
@cache_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default=True,
    help="The folder of the files, one a package.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw every package of the folder into this PNG file.",
)
@format_option
@quiet_option
def command(
    package: str,
    last: int,
    workload: str,
    backend: str | None,
    overrides: tuple[str, ...],
    rounds: int,
    dsn: str | None,
    cache: Path | None,
    out: Path,
    plot: Path | None,
    fmt: str,
    quiet: bool,
) -> int:
    """Probe the newest releases of PACKAGE in turn and keep one line each.

    Counts, rows and bytes are exact; times are ratios to the newest release. A release that cannot
    be installed here is left out, and why is said.
    """
    from savermark.ab import backends_of
    from savermark.cli.progress import progress_for
    from savermark.errors import UsageError
    from savermark.profiles import make_cases
    from savermark.tracking import history_file, merged, read_history, track, write_history
    from savermark.tracking.measure import installed_releases

    file = history_file(out, package)
    kept = read_history(file)
    releases, skipped = installed_releases(
        package, last, cache, lambda line: remark(line, quiet=quiet)
    )
    for one in skipped:
        remark(f"left out: {one.why}")
    names = (backend,) if backend else backends_of(releases)[:1]
    keys = ('state.messages.kind="delta"', "conversation.threads=1", *overrides)
    cases = make_cases(workload, names, keys)
    if len(cases) != 1:
        raise UsageError(f"{workload!r} is a sweep of {len(cases)}: fix its keys with --set")
    with progress_for(quiet=quiet) as progress:
        lines = track(releases, cases[0], dsn=dsn, rounds=rounds, progress=progress)
    write_history(file, merged(kept, lines))
    if plot is not None:
        _plot(out, plot)
    emit_frame(_frame(merged([], lines)), fmt)
    remark(f"history: {file}", quiet=quiet)
    return 0


def _plot(folder: Path, path: Path) -> None:
    from savermark.plots.versions import plot_versions
    from savermark.tracking import read_history

    plot_versions([read_history(file) for file in sorted(folder.glob("*.jsonl"))], path)


def _frame(lines: list[Version]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([_shown(line) for line in lines])


def _shown(line: Version) -> dict[str, Any]:
    walk = line.probe.counts.get("walk own", {})
    return {
        "version": line.version,
        "walk_statements": walk.get("statements"),
        "walk_round_trips": walk.get("round_trips"),
        "walk_rows": walk.get("rows"),
        "walk_values": walk.get("values"),
        "stored_rows": sum(v for k, v in line.probe.storage.items() if k.endswith(" rows")),
        "stored_bytes": sum(v for k, v in line.probe.storage.items() if k.endswith(" bytes")),
        "walk_time_to_base": line.to_base.value if line.to_base else None,
        "walk_time_to_newest": line.to_newest.value if line.to_newest else None,
    }
