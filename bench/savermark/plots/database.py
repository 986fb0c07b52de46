"""Pictures of a database that exists, from the lists of its inspection (`database.document`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context

from savermark.plots.layout import (
    BOTTOM,
    TOP,
    Box,
    add_axes,
    bars,
    fold,
    new_figure,
    use_unit,
    widest,
)
from savermark.plots.series import Drawing, NoData
from savermark.plots.style import BLUE, FONT, GREEN, INK, ORANGE, RC, SMALL, WIDTH, blend
from savermark.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

Document = Mapping[str, Any]

_ROW = 0.25  # inches a bar
_MOST = 20  # bars in a picture
_COLORS = {"checkpoints": BLUE, "blobs": GREEN, "writes": ORANGE}
_NAME = 2.2  # inches a name may take


def draw_database(document: Document) -> Iterator[Drawing]:
    """Every picture of an inspection; one that has nothing to show says why."""
    for kind, title, picture in _PICTURES:
        with rc_context(RC):
            try:
                figure, caption = picture(document)
            except NoData as none:
                yield Drawing(kind, kind, title, "", "", None, str(none))
                continue
        yield Drawing(kind, kind, title, "", caption, figure)


def _ages(document: Document) -> tuple[Figure, str]:
    rows = document["ages"]
    counts = [row["checkpoints"] for row in rows]
    if not sum(counts):
        raise NoData("there are no checkpoints")
    labels = [row["age"] for row in rows]
    figure = _bars(
        "Checkpoints by age",
        "by the time in their ids; the number beside a bar counts threads idle for as long",
        labels,
        counts,
        "count",
        BLUE,
        [f"{format_count(row['checkpoints'])} ({row['idle_threads']:,} idle)" for row in rows],
    )
    unknown = f", {format_count(counts[-1])} of unknown age" if counts[-1] else ""
    return figure, f"{format_count(sum(counts))} checkpoints{unknown}."


def _days(document: Document) -> tuple[Figure, str]:
    rows = document["days"]
    if not rows:
        raise NoData("no checkpoint's id carries a time")
    days = np.array([row["day"] for row in rows], dtype="datetime64[D]")
    sizes = np.array([row["stored_bytes"] for row in rows], dtype=float)
    span = np.arange(days[0], days[-1] + np.timedelta64(1, "D"))
    daily = np.zeros(len(span))
    daily[(days - days[0]).astype(int)] = sizes
    figure = new_figure(
        "Growth by day",
        "stored bytes of the checkpoints made up to each day, of those still there",
        TOP + 2.1 + BOTTOM,
    )
    axes = add_axes(figure, Box(0.75, TOP, WIDTH - 0.95, 2.1))
    axes.step(span, daily.cumsum(), where="post", color=BLUE, linewidth=1.6)
    axes.plot(span[-1:], daily.cumsum()[-1:], marker="o", color=BLUE, markersize=4)
    axes.fill_between(span, daily.cumsum(), step="post", color=blend(BLUE, 0.75))
    axes.set_ylim(0, daily.sum() * 1.08 or 1.0)
    places = np.unique(np.linspace(0, len(span) - 1, min(5, len(span))).round().astype(int))
    axes.set_xticks(span[places], [str(day) for day in span[places]])
    use_unit(axes.yaxis, "bytes", log=False, most=5)
    most = rows[int(sizes.argmax())]
    return figure, (
        f"{format_bytes(sizes.sum())} since {rows[0]['day']}; "
        f"the most in a day, {format_bytes(most['stored_bytes'])}, on {most['day']}."
    )


def _tables(document: Document) -> tuple[Figure, str]:
    rows = [row for row in document["footprint"] if row["table"] or row["component"] == "free"]
    rows = [row for row in rows if row["bytes"]]
    if not rows:
        raise NoData("the engine does not tell its tables apart")
    rows.sort(key=lambda row: (row["component"] == "free", -row["bytes"]))
    labels = [f"{row['table'] or 'whole store'}, {row['component']}" for row in rows]
    figure = _bars(
        "Bytes on disk by table",
        "rows, values kept apart (toast), indexes; free is contained in the others",
        labels,
        [row["bytes"] for row in rows],
        "bytes",
        [_COLORS.get(row["table"], INK) for row in rows],
    )
    return figure, f"The whole store takes {format_bytes(document['totals']['footprint_bytes'])}."


def _channels(document: Document) -> tuple[Figure, str]:
    rows = [row for row in document["channels"] if row["logical_bytes"]][:_MOST]
    if not rows:
        raise NoData("no channel holds anything")
    figure = _bars(
        "Payload by channel",
        "logical bytes of writes and of values kept apart, the largest channels",
        [f"{row['channel']} ({row['table']})" for row in rows],
        [row["logical_bytes"] for row in rows],
        "bytes",
        [_COLORS[row["table"]] for row in rows],
    )
    first = rows[0]
    return figure, f"The largest, {first['channel']}, holds {format_bytes(first['logical_bytes'])}."


def _threads(document: Document) -> tuple[Figure, str]:
    rows = document["threads"][:_MOST]
    if not rows:
        raise NoData("there are no threads")
    figure = _bars(
        "Largest threads",
        "logical bytes in all tables",
        [row["thread_id"] for row in rows],
        [row["logical_bytes"] for row in rows],
        "bytes",
        BLUE,
    )
    share = sum(row["logical_bytes"] for row in rows) / max(document["totals"]["logical_bytes"], 1)
    return figure, f"These {len(rows)} hold {share:.1%} of all payload."


_PICTURES: tuple[tuple[str, str, Callable[[Document], tuple[Figure, str]]], ...] = (
    ("ages", "Checkpoints by age", _ages),
    ("days", "Growth by day", _days),
    ("tables", "Bytes on disk by table", _tables),
    ("channels", "Payload by channel", _channels),
    ("threads", "Largest threads", _threads),
)


def _bars(
    title: str,
    subtitle: str,
    labels: Sequence[str],
    values: Sequence[float],
    unit: str,
    color: str | Sequence[str],
    texts: Sequence[str] | None = None,
) -> Figure:
    """Horizontal bars with their values beside them."""
    names = [_cut(label) for label in labels]
    show = format_bytes if unit == "bytes" else format_count
    beside = list(texts or [show(value) for value in values])
    left, right = 0.2 + widest(names, FONT), 0.3 + widest(beside, SMALL)
    body = _ROW * len(names)
    figure = new_figure(title, fold(subtitle, WIDTH - 0.2, SMALL), TOP + body + 0.45)
    axes = add_axes(figure, Box(left, TOP, WIDTH - left - right, body))
    middles = (np.arange(len(names)) + 0.5) * _ROW
    colors = [color] * len(names) if isinstance(color, str) else list(color)
    for place, value in enumerate(values):
        bars(axes, 0.0, [value], middles[place : place + 1], _ROW * 0.7, facecolor=colors[place])
        axes.annotate(
            beside[place],
            (value, middles[place]),
            (4, 0),
            textcoords="offset points",
            va="center",
            size=SMALL,
            annotation_clip=False,
        )
    axes.set_yticks(middles, names, size=FONT, color=INK)
    axes.set_ylim(body, 0)
    axes.set_xlim(0, max(values) or 1)
    axes.grid(axis="y", visible=False)
    use_unit(axes.xaxis, unit, log=False, most=4)
    return figure


def _cut(name: str) -> str:
    """A name as it fits: matplotlib reads dollar signs as formulas, and a name may be long."""
    plain = "".join(c if c.isprintable() else "?" for c in name).replace("$", r"\$")
    while widest([plain], FONT) > _NAME:
        plain = plain[: len(plain) * 9 // 10 - 1].rstrip("\\…") + "…"
    return plain
