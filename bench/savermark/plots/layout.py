"""Figures laid out by hand in inches: text, axes, units, legends.

No layout engine: that is faster, every figure of a page lines up with its neighbours, and text is
placed where it is known to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from savermark.plots.style import FONT, MUTED, SMALL, TITLE, WIDTH, Look
from savermark.units import format_bytes, format_ns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# -- text ------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = FONT) -> float:
    """The width of a line of text in inches."""
    if not text.strip():
        return 0.0
    path = TextPath((0, 0), text, size=size, prop=FontProperties(family=["DejaVu Sans"]))
    return float(path.get_extents().width) / 72.0


def widest(texts: Iterable[str], size: float = FONT) -> float:
    """The width of the widest line among texts, in inches."""
    lines = (line for text in texts for line in text.splitlines())
    return max((text_width(line, size) for line in lines), default=0.0)


def fold(text: str, width: float, size: float = FONT) -> str:
    """`text` wrapped to `width` inches; a word longer than that is cut."""
    if text_width(text, size) <= width:
        return text
    per_line = max(6, int(len(text) * width / text_width(text, size)))
    return "\n".join(wrap(text, per_line, break_long_words=True))


# -- figures ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Box:
    """Where an axes lies, in inches from the figure's top left corner."""

    left: float
    top: float
    width: float
    height: float


TOP = 0.62  # what the title and the line below it take
BOTTOM = 0.52  # what the tick labels and the axis label take


def new_figure(title: str, subtitle: str, height: float) -> Figure:
    """A figure of the usual width with its title and one line that says what is shown."""
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    figure.text(0.1 / WIDTH, 1 - 0.1 / height, title, size=TITLE, weight="bold", va="top")
    figure.text(0.1 / WIDTH, 1 - 0.33 / height, subtitle, size=SMALL, color=MUTED, va="top")
    return figure


def add_axes(figure: Figure, box: Box) -> Axes:
    """An axes at a place given in inches."""
    width, height = figure.get_size_inches()
    return figure.add_axes(
        (
            box.left / width,
            1 - (box.top + box.height) / height,
            box.width / width,
            box.height / height,
        )
    )


def _short(text: str) -> str:
    """`10.0 kB` as `10 kB`: a tick needs no trailing zeros."""
    number, _, unit = text.partition(" ")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {unit}".strip()


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


FORMATS: dict[str, Callable[[float], str]] = {
    "bytes": lambda value: _short(format_bytes(value)) if value else "0",
    "ns": lambda value: _short(format_ns(value)) if value else "0",
    "count": _count,
    "share": lambda value: f"{value:.0%}",
}


def use_unit(axis: Any, unit: str, log: bool, most: int = 6) -> None:
    """Ticks with their unit on a matplotlib axis; few enough to read."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: FORMATS[unit](value)))
    axis.set_minor_locator(NullLocator())
    if not log:
        steps = [1, 2, 2.5, 5, 10] if unit != "count" else [1, 2, 5, 10]
        axis.set_major_locator(MaxNLocator(most - 1, steps=steps, integer=unit == "count"))


def log_ticks(axis: Any, low: float, high: float, most: int = 6) -> None:
    """Ticks at 1, 2, 5 steps when a log axis spans little, at powers of ten when it spans much."""
    for subs in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        ticks = [t for t in LogLocator(10, subs=subs).tick_values(low, high) if low <= t <= high]
        if len(ticks) <= most:
            break
    else:
        step = -(-len(ticks) // most)
        ticks = ticks[::step]
    axis.set_major_locator(FixedLocator(ticks or [low]))


def needs_log(values: Sequence[float], span: float) -> bool:
    """Whether positive values differ so much that a linear axis would hide the small ones."""
    positive = [value for value in values if value > 0]
    return len(positive) == len(values) and bool(positive) and max(positive) / min(positive) >= span


def scale_axis(axes: Axes, which: str, values: Sequence[float], unit: str, span: float) -> bool:
    """Set a linear axis from zero or, past `span`, a log one; returns whether it is a log axis."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    log = needs_log(values, span)
    limits = axes.set_xlim if which == "x" else axes.set_ylim
    if log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        low, high = min(values) / 1.25, max(values) * 1.25
        log_ticks(axis, low, high)
    else:
        low, high = 0.0, max(values, default=1.0) * 1.06 or 1.0
    limits(low, high)
    use_unit(axis, unit, log)
    return log


