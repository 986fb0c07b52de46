"""What a plot draws: the cases of a workload, named by what tells them apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from savermark.plots.style import Look, backend_order, series_look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Frames = Mapping[str, pd.DataFrame]

CASE = (
    "workload",
    "variant",
    "backend",
    "api",
    "durability",
    "mode",
    "snapshot_frequency",
    "threads",
    "turns",
)
_TELLERS: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("api", str),
    ("durability", lambda value: f"durability {value}"),
    ("threads", lambda value: f"{value} threads"),
    ("turns", lambda value: f"{value} turns"),
)
# Keys of a variant that the columns above already tell.
_TOLD = ("messages.kind", "snapshot_frequency", "api", "durability", "threads", "turns")
# Keys of a walk's variant, and the case column that repeats what they tell.
_REPEATED = {"depth": "turns", "frequencies": "snapshot_frequency"}
OPS = {  # what each operation is called for people, in the order of the strip
    "turn": "whole turn",
    "put": "put",
    "put_writes": "put_writes",
    "get_tuple": "get_tuple",
    "list": "list",
    "get_state": "get_state",
    "resume": "resume from older",
    "history_10": "history, 10 states",
    "history_100": "history, 100 states",
    "walk_base": "delta walk, base class",
    "walk_native": "delta walk, saver's own",
    # of sandbox stores
    "capture": "capture",
    "restore": "restore",
    "append": "append",
    "get": "get",
    "get_head": "get_head",
    "delete_head": "delete_head",
    "fork": "fork",
    "acquire_writer": "acquire_writer",
    "renew": "renew lease",
    "release": "release lease",
    "list_blob_references": "list_blob_references",
    "blob_put": "blob put",
    "blob_head": "blob head",
    "blob_get": "blob get",
}
_BETWEEN_KEYS = re.compile(r",(?![^{\[]*[}\]])")  # not the commas inside a table or a list
MOST_SERIES = 9  # lines in one panel that a reader can still tell apart


class NoData(Exception):
    """A plot that would be empty; the message says why, for the reader of the page."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line or row of a plot: a name, a look and the cases it stands for."""

    label: str
    backend: str
    mode: str
    frequency: int | None
    look: Look
    cases: pd.DataFrame  # its rows of the case columns


_KEYS = ["variant", "backend", "turns"]


def labelled(rows: pd.DataFrame, series: Sequence[Series]) -> pd.DataFrame:
    """The rows (of one workload) that belong to the series, with the column `label`."""
    columns = {name: [value for item in series for value in item.cases[name]] for name in _KEYS} | {
        "label": [item.label for item in series for _ in range(len(item.cases))]
    }
    cases = pd.DataFrame(columns).astype({name: rows[name].dtype for name in _KEYS})
    return rows.merge(cases.drop_duplicates(), on=_KEYS)


def split(rows: pd.DataFrame, series: Sequence[Series]) -> list[tuple[Series, pd.DataFrame]]:
    """Each series that has any row, with its rows."""
    groups = dict(iter(labelled(rows, series).groupby("label", sort=False)))
    return [(item, groups[item.label]) for item in series if item.label in groups]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A plot of one workload, or the reason why there is none."""

    name: str  # file stem
    kind: str
    title: str
    workload: str
    caption: str
    figure: Figure | None
    reason: str = ""


def workload_rows(frames: Frames, name: str, workload: str) -> pd.DataFrame:
    """One workload's rows of a frame; raises `NoData` when there are none."""
    frame = frames.get(name)
    if frame is None or frame.empty:
        raise NoData(f"the run holds no {name} rows")
    rows = frame[frame["workload"] == workload]
    if rows.empty:
        raise NoData(f"no {name} rows for this workload")
    return rows


