"""Storage against read latency for each snapshot frequency: what a faster read costs in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from savermark.plots.layout import BOTTOM, TOP, Box, add_axes, new_figure, scale_axis, use_unit
from savermark.plots.series import (
    Frames,
    NoData,
    Series,
    labelled,
    longest,
    series_of,
    turns_of,
    workload_rows,
)
from savermark.plots.style import MUTED, PAPER, SMALL, WIDTH
from savermark.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT, GAP, RIGHT = 0.7, 0.72, 0.22
TALL, HEAD = 1.3, 0.42
READ = "get_state"
TEMPERATURES = ("warm", "cold")
MOST_CURVES = 6  # rows of panels
TIMES = ["p50_ns", "p50_low_ns", "p50_high_ns"]


def tradeoff_table(frames: Frames, workload: str) -> tuple[pd.DataFrame, list[Series]]:
    """Bytes a thread and p50 of each read at the head: one row a series and read."""
    stored = workload_rows(frames, "storage", workload)
    stored = longest(stored[stored["phase"] == "loaded"])
    delta = stored[stored["mode"] == "delta"]
    if delta["snapshot_frequency"].nunique() < 2:
        raise NoData("one snapshot frequency only: sweep state.messages.snapshot_frequency")
    times = workload_rows(frames, "latency", workload)
    times = times[(times["phase"] == "loaded") & (times["window"] == "all")]
    times = longest(times[times["at"] == "head"])
    series = series_of(stored)
    threads = labelled(stored, series).groupby(["label", "repetition", "variant", "thread_id"])
    held = threads["logical_bytes"].sum().groupby("label").mean().rename("bytes")
    times = times[times["op"] == READ]
    p50 = labelled(times, series).groupby(["label", "temperature"], as_index=False)[TIMES].median()
    table = p50.rename(columns={"temperature": "when"}).merge(held.reset_index(), on="label")
    if table.empty:
        raise NoData("no read of the head was sampled")
    return table, series


def storage_against_latency(frames: Frames, workload: str) -> tuple[Figure, str]:
    """A curve for each backend and temperature, its points named by snapshot frequency."""
    table, series = tradeoff_table(frames, workload)
    curves = dict(list(_curves(series).items())[:MOST_CURVES])
    reads = [when for when in TEMPERATURES if (table["when"] == when).any()]
    height = TOP + len(curves) * (HEAD + TALL) + BOTTOM + 0.16 * (len(curves) - 1)
    figure = new_figure(
        f"{workload}: storage against read latency, by snapshot frequency",
        "get_state at the head; a number is the frequency: a snapshot after so many updates"
        + turns_of(frames, workload),
        height,
    )
    width = (WIDTH - LEFT - RIGHT - GAP * (len(reads) - 1)) / len(reads)
    labels = [item.label for items in curves.values() for item in items]
    sizes = table[table["label"].isin(labels)]["bytes"]
    for row, (name, items) in enumerate(curves.items()):
        top = TOP - 0.1 + HEAD + row * (HEAD + TALL + 0.16)
        for column, when in enumerate(reads):
            points = table[table["when"] == when].set_index("label")
            mine = [item for item in items if item.label in points.index]
            if not mine:  # for instance a store that no other process can open has no cold reads
                continue
            axes = add_axes(figure, Box(LEFT + column * (width + GAP), top, width, TALL))
            _curve(axes, points, mine)
            note = _full_line(axes, points, name, series)
            _limits(axes, points, mine, sizes)
            title = f"{name}, {when}{note}"
            axes.set_title(title, size=SMALL, color=MUTED, loc="left", pad=4)
            axes.set_xlabel("logical bytes per thread" if row == len(curves) - 1 else "")
    return figure, (
        "Down and left is better. Frequent snapshots cost bytes and save the walk over many "
        "writes; where the curve is flat they buy nothing."
    )


def _curves(series: list[Series]) -> dict[str, list[Series]]:
    """Delta series that differ by frequency only, by name, in order of frequency."""
    curves: dict[str, list[Series]] = {}
    for item in series:
        if item.frequency is not None:
            told = f"f={item.frequency}"
            name = item.label.replace(f"({told}, ", "(").replace(f" ({told})", "")
            curves.setdefault(name, []).append(item)
    for items in curves.values():
        items.sort(key=lambda item: item.frequency or 0)
    return {name: items for name, items in curves.items() if len(items) > 1}


def _curve(axes: Axes, points: pd.DataFrame, items: list[Series]) -> None:
    mine = points.loc[[item.label for item in items]]
    look = items[0].look.line()
    axes.plot(mine["bytes"], mine["p50_ns"], **look)
    axes.vlines(
        mine["bytes"],
        mine["p50_low_ns"],
        mine["p50_high_ns"],
        color=look["color"],
        linewidth=2.4,
        alpha=0.35,
    )
    places = mine.assign(name=[str(item.frequency) for item in items])
    # Frequencies that cost about the same bytes share one label above the highest of them.
    for _, near in places.groupby(_neighbours(places["bytes"])):
        axes.annotate(
            ", ".join(near["name"]),
            (near["bytes"].mean(), near["p50_high_ns"].fillna(near["p50_ns"]).max()),
            (0, 6),
            textcoords="offset points",
            ha="center",
            size=SMALL - 0.5,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.3},
        )


def _neighbours(sizes: pd.Series[float]) -> pd.Series[int]:
    """Group numbers for sizes so close that their labels would overlap."""
    ordered = sizes.sort_values()
    reach = max(0.04 * float(ordered.iloc[-1] - ordered.iloc[0]), 0.004 * float(ordered.iloc[-1]))
    groups = (ordered.diff() > reach).cumsum().astype(int)
    return groups.reindex(sizes.index)


def _full_line(axes: Axes, points: pd.DataFrame, name: str, series: list[Series]) -> str:
    """The same case in full mode as a level to compare with, and words for it.

    Its bytes would lie far off the axis, so they stand in the words.
    """
    for item in series:
        is_full = item.frequency is None and item.label in points.index
        if is_full and item.label.replace(item.mode, "delta", 1) == name:
            full: Any = points.loc[item.label]
            axes.axhline(full["p50_ns"], color=MUTED, linewidth=1.1, linestyle=(0, (3.2, 1.6)))
            return f"\ndashed: full mode, {format_bytes(full['bytes'])}"
    return ""


def _limits(axes: Axes, points: pd.DataFrame, items: list[Series], sizes: pd.Series[float]) -> None:
    low, high = float(sizes.min()), float(sizes.max())
    if not scale_axis(axes, "x", list(sizes), "bytes", 6):
        pad = max(0.12 * (high - low), 0.02 * high)
        axes.set_xlim(low - pad, high + pad)
    use_unit(axes.xaxis, "bytes", axes.get_xscale() == "log", most=4)
    shown = [np.asarray(line.get_ydata(), dtype=float) for line in axes.lines]
    mine = points.reindex([item.label for item in items])
    tops = mine["p50_high_ns"].fillna(mine["p50_ns"]).dropna()
    most = max([*(float(ys.max()) for ys in shown if ys.size), *tops], default=1.0)
    axes.set_ylim(0, most * 1.22)
    use_unit(axes.yaxis, "ns", log=False, most=5)
