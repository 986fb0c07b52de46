"""What a sandbox workload shows, in sentences computed from its summary rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from savermark.plots.series import least, most
from savermark.units import format_bytes, format_ns

if TYPE_CHECKING:
    import pandas as pd

_TIMES = (
    ("capture_p50_ns", "a capture"),
    ("append_p50_ns", "the append in it"),
    ("restore_warm_p50_ns", "a warm restore"),
)


def sandbox_sentences(rows: pd.DataFrame) -> Iterator[str]:
    """Blobs and rows, space against the floor, then times from the fastest to the slowest."""
    first = rows.iloc[0]
    blobs, logical = float(first["blob_bytes"]), float(first["logical_bytes"])
    copies = blobs * float(first["dedup_ratio"])
    yield (
        f"The files and artifacts of all checkpoints are {format_bytes(copies)}; as blobs, each "
        f"content once, they are {format_bytes(blobs)}."
    )
    share = (logical - blobs) / logical
    told = f"{share:.0%}" if share >= 0.01 else "under 1%"
    yield (
        f"The rows beside them are {format_bytes(logical - blobs)}, {told} of all; together "
        f"{first['amplification']:.1f} times the least possible."
    )
    yield from _space(rows)
    line = "; ".join(text for name, what in _TIMES if (text := _range(rows, name, what)))
    if line:
        yield f"{line[:1].upper()}{line[1:]} (medians)."


def _space(rows: pd.DataFrame) -> Iterator[str]:
    sized = rows[rows["footprint_loaded_bytes"].notna()]
    if not sized.empty:
        row = most(sized, "footprint_loaded_bytes")
        yield (
            f"Both stores take most on {row['backend']}: "
            f"{format_bytes(row['footprint_loaded_bytes'])}, and "
            f"{format_bytes(row['footprint_compacted_bytes'])} after pruning, sweep and compaction."
        )


def _range(rows: pd.DataFrame, name: str, what: str) -> str:
    known = rows[rows[name].notna()]
    if known.empty:
        return ""
    fast, slow = least(known, name), most(known, name)
    text = f"{what} takes {_at(fast, name)}"
    return text if len(known) == 1 else f"{text} to {_at(slow, name)}"


def _at(row: Any, name: str) -> str:
    return f"{format_ns(row[name])} on {row['backend']}"
