"""`savermark baseline`: a gate for one saver, made to run on every change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from savermark.cli.output import format_option, quiet_option, remark
from savermark.cli.run_options import backend_option, dsn_option, overrides_option

F = TypeVar("F", bound=Callable[..., object])
DEFAULT_FILE = "savermark-baseline.json"
ROUNDS = 60  # pairs: a median of so many moves by some per cent under a noisy neighbour


def _options(verb: F) -> F:
    for option in (
        click.option(
            "--file",
            "file",
            type=click.Path(path_type=Path, dir_okay=False),
            default=DEFAULT_FILE,
            show_default=True,
            help="The baseline.",
        ),
        dsn_option,
        click.option("--timeout", type=float, help="Seconds that one case may take."),
    ):
        verb = option(verb)
    return verb


@click.group("baseline", epilog="Example: savermark baseline check --format md")
def command() -> None:
    """Save what a saver costs now, and check that later versions cost no more.

    Counts, rows and bytes are compared exactly; the time of a walk by its ratio to a reference
    walk that is timed in turn with it.
    """


@command.command("save", epilog="Example: savermark baseline save chat -b sqlite -b postgres")
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...")
@backend_option()
@overrides_option
@click.option("--walk", "walks", multiple=True, metavar="NAME", help="Count this walk, too.")
@click.option(
    "--tested", default="own", show_default=True, help="The walk that is timed: own or a name."
)
@click.option(
    "--reference", default="base", show_default=True, help="The walk that it is timed against."
)
@click.option("--rounds", default=ROUNDS, show_default=True, help="Timed pairs; 0 for none.")
@_options
@quiet_option
def save(
    workloads: tuple[str, ...],
    backends: tuple[str, ...],
    overrides: tuple[str, ...],
    walks: tuple[str, ...],
    tested: str,
    reference: str,
    rounds: int,
    file: Path,
    dsn: str | None,
    timeout: float | None,
    quiet: bool,
) -> int:
    """Measure WORKLOADs (default: chat) and write the baseline file, to be committed."""
    from savermark.baseline import Measured, measure, save_baseline
    from savermark.baseline.file import load_document
    from savermark.cli.progress import progress_for
    from savermark.cli.run_verb import DEFAULT_BACKENDS, expanded
    from savermark.errors import UsageError
    from savermark.history.walks import walk
    from savermark.probe import OWN, Ask
    from savermark.profiles import make_cases

    if not 0 <= rounds <= 10_000:
        raise UsageError(f"rounds is {rounds}: give 0 to 10,000")
    counted = tuple(dict.fromkeys((OWN, *walks, tested, reference)))
    for name in counted:
        _ = name == OWN or walk(name)  # an unknown one is told now
    if file.exists():
        load_document(file)
    cases = [
        case
        for name in expanded(workloads or ("chat",))
        for case in make_cases(name, backends or DEFAULT_BACKENDS, overrides)
    ]
    how = Measured(Ask(counted, tested, reference, rounds), dsn, timeout)
    with progress_for(quiet=quiet) as progress:
        found = measure(how, cases, progress)
    save_baseline(file, found)
    for entry in found.entries:
        if entry.unsteady:
            remark(f"{entry.case.case_id}: not steady, left out: {', '.join(entry.unsteady)}")
    remark(f"baseline: {file} ({len(cases)} cases)", quiet=quiet)
    return 0


@command.command("check", epilog="Example: savermark baseline check --format md")
@click.option("--threshold", type=float, help="The least ratio of times that counts.")
@click.option(
    "--against",
    metavar="REQUIREMENT",
    help="Judge times against this build of the saver, in turn with it: a version, a path, a git "
    "reference.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the environment of --against is kept. [default: the user's cache folder]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the comparison as JSON to this file.",
)
@_options
@format_option
@quiet_option
def check(
    threshold: float | None,
    against: str | None,
    cache: Path | None,
    out: Path | None,
    file: Path,
    dsn: str | None,
    timeout: float | None,
    fmt: str,
    quiet: bool,
) -> int:
    """Measure the baseline's cases again and judge. Exits 3 on a regression, 4 when not comparable.

    A walk that looks slower is timed again in further processes before it is called so.
    """
    from dataclasses import replace

    from savermark.baseline import Measured, check_baseline, gate_code, load_baseline
    from savermark.cli.compare_verb import check_threshold, print_comparison
    from savermark.cli.progress import progress_for
    from savermark.installs import install

    check_threshold(threshold)
    baseline = load_baseline(file)
    options: dict[str, Any] = {} if threshold is None else {"threshold": threshold}
    ask = baseline.ask
    if against is not None:
        remark(f"environment of {against} ...", quiet=quiet)
        options["against"], ask = install(against, cache), replace(ask, rounds=0)
    with progress_for(quiet=quiet) as progress:
        how = Measured(ask, dsn, timeout)
        compared = check_baseline(baseline, how, progress, **options)
    if out is not None:
        _write(out, compared.to_json())
    print_comparison(compared, fmt)
    return gate_code(compared)


def _write(path: Path, document: dict[str, Any]) -> None:
    import json

    from savermark.errors import ResultError
    from savermark.results import write_problem

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    except OSError as error:
        raise ResultError(write_problem(path, error).replace("folder", "file")) from error
