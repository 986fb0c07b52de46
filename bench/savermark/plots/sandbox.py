"""Deduplication: what copies would take, what blobs and rows take, and the least possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from savermark.plots.layout import (
    TOP,
    Box,
    add_axes,
    bars,
    legend_below,
    legend_height,
    new_figure,
    use_unit,
    widest,
)
from savermark.plots.series import Frames, NoData, longest, turns_of, workload_rows
from savermark.plots.style import FONT, GREEN, GREY, INK, PURPLE, SMALL, WIDTH, blend
from savermark.storage import BLOB_TABLES
from savermark.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PHASES = {"loaded": "loaded", "retained": "pruned and swept"}
BAR = 0.2  # inches
ROW = 3 * BAR + 0.16
_LOOKS: dict[str, dict[str, Any]] = {
    "a copy for each checkpoint": {"facecolor": blend(GREY, 0.45)},
    "blobs": {"facecolor": PURPLE},
    "rows of the checkpoint store": {"facecolor": blend(INK, 0.35)},
    "floor: each distinct content once": {"facecolor": GREEN},
}


def dedup_table(frames: Frames, workload: str) -> pd.DataFrame:
    """Bytes of each phase (rows) by kind (columns): medians over the cases, which agree."""
    keys = ["phase", "variant", "backend", "repetition"]
    stored = longest(workload_rows(frames, "storage", workload))
    sized = longest(workload_rows(frames, "footprint", workload))
    floor = longest(workload_rows(frames, "floor", workload))
    in_blobs = stored["table"].isin(BLOB_TABLES)
    parts = (
        sized[sized["component"] == "captured"].groupby(keys)["bytes"].sum(),
        stored[in_blobs].groupby(keys)["logical_bytes"].sum(),
        stored[~in_blobs].groupby(keys)["logical_bytes"].sum(),
        floor.groupby(keys)["bytes"].sum(),
    )
    table = pd.DataFrame(
        {name: part.groupby("phase").median() for name, part in zip(_LOOKS, parts, strict=True)}
    )
    return table.reindex([phase for phase in PHASES if phase in table.index])


def deduplication(frames: Frames, workload: str) -> tuple[Figure, str]:
    """Bars for copies, for blobs and rows, and for the floor, before and after pruning."""
    table = dedup_table(frames, workload)
    if table.empty or not table.iloc[0, 0]:
        raise NoData("no file or artifact was captured")
    names = [PHASES[str(phase)] for phase in table.index]
    left = 0.2 + widest(names, FONT)
    legend = list(_LOOKS.items())
    body = ROW * len(table)
    figure = new_figure(
        f"{workload}: what content addressing saves",
        f"bytes as serialized, the same on every backend{turns_of(frames, workload)}",
        TOP + body + 0.4 + legend_height(legend),
    )
    axes = add_axes(figure, Box(left, TOP, WIDTH - left - 1.5, body))
    _draw(axes, table)
    axes.set_yticks([(n + 0.5) * ROW for n in range(len(table))], names, size=FONT, color=INK)
    axes.set_ylim(body, 0)
    axes.set_xlim(0, _kept(table).combine(table.max(axis=1), max).max())
    axes.grid(axis="y", visible=False)
    use_unit(axes.xaxis, "bytes", log=False, most=5)
    legend_below(figure, legend)
    copies, blobs, _, floor = table.iloc[0]
    return figure, (
        f"Loaded, blobs hold {copies / blobs:.1f} times less than copies would; blobs and rows "
        f"together are {_kept(table).iloc[0] / floor:.1f} times the floor."
    )


def _kept(table: pd.DataFrame) -> pd.Series[float]:
    """Blobs and rows together."""
    return table.iloc[:, 1] + table.iloc[:, 2]


def _draw(axes: Axes, table: pd.DataFrame) -> None:
    """Three bars a phase, each with its size."""
    middles = (np.arange(len(table)) + 0.5) * ROW
    copies, blobs, rows, floor = (table[name].to_numpy() for name in _LOOKS)
    looks = list(_LOOKS.values())
    bars(axes, 0.0, copies, middles - BAR, BAR * 0.8, **looks[0])
    bars(axes, 0.0, blobs, middles, BAR * 0.8, **looks[1])
    bars(axes, blobs, rows, middles, BAR * 0.8, **looks[2])
    bars(axes, 0.0, floor, middles + BAR, BAR * 0.8, **looks[3])
    for place, middle in enumerate(middles):
        both = blobs[place] + rows[place]
        told = f"{format_bytes(both)} ({copies[place] / blobs[place]:.1f}× dedup)"
        for at, end, text in (
            (-BAR, copies[place], format_bytes(copies[place])),
            (0.0, both, told),
            (BAR, floor[place], format_bytes(floor[place])),
        ):
            axes.annotate(
                text,
                (end, middle + at),
                (4, 0),
                textcoords="offset points",
                va="center",
                size=SMALL - 0.5,
            )
