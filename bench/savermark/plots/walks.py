"""Walks: time over depth with its law, ratio to the floor, and what a snapshot frequency trades."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from savermark.plots.series import Frames, NoData, split_keys
from savermark.plots.style import MUTED, SMALL, WIDTH, backend_order
from savermark.stats import growth

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT, HEAD, GAP = 0.82, 0.3, 0.34
LABEL_WIDTH = 2.0
TALL = 1.9
FLOOR = "floor"
# Told apart in colour blindness, and by their markers: an order of names, then whatever comes.
_LOOKS = {
    "floor": ("#888888", "x"),
    "base": ("#d55e00", "o"),
    "native": ("#0072b2", "s"),
    "onepass": ("#009e73", "^"),
    "cached": ("#cc79a7", "D"),
}
_SPARE = (("#e69f00", "v"), ("#56b4e9", "P"), ("#000000", "*"))


def _rows(frames: Frames, workload: str, read: str) -> pd.DataFrame:
    """The warm rows of one read; raises `NoData` when there are none."""
    table = frames.get("walks")
    if table is None or table.empty:
        raise NoData("the run holds no walks")
    table = table[(table["workload"] == workload) & (table["temperature"] == "warm")]
    rows = table[table["read"] == read]
    if rows.empty:
        raise NoData(f"no {read} of this workload was sampled")
    return rows


def _look(walk: str, walks: Sequence[str]) -> dict[str, Any]:
    others = [name for name in walks if name not in _LOOKS]
    color, marker = _LOOKS.get(walk) or _SPARE[others.index(walk) % len(_SPARE)]
    style: dict[str, Any] = {"color": color, "marker": marker, "markersize": 4.2, "linewidth": 1.5}
    return style | ({"linestyle": "--"} if walk == FLOOR else {})


def _panels(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for backend in sorted(rows["backend"].unique(), key=backend_order):
        yield str(backend), rows[rows["backend"] == backend]


def walk_over_depth(frames: Frames, workload: str) -> tuple[Figure, str]:
    """Median time over the depth of the thread, both logarithmic, each line with its exponent."""
    rows = _rows(frames, workload, "walk")
    if rows["turns"].nunique() < 2:
        raise NoData("every case has the same depth: sweep thread.depth to see growth")
    if rows.groupby("turns")["variant"].nunique().max() > 1:
        raise NoData("other keys than the depth are swept, too: sweep thread.depth alone")
    panels = list(_panels(rows))
    walks = sorted(rows["walk"].unique(), key=str)
    names = {
        (backend, walk): _law(walk, mine[mine["walk"] == walk])
        for backend, mine in panels
        for walk in walks
    }
    figure, places = _stack(
        f"{workload}: time of a walk over the depth of the thread",
        "median; d^k: growth with the depth d, with its 95 % interval",
        panels,
        list(names.values()),
    )
    for (backend, mine), axes in zip(panels, places, strict=True):
        lines = [(walk, mine[mine["walk"] == walk].sort_values("turns")) for walk in walks]
        lines = [(walk, line) for walk, line in lines if len(line)]
        _frame(axes, backend, mine, "turns", "p50_ns", "ns")
        ends = []
        for walk, line in lines:
            x, y = line["turns"].astype(float), line["p50_ns"].astype(float)
            style = _look(walk, walks)
            axes.plot(x, y, **style)
            told = fold(names[backend, walk], LABEL_WIDTH, SMALL)
            ends.append((float(x.iloc[-1]), float(y.iloc[-1]), told, str(style["color"])))
        end_labels(axes, ends)
    places[-1].set_xlabel("checkpoints in the thread")
    return figure, (
        "The floor fetches exactly the needed rows by key and builds each value once. A line with "
        "k above 1 costs more a checkpoint the longer the thread is."
    )


def _law(walk: str, rows: pd.DataFrame) -> str:
    law = growth(rows["turns"].astype(float).tolist(), rows["p50_ns"].tolist())
    if law is None:
        return walk
    if law.low is None or law.high is None:
        return f"{walk}, d^{law.exponent:.2f}"
    return f"{walk}, d^{law.exponent:.2f} ({law.low:.2f}–{law.high:.2f})"


def ratio_to_floor(frames: Frames, workload: str) -> tuple[Figure, str]:
    """How many times the floor each walk takes, case by case, in the order of the sweep."""
    rows = _rows(frames, workload, "walk")
    rows = rows[rows["times_floor"].notna() & (rows["walk"] != FLOOR)]
    if rows.empty:
        raise NoData("no case has a floor: its tables are not known")
    panels = list(_panels(rows))
    walks = sorted(rows["walk"].unique(), key=str)
    figure, places = _stack(
        f"{workload}: time of a walk as a multiple of the floor",
        "ratio of medians within one case; 1 is a fetch of exactly the needed rows by key",
        panels,
        walks,
    )
    for (backend, mine), axes in zip(panels, places, strict=True):
        variants = list(dict.fromkeys(mine["variant"].astype(str)))
        axes.axhline(1, color=MUTED, linewidth=1, linestyle="--")
        ends = []
        for walk in walks:
            line = mine[mine["walk"] == walk]
            x = [variants.index(name) for name in line["variant"].astype(str)]
            y = line["times_floor"].astype(float).tolist()
            if not y:
                continue
            style = _look(walk, walks)
            axes.plot(x, y, **style)
            ends.append((float(x[-1]), y[-1], walk, str(style["color"])))
        scale_axis(axes, "y", [1.0, *mine["times_floor"].astype(float)], "count", 8)
        axes.set_title(backend, size=SMALL, color=MUTED, loc="left", pad=7)
        keys, values = _swept(variants)
        axes.set_xticks(range(len(variants)), values)
        axes.set_xlim(-0.25, max(len(variants) - 0.75, 0.25))
        axes.set_ylabel("× floor")
        end_labels(axes, ends)
    places[-1].set_xlabel(keys)
    return figure, (
        "Down is better. What lies above 1 is the cost of finding the rows; below 1, rows are "
        "fetched more cheaply than by key, or not at all."
    )


def _swept(variants: Sequence[str]) -> tuple[str, list[str]]:
    """The keys that differ among variants, and each variant's values of them, one below another."""
    parts = [dict(part.partition("=")[::2] for part in split_keys(name)) for name in variants]
    keys = list(dict.fromkeys(key for one in parts for key in one))
    told = [key for key in keys if len({one.get(key) for one in parts}) > 1] or keys
    names = ", ".join(key.replace("_", " ") for key in told) or "case"
    return names, ["\n".join(one.get(key, "–") for key in told) or "–" for one in parts]


