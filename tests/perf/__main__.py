"""`make perf`: what savermark itself costs, as figures beside their goals.

Each `perf_*.py` beside this file has `measure()`, which yields goals. Timings live here and not in
the tests: a busy machine must not fail a change. Exits 1 when a goal is missed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def main(wanted: list[str]) -> int:
    """Measure every module, or those named (`storage` for perf_storage.py)."""
    names = sorted(path.stem.removeprefix("perf_") for path in HERE.glob("perf_*.py"))
    if strange := set(wanted) - set(names):
        sys.stderr.write(f"no such measurement: {', '.join(sorted(strange))}; known: {names}\n")
        return 2
    missed = 0
    sys.stdout.write(f"{'':6} {'measured':>12}   {'goal':<18} what\n")
    for name in wanted or names:
        for goal in import_module(f"perf_{name}").measure():
            missed += not goal.met
            sign = "at most" if goal.at_most else "at least"
            sys.stdout.write(
                f"{'ok' if goal.met else 'MISSED':6} {goal.measured:>12,.3g}   "
                f"{sign} {goal.goal:<9,g} {goal.what} [{goal.unit}]\n"
            )
            sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
