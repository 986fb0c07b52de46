"""Writing a report's files: each appears whole or not at all, and stale ones go."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.errors import ResultError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old or the new one; raises `ResultError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            part.chmod(0o644)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResultError(
            f"cannot write {path}: {reason}; the result is safe: savermark report writes it again"
        ) from error


def write_frame(folder: Path, name: str, frame: pd.DataFrame) -> list[Path]:
    """A frame as Parquet and CSV; returns the two paths."""
    csv, parquet = folder / f"{name}.csv", folder / f"{name}.parquet"
    write_whole(csv, frame.to_csv(index=False, lineterminator="\n").encode("utf-8"))
    data = frame.to_parquet(index=False)
    write_whole(parquet, data)
    return [csv, parquet]


def drop_others(folder: Path, keep: Iterable[Path], suffixes: tuple[str, ...]) -> None:
    """Remove files of these kinds that an earlier report left and this one did not write."""
    kept = {path.name for path in keep}
    for path in folder.glob("*"):
        if path.suffix in suffixes and path.name not in kept:
            path.unlink(missing_ok=True)