def longest(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the longest conversation, where turns were swept: growth has its own plot."""
    return rows[rows["turns"] == rows["turns"].max()] if rows["turns"].nunique() > 1 else rows


def turns_of(frames: Frames, workload: str) -> str:
    """Words for a subtitle where turns were swept: which of the conversations is shown."""
    trials = frames.get("trials")
    if trials is None or trials.empty:
        return ""
    turns = trials[trials["workload"] == workload]["turns"]
    return f", {turns.max()} turns" if turns.nunique() > 1 else ""


def series_of(rows: pd.DataFrame, ignore: Sequence[str] = ()) -> list[Series]:
    """The series among the rows, by backend and mode; `ignore` names case columns that are an axis.

    A label holds the backend, the mode, and only those further facts that differ.
    """
    cases = rows[list(CASE)].drop_duplicates().reset_index(drop=True)
    labels = case_labels(cases, ignore)
    others = sorted(set(cases["backend"]))
    groups = []
    for label, members in cases.groupby(labels, sort=False):
        first = members.iloc[0]
        frequency = first["snapshot_frequency"]
        value = None if pd.isna(frequency) else int(frequency)
        mode = "" if pd.isna(first["mode"]) else str(first["mode"])  # a sandbox case has none
        groups.append((str(label), str(first["backend"]), mode, value, members))
    groups.sort(key=lambda g: (backend_order(g[1]), g[2] != "full", g[3] or 0, _natural(g[0])))
    seen: dict[tuple[str, str], int] = {}
    result = []
    for label, backend, mode, frequency, members in groups:
        nth = seen[backend, mode] = seen.get((backend, mode), -1) + 1
        look = series_look(backend, mode, nth, others)
        result.append(Series(label, backend, mode, frequency, look, members))
    return result


def _natural(text: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for part in text.replace("=", " ").replace("(", " ").replace(")", " ").split()
    ]


def case_labels(cases: pd.DataFrame, ignore: Sequence[str] = ()) -> pd.Series[str]:
    """A short name for each row of the case columns, e.g. `sqlite delta (f=50, async)`."""
    delta = cases[cases["mode"] == "delta"]
    by_frequency = "snapshot_frequency" not in ignore and delta["snapshot_frequency"].nunique() > 1
    tellers = [
        (column, show)
        for column, show in _TELLERS
        if column not in ignore and cases[column].nunique() > 1
    ]
    skip_mode = "mode" in ignore

    def name(row: Any) -> str:
        others = _other_keys(str(row["variant"] or ""))
        told = {_REPEATED.get(part.partition("=")[0]) for part in others}
        facts = []
        frequency = row["snapshot_frequency"]
        if by_frequency and not pd.isna(frequency) and "snapshot_frequency" not in told:
            facts.append(f"f={int(frequency)}")
        facts += [show(row[column]) for column, show in tellers if column not in told]
        facts += others
        without = skip_mode or pd.isna(row["mode"])
        head = str(row["backend"]) if without else f"{row['backend']} {row['mode']}"
        return f"{head} ({', '.join(facts)})" if facts else head

    if cases.empty:
        return pd.Series(dtype="str")
    return cases.apply(name, axis=1)


def split_keys(variant: str) -> list[str]:
    """The `key=value` parts of a variant."""
    return [part.strip() for part in _BETWEEN_KEYS.split(variant) if "=" in part]


def _other_keys(variant: str) -> list[str]:
    """The swept keys of a variant that no case column tells, by their last name."""
    kept = []
    for part in split_keys(variant):
        key, _, value = part.partition("=")
        if not any(key == told or key.endswith("." + told) for told in _TOLD):
            kept.append(f"{key.rsplit('.', 1)[-1]}={value}")
    return kept


def headline(series: Sequence[Series], most: int = MOST_SERIES) -> list[Series]:
    """At most `most` series: of each backend and mode the outermost variants first."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for item in series:
        groups.setdefault((item.backend, item.mode), []).append(item)
    ranked = []
    for place, members in enumerate(groups.values()):
        ends_first = sorted(range(len(members)), key=lambda i: (min(i, len(members) - 1 - i), i))
        ranked += [(rank, place, members[i]) for rank, i in enumerate(ends_first)]
    ranked.sort(key=lambda item: item[:2])
    fits = ranked[:most]
    if len(ranked) > most and ranked[most][0] > 0:  # the same variants of each, or of none
        fits = [item for item in ranked if item[0] < ranked[most][0]]
    chosen = {id(item[2]) for item in fits}
    return [item for item in series if id(item) in chosen]


def left_out(all_series: Sequence[Series], shown: Sequence[Series]) -> str:
    """A sentence for a caption when not every series is drawn."""
    gone = len(all_series) - len(shown)
    return f" {gone} of {len(all_series)} variants are only in the table." if gone else ""


def least(rows: pd.DataFrame, column: str) -> Any:
    """The row with the smallest value of a column that holds one."""
    return rows.iloc[int(np.nanargmin(rows[column].to_numpy(dtype=float)))]


def most(rows: pd.DataFrame, column: str) -> Any:
    """The row with the largest value of a column that holds one."""
    return rows.iloc[int(np.nanargmax(rows[column].to_numpy(dtype=float)))]


def median_of(values: Any) -> float:
    """The median as a plain float; NaN when there is nothing."""
    return float(pd.Series(values).median())
