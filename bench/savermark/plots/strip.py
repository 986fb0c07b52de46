"""All operations side by side: a dot with its interval for each, and the savers' share of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from savermark.plots.layout import (
    BOTTOM,
    TOP,
    Box,
    add_axes,
    legend_below,
    legend_height,
    new_figure,
    scale_axis,
    use_unit,
    widest,
)
from savermark.plots.series import (
    OPS,
    Frames,
    NoData,
    Series,
    headline,
    labelled,
    least,
    left_out,
    longest,
    median_of,
    most,
    series_of,
    split,
    turns_of,
    workload_rows,
)
from savermark.plots.style import FONT, INK, RULE, WIDTH, blend
from savermark.units import format_ns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WHEN = {"run": 0, "warm": 1, "cold": 2}
DOT = 0.058  # inches between the dots of one operation


def strip_table(frames: Frames, workload: str) -> tuple[pd.DataFrame, list[Series], list[Series]]:
    """p50 with its interval by series and operation: `(table, all series, drawn series)`."""
    rows = workload_rows(frames, "latency", workload)
    rows = rows[(rows["phase"] == "loaded") & (rows["window"] == "all")]
    rows = rows[rows["at"].fillna("").isin(["", "head"]) | (rows["op"] == "resume")]
    rows = longest(rows)
    every = series_of(rows)
    shown = headline(every)
    by = labelled(rows, shown).groupby(["label", "op", "temperature"], as_index=False)
    table = by[["p50_ns", "p50_low_ns", "p50_high_ns"]].median()
    if table.empty or table["p50_ns"].isna().all():
        raise NoData("no latency was sampled")
    return table[table["p50_ns"] > 0], every, shown


def operations(table: pd.DataFrame) -> list[tuple[str, str]]:
    """The sampled operations in reading order: the run, then warm reads, then cold ones."""
    pairs = {(str(op), str(t)) for op, t in zip(table["op"], table["temperature"], strict=True)}
    order = {op: place for place, op in enumerate(OPS)}
    return sorted(pairs, key=lambda p: (_WHEN.get(p[1], 9), order.get(p[0], 99), p))


def latency_strip(frames: Frames, workload: str) -> tuple[Figure, str]:
    """Dot plot of the median of every operation, with the share of run time spent in savers."""
    table, every, shown = strip_table(frames, workload)
    ops = operations(table)
    names = [_name(op, when, ops) for op, when in ops]
    left = 0.2 + widest(names, FONT)
    row = max(0.24, DOT * (len(shown) + 0.9))  # one operation's dots, one below the other
    shares = saver_shares(frames, workload, shown)
    share_height = 0.3 + row + 0.36 if shares else 0.0
    entries = [(item.label, item.look) for item in shown]
    height = TOP + row * len(ops) + BOTTOM + share_height + legend_height(entries)
    figure = new_figure(
        f"{workload}: time of each operation",
        "dot: median; bar: its interval; reads are warm unless named cold"
        + turns_of(frames, workload),
        height,
    )
    width = WIDTH - left - 0.25
    axes = add_axes(figure, Box(left, TOP, width, row * len(ops)))
    _dots(axes, table, ops, shown, row)
    axes.set_yticks([row * (n + 0.5) for n in range(len(ops))], names, size=FONT, color=INK)
    if shares:
        top = TOP + row * len(ops) + BOTTOM + 0.1
        _shares(add_axes(figure, Box(left, top, width, row)), shares, row)
    legend_below(figure, entries, lines=False)
    return figure, _range(table, ops) + left_out(every, shown)


def _name(op: str, when: str, ops: list[tuple[str, str]]) -> str:
    """What a row is called; a call that is sampled in the run and for itself says which."""
    note = {"cold": ", cold", "run": ", in the run" if (op, "warm") in ops else ""}.get(when, "")
    return OPS.get(op, op) + note


def _dots(
    axes: Axes,
    table: pd.DataFrame,
    ops: list[tuple[str, str]],
    shown: list[Series],
    row: float,
) -> None:
    bounds = table[["p50_ns", "p50_low_ns", "p50_high_ns"]].to_numpy(dtype=float)
    scale_axis(axes, "x", list(bounds[bounds > 0]), "ns", 8)
    axes.set_ylim(row * len(ops), 0)
    for n in range(1, len(ops)):
        axes.axhline(row * n, color=RULE, linewidth=0.7)
    places = {op: n for n, op in enumerate(ops)}
    start = (row - DOT * (len(shown) - 1)) / 2
    for nth, item in enumerate(shown):
        mine = table[table["label"] == item.label]
        y = [
            row * places[str(op), str(when)] + start + DOT * nth
            for op, when in zip(mine["op"], mine["temperature"], strict=True)
        ]
        axes.hlines(
            y,
            mine["p50_low_ns"],
            mine["p50_high_ns"],
            color=item.look.color,
            linewidth=2.2,
            alpha=0.5,
        )
        axes.plot(
            mine["p50_ns"], y, **(item.look.line() | {"linestyle": "none", "markersize": 4.2})
        )
    axes.grid(axis="y", visible=False)


def saver_shares(frames: Frames, workload: str, shown: list[Series]) -> list[tuple[Series, float]]:
    """The share of the run's wall time that saver calls cover, for each series that has one."""
    trials = frames.get("trials")
    if trials is None or trials.empty or "saver_busy_ns" not in trials:
        return []
    mine = trials[(trials["workload"] == workload) & (trials["status"] == "ok")]
    found = []
    for item, rows in split(mine, shown):
        share = median_of(rows["saver_busy_ns"].astype(float) / rows["run_wall_ns"].astype(float))
        if 0 <= share <= 1:
            found.append((item, share))
    return found


def _shares(axes: Axes, shares: list[tuple[Series, float]], row: float) -> None:
    moded = all(item.mode for item, _ in shares)
    start = (row - DOT * (len(shares) - 1)) / 2
    for nth, (item, share) in enumerate(shares):
        y = start + DOT * nth
        axes.hlines(y, 0, share, color=blend(item.look.color, 0.5), linewidth=1.2)
        axes.plot(share, y, clip_on=False, **(item.look.line() | {"markersize": 4.2}))
    axes.set_xlim(0, 1)
    axes.set_ylim(row, 0)
    axes.set_yticks(
        [row / 2], ["time in the saver" if moded else "time in the stores"], size=FONT, color=INK
    )
    axes.grid(axis="y", visible=False)
    use_unit(axes.xaxis, "share", log=False)
    axes.set_xlabel("share of the run's wall time")


def _range(table: pd.DataFrame, ops: list[tuple[str, str]]) -> str:
    """A caption: the fastest and the slowest case of the first read that was sampled."""
    for op, when in ops:
        rows = table[(table["op"] == op) & (table["temperature"] == when)]
        if op in ("get_state", "turn") and when != "cold":
            fast, slow = least(rows, "p50_ns"), most(rows, "p50_ns")
            if len(rows) == 1:
                return f"{OPS[op].capitalize()}: {format_ns(fast['p50_ns'])} ({fast['label']})."
            return (
                f"{OPS[op].capitalize()}: from {format_ns(fast['p50_ns'])} ({fast['label']}) "
                f"to {format_ns(slow['p50_ns'])} ({slow['label']})."
            )
    return ""