def frequency_tradeoff(frames: Frames, workload: str) -> tuple[Figure, str]:
    """Bytes a thread against the time of a whole read, a point for each snapshot frequency."""
    rows = _rows(frames, workload, "get_state")
    rows = rows[rows["turns"] == rows["turns"].max()]
    if rows["variant"].nunique() < 2 or rows["snapshot_frequency"].nunique() < 2:
        raise NoData("one snapshot frequency only: sweep channels.frequencies")
    stored = frames["storage"]
    stored = stored[stored["workload"] == workload]
    keys = ["variant", "backend"]
    held = stored.groupby([*keys, "repetition"])["logical_bytes"].sum().groupby(keys).median()
    rows = rows.merge(held.rename("stored").reset_index(), on=keys)
    if rows.empty:
        raise NoData("no store told its bytes")
    panels = list(_panels(rows))
    walks = sorted(rows["walk"].unique(), key=str)
    figure, places = _stack(
        f"{workload}: bytes against a read, by snapshot frequency",
        "get_state at the head in its worst moment; a number is the frequency",
        panels,
        walks,
    )
    for (backend, mine), axes in zip(panels, places, strict=True):
        _frame(axes, backend, mine, "stored", "p50_ns", "ns", x_unit="bytes")
        axes.set_ylim(top=axes.get_ylim()[1] * 1.3)  # for the number of the highest point
        ends = []
        for walk in walks:
            line = mine[mine["walk"] == walk].sort_values("stored")
            if line.empty:
                continue
            x, y = line["stored"].astype(float), line["p50_ns"].astype(float)
            style = _look(walk, walks)
            axes.plot(x, y, **style)
            ends.append((float(x.iloc[-1]), float(y.iloc[-1]), walk, str(style["color"])))
        _name_frequencies(axes, mine)
        end_labels(axes, ends)
    places[-1].set_xlabel("logical bytes of the thread")
    return figure, (
        "Down and left is better. Where a walk's line is flat, more snapshots buy it nothing."
    )


def _name_frequencies(axes: Axes, rows: pd.DataFrame) -> None:
    """The frequency beside the highest point of each variant."""
    for row in rows.sort_values("p50_ns").groupby("variant").last().to_dict("records"):
        frequency = row["snapshot_frequency"]
        never = pd.isna(frequency)  # the leftmost one: above its point, out of the next one's way
        axes.annotate(
            "never" if never else str(frequency),
            (row["stored"], row["p50_ns"]),
            (0, 7) if never else (5, 3),
            textcoords="offset points",
            ha="center" if never else "left",
            size=SMALL,
            color=MUTED,
        )


def _stack(
    title: str,
    subtitle: str,
    panels: Sequence[tuple[str, pd.DataFrame]],
    names: Sequence[str],
) -> tuple[Figure, list[Axes]]:
    """A figure with one panel a backend below another, and room for names at the right."""
    folded = [fold(name, LABEL_WIDTH, SMALL) for name in names]
    right = widest(folded, SMALL) + 0.42
    per_panel = folded[: max(1, -(-len(folded) // len(panels)))]
    tall = max(TALL, labels_height(per_panel))
    height = TOP + len(panels) * (HEAD + tall + GAP) + BOTTOM - GAP
    figure = new_figure(title, subtitle, height)
    width = WIDTH - LEFT - right
    tops = [TOP - 0.1 + HEAD + place * (HEAD + tall + GAP) for place in range(len(panels))]
    return figure, [add_axes(figure, Box(LEFT, top, width, tall)) for top in tops]


def _frame(
    axes: Axes,
    backend: str,
    rows: pd.DataFrame,
    x: str,
    y: str,
    unit: str,
    *,
    x_unit: str = "count",
) -> None:
    """Both axes logarithmic wherever the values differ at all: a power law is a straight line."""
    scale_axis(axes, "x", rows[x].astype(float).tolist(), x_unit, 1.5)
    scale_axis(axes, "y", rows[y].astype(float).tolist(), unit, 1.5)
    axes.set_title(backend, size=SMALL, color=MUTED, loc="left", pad=7)
