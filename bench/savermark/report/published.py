"""The published figures that a run can be held against, where its workloads have any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from savermark.published import check_published
from savermark.report.story import times
from savermark.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One published figure beside what this run measured, as text."""

    workload: str
    figure: str
    where: str  # backend, api
    published: str
    measured: str
    gate: str
    ok: bool
    source: str


def published_rows(frames: Mapping[str, pd.DataFrame]) -> list[PublishedRow]:
    """The figures that this run measured again; none for a run of other workloads."""
    found = check_published(frames["storage"], frames["footprint"], frames["latency"])
    return [
        PublishedRow(
            str(row["workload"]),
            str(row["figure"]),
            f"{row['backend']}, {row['api']}",
            _value(float(row["published"]), str(row["unit"])),
            _value(float(row["measured"]), str(row["unit"])),
            str(row["gate"]),
            bool(row["ok"]),
            str(row["source"]),
        )
        for _, row in found.iterrows()
    ]


def _value(value: float, unit: str) -> str:
    if unit == "bytes":
        return format_bytes(value)
    return f"{times(value)}×" if unit == "ratio" else f"{value:,g} {unit}"
