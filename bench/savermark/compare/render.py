"""A comparison as Markdown that can be pasted into a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savermark.compare.model import Kind, Verdict
from savermark.units import format_bytes, format_count, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from savermark.compare.model import Comparison, Row

HEADINGS = ("case", "metric", "A", "B", "ratio B/A", "verdict", "why")
TELLING = (Verdict.WORSE, Verdict.BETTER, Verdict.NOT_COMPARABLE)
_RULE = "| --- | --- | ---: | ---: | ---: | --- | --- |"


def to_markdown(comparison: Comparison) -> str:
    """A verdict line, the rows that tell something, the others folded, the surroundings."""
    rows = {verdict: [r for r in comparison.rows if r.verdict is verdict] for verdict in Verdict}
    lines = [
        verdict_line(comparison),
        "",
        f"A: `{comparison.name_a}` (the baseline). B: `{comparison.name_b}`. "
        "Ratio is B/A; below 1 B needs less. Times are medians.",
        "",
    ]
    telling = [row for verdict in TELLING for row in rows[verdict]]
    lines += _table(telling) if telling else ["No metric is better or worse.", ""]
    for verdict in (Verdict.UNRESOLVED, Verdict.SAME):
        lines += _folded(verdict, rows[verdict])
    lines += ["### Surroundings that differ", "", *_differences(comparison), ""]
    if comparison.notes:
        lines += ["### Notes", "", *(f"- {note}" for note in comparison.notes), ""]
    return "\n".join(lines)


def _folded(verdict: Verdict, rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield from ("<details>", f"<summary>{len(rows)} {verdict}</summary>", "")
        yield from _table(rows)
        yield from ("</details>", "")


def verdict_line(comparison: Comparison) -> str:
    """One line of Markdown: the verdict, how often each, and what broke."""
    counts = ", ".join(
        f"{count} {verdict}" for verdict, count in comparison.counts.items() if count
    )
    line = f"**Verdict: {comparison.verdict}** ({counts})"
    if comparison.broken:
        cases = ", ".join(f"`{case_id}`" for case_id in comparison.broken)
        line += f". Broken in B: {cases}"
    return line


def _table(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield _line(HEADINGS)
    yield _RULE
    for row in rows:
        case, *others = as_text(row)
        yield _line((f"`{case}`", *others))
    yield ""


def as_text(row: Row) -> tuple[str, ...]:
    """The row as a person reads it, a cell for each of `HEADINGS`."""
    return (row.case_id, row.metric, *_values(row), _ratio(row), row.verdict, row.detail)


def _line(cells: Iterable[str]) -> str:
    # Names, settings and causes are free text: neither a bar nor a line break may end the cell.
    clean = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(clean) + " |"


def _values(row: Row) -> tuple[str, str]:
    if row.a is None or row.b is None:
        return "", ""
    show = _SHOW.get(row.kind or Kind.BYTES, format_bytes)
    shown = show(row.a), show(row.b)
    if row.verdict is not Verdict.SAME and row.a != row.b and shown[0] == shown[1]:
        # Rounding hides what the verdict is about.
        unit = row.kind.unit if row.kind else ""
        return f"{format_count(row.a)} {unit}".strip(), f"{format_count(row.b)} {unit}".strip()
    return shown


def _as_ratio(value: float) -> str:
    return f"{value:.3g}"


_SHOW = {
    Kind.ROWS: format_count,
    Kind.COUNT: format_count,
    Kind.TIME: format_ns,
    Kind.RATIO: _as_ratio,
}


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return ""
    if row.low is None or row.high is None:
        return f"{row.ratio:.5g}"
    return f"{row.ratio:.2f} ({row.low:.2f} to {row.high:.2f})"


def _differences(comparison: Comparison) -> Iterable[str]:
    if not comparison.differences:
        return ["None."]
    return [
        "| what | A | B |",
        "| --- | --- | --- |",
        *(_line((item.what, item.a, item.b)) for item in comparison.differences),
    ]
