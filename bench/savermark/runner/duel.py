"""Two processes, each with a build of a saver, that time the same walk in turn."""

from __future__ import annotations

import os
import select
import shutil
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.errors import ResultError
from savermark.probe.model import Ask, Pairs, Probe
from savermark.probe.pairs import calls_of
from savermark.probe.turns import DONE, GO
from savermark.runner.probes import probe_case
from savermark.runner.scratch import scratch_problem

if TYPE_CHECKING:
    from savermark.trial import BaseCase

    Pythons = tuple[Path | None, Path | None]

PATIENCE_S = 0.2  # between two looks at whether a process that says nothing still lives


def duel(
    case: BaseCase,
    ask: Ask,
    scratch: Path,
    dsn: str | None,
    pythons: Pythons,
    rounds: int,
    timeout_s: float | None = None,
) -> tuple[tuple[Probe, Probe], Pairs | None]:
    """Probe a case in both interpreters, A first, and time `ask.tested` in turn, block by block.

    In the pairs B is what is tested and A the reference. None where a side failed, or where the
    case has no walk.
    """
    folders = _folders(scratch)
    sides = [_Side(folder) for folder in folders]
    pairs: Pairs | None = None
    try:
        with ThreadPoolExecutor(2) as pool:
            try:
                for side, python in zip(sides, pythons, strict=True):
                    side.future = pool.submit(
                        probe_case, case, ask, scratch, dsn, python, timeout_s, side.folder
                    )
                pairs = _pairs(sides[0], sides[1], ask, rounds)
            finally:  # also when somebody stops us: a process that waits must not wait for ever
                for side in sides:
                    side.tell(0)
        a, b = (side.probe() for side in sides)
    finally:
        for side in sides:
            side.close()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
    return (a, b), pairs if not (a.cause or b.cause) else None


def _folders(scratch: Path) -> list[Path]:
    try:
        folders = [Path(tempfile.mkdtemp(prefix="turns-", dir=scratch)) for _ in range(2)]
        for folder in folders:
            os.mkfifo(folder / GO)
            os.mkfifo(folder / DONE)
    except OSError as error:
        raise ResultError(scratch_problem(scratch, error)) from error
    return folders


def _pairs(a: _Side, b: _Side, ask: Ask, rounds: int) -> Pairs | None:
    warm = a.answer(), b.answer()
    if warm[0] is None or warm[1] is None:
        return None
    of_b, of_a = calls_of(warm[1], warm[0])
    tested: list[int] = []
    reference: list[int] = []
    for number in range(rounds):
        took: dict[_Side, int] = {}
        for side in ((a, b), (b, a))[number % 2]:
            side.tell(of_a if side is a else of_b)
            ns = side.answer()
            if ns is None:
                return None
            took[side] = ns
        tested.append(took[b])
        reference.append(took[a])
    return Pairs(ask.tested, ask.tested, tuple(tested), tuple(reference), (of_b, of_a))


class _Side:
    """One process, and the two FIFOs through which it is told and answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.future: Future[Probe] | None = None
        # Both directions: then neither open waits for a process that may never come.
        self._go = os.open(folder / GO, os.O_RDWR)
        self._done = os.open(folder / DONE, os.O_RDWR)
        self._rest = b""

    def tell(self, calls: int) -> None:
        """Ask for a block of so many calls; 0 ends it."""
        os.write(self._go, f"{calls}\n".encode())

    def answer(self) -> int | None:
        """The next number it writes; None when it has ended."""
        while b"\n" not in self._rest:
            if self.future is None or self.future.done():
                return None
            ready, _, _ = select.select([self._done], [], [], PATIENCE_S)
            if ready:
                self._rest += os.read(self._done, 4_096)
        line, _, self._rest = self._rest.partition(b"\n")
        return int(line)

    def probe(self) -> Probe:
        """What it found in the end."""
        assert self.future is not None
        return self.future.result()

    def close(self) -> None:
        """Close both ends."""
        for handle in (self._go, self._done):
            with suppress(OSError):
                os.close(handle)
