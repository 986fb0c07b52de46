"""One look for every plot: colours and marks that survive colour blindness and grey."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

# The page swaps these for its own variables, so that one picture fits a light and a dark page.
INK, MUTED, RULE, PAPER = "#1f2328", "#59636e", "#d5dbe1", "#ffffff"

# Okabe and Ito's palette: told apart with any common colour blindness.
ORANGE, SKY, GREEN, YELLOW = "#e69f00", "#56b4e9", "#009e73", "#f0e442"
BLUE, VERMILLION, PURPLE, GREY = "#0072b2", "#d55e00", "#cc79a7", "#7d868f"

_KNOWN = {
    "null": (GREY, "X"),
    "memory": (ORANGE, "o"),
    "sqlite": (GREEN, "s"),
    "postgres": (BLUE, "D"),
}
# The second half of a pair such as `sqlite+folder` gives the shade and the marker.
_BLOBS = {"memory": ((0.4, PAPER), "o"), "folder": ((0.0, PAPER), "s"), "s3": ((0.3, INK), "D")}
_SPARE = ((PURPLE, "^"), (VERMILLION, "v"), (SKY, "P"), ("#a0782c", "p"), ("#6a51a3", "h"))

WIDTH = 5.8  # inches; 418 points, so that the text still reads on a narrow phone
FONT, SMALL, TITLE = 9.0, 8.0, 10.5  # points

RC: Any = {
    "font.family": ["DejaVu Sans"],  # ships with matplotlib: the same metrics on every machine
    "font.size": FONT,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.labelsize": SMALL,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "hatch.linewidth": 0.6,
    "hatch.color": INK,
    "svg.fonttype": "none",  # real text: smaller files, searchable and selectable in the page
    "svg.hashsalt": "savermark",  # equal input gives equal bytes
    "savefig.facecolor": PAPER,
}


@dataclass(frozen=True, slots=True)
class Look:
    """How one series is drawn."""

    color: str
    marker: str
    dashes: str | tuple[float, tuple[float, ...]]
    fill: str  # marker face

    def line(self) -> dict[str, Any]:
        """Keyword arguments of `Axes.plot`."""
        return {
            "color": self.color,
            "linestyle": self.dashes,
            "marker": self.marker,
            "markerfacecolor": self.fill,
            "markeredgecolor": self.color,
            "markersize": 4.6,
            "markeredgewidth": 1.2,
            "linewidth": 1.7,
        }


def backend_look(backend: str, others: Iterable[str] = ()) -> tuple[str, str]:
    """Colour and marker of a backend; one we do not know gets its own, stable by name.

    `others` are the backends on the same page, so that two unknown ones do not share a look.
    """
    if backend in _KNOWN:
        return _KNOWN[backend]
    store, _, blobs = backend.partition("+")
    if store in _KNOWN and blobs in _BLOBS:
        (share, towards), marker = _BLOBS[blobs]
        return blend(_KNOWN[store][0], share, towards), marker
    taken: dict[str, int] = {}
    for name in sorted({backend, *others} - set(_KNOWN)):
        start = crc32(name.encode()) % len(_SPARE)
        slots = [(start + step) % len(_SPARE) for step in range(len(_SPARE))]
        taken[name] = next((slot for slot in slots if slot not in taken.values()), start)
    return _SPARE[taken[backend]]


def backend_order(backend: str) -> tuple[int, int, str]:
    """A sort key: the backends we know in their usual order, others after them by name."""
    known, blobs = list(_KNOWN), list(_BLOBS)
    store, _, second = backend.partition("+")
    place = known.index(store) if store in _KNOWN else len(known)
    return (place, blobs.index(second) if second in _BLOBS else 0, backend)


_DASHES: dict[str, str | tuple[float, tuple[float, ...]]] = {
    "delta": "-",
    "": "-",
    "full": (0, (3.2, 1.6)),
}


def series_look(backend: str, mode: str, nth: int = 0, others: Iterable[str] = ()) -> Look:
    """The look of a backend in a mode; `nth` tells apart several variants of the two.

    Delta is solid with filled markers, full is dashed with hollow ones, anything else is dotted;
    later variants are paler.
    """
    color, marker = backend_look(backend, others)
    shade = blend(color, min(0.62, 0.3 * nth))
    return Look(shade, marker, _DASHES.get(mode, ":"), PAPER if mode == "full" else shade)


def blend(color: str, share: float, towards: str = PAPER) -> str:
    """`color` mixed with a share of another one."""
    pairs = zip(_channels(color), _channels(towards), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _channels(color: str) -> tuple[int, ...]:
    return tuple(int(color[at : at + 2], 16) for at in (1, 3, 5))
