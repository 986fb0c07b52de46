"""Latency over depth: whether a call costs more the longer the conversation is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
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
    OPS,
    Frames,
    NoData,
    Series,
    headline,
    left_out,
    longest,
    series_of,
    split,
    turns_of,
    workload_rows,
)
from savermark.plots.style import MUTED, SMALL, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT = 0.66
LABEL_WIDTH = 1.45
BINS = 16  # depth bins when there are more depths than that
LEAST_IN_BAND = 4  # samples in a bin that carry a 10 to 90 % band
DEPTH_OPS = (
    *(("turn", "run"), ("put", "run"), ("get_state", "warm"), ("resume", "warm")),
    *(("capture", "run"), ("append", "run"), ("get", "run")),  # of sandbox stores
)


def depth_table(frames: Frames, workload: str) -> pd.DataFrame:
    """The samples that count, with `x`: checkpoints at or below the place that was read or put."""
    rows = workload_rows(frames, "samples", workload)
    rows = rows[~rows["warmup"].astype(bool) & (rows["phase"] == "loaded")]
    at = rows["at"].fillna("").astype(str)
    named = pd.to_numeric(at.str.removeprefix("depth:"), errors="coerce")
    return rows.assign(x=named.where(at.str.startswith("depth:"), rows["depth"]).astype(float))


def bins(samples: pd.DataFrame) -> pd.DataFrame:
    """Median and 10 to 90 % band by depth: columns x, mid, low, high (NaN without a band)."""
    x, ns = samples["x"].to_numpy(dtype=float), samples["ns"].to_numpy(dtype=float)
    places = np.unique(x)
    if places.size > BINS:
        edges = np.unique(np.quantile(x, np.linspace(0, 1, BINS + 1)[1:-1]))
        group = np.searchsorted(edges, x, side="left")
    else:
        group = np.searchsorted(places, x)
    rows = []
    for number in np.unique(group):
        here = group == number
        low, mid, high = np.quantile(ns[here], (0.1, 0.5, 0.9))
        thin = here.sum() < LEAST_IN_BAND
        rows.append((np.median(x[here]), mid, np.nan if thin else low, np.nan if thin else high))
    return pd.DataFrame(rows, columns=["x", "mid", "low", "high"])


def latency_over_depth(frames: Frames, workload: str) -> tuple[Figure, str]:
    """Median lines with 10 to 90 % bands over depth, one panel an operation."""
    samples = longest(depth_table(frames, workload))
    every = series_of(samples)
    series = headline(every)
    panels = []
    for op, temperature in DEPTH_OPS:
        rows = samples[(samples["op"] == op) & (samples["temperature"] == temperature)]
        lines = [(item, bins(mine)) for item, mine in split(rows, series)] if len(rows) else []
        lines = [(item, table) for item, table in lines if len(table) > 1]
        if lines:
            panels.append((op, temperature, lines))
    if not panels:
        raise NoData("no operation was sampled at two depths or more")
    words = f"median line, band from the 10th to the 90th percentile{turns_of(frames, workload)}"
    return _depth_figure(workload, words, panels, series), (
        "Flat is good: a call that costs the same however long the thread is."
        + left_out(every, series)
    )


def _depth_figure(
    workload: str,
    words: str,
    panels: list[tuple[str, str, list[tuple[Series, pd.DataFrame]]]],
    series: list[Series],
) -> Figure:
    names = {item.label: fold(item.label, LABEL_WIDTH, SMALL) for item in series}
    right = widest(names.values(), SMALL) + 0.42
    tall, head = max(1.75, labels_height(names.values())), 0.26
    height = TOP + len(panels) * (head + tall + 0.32) + BOTTOM - 0.42
    figure = new_figure(
        f"{workload}: latency over depth",
        words,
        height,
    )
    for place, (op, temperature, lines) in enumerate(panels):
        top = TOP - 0.1 + place * (head + tall + 0.32) + head
        axes = add_axes(figure, Box(LEFT, top, WIDTH - LEFT - right, tall))
        note = "while the conversation runs" if temperature == "run" else temperature
        axes.set_title(f"{OPS[op]}, {note}", size=SMALL, color=MUTED, loc="left", pad=4)
        _depth_lines(axes, lines)
        end_labels(
            axes,
            [
                (float(t["x"].iloc[-1]), float(t["mid"].iloc[-1]), names[i.label], i.look.color)
                for i, t in lines
            ],
        )
        if place == len(panels) - 1:
            axes.set_xlabel("checkpoints in the thread")
    return figure


def _depth_lines(axes: Axes, lines: list[tuple[Series, pd.DataFrame]]) -> None:
    tables = [table for _, table in lines]
    edges = np.concatenate([table[["low", "mid", "high"]].to_numpy().ravel() for table in tables])
    scale_axis(axes, "x", [v for table in tables for v in table["x"]], "count", 1e9)
    scale_axis(axes, "y", list(edges[edges > 0]), "ns", 8)
    for item, table in lines:
        axes.fill_between(
            table["x"], table["low"], table["high"], color=item.look.color, alpha=0.16, linewidth=0
        )
        style = item.look.line() | {"markersize": 3.4, "linewidth": 1.5}
        axes.plot(table["x"], table["mid"], **style)
