"""Bytes by turns: how a thread's storage grows with the conversation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from savermark.plots.layout import (
    BOTTOM,
    TOP,
    Box,
    add_axes,
    end_labels,
    fold,
    labels_height,
    new_figure,
    scale_axis,
    widest,
)
from savermark.plots.series import (
    Frames,
    NoData,
    Series,
    headline,
    left_out,
    series_of,
    split,
    workload_rows,
)
from savermark.plots.style import SMALL, WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEFT = 0.82  # room for tick labels such as `1.25 MB` and the axis label
LABEL_WIDTH = 1.45  # the most that names beside lines may take
POINTS = 40  # a fleet's thread lengths are gathered to about this many points
LEAST_SPREAD = 1.5  # longest over shortest thread that shows growth at all


def growth_table(frames: Frames, workload: str) -> tuple[pd.DataFrame, str, list[Series]]:
    """Median logical bytes of a thread by its length: `(table, x label, series)`.

    The length comes from a sweep over turns or, within one case, from threads of different
    lengths (frame `thread_turns`, else the thread's checkpoints in the root namespace).
    """
    rows = workload_rows(frames, "storage", workload)
    rows = rows[rows["phase"] == "loaded"]
    if rows.empty:
        raise NoData("nothing was stored at the loaded phase")
    keys = ["variant", "backend", "turns", "repetition", "thread_id"]
    threads = rows.groupby(keys)["logical_bytes"].sum().reset_index()
    if rows["turns"].nunique() > 1:
        threads["x"] = threads["turns"]
        label = "turns of the conversation"
        series = series_of(rows, ignore=("turns",))
    else:
        threads, label = _lengths(frames, workload, rows, threads)
        series = series_of(rows)
    threads = threads[(threads["x"] > 0) & (threads["logical_bytes"] > 0)]
    if threads.empty or threads["x"].max() < LEAST_SPREAD * threads["x"].min():
        turns = int(rows["turns"].iloc[0])
        raise NoData(
            f"every thread has the same length ({turns} turns): sweep conversation.turns, "
            "or give the turns a distribution, to see growth"
        )
    threads["workload"] = workload
    return threads, label, series


def _lengths(
    frames: Frames, workload: str, rows: pd.DataFrame, threads: pd.DataFrame
) -> tuple[pd.DataFrame, str]:
    known = frames.get("thread_turns")
    if known is not None and not known.empty:
        mine = known[known["workload"] == workload]
        keys = ["variant", "backend", "repetition", "thread_id"]
        joined = threads.merge(mine[[*keys, "thread_turns"]], on=keys)
        if not joined.empty:
            return joined.rename(columns={"thread_turns": "x"}), "turns of the thread"
    heads = rows[(rows["table"] == "checkpoints") & (rows["checkpoint_ns"] == "")]
    keys = ["variant", "backend", "turns", "repetition", "thread_id"]
    counts = heads.groupby(keys)["rows"].sum().rename("x").reset_index()
    return threads.merge(counts, on=keys), "checkpoints of the thread"


def _points(table: pd.DataFrame) -> pd.DataFrame:
    """Median bytes at each length, lengths gathered when there are very many."""
    x = table["x"].astype(float)
    group = pd.qcut(x, POINTS, labels=False, duplicates="drop") if x.nunique() > POINTS else x
    return table.assign(x=x).groupby(group)[["x", "logical_bytes"]].median()


def exponent(x: pd.Series[float], y: pd.Series[float]) -> float:
    """How bytes grow over the last doubling of the length, as a power of it."""
    if len(x) < 2 or x.iloc[-1] <= x.iloc[0]:
        return math.nan
    start = max(0, int((x <= x.iloc[-1] / 2).sum()) - 1)
    return math.log(y.iloc[-1] / y.iloc[start]) / math.log(x.iloc[-1] / x.iloc[start])


def _coincide(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether two lines lie so close that one hides the other."""
    if list(one["x"]) != list(other["x"]):
        return False
    ratio = one["logical_bytes"].to_numpy() / other["logical_bytes"].to_numpy()
    return bool(((ratio > 0.94) & (ratio < 1.06)).all())


def bytes_by_turns(frames: Frames, workload: str) -> tuple[Figure, str]:
    """Lines of stored bytes over the length of a thread, one for each backend and mode."""
    table, x_label, every = growth_table(frames, workload)
    series = headline(every)
    lines = [(item, _points(mine)) for item, mine in split(table, series)]
    lines = [(item, points) for item, points in lines if len(points) > 1]
    if not lines:
        raise NoData("no case has threads of different lengths")
    names = [
        f"{item.label}, n^{exponent(points['x'], points['logical_bytes']):.1f}"
        for item, points in lines
    ]
    names = [fold(name, LABEL_WIDTH, SMALL) for name in names]
    right = widest(names, SMALL) + 0.42
    height = TOP + max(2.4, labels_height(names)) + BOTTOM
    figure = new_figure(
        f"{workload}: bytes a thread holds, by its length",
        "serialized payload of all its rows, after loading; n^k: growth with the length n",
        height,
    )
    axes = add_axes(figure, Box(LEFT, TOP, WIDTH - LEFT - right, height - TOP - BOTTOM))
    scale_axis(axes, "x", [v for _, p in lines for v in p["x"]], "count", 6)
    scale_axis(axes, "y", [v for _, p in lines for v in p["logical_bytes"]], "bytes", 12)
    for place, (item, points) in enumerate(lines):
        # Two stores may hold the same bytes: the one below stays visible as a wider line.
        under = sum(_coincide(points, later) for _, later in lines[place + 1 :])
        style = item.look.line()
        style |= {"linewidth": 1.6 + 1.2 * under, "markersize": 4.4 + 1.6 * under}
        axes.plot(points["x"], points["logical_bytes"], **style)
    axes.set_xlabel(x_label)
    axes.set_ylabel("logical bytes per thread")
    ends = [
        (float(p["x"].iloc[-1]), float(p["logical_bytes"].iloc[-1]), name, item.look.color)
        for (item, p), name in zip(lines, names, strict=True)
    ]
    end_labels(axes, ends)
    caption = "A line that rises with slope 2 (n^2.0) costs four times as much for twice the turns."
    return figure, caption + left_out(every, series)
