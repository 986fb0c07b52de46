"""The folder a run works in, and the removal of those that killed runs left."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.errors import ResultError
from savermark.results import write_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "savermark-"
_HELD = "scratch.lock"  # locked by the run that works in the folder


def scratch_problem(place: Path, error: OSError) -> str:
    """One line that says why nothing can be made in `place` and what to do."""
    return write_problem(place, error).replace(
        "name another folder with --out", "free some space, or set TMPDIR to another folder"
    )


@contextmanager
def scratch_folder(keep: bool) -> Iterator[Path]:
    """A folder for stores and services, removed at the end or, after a kill, by the next run."""
    place = Path(tempfile.gettempdir())
    try:
        _remove_left(place)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise ResultError(scratch_problem(place, error)) from error
    if keep:  # without a lock it is never taken for what a kill left
        yield folder
        return
    try:
        with _held(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    fresh = folder / f"{_HELD}.new"
    with fresh.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fresh.rename(folder / _HELD)  # under this name it is locked from the first moment
        yield


def _remove_left(place: Path) -> None:
    """Remove the folders of ours whose lock the system dropped because its holder died."""
    for lock in place.glob(f"{_PREFIX}*/{_HELD}"):
        with suppress(OSError):
            if lock.parent.stat().st_uid != os.geteuid():
                continue
            with lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
