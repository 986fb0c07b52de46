"""report.html: one file with everything in it, that fetches nothing and needs no server."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from savermark.frame.retention import verdicts
from savermark.plots.style import backend_look
from savermark.report import background
from savermark.report.picture import Picture, dark_rules, dark_variant, inline_svg
from savermark.report.published import published_rows
from savermark.report.retention_block import is_retention, retention_verdict
from savermark.report.retention_grid import retention_grids
from savermark.report.story import NO_RESULT, Chapter
from savermark.report.table import lines, shown_columns
from savermark.report.walk_grid import walk_grids
from savermark.retention.findings import CHECKS
from savermark.units import format_bytes, format_count

if TYPE_CHECKING:
    import pandas as pd

    from savermark.results import RunResult


def page(
    run: RunResult,
    frames: dict[str, pd.DataFrame],
    chapters: Sequence[Chapter],
    pictures: Sequence[Picture],
) -> str:
    """The whole page as HTML."""
    templates = Environment(
        loader=PackageLoader("savermark"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["bytes"] = format_bytes
    templates.filters["count"] = format_count
    style, script = (_part(templates, name) for name in ("report.css", "report.js"))
    drawn, colors = _inline(pictures)
    names = sorted({str(case["backend"]) for case in run.cases.values()})
    looks = {name: backend_look(name, names)[0] for name in names}
    return templates.get_template("report.html.j2").render(
        **_content(run, frames, chapters),
        style=Markup(style),
        script=Markup(script),
        script_hash=b64encode(sha256(script.encode("utf-8")).digest()).decode("ascii"),
        light=Markup(_backend_rules(looks)),
        dark=Markup(
            _backend_rules({n: dark_variant(c) for n, c in looks.items()}) + dark_rules(colors)
        ),
        slot={name: place for place, name in enumerate(names)},
        drawn=drawn,
        pictures=pictures,
    )


def _content(
    run: RunResult, frames: dict[str, pd.DataFrame], chapters: Sequence[Chapter]
) -> dict[str, Any]:
    summary, findings = frames["summary"], frames["findings"]
    columns = shown_columns(summary)
    environment = run.header["environment"]
    sentence, colour = background.verdict(run, findings)
    return {
        "run": run,
        "chapters": chapters,
        "columns": columns,
        "lines": lines(summary, columns),
        "verdict": sentence,
        "verdict_colour": colour,
        "findings": background.group_findings(findings),
        "troubles": background.troubles(run),
        "published": published_rows(frames),
        "walks": list(walk_grids(frames["walks"])),
        "retention": list(retention_grids(run)) if is_retention(run) else [],
        "broke": [each for each in verdicts(run) if each.failures or each.reasons],
        "retention_verdict": retention_verdict(run),
        "check_names": CHECKS,
        "facts": background.facts(environment),
        "groups": {
            key: list(value.items())
            for key, value in environment.items()
            if isinstance(value, dict) and value
        },
        "stores": background.stores(run),
        "specs": background.specs(run),
        "intro": _intro(run),
        "no_result": NO_RESULT,
        "command": str(run.header.get("command", "")),
    }


def _intro(run: RunResult) -> dict[str, str]:
    """The heading and the line below it."""
    cases = list(run.cases.values())
    workloads = list(dict.fromkeys(str(case["workload"]) for case in cases))
    backends = list(dict.fromkeys(str(case["backend"]) for case in cases))
    environment = run.header["environment"]
    machine = [str(environment[key]) for key in ("cpu", "system") if environment.get(key)]
    if environment.get("cores"):
        machine.insert(1, f"{environment['cores']} cores")
    if environment.get("memory_bytes"):
        machine.insert(2, format_bytes(float(environment["memory_bytes"])))
    what = workloads[0] if len(workloads) == 1 else f"{len(workloads)} workloads"
    return {
        "title": f"{what} on {_listed(backends)}",
        "when": str(run.header.get("created_at", ""))[:16].replace("T", " "),
        "machine": ", ".join(machine),
        "cases": f"{len(cases)} case{'s' if len(cases) != 1 else ''}, {len(run.trials)} trials",
    }


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _part(templates: Environment, name: str) -> str:
    assert templates.loader is not None
    return templates.loader.get_source(templates, name)[0].strip()


def _inline(pictures: Sequence[Picture]) -> tuple[dict[str, Markup], set[str]]:
    """The pictures' SVG by name, and the colours of all of them."""
    drawn, colors = {}, set()
    for place, picture in enumerate(pictures):
        if picture.svg:
            alt = f"{picture.workload}: {picture.title}. {picture.caption}"
            svg, used = inline_svg(picture.svg, f"g{place}", alt)
            drawn[picture.name] = Markup(svg)
            colors |= used
    return drawn, colors


def _backend_rules(looks: dict[str, str]) -> str:
    return "".join(f"--b{place}:{color};" for place, color in enumerate(looks.values()))
