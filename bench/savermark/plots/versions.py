"""Costs over the releases of a package: what a walk asks for, how long it takes, what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from savermark.plots.style import BLUE, GREEN, INK, MUTED, RC, SMALL, TITLE, VERMILLION, WIDTH
from savermark.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from savermark.tracking import Version

ROW = 2.1  # inches a package


def plot_versions(packages: Sequence[Sequence[Version]], path: Path) -> Path:
    """Draw one row a package, its releases from left to right, into a PNG file."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(WIDTH * 1.5, ROW * len(packages) + 0.3), layout="constrained")
        grid = figure.subplots(len(packages), 3, squeeze=False)
        for axes, lines in zip(grid, packages, strict=True):
            _row(list(axes), lines)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"Software": None})
    return path


def _row(axes: Sequence[Axes], lines: Sequence[Version]) -> None:
    names = [line.version for line in lines]
    statements = [line.probe.counts.get("walk own", {}).get("statements") for line in lines]
    stored = [
        sum(value for name, value in line.probe.storage.items() if name.endswith(" bytes"))
        for line in lines
    ]
    axes[0].set_title(lines[0].package, loc="left", fontsize=TITLE, color=INK)
    _counts(axes[0], names, statements, "statements of a walk", BLUE, format_count)
    _ratios(axes[1], lines)
    _counts(axes[2], names, stored, "stored payload", GREEN, format_bytes)


def _counts(
    axes: Axes, names: Sequence[str], values: Sequence[float | None], what: str, color: str,
    show: object,
) -> None:  # fmt: skip
    assert callable(show)
    places = [at for at, value in enumerate(values) if value is not None]
    heights = [float(value) for value in values if value is not None]
    axes.bar(places, heights, color=color, width=0.6)
    for at, height in zip(places, heights, strict=True):
        text = show(height)
        axes.annotate(
            text, (at, height), (0, 2), textcoords="offset points", ha="center", fontsize=SMALL,
            color=MUTED,
        )  # fmt: skip
    axes.set_ylim(0, max([*heights, 1]) * 1.18)
    axes.set_ylabel(what)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_yticklabels([])
    _releases(axes, names)


def _ratios(axes: Axes, lines: Sequence[Version]) -> None:
    """The walk's time as a ratio to the base class's walk, with the range over the rounds."""
    timed = [(at, line.to_base) for at, line in enumerate(lines) if line.to_base]
    for at, ratio in timed:
        axes.plot([at], [ratio.value], "o", color=VERMILLION, markersize=4.6)
        if ratio.low is not None and ratio.high is not None:
            axes.plot([at, at], [ratio.low, ratio.high], color=VERMILLION, linewidth=1.4)
    axes.axhline(1, color=MUTED, linewidth=0.8)
    top = max([ratio.high or ratio.value for _, ratio in timed], default=1)
    axes.set_ylim(0, max(top, 1) * 1.15)
    axes.set_ylabel("time / base walk's")
    _releases(axes, [line.version for line in lines])


def _releases(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_xticks(range(len(names)), names)
    axes.grid(visible=False, axis="x")
