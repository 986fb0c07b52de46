"""Plots a person would rather look at than read: one function each, from frames to a Figure.

A plot function takes `(frames, workload)` and returns `(figure, caption)`; it raises `NoData` with
the reason when there is nothing to show, so that no empty panel ever appears.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from matplotlib import rc_context

from savermark.plots.growth import bytes_by_turns
from savermark.plots.latency import latency_over_depth
from savermark.plots.retention import policy_space, run_history_cost
from savermark.plots.sandbox import deduplication
from savermark.plots.series import Drawing, Frames, NoData
from savermark.plots.space import before_and_after, where_bytes_are
from savermark.plots.strip import latency_strip
from savermark.plots.style import RC
from savermark.plots.tradeoff import storage_against_latency
from savermark.plots.walks import frequency_tradeoff, ratio_to_floor, walk_over_depth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "PLOTS",
    "Drawing",
    "Frames",
    "NoData",
    "Plot",
    "draw",
    "draw_all",
    "planned",
    "to_png",
    "to_svg",
]

PNG_DPI = 160


@dataclass(frozen=True, slots=True)
class Plot:
    """One kind of plot."""

    kind: str  # part of the file name
    title: str
    draw: Callable[[Frames, str], tuple[Figure, str]]
    families: tuple[str, ...] = ("savers",)  # of the workloads that it is drawn for


BOTH, WALKS = ("savers", "sandbox"), ("walks",)
PLOTS = (
    Plot("bytes-by-turns", "Bytes by turns", bytes_by_turns),
    Plot("where-bytes-are", "Where the bytes are", where_bytes_are, BOTH),
    Plot("deduplication", "Deduplication", deduplication, ("sandbox",)),
    Plot("operations", "Time of each operation", latency_strip, BOTH),
    Plot("latency-over-depth", "Latency over depth", latency_over_depth, BOTH),
    Plot("trade-off", "Storage against read latency", storage_against_latency),
    Plot("walk-over-depth", "Walks over depth", walk_over_depth, WALKS),
    Plot("walk-ratio", "Walks against the floor", ratio_to_floor, WALKS),
    Plot("walk-frequency", "Bytes against a read", frequency_tradeoff, WALKS),
    Plot("policy-space", "Before and after the policy", policy_space, ("retention",)),
    Plot("run-history", "Run history and its leaf", run_history_cost, ("run-history",)),
    Plot("before-and-after", "Before and after deletion", before_and_after, BOTH),
)


def draw(plot: Plot, frames: Frames, workload: str) -> Drawing:
    """One plot of one workload, or the reason why it has none."""
    stem = re.sub(r"[^a-z0-9.-]+", "-", workload.lower()).strip("-.")
    name = f"{stem or 'workload'}.{plot.kind}"
    try:
        with rc_context(RC):
            figure, caption = plot.draw(frames, workload)
    except NoData as none:
        return Drawing(name, plot.kind, plot.title, workload, "", None, str(none))
    return Drawing(name, plot.kind, plot.title, workload, caption, figure)


def planned(frames: Frames) -> list[tuple[Plot, str]]:
    """Every plot and its workload, in the order of the page.

    The frame `families` (workload, family) says which plots a workload has; without it, savers'.
    """
    trials, known = frames["trials"], frames.get("families")
    families = {} if known is None else dict(zip(known["workload"], known["family"], strict=True))
    return [
        (plot, workload)
        for workload in dict.fromkeys(trials["workload"].astype(str))
        for plot in PLOTS
        if families.get(workload, "savers") in plot.families
    ]


def draw_all(frames: Frames) -> Iterator[Drawing]:
    """Every plot of every workload, one at a time, in the order of the page."""
    for plot, workload in planned(frames):
        yield draw(plot, frames, workload)


def to_svg(figure: Figure) -> str:
    """The figure as SVG text; equal figures give equal text."""
    target = BytesIO()
    with rc_context(RC):
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    # Verdana has the same widths, for viewers without the font that the layout was made with.
    fonts = "font-family: 'DejaVu Sans', Verdana, sans-serif"
    return target.getvalue().decode("utf-8").replace("font-family: 'DejaVu Sans'", fonts)


def to_png(figure: Figure) -> bytes:
    """The figure as PNG."""
    target = BytesIO()
    with rc_context(RC):
        figure.savefig(
            target,
            format="png",
            dpi=PNG_DPI,
            metadata={"Software": None},
            pil_kwargs={"compress_level": 4},
        )
    return target.getvalue()
