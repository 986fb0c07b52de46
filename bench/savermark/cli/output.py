"""How a verb prints a frame: a table for people, JSON, CSV or Markdown for everything else."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("table", "json", "csv", "md")

#: Options whose value may hold a password, in whatever quoting.
_SECRET = ("--dsn", "--s3")

Formatter = Callable[[Any], str]
Shown = dict[str, tuple[str, Formatter]]  # column -> its heading and how its values read

format_option = click.option(
    "--format",
    "fmt",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How data is printed on stdout.",
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress and no remarks.")


def emit_frame(
    frame: pd.DataFrame, fmt: str, *, show: Shown | None = None, title: str = ""
) -> None:
    """Print `frame` on stdout.

    JSON and CSV carry every column as it is (records, base units); the table and Markdown carry
    the columns named in `show`, each with its heading and through its formatter.
    """
    if fmt == "json":
        click.echo(frame.to_json(orient="records", indent=2, force_ascii=False))
    elif fmt == "csv":
        click.echo(frame.to_csv(index=False), nl=False)
    else:
        columns, rows = _as_text(frame, show)
        if fmt == "md":
            click.echo(_markdown(columns, rows))
        else:
            print_table(columns, rows, title)


def emit_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def recorded_command(arguments: Sequence[str]) -> str:
    """The command line as a result keeps it: without what --dsn and --s3 were given."""
    kept = ["savermark"]
    for argument in arguments:
        option = argument.partition("=")[0]
        if kept[-1] in _SECRET:
            kept.append("***")
        else:
            kept.append(f"{option}=***" if option in _SECRET and "=" in argument else argument)
    return shlex.join(kept)


def remark(message: str, *, quiet: bool = False) -> None:
    """A line for the person at the terminal, on stderr."""
    if not quiet:
        click.echo(message, err=True)


def _as_text(frame: pd.DataFrame, show: Shown | None) -> tuple[list[str], list[list[str]]]:
    shown = show or {column: (str(column).replace("_", " "), str) for column in frame.columns}
    chosen = {column: look for column, look in shown.items() if column in frame}
    rows = [
        [
            "–" if _missing(value) else as_text(value)
            for (_, as_text), value in zip(chosen.values(), row, strict=True)
        ]
        for row in frame[list(chosen)].itertuples(index=False, name=None)
    ]
    return [heading for heading, _ in chosen.values()], rows


def _missing(value: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(value)) if not isinstance(value, list | tuple | dict) else False


def _markdown(columns: list[str], rows: list[list[str]]) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(columns), line(["---"] * len(columns)), *map(line, rows)])


def print_table(columns: list[str], rows: list[list[str]], title: str = "") -> None:
    """Print a table on stdout, numbers to the right, as wide as the terminal allows."""
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(row[index][:1].isdigit() or row[index] == "–" for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))  # a case id holds brackets, which would be markup
    Console(width=None if Console().is_terminal else 200).print(table)
