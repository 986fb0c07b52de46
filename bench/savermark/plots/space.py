"""Where the bytes are, and what the store gives back: horizontal bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from savermark.plots.layout import (
    TOP,
    Box,
    add_axes,
    bars,
    fold,
    legend_below,
    legend_height,
    new_figure,
    use_unit,
    widest,
)
from savermark.plots.series import (
    Frames,
    NoData,
    Series,
    headline,
    labelled,
    left_out,
    longest,
    series_of,
    turns_of,
    workload_rows,
)
from savermark.plots.style import (
    BLUE,
    FONT,
    GREEN,
    GREY,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    PURPLE,
    SKY,
    SMALL,
    VERMILLION,
    WIDTH,
    YELLOW,
    blend,
)
from savermark.storage import ALL_TABLES
from savermark.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.3  # inches of a bar with its gap
FOLDED_ROW = 0.36  # where names take two lines
NAME_WIDTH = 1.7  # the most that case names may take
BAR = 0.165  # inches of one phase
MOST_BARS = 16  # cases in one picture of bars
CHANNELS = 5  # segments drawn apart; the rest is gathered
_LOOKS: dict[str, tuple[str, str]] = {  # hue and hatch of each table
    "checkpoints": (SKY, ""),
    "blobs": (PURPLE, "//"),
    "writes": (YELLOW, "xx"),
    "entries": (YELLOW, "xx"),
    "artifacts": (GREEN, ""),
    "references": (BLUE, "\\\\"),
    "threads": (GREY, ""),
    "ids": (GREY, "//"),
    "records": (VERMILLION, "//"),
    "sandbox-files/": (PURPLE, "//"),
    "sandbox-artifacts/": (ORANGE, ".."),
}


def composition_table(
    frames: Frames, workload: str
) -> tuple[pd.DataFrame, list[Series], list[Series]]:
    """Bytes of each series (rows) by table and channel (columns): `(table, all series, drawn)`."""
    rows = workload_rows(frames, "storage", workload)
    rows = rows[(rows["phase"] == "loaded") & (rows["logical_bytes"] > 0)]
    if rows.empty:
        raise NoData("nothing was stored at the loaded phase")
    part = rows["table"].astype(str)
    named = rows["channel"].notna()
    part = part.where(~named, part + ": " + rows["channel"].fillna("").astype(str))
    rows = rows.assign(part=part)
    keep = rows.groupby("part")["logical_bytes"].sum().nlargest(CHANNELS).index
    rest = rows["table"].astype(str) + ": other channels"
    rows["part"] = rows["part"].where(rows["part"].isin(keep) | ~named, rest)
    rows = longest(rows)
    every = series_of(rows)
    series = headline(every, MOST_BARS)
    by = labelled(rows, series).groupby(["label", "repetition", "variant", "part"])
    medians = by["logical_bytes"].sum().groupby(["label", "part"]).median()
    table = medians.unstack("part").fillna(0.0).loc[[item.label for item in series]]
    weight = table.sum()
    ordered = sorted(
        table.columns,
        key=lambda name: (
            ALL_TABLES.index(name.partition(":")[0]),
            name.endswith("other channels"),
            -weight[name],
        ),
    )
    return table[ordered], every, series


def part_looks(parts: list[str]) -> dict[str, dict[str, Any]]:
    """Face and hatch of each segment: the table gives hue and hatch, the channel the shade."""
    seen: dict[str, int] = {}
    looks = {}
    for part in parts:
        table = part.partition(":")[0]
        nth = seen[table] = seen.get(table, -1) + 1
        looks[part] = {
            "facecolor": blend(_LOOKS[table][0], min(0.75, 0.3 * nth)),
            "hatch": _LOOKS[table][1],
            "edgecolor": PAPER,
            "hatchcolor": blend(INK, 0.35),
            "linewidth": 0.8,
        }
    return looks


def where_bytes_are(frames: Frames, workload: str) -> tuple[Figure, str]:
    """Stacked bars by table and channel: what each case stores, and its shares beside."""
    table, every, series = composition_table(frames, workload)
    looks = part_looks(list(table.columns))
    names = [fold(item.label, NAME_WIDTH, FONT) for item in series]
    left = 0.2 + widest(names, FONT)
    legend = [(part, looks[part]) for part in table.columns]
    body = (FOLDED_ROW if any("\n" in name for name in names) else ROW) * len(series) + 0.1
    height = TOP + 0.14 + body + 0.36 + legend_height(legend)
    figure = new_figure(
        f"{workload}: where the bytes are",
        f"serialized payload by table and channel, after loading{turns_of(frames, workload)}",
        height,
    )
    sums = table.sum(axis=1)
    gap = 0.3 + widest([format_bytes(value) for value in sums], FONT)  # totals stand between
    width = (WIDTH - left - gap - 0.25) / 2
    total = add_axes(figure, Box(left, TOP + 0.14, width, body))
    share = add_axes(figure, Box(left + width + gap, TOP + 0.14, width, body))
    _stack(total, table, looks)
    _stack(share, table.div(sums, axis=0), looks)
    total.set_yticks(range(len(names)), names, size=FONT, color=INK)
    share.set_yticks([])
    for at, value in enumerate(sums):
        total.text(
            value + sums.max() * 0.03,
            at,
            format_bytes(value),
            va="center",
            size=SMALL,
            weight="bold",
        )
    total.set_xlim(0, sums.max())
    share.set_xlim(0, 1)
    use_unit(total.xaxis, "bytes", log=False, most=4)
    use_unit(share.xaxis, "share", log=False, most=5)
    for axes, title in ((total, "all threads together"), (share, "share of each part")):
        axes.set_title(title, size=SMALL, color=MUTED, loc="left", pad=4)
    legend_below(figure, legend)
    return figure, _largest_parts(table) + left_out(every, series)


def _stack(axes: Axes, table: pd.DataFrame, looks: dict[str, dict[str, Any]]) -> None:
    left = np.zeros(len(table))
    for part in table.columns:
        sizes = table[part].to_numpy()
        bars(axes, left, sizes, np.arange(len(table)), 0.66, **looks[part])
        left = left + sizes
    axes.set_ylim(len(table) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def _largest_parts(table: pd.DataFrame) -> str:
    """A caption: the part that takes most, named for the largest and the smallest case."""
    sums = table.sum(axis=1)
    told = []
    for place in dict.fromkeys((int(sums.argmax()), int(sums.argmin()))):
        row = table.iloc[place]
        told.append(
            f"{table.index[place]} keeps {row.max() / sums.iloc[place]:.0%} in {row.idxmax()}"
        )
    return f"Most of it: {'; '.join(told)}."


# -- before and after --------------------------------------------------------------------------

PHASES = ("loaded", "retained", "compacted")


def phase_table(frames: Frames, workload: str) -> tuple[pd.DataFrame, list[Series], list[Series]]:
    """Footprint and live bytes: columns label, phase, footprint, live; all series, those drawn."""
    whole = workload_rows(frames, "footprint", workload)
    whole = whole[whole["component"] == "total"]
    if whole.empty or whole["phase"].nunique() < 2:
        raise NoData("the footprint was measured at one phase only")
    whole = longest(whole)
    every = series_of(whole)
    series = headline(every)
    sizes = labelled(whole, series).groupby(["label", "phase"])["bytes"].median()
    table = sizes.rename("footprint").reset_index()
    live = _live(labelled(workload_rows(frames, "storage", workload), series))
    return table.merge(live, on=["label", "phase"], how="left"), every, series


def _live(rows: pd.DataFrame) -> pd.DataFrame:
    """Bytes that rows still hold: as stored where the engine says, else as serialized."""
    kept = rows["stored_bytes"].fillna(rows["logical_bytes"].astype("Int64")).astype(float)
    by = rows.assign(live=kept).groupby(["label", "phase", "repetition", "variant"])
    return by["live"].sum().groupby(["label", "phase"]).median().reset_index()


def before_and_after(frames: Frames, workload: str) -> tuple[Figure, str]:
    """Footprint before retention, after it and after compaction, with the live bytes inside."""
    table, every, series = phase_table(frames, workload)
    panels = [
        (mode, [item for item in series if item.mode == mode])
        for mode in dict.fromkeys(item.mode for item in series)
    ]
    left = 0.2 + widest([_without_mode(item) for item in series], FONT)
    row = BAR * table["phase"].nunique() + 0.14
    height = TOP + sum(0.24 + row * len(panel) + 0.34 for _, panel in panels)
    figure = new_figure(
        _phase_title(workload, panels),
        "wide bar: the whole store; narrow bar: what its live rows hold"
        + turns_of(frames, workload),
        height,
    )
    top = TOP
    for mode, panel in panels:
        box = Box(left, top + 0.24, WIDTH - left - 1.45, row * len(panel))
        _phase_bars(add_axes(figure, box), table, panel, row)
        heading = f"{mode} mode" if mode else "checkpoint store and blobs together"
        figure.text(left / WIDTH, 1 - (top + 0.17) / height, heading, size=SMALL, color=MUTED)
        top += 0.24 + row * len(panel) + 0.34
    done = _deleting(panels)
    return figure, _given_back(table, done[:1].upper() + done[1:]) + left_out(every, series)


def _phase_title(workload: str, panels: list[tuple[str, list[Series]]]) -> str:
    if all(mode for mode, _ in panels):
        return f"{workload}: size of the store, before and after deleting threads"
    return f"{workload}: size before and after pruning"


def _deleting(panels: list[tuple[str, list[Series]]]) -> str:
    """What the retained phase did, in words."""
    return "deleting threads" if all(mode for mode, _ in panels) else "pruning and sweep"


def _without_mode(item: Series) -> str:
    """A series' name under a heading that already tells the mode."""
    return fold(item.label.replace(f"{item.backend} {item.mode}", item.backend), NAME_WIDTH, FONT)


