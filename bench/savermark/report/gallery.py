"""Draws and saves a report's plots, on every core: they are most of what a report costs."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.plots import Drawing, draw, planned, to_png, to_svg
from savermark.report.files import write_whole
from savermark.report.picture import Picture

if TYPE_CHECKING:
    from savermark.plots import Frames

_FEW = 4  # fewer plots than this are drawn before a second process has started


def draw_pictures(frames: Frames, folder: Path) -> list[Picture]:
    """Every plot of every workload, saved into `folder` as SVG and PNG, in the page's order."""
    plots = range(len(planned(frames)))
    workers = min(len(plots), os.cpu_count() or 1)
    picture = partial(_picture, frames, folder)
    if workers < 2 or len(plots) < _FEW or "fork" not in multiprocessing.get_all_start_methods():
        return [picture(number) for number in plots]
    global _inherited
    _inherited = picture
    with warnings.catch_warnings():
        # Newer Pythons warn of forking beside threads; ours are numpy's idle ones.
        warnings.simplefilter("ignore", DeprecationWarning)
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            return list(pool.map(_in_child, plots))


_inherited: partial[Picture]


def _in_child(number: int) -> Picture:
    return _inherited(number)


def _picture(frames: Frames, folder: Path, number: int) -> Picture:
    plot, workload = planned(frames)[number]
    return save(draw(plot, frames, workload), folder)


def save(drawing: Drawing, folder: Path) -> Picture:
    """Save a drawing as SVG and PNG; the figure itself is not kept."""
    known = (drawing.name, drawing.kind, drawing.title, drawing.workload)
    if drawing.figure is None:
        return Picture(*known, "", "", (), drawing.reason)
    svg = to_svg(drawing.figure)
    paths = (folder / f"{drawing.name}.svg", folder / f"{drawing.name}.png")
    write_whole(paths[0], svg.encode("utf-8"))
    write_whole(paths[1], to_png(drawing.figure))
    return Picture(*known, drawing.caption, svg, paths)
