"""How `savermark walk` prints: one row a case and walk, growth laws, a recommendation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from savermark.cli.output import Shown, emit_frame, emit_json, print_table
from savermark.stats import TOO_FEW
from savermark.units import format_bytes, format_count, format_ns

if TYPE_CHECKING:
    import pandas as pd

    from savermark.results import RunResult

SHOWN: Shown = {
    "variant": ("variant", str),
    "backend": ("backend", str),
    "what": ("read", str),
    "p50_ns": ("p50", format_ns),
    "within": ("95 % interval", str),
    "times_floor": ("× floor", "{:.2f}".format),
    "statements": ("statements", format_count),
    "round_trips": ("round trips", format_count),
    "rows": ("rows", format_count),
    "bytes": ("bytes", format_bytes),
    "blocks": ("blocks", format_count),
    "vm_steps": ("VM steps", format_count),
    "values": ("values", format_count),
    "value_bytes": ("deserialized", format_bytes),
}
_COUNTED = ("statements", "rows", "blocks")  # whose growth is told beside the time's


def print_walks(run: RunResult, fmt: str) -> None:
    """Every read of every case, then how each grows with the depth, where depths were swept."""
    from savermark.frame.walks import walk_table

    table = walk_table([run])
    if fmt in ("json", "csv"):
        emit_frame(table, fmt)
        return
    for workload, rows in table.groupby("workload", sort=False):
        shown = rows.assign(what=_what(rows), within=_within(rows))
        shown = shown.astype({"variant": str})
        known = {name: look for name, look in SHOWN.items() if shown[name].notna().any()}
        emit_frame(shown, fmt, show=known, title=f"{workload} ({run.run_id})")
        _print_growth(rows, fmt)


def print_recommendation(run: RunResult, budget_ns: float, fmt: str) -> None:
    """The answer first, one line a backend and walk, then the numbers behind it."""
    import pandas as pd

    from savermark.frame.walks import choices_of
    from savermark.walking.recommend import recommend

    answers = recommend(choices_of(run), budget_ns)
    rows = [
        {
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
    emit_frame(frame, fmt, show=_CHOICES, title="what it was chosen from")


def _mark(value: Any) -> str:
    return "yes" if value else ""


_CHOICES: Shown = {
    "backend": ("backend", str),
    "walk": ("walk", str),
    "snapshot": ("snapshot", str),
    "stored_bytes": ("bytes a thread", format_bytes),
    "read_p50_ns": ("read p50", format_ns),
    "read_high_ns": ("upper end", format_ns),
    "within_budget": ("within budget", _mark),
    "recommended": ("recommended", _mark),
}


def _what(rows: pd.DataFrame) -> list[str]:
    """`walk native`, `get_state onepass (cold)`."""
    return [
        f"{row.read} {row.walk}" + (f" ({row.temperature})" if row.temperature != "warm" else "")
        for row in rows.itertuples()
    ]


def _within(rows: pd.DataFrame) -> list[str]:
    import pandas as pd

    return [
        TOO_FEW if pd.isna(low) else f"{format_ns(low)} to {format_ns(high)}"
        for low, high in zip(rows["p50_low_ns"], rows["p50_high_ns"], strict=True)
    ]


def _print_growth(rows: pd.DataFrame, fmt: str) -> None:
    from savermark.frame.walks import growth_of

    if rows["turns"].nunique() < 2:
        return
    laws = growth_of(rows)
    counts = {name: growth_of(rows, name) for name in _COUNTED}
    headings = ["backend", "read", "time ~ depth^", *(f"{name} ~ depth^" for name in _COUNTED)]
    lines = []
    for key, law in laws.items():
        backend, read, walk = key
        told = [counts[name].get(key) for name in _COUNTED]
        exponents = ["–" if one is None else f"{one.exponent:.2f}" for one in told]
        lines.append([backend, f"{read} {walk}", str(law), *exponents])
    click.echo()
    if fmt == "md":
        for line in [headings, ["---"] * len(headings), *lines]:
            click.echo("| " + " | ".join(line) + " |")
    else:
        print_table(headings, lines, "how it grows with the depth (exponent, 95 % interval)")
