"""What a package's releases cost, one line each, for as long as somebody keeps the file."""

from savermark.tracking.measure import Skipped, track
from savermark.tracking.store import (
    HISTORY_VERSION,
    Ratio,
    Version,
    history_file,
    merged,
    read_history,
    write_history,
)

__all__ = [
    "HISTORY_VERSION",
    "Ratio",
    "Skipped",
    "Version",
    "history_file",
    "merged",
    "read_history",
    "track",
    "write_history",
]
