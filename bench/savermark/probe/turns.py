"""A walk that is timed when it is told to: one of two processes that take turns.

Two builds of a saver cannot be loaded into one process, and whole processes one after the other see
another minute of the machine: medians of the same code moved sixfold under load. So both processes
live at the same time, and whoever started them lets them work in turn, block by block.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from savermark.probe.pairs import quickest_ns, quiet

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from savermark.probe.pairs import Call

#: Two FIFOs in a folder: how many calls to make (0 ends it), and the ns that one of them took.
GO, DONE = "go", "done"


async def take_turns(call: Call, folder: Path, clock: Callable[[], int]) -> None:
    """Tell how long a warm call takes, then time blocks of calls as they are asked for."""
    warm = await quickest_ns(call, clock)
    with (folder / GO).open(encoding="ascii") as go, (folder / DONE).open("w") as done:
        done.write(f"{warm}\n")
        done.flush()
        with quiet():
            for line in go:
                calls = int(line)
                if not calls:
                    return
                start = clock()
                for _ in range(calls):
                    await call()
                took = (clock() - start) // calls
                done.write(f"{took}\n")
                done.flush()
                gc.collect(0)