def end_labels(axes: Axes, labels: Sequence[tuple[float, float, str, str]]) -> None:
    """Name lines at their right end, spread so that no two names overlap.

    Each label is `(x, y, text, color)` in data coordinates of the line's last point.
    """
    height = axes.get_window_extent().height / axes.figure.dpi * 72.0  # points
    to_axes = axes.transData + axes.transAxes.inverted()
    spots = [(*to_axes.transform((x, y)), text, color) for x, y, text, color in labels]
    spots.sort(key=lambda spot: spot[1])
    heights = [1.32 * FONT * (text.count("\n") + 1) / height for _, _, text, _ in spots]
    width = axes.get_window_extent().width / axes.figure.dpi  # inches
    here = axes.transAxes
    for (x, y, text, color), at in zip(spots, spread([s[1] for s in spots], heights), strict=True):
        start, end = x + 0.05 / width, 1 + 0.2 / width
        axes.add_artist(
            Line2D([start, end], [y, at], color=color, linewidth=0.9, transform=here, clip_on=False)
        )
        axes.text(end + 0.04 / width, at, text, va="center", size=SMALL, transform=here)


def labels_height(names: Iterable[str]) -> float:
    """What the names of lines take one below the other, in inches."""
    return sum(1.32 * FONT * (name.count("\n") + 1) for name in names) / 72.0


def spread(places: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Ascending places moved apart by at least their heights, as little as possible.

    Places that collide become one block around their common centre, kept inside 0 to 1.
    """
    blocks: list[tuple[float, list[int]]] = []  # centre, members
    for index, place in enumerate(places):
        blocks.append((place, [index]))
        while True:
            centre, members = blocks[-1]
            size = sum(heights[member] for member in members)
            centre = min(max(centre, size / 2), max(1 - size / 2, size / 2))
            blocks[-1] = (centre, members)
            if len(blocks) < 2:
                break
            before, earlier = blocks[-2]
            reach = sum(heights[member] for member in earlier) / 2 + size / 2
            if centre - before >= reach - 1e-9:
                break
            merged = earlier + members
            blocks[-2:] = [(sum(places[m] for m in merged) / len(merged), merged)]
    result = [0.0] * len(places)
    for centre, members in blocks:
        at = centre - sum(heights[member] for member in members) / 2
        for member in members:
            result[member] = at + heights[member] / 2
            at += heights[member]
    return result


def bars(axes: Axes, left: Any, sizes: Any, middles: Any, height: float, **look: Any) -> None:
    """Horizontal bars of one look, as a single artist: much faster than one patch each."""
    left, sizes, middles = np.broadcast_arrays(left, sizes, middles)
    low, high = middles - height / 2, middles + height / 2
    corners = [(left, low), (left + sizes, low), (left + sizes, high), (left, high)]
    boxes = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    boxes = boxes[sizes > 0]
    axes.add_collection(PolyCollection(boxes, **({"linewidth": 0} | look)), autolim=False)


# -- legends ---------------------------------------------------------------------------------

_LEGEND_ROW = 0.2


def _legend_places(names: Sequence[str]) -> list[tuple[float, int]]:
    """Left edge in inches and row of each legend entry, filled line by line."""
    x, row, places = 0.12, 0, []
    for name in names:
        width = 0.62 + text_width(name, SMALL)
        if x + width > WIDTH and x > 0.12:
            x, row = 0.12, row + 1
        places.append((x, row))
        x += width
    return places


def legend_height(entries: Sequence[tuple[str, Any]]) -> float:
    """What a legend below the plot takes, in inches."""
    return _LEGEND_ROW * (_legend_places([name for name, _ in entries])[-1][1] + 1) + 0.1


def legend_below(
    figure: Figure, entries: Sequence[tuple[str, Look | dict[str, Any]]], lines: bool = True
) -> None:
    """A legend along the bottom edge, outside every axes; a `Look` draws a line, a dict a patch.

    Without `lines`, for dot plots, a `Look` draws its marker only.
    """
    width, height = figure.get_size_inches()
    bottom = legend_height(entries) - 0.02
    for (name, look), (x, row) in zip(
        entries, _legend_places([name for name, _ in entries]), strict=True
    ):
        y = (bottom - _LEGEND_ROW * (row + 0.5)) / height
        if isinstance(look, Look):
            ends = [x / width, (x + 0.16) / width, (x + 0.32) / width]
            style = look.line() | {"markevery": [1]} | ({} if lines else {"linestyle": "none"})
            figure.add_artist(Line2D(ends, [y] * 3, transform=figure.transFigure, **style))
        else:
            corner = (x / width, y - 0.055 / height)
            size = (0.3 / width, 0.11 / height)
            figure.add_artist(Rectangle(corner, *size, transform=figure.transFigure, **look))
        figure.text((x + 0.38) / width, y, name, va="center", size=SMALL)
