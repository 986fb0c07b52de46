"""`savermark compare`: what changed between two results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savermark.cli.output import emit_frame, emit_json, format_option, print_table

if TYPE_CHECKING:
    from savermark.compare import Comparison


@click.command("compare", epilog="Example: savermark compare results/reference latest --format md")
@click.argument("baseline")
@click.argument("result", default="latest")
@click.option(
    "--threshold", type=float, help="The least ratio of times that counts as a difference."
)
@format_option
def command(baseline: str, result: str, threshold: float | None, fmt: str) -> int:
    """Compare RESULT with BASELINE: both values, the ratio and a verdict for each case and metric.

    Two JSON files of pytest-benchmark can be compared, too. Exits 3 when something is worse, 4
    when the two must not be compared.
    """
    from savermark.compare import exit_code

    check_threshold(threshold)
    options = {} if threshold is None else {"threshold": threshold}
    comparison = _compared(baseline, result, **options)
    print_comparison(comparison, fmt)
    return exit_code(comparison)


def _compared(baseline: str, result: str, **options: float) -> Comparison:
    """The comparison of two results of ours, or of two files of pytest-benchmark."""
    from pathlib import Path

    from savermark.compare import compare_runs
    from savermark.compare.benchmark_json import (
        compare_benchmarks,
        is_benchmark_file,
        load_benchmarks,
    )
    from savermark.errors import ResultError, UsageError
    from savermark.frame import load_runs
    from savermark.results import find_result

    for name in (baseline, result):
        if name.endswith(".json") and not Path(name).exists():
            raise ResultError(f"{name}: no such file")
    theirs = [is_benchmark_file(Path(name)) for name in (baseline, result)]
    if all(theirs):
        a, b = load_benchmarks(Path(baseline)), load_benchmarks(Path(result))
        return compare_benchmarks(a, b, **options)
    if any(theirs):
        raise UsageError(
            f"{baseline} and {result}: name two results, or two files of pytest-benchmark"
        )
    before, after = load_runs(find_result(baseline), find_result(result))
    return compare_runs(before, after, **options)


def check_threshold(threshold: float | None) -> None:
    """Raise `UsageError` for what no ratio of times can be judged by."""
    from savermark.errors import UsageError

    if threshold is not None and not 1 < threshold < float("inf"):
        raise UsageError(f"threshold is {threshold:g}: give a ratio above 1, for example 1.1")


_FEW = 5  # unresolved rows that are worth a look each


def print_comparison(comparison: Comparison, fmt: str) -> None:
    """Print a comparison on stdout in the format that was asked for."""
    from savermark.compare import to_markdown

    if fmt == "md":
        click.echo(to_markdown(comparison))
    elif fmt == "json":
        emit_json(comparison.to_json())
    elif fmt == "csv":
        emit_frame(comparison.to_frame(), fmt)
    else:
        _print_telling(comparison)


def _print_telling(comparison: Comparison) -> None:
    """What a person wants first: the verdict, the rows that differ, and a few unresolved ones."""
    from savermark.compare import HEADINGS, TELLING, Verdict, as_text, verdict_line

    click.echo(verdict_line(comparison).replace("*", "").replace("`", ""))
    shown = [row for row in comparison.rows if row.verdict in TELLING]
    open_ones = [row for row in comparison.rows if row.verdict is Verdict.UNRESOLVED]
    shown += open_ones if len(open_ones) <= _FEW else []
    if shown:
        print_table(list(HEADINGS), [list(as_text(row)) for row in shown])
    for note in comparison.notes:
        click.echo(note)
