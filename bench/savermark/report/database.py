"""The page of an inspection: one file with its pictures and lists in it, plots and CSV beside."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from savermark.plots.database import draw_database
from savermark.report.files import write_whole
from savermark.report.gallery import save
from savermark.report.picture import dark_rules, inline_svg
from savermark.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from savermark.report.picture import Picture

#: Lists of the document that the page shows as tables, with a title and what each is about.
_LISTS = {
    "threads": ("Largest threads", "By the logical bytes in all tables."),
    "heads": (
        "Heads",
        "The newest checkpoint of a namespace: how many ancestors it has, and how many steps a "
        "read goes back to the seeds of its delta channels.",
    ),
    "tables": ("Tables", "Payload as serialized, and as the engine keeps it."),
    "footprint": ("Footprint", "The whole store; free space is contained in the other parts."),
    "channels": ("Channels", "Writes, and values kept apart from their checkpoints."),
    "values": ("Values inside checkpoints", "By channel, as serialized."),
    "ages": ("Ages", "Checkpoints by the time in their ids, and threads by their newest."),
    "orphans": ("Orphans", "Rows that no checkpoint names."),
}


def write_inspection(document: Mapping[str, Any], folder: Path) -> Path:
    """Write inspect.html, inspect.json, plots/ and tables/ into a folder; returns the page."""
    import json

    text = json.dumps(document, indent=2, ensure_ascii=False, default=str)
    write_whole(folder / "inspect.json", text.encode("utf-8", "backslashreplace"))
    for name in _LISTS.keys() | {"days", "depths"}:
        frame = pd.DataFrame(document[name])
        data = frame.to_csv(index=False, lineterminator="\n") if document[name] else ""
        write_whole(folder / "tables" / f"{name}.csv", data.encode("utf-8", "backslashreplace"))
    pictures = [save(drawing, folder / "plots") for drawing in draw_database(document)]
    page = folder / "inspect.html"
    write_whole(page, _page(document, pictures).encode("utf-8", "backslashreplace"))
    return page


def _page(document: Mapping[str, Any], pictures: list[Picture]) -> str:
    templates = Environment(
        loader=PackageLoader("savermark"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["bytes"] = format_bytes
    templates.filters["count"] = format_count
    assert templates.loader is not None
    style, script = (
        templates.loader.get_source(templates, name)[0].strip()
        for name in ("report.css", "report.js")
    )
    figures, colors = [], set[str]()
    for place, picture in enumerate(pictures):
        if picture.svg:
            alt = f"{picture.title}. {picture.caption}"
            svg, used = inline_svg(picture.svg, f"g{place}", alt)
            figures.append((Markup(svg), picture.caption))
            colors |= used
    return templates.get_template("database.html.j2").render(
        document=document,
        totals=document["totals"],
        lists=[
            (name, *told, _columns(document[name]), document[name])
            for name, told in _LISTS.items()
            if document[name]
        ],
        figures=figures,
        missing=[(picture.title, picture.reason) for picture in pictures if not picture.svg],
        cell=_cell,
        style=Markup(style),
        script=Markup(script),
        script_hash=b64encode(sha256(script.encode("utf-8")).digest()).decode("ascii"),
        dark=Markup(dark_rules(colors)),
    )


def _columns(rows: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    """Key, heading and whether it holds numbers, of every column that says anything."""
    return [
        (
            key,
            key.removesuffix("_bytes").replace("_", " "),
            any(isinstance(row[key], int) and not isinstance(row[key], bool) for row in rows),
        )
        for key in rows[0]
        if any(row[key] not in (None, "") for row in rows)
    ]


def _cell(key: str, value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return format_bytes(value) if key.endswith("bytes") else format_count(value)
    return ", ".join(value) if isinstance(value, list) else str(value)
