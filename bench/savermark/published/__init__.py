"""Whether a run lands on the figures that others published.

`check_published` reads frames only. A gate is looked at where its exact case was run (same
fingerprint, either api) on a backend it speaks about; a ratio where both of its cases were.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pandas as pd

from savermark.published.gates import GATES, Bounds, Gate
from savermark.spec import fingerprint, load_workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["COLUMNS", "GATES", "Bounds", "Gate", "check_published"]

#: Columns of the check: `published` and `measured` in `unit` (bytes or ratio), `ratio` of the two.
COLUMNS: dict[str, str] = {
    "workload": "string",
    "figure": "string",
    "backend": "string",
    "api": "string",
    "published": "float64",
    "measured": "float64",
    "ratio": "float64",
    "unit": "string",
    "gate": "string",
    "ok": "bool",
    "source": "string",
}

_APIS = ("sync", "async")
_TRIAL = ["run_id", "repetition"]


def check_published(
    storage: pd.DataFrame,
    footprint: pd.DataFrame | None = None,
    latency: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """One row a published figure, backend and api that the run has a number for (`COLUMNS`).

    Takes the frames of `to_frame`; figures of a frame that is not given are left out. No rows
    where nothing matches, for instance when turns or sizes were overridden.
    """
    frames = {"storage": storage, "footprint": footprint, "latency": latency}
    given = {name: frame for name, frame in frames.items() if frame is not None}
    rows = [row for gate in GATES for row in _rows(gate, given)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _rows(gate: Gate, frames: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, Any]]:
    frame = frames.get(gate.frame)
    if frame is None or not (mine := frame["workload"] == gate.workload).any():
        return
    frame = frame[mine]
    for api in _APIS:
        for backend in sorted(frame["backend"].unique()):
            if gate.backends and backend not in gate.backends:
                continue
            here = frame[frame["backend"] == backend]
            measured = _value(gate, here, gate.case, api)
            if gate.against:
                base = _value(gate, here, gate.against, api)
                measured = measured / base if measured and base else None
            if measured is not None:
                yield _row(gate, backend, api, measured)


def _row(gate: Gate, backend: str, api: str, measured: float) -> dict[str, Any]:
    return {
        "workload": gate.workload,
        "figure": gate.figure,
        "backend": backend,
        "api": api,
        "published": gate.published,
        "measured": measured,
        "ratio": measured / gate.published,
        "unit": gate.unit,
        "gate": gate.bounds.text,
        "ok": gate.bounds.low <= measured <= gate.bounds.high,
        "source": gate.source,
    }


def _value(gate: Gate, frame: pd.DataFrame, case: tuple[str, ...], api: str) -> float | None:
    """The median over the trials of one case; None when there is none."""
    rows = frame[frame["fingerprint"] == _fingerprint(gate.workload, (*case, f"run.api={api}"))]
    rows = rows[_counts(gate, rows)]
    if rows.empty:
        return None
    column = {"storage": "logical_bytes", "footprint": "bytes", "latency": "p50_ns"}[gate.frame]
    return float(rows.groupby(_TRIAL, dropna=False)[column].sum().median())


def _counts(gate: Gate, rows: pd.DataFrame) -> pd.Series[bool]:
    """Which rows of the frame add up to the figure."""
    wanted = {"phase": "loaded"}
    if gate.frame == "latency":
        wanted |= {"op": gate.op, "temperature": "warm", "at": "head", "window": "all"}
    else:
        named = {"table": gate.table, "channel": gate.channel, "component": gate.component}
        wanted |= {name: value for name, value in named.items() if value}
    mask = pd.Series(True, index=rows.index)
    for name, value in wanted.items():
        mask &= (rows[name] == value).fillna(False).astype(bool)
    return mask


@cache
def _fingerprint(workload: str, overrides: tuple[str, ...]) -> str:
    (variant,) = load_workload(workload, overrides)
    return fingerprint(variant.spec)
