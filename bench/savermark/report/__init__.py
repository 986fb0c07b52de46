"""The report of a run: a page, Markdown, plots and frames, all made from `run.jsonl` alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from savermark.frame import FRAMES, load_runs, to_frame
from savermark.frame.retention import effort_table, reads_table, space_table
from savermark.frame.run_history import history_table
from savermark.frame.walks import walk_table
from savermark.report.files import drop_others, write_frame, write_whole
from savermark.report.gallery import draw_pictures
from savermark.report.markdown import markdown
from savermark.report.page import page
from savermark.report.retention_block import is_retention, retention_markdown
from savermark.report.story import tell, usable

if TYPE_CHECKING:
    from savermark.results import RunResult

__all__ = ["Report", "write_report"]

# Frames of a run with policies; docs/schema.md has their columns.
RETENTION = {
    "retention_space": space_table,
    "retention_effort": effort_table,
    "retention_reads": reads_table,
    "run_history": history_table,
}


@dataclass(frozen=True, slots=True)
class Report:
    """Where the parts of a written report lie."""

    page: Path
    markdown: Path
    plots: tuple[Path, ...]
    frames: tuple[Path, ...]


def write_report(run_dir: str | Path) -> Report:
    """Write report.html, report.md, plots/ and frames/ into a run's folder.

    The same run gives the same files. Raises `ResultError` where the run cannot be read or a file
    not be written; each file is replaced whole.
    """
    folder = Path(run_dir)
    folder = folder if folder.is_dir() else folder.parent
    run = load_runs(run_dir)[0]
    frames = {kind: to_frame(run, kind) for kind in FRAMES}
    written = [
        path for kind in FRAMES for path in write_frame(folder / "frames", kind, frames[kind])
    ]
    frames["walks"] = walk_table([run])
    if not frames["walks"].empty:
        written += write_frame(folder / "frames", "walks", frames["walks"])
    for name, table in RETENTION.items() if is_retention(run) else ():
        frames[name] = table([run])
        if not frames[name].empty:
            written += write_frame(folder / "frames", name, frames[name])
    drop_others(folder / "frames", written, (".csv", ".parquet"))
    pictures = draw_pictures(drawable(run, frames), folder / "plots")
    plots = [path for picture in pictures for path in picture.paths]
    drop_others(folder / "plots", plots, (".svg", ".png"))
    chapters = tell(run, frames["summary"])
    html, text = folder / "report.html", folder / "report.md"
    write_whole(html, page(run, frames, chapters, pictures).encode("utf-8"))
    write_whole(text, markdown(run, frames, chapters, pictures).encode("utf-8"))
    if is_retention(run):
        write_whole(folder / "retention.md", retention_markdown(run).encode("utf-8"))
    return Report(html, text, tuple(plots), tuple(written))


def drawable(run: RunResult, frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The frames without cases whose state check failed: their numbers are never drawn.

    Adds `thread_turns` (turns of each thread, from the trials' notes) and `families` (of each
    workload).
    """
    keys = ["workload", "variant", "backend"]
    good = usable(frames["summary"])[keys].drop_duplicates()
    # A workload without any good case stays known, so that the page says why it has no plots.
    kept = {
        kind: frame if kind == "trials" else frame.merge(good, on=keys)
        for kind, frame in frames.items()
    }
    return {**kept, "thread_turns": thread_turns(run), "families": families(run)}


def families(run: RunResult) -> pd.DataFrame:
    """The family of each workload; of a scenario, its name, as it has plots of its own."""
    found = {
        str(case["workload"]): case.get("retention", {}).get("scenario")
        or str(case.get("family", "savers"))
        for case in run.cases.values()
    }
    return pd.DataFrame({"workload": list(found), "family": list(found.values())})


def thread_turns(run: RunResult) -> pd.DataFrame:
    """The turns of each thread, for trials whose notes tell them."""
    rows = []
    for trial in run.trials:
        case = run.cases[trial.case_id]
        place = {key: case[key] for key in ("workload", "variant", "backend")}
        rows += [
            {**place, "repetition": trial.repetition, "thread_id": thread, "thread_turns": turns}
            for thread, turns in (trial.notes.get("thread_turns") or {}).items()
        ]
    names = ["workload", "variant", "backend", "repetition", "thread_id", "thread_turns"]
    return pd.DataFrame(rows, columns=names)