def _phase_bars(axes: Axes, table: pd.DataFrame, panel: list[Series], row: float) -> None:
    """Three bars a case: y is in inches from the panel's top."""
    mine = table[table["label"].isin([item.label for item in panel])]
    most = max(mine["footprint"].max(), mine["live"].fillna(0.0).max(), 1.0)
    for place, item in enumerate(panel):
        sizes = mine[mine["label"] == item.label].set_index("phase")
        sizes = sizes.loc[[phase for phase in PHASES if phase in sizes.index]]
        ys = (place + 0.5) * row + BAR * (np.arange(len(sizes)) - (len(sizes) - 1) / 2)
        color = item.look.color
        footprint, live = sizes["footprint"].to_numpy(), sizes["live"].fillna(0.0).to_numpy()
        bars(axes, 0.0, footprint, ys, BAR * 0.82, facecolor=blend(color, 0.62))
        bars(axes, 0.0, live, ys, BAR * 0.3, facecolor=blend(color, 0.25, INK))
        for phase, size, end, y in zip(
            sizes.index, footprint, np.maximum(footprint, live), ys, strict=True
        ):
            note = f"{format_bytes(size)} {phase}"
            axes.text(end + most * 0.015, y, note, va="center", size=SMALL - 0.5)
    middles = [place * row + row / 2 for place in range(len(panel))]
    names = [_without_mode(item) for item in panel]
    axes.set_yticks(middles, names, size=FONT, color=INK)
    axes.set_ylim(row * len(panel), 0)
    axes.set_xlim(0, most)
    axes.grid(visible=False)  # every bar carries its value
    use_unit(axes.xaxis, "bytes", log=False, most=5)


def _given_back(table: pd.DataFrame, done: str) -> str:
    """A caption: how much of the footprint each phase gave back, over the cases."""
    wide = table.pivot_table(index="label", columns="phase", values="footprint", sort=False)
    told = []
    for phase in ("retained", "compacted"):
        if phase in wide and "loaded" in wide:
            shares = 1 - wide[phase] / wide["loaded"]
            low, high = f"{max(0, shares.min()):.0%}", f"{max(0, shares.max()):.0%}"
            verb = done if phase == "retained" else "compaction"
            told.append(f"{verb} gave back {low if low == high else f'{low} to {high}'}")
    return ", then ".join(told) + " of the loaded size." if told else ""
