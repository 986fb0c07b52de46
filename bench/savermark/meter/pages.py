"""Pages that a SQLite connection asked its cache for, read from the library itself.

Python's `sqlite3` has no way to ask. The library's handle is the first field of its connection
object in every CPython that we support, which a process of its own proves first: a wrong address
would crash it and not us. Where the proof fails, pages are not counted.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3

_HITS, _MISSES = 7, 8  # SQLITE_DBSTATUS_CACHE_HIT, SQLITE_DBSTATUS_CACHE_MISS
_PROOF = """
import sqlite3, tempfile
from savermark.meter.pages import _handle, _library
with tempfile.NamedTemporaryFile(suffix=".db") as file:
    held = sqlite3.connect(file.name)
    ask = _library().sqlite3_db_filename
    named = ask(_handle(held), b"main")
    assert named is not None and named.decode().endswith(file.name)
"""


def page_requests(connection: sqlite3.Connection) -> int | None:
    """Pages asked for since the connection was opened, hits and misses; None: cannot be told."""
    if not _proven():
        return None
    handle, total = _handle(connection), 0
    for verb in (_HITS, _MISSES):
        now, most = ctypes.c_int(), ctypes.c_int()
        if _library().sqlite3_db_status(handle, verb, ctypes.byref(now), ctypes.byref(most), 0):
            return None
        total += now.value
    return total


def requests_between(before: int | None, after: int | None) -> int | None:
    """The pages asked for between two readings; SQLite's own counters have 32 bits."""
    return None if before is None or after is None else (after - before) % 2**32


@cache
def _proven() -> bool:
    if sys.implementation.name != "cpython":
        return False
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROOF], capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _handle(connection: sqlite3.Connection) -> ctypes.c_void_p:
    return ctypes.c_void_p(
        ctypes.c_void_p.from_address(id(connection) + object.__basicsize__).value
    )


@cache
def _library() -> Any:
    """The library that Python's module is linked with: symbols are sought in what it needs, too."""
    import _sqlite3

    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_db_filename.restype = ctypes.c_char_p
    library.sqlite3_db_filename.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    number = ctypes.POINTER(ctypes.c_int)
    library.sqlite3_db_status.argtypes = [
        ctypes.c_void_p, ctypes.c_int, number, number, ctypes.c_int
    ]  # fmt: skip
    return library
