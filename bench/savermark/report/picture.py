"""A plot as a report keeps it, and its SVG made fit for a page.

In the page a plot has ids of its own, colours that follow light and dark, and fewer bytes.
"""

from __future__ import annotations

import colorsys
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from savermark.plots.style import INK, MUTED, PAPER, RULE

_TAG = re.compile(r"<[^>]+>")
_LONG = re.compile(r"(\d\.\d{2})\d+")
_COLOR = re.compile(r"#[0-9a-f]{6}\b")


@dataclass(frozen=True, slots=True)
class Picture:
    """One plot that was saved, or (without paths) the reason why there is none."""

    name: str
    kind: str
    title: str
    workload: str
    caption: str
    svg: str
    paths: tuple[Path, ...]
    reason: str = ""


def inline_svg(svg: str, name: str, alt: str) -> tuple[str, set[str]]:
    """The `<svg>` element for a page, and the colours it uses, each as the variable `--p<hex>`."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.S)
    colors = set(_COLOR.findall(" ".join(_TAG.findall(body))))
    used = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', body))
    body = _TAG.sub(lambda tag: _retag(tag.group(), name, used), body)
    body = re.sub(r">\s+<", "><", body).replace("<defs></defs>", "")
    opening, _, rest = body.partition(">")
    view = re.search(r'viewBox="[^"]*"', opening)
    head = f'<svg role="img" aria-label="{escape(alt)}" {view.group() if view else ""}>'
    return head + rest.strip(), colors


def _retag(tag: str, name: str, used: set[str]) -> str:
    """One tag with short numbers, ids of its own and colours as variables of the page."""
    tag = _LONG.sub(r"\1", " ".join(tag.split()))
    tag = re.sub(r'\s(fill|stroke)="(#[0-9a-f]{6})"', r' style="\1: \2"', tag)
    tag = _COLOR.sub(lambda color: _variable(color.group()), tag)
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"', "", tag)
    tag = re.sub(r'\sid="([^"]*)"', lambda i: f' id="{name}-{i[1]}"' if i[1] in used else "", tag)
    tag = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', tag)
    return tag.replace("url(#", f"url(#{name}-")


def _variable(color: str) -> str:
    return f"var(--p{color[1:]},{color})"


def dark_variant(color: str) -> str:
    """The colour that plays the same part on a dark page: same hue, lightness turned over."""
    red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    turned = colorsys.hls_to_rgb(hue, 0.93 - 0.83 * light, 0.75 * saturation)
    return "#" + "".join(f"{round(part * 255):02x}" for part in turned)


# Plots share the page's own surface and text colours.
_PAGE_COLORS = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"}


def dark_rules(colors: set[str]) -> str:
    """CSS declarations that give every colour its dark variant."""
    return "".join(f"--p{color[1:]}:{_on_dark(color)};" for color in sorted(colors))


def _on_dark(color: str) -> str:
    name = _PAGE_COLORS.get(color)
    return f"var(--{name})" if name else dark_variant(color)
