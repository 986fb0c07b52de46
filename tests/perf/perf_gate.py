"""The regression gate under a noisy neighbour: never a false alarm, and a slower walk is caught.

An unchanged saver is checked against its baseline `RUNS` times while other processes come and go
on every core, then once with a walk that takes 1.3 times as long. In real time, in the processes
that a pull request would use; `tests/test_baseline.py` has the same on a clock of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from goals import Goal

from savermark.baseline.check import comparison as compared
from savermark.baseline.check import gate_code, probes_of
from savermark.baseline.file import Baseline
from savermark.baseline.measure import Measured, entry, prober
from savermark.compare import Kind, Verdict
from savermark.probe import Ask
from savermark.profiles import make_cases

RUNS = 20
ROUNDS = 60
SLOWER = 1.3
KEYS = ("conversation.turns=20", "conversation.threads=1", "state.messages.kind=delta")
# Busy for half a second, quiet for as long, out of step with the others: a neighbour that comes
# and goes is worse than one that stays.
NEIGHBOUR = """
import itertools, random, time
while True:
    until = time.monotonic() + random.random()
    while time.monotonic() < until:
        sum(itertools.islice(itertools.count(), 20_000))
    time.sleep(random.random())
"""


@contextmanager
def noisy_neighbour() -> Iterator[None]:
    """One process a core that takes the processor away now and then."""
    command = [sys.executable, "-c", NEIGHBOUR]
    neighbours = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def measure() -> Iterator[Goal]:
    """False alarms of `RUNS` checks, how far the ratio moved, and whether 1.3 is caught."""
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    (case,) = make_cases("chat", ("planted_savers:timed",), KEYS)
    how = Measured(Ask(rounds=ROUNDS))
    with noisy_neighbour(), prober(how, [case]) as probe:
        saved = entry(case, [probe(case), probe(case)])
        ratios, alarms, again = [], 0, 0
        for _ in range(RUNS):
            probes = probes_of(saved, probe)
            found = compared(Baseline(how.ask, (saved,)), [(saved, probes)])
            (row,) = [row for row in found.rows if row.kind is Kind.RATIO]
            alarms += gate_code(found) != 0
            again += len(probes) > 1
            ratios.append(row.ratio or 0.0)
        os.environ["SAVERMARK_TEST_SLOWER"] = str(SLOWER)
        try:
            probes = probes_of(saved, probe)
        finally:
            del os.environ["SAVERMARK_TEST_SLOWER"]
        slow = compared(Baseline(how.ask, (saved,)), [(saved, probes)])
        (row,) = [row for row in slow.rows if row.kind is Kind.RATIO]
    yield Goal(f"false alarms of the gate in {RUNS} runs, noisy neighbour", alarms, 0, "runs")
    yield Goal("the largest ratio to the baseline in them", max(ratios), 1.15, "x")
    yield Goal("the smallest ratio to the baseline in them", min(ratios), 1 / 1.15, "x", False)
    yield Goal("runs that were timed again", again, RUNS // 4, "runs")
    caught = row.verdict is Verdict.WORSE
    yield Goal(f"a walk {SLOWER:g} times slower is caught", float(caught), 1, "", False)
    yield Goal(f"its ratio to the baseline ({SLOWER:g})", row.ratio or 0.0, 1.15, "x", False)
