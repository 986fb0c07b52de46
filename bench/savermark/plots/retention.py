"""Before and after a policy: bars by table and case; what the run-history leaf saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from savermark.frame.retention import ALL
from savermark.plots.layout import (
    BOTTOM,
    TOP,
    Box,
    add_axes,
    bars,
    fold,
    legend_below,
    legend_height,
    log_ticks,
    needs_log,
    new_figure,
    use_unit,
    widest,
)
from savermark.plots.series import Frames, NoData
from savermark.plots.style import (
    FONT,
    INK,
    MUTED,
    SMALL,
    WIDTH,
    backend_look,
    backend_order,
    blend,
)
from savermark.storage import TABLES
from savermark.units import format_bytes, format_ns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR = 0.15  # inches of one bar
GAP = 0.14  # between the bars of two tables
HEAD = 0.3  # of a panel
MOST_PANELS = 8
SPAN = 30.0  # beyond this ratio of the largest to the smallest, the axis is logarithmic
WHOLE = "whole store"
_PHASES = {"loaded": "before", "retained": "after", "compacted": "space given back"}
_WAYS = ("kept", "idle", "admission")


@dataclass(frozen=True, slots=True)
class Group:
    """Bars that stand together: a name, and (what, value) of each."""

    name: str
    values: tuple[tuple[str, float], ...]


def policy_space(frames: Frames, workload: str) -> tuple[Figure, str]:
    """Payload of each table before and after, and the whole store, space given back, too."""
    rows = _rows(frames, "retention_space", workload)
    keys = rows[["setting", "policy", "backend"]].drop_duplicates()
    order = sorted(
        keys.itertuples(index=False, name=None),
        key=lambda key: (backend_order(key[2]), key[0], key[1]),
    )
    panels = []
    for setting, policy, backend in order:
        mine = rows[
            (rows["setting"] == setting) & (rows["policy"] == policy) & (rows["backend"] == backend)
        ].set_index("table")
        if groups := _groups(mine):
            told = f"{backend}, {policy}" + (f", {setting}" if setting else "")
            panels.append((told, backend, groups))
    if not panels:
        raise NoData("no store of this workload can say what its tables hold")
    shown = panels[:MOST_PANELS]
    subtitle = "tables: payload as serialized; whole store: its size with indexes and free space"
    title = f"{workload}: before and after the policy"
    figure = _draw(title, subtitle, shown, tuple(_PHASES.values()), "bytes")
    left = len(panels) - len(shown)
    rest = f" {left} of {len(panels)} cases are only in the table." if left else ""
    return figure, _freed(rows) + rest


def run_history_cost(frames: Frames, workload: str) -> tuple[Figure, str]:
    """What the history reads after one run take, by what is done to the cache leaf."""
    rows = _rows(frames, "run_history", workload)
    panels = []
    for backend in sorted(rows["backend"].unique(), key=backend_order):
        mine = rows[rows["backend"] == backend]
        groups = []
        for setting, part in mine.groupby("setting", sort=True):
            spent = dict(zip(part["policy"], part["idle_ns"], strict=True))
            values = tuple((way, float(spent[way])) for way in _WAYS if way in spent)
            groups.append(Group(str(setting) or "reads of a run", values))
        panels.append((str(backend), str(backend), groups))
    reads = round(float((rows["reads"] / rows["runs"]).iloc[0]))
    title = f"{workload}: history reads while the thread is idle"
    subtitle = f"the {reads} reads after a run, with what they write and delete; by medians"
    figure = _draw(title, subtitle, panels, _WAYS, "ns")
    return figure, (
        "kept: the leaf is never deleted; idle: a pass deletes it after each read, so that the "
        "next one scans the thread and writes it again; admission: the next run deletes it."
    )


def _rows(frames: Frames, name: str, workload: str) -> pd.DataFrame:
    frame = frames.get(name)
    if frame is None or frame.empty:
        raise NoData("the run holds none")
    rows = frame[frame["workload"] == workload]
    if rows.empty:
        raise NoData("no case of this workload gave numbers")
    return rows


def _groups(mine: pd.DataFrame) -> list[Group]:
    """The tables that ever held a row, then the whole store."""
    cells: dict[Any, Any] = mine.to_dict("index")
    found = []
    for table in TABLES:
        row = cells.get(table)
        if row is not None and row["rows_loaded"] > 0:
            pair = [(_PHASES[p], float(row[f"logical_bytes_{p}"])) for p in list(_PHASES)[:2]]
            found.append(Group(table, tuple(pair)))
    whole = cells.get(ALL, {})
    sizes = [(name, whole.get(f"footprint_bytes_{p}")) for p, name in _PHASES.items()]
    known = tuple((name, float(value)) for name, value in sizes if not pd.isna(value))
    return [*found, Group(WHOLE, known)] if known else found


def _freed(rows: pd.DataFrame) -> str:
    """A caption: the share of payload that went, over the cases."""
    whole = rows[(rows["table"] == ALL) & (rows["logical_bytes_loaded"] > 0)]
    if whole.empty:
        return ""
    shares = 1 - whole["logical_bytes_retained"] / whole["logical_bytes_loaded"]
    low, high = f"{shares.min():.0%}", f"{shares.max():.0%}"
    return f"Of the payload, {low if low == high else f'{low} to {high}'} was freed."


# --- drawing --------------------------------------------------------------------------------------


def _draw(
    title: str,
    subtitle: str,
    panels: Sequence[tuple[str, str, list[Group]]],
    names: Sequence[str],
    unit: str,
) -> Figure:
    """A panel for each case, one below the other, on one axis of values."""
    looks = {name: _shade("#59636e", names, name) for name in names}
    seen = [name for name in names if _has(panels, name)]
    legend = [(name, {"facecolor": looks[name], "linewidth": 0}) for name in seen]
    heights = [_height(groups) for _, _, groups in panels]
    total = TOP + sum(HEAD + height for height in heights) + BOTTOM + legend_height(legend)
    figure = new_figure(title, subtitle, total)
    left = 0.2 + widest([fold(g.name, 1.7, FONT) for _, _, gs in panels for g in gs], FONT)
    values = [value for _, _, groups in panels for g in groups for _, value in g.values]
    top = TOP
    for number, ((told, backend, groups), height) in enumerate(zip(panels, heights, strict=True)):
        axes = add_axes(figure, Box(left, top + HEAD, WIDTH - left - 0.95, height))
        axes.set_title(told, size=SMALL, color=MUTED, loc="left", pad=4)
        color = backend_look(backend, [each[1] for each in panels])[0]
        _panel(axes, groups, color, names, values, unit)
        if number < len(panels) - 1:
            axes.set_xticklabels([])
        elif axes.get_xscale() == "log":
            axes.set_xlabel("logarithmic")
        top += HEAD + height
    legend_below(figure, legend)
    return figure


def _has(panels: Sequence[tuple[str, str, list[Group]]], name: str) -> bool:
    return any(name == what for _, _, groups in panels for g in groups for what, _ in g.values)


def _height(groups: Sequence[Group]) -> float:
    return sum(len(group.values) * BAR + GAP for group in groups)


def _shade(color: str, names: Sequence[str], name: str) -> str:
    """Pale, full, dark: the order of the names."""
    place = list(names).index(name)
    return (blend(color, 0.6), color, blend(color, 0.45, INK))[place]


def _panel(
    axes: Axes,
    groups: Sequence[Group],
    color: str,
    names: Sequence[str],
    every: Sequence[float],
    unit: str,
) -> None:
    """Bars of one case; y is in inches from the panel's top, x the same in all panels."""
    log, low, high = _scale(axes, every, unit)
    form: Any = format_bytes if unit == "bytes" else format_ns
    y, middles = GAP / 2, []
    for group in groups:
        middles.append(y + len(group.values) * BAR / 2)
        for name, value in group.values:
            y += BAR
            sizes = np.array([max(value - low, 0.0)])
            bars(axes, low, sizes, y - BAR / 2, BAR * 0.84, facecolor=_shade(color, names, name))
            end = max(value, low)
            x = end * (high / low) ** 0.012 if log else end + high * 0.012
            axes.text(x, y - BAR / 2, form(value), va="center", size=SMALL - 0.5)
        y += GAP
    axes.set_yticks(middles, [fold(g.name, 1.7, FONT) for g in groups], size=FONT, color=INK)
    axes.set_ylim(_height(groups), 0)
    axes.grid(axis="y", visible=False)


def _scale(axes: Axes, values: Sequence[float], unit: str) -> tuple[bool, float, float]:
    """The axis of all panels: from zero, or logarithmic where small bars would not be seen.

    A value of nothing has no bar on either; its label says 0.
    """
    positive = [value for value in values if value > 0] or [1.0]
    log = needs_log(positive, SPAN)
    low, high = (min(positive) / 2, max(positive)) if log else (0.0, max(positive))
    if log:
        axes.set_xscale("log")
        log_ticks(axes.xaxis, low, high)
    axes.set_xlim(low, high)
    use_unit(axes.xaxis, unit, log, most=5)
    return log, low, high
