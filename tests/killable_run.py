"""A run in a process of its own, to be killed: `python killable_run.py OUT STUB|REAL WORKLOAD`.

Prints a line when a trial starts and when it is on disk.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.errors import SavermarkError
from savermark.results import RUN_FILE
from savermark.runner import Planned, RunPlan, Silent, run_workloads
from savermark.spec import ConversationSpec, MeasureSpec, WorkloadSpec, fixed
from savermark.trial import Case, child

if TYPE_CHECKING:
    from savermark.records import TrialResult

SPEC = WorkloadSpec(
    name="ok",
    conversation=ConversationSpec(threads=1, turns=fixed(2)),
    measure=MeasureSpec(reads=1, cold=False, repetitions=5, timeout_s=300),
)


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")  # in one piece: a kill must not leave a part of it
    sys.stdout.flush()


class Loud(Silent):
    def trial_started(self, planned: Planned, done: int, total: int) -> None:
        tell(f"started {planned.case.case_id} {planned.repetition}")

    def trial_finished(self, result: TrialResult, done: int, total: int) -> None:
        tell(f"finished {result.case_id} {result.repetition}")


def plan(backends: tuple[str, ...], workload: str = "ok") -> RunPlan:
    spec = replace(SPEC, name=workload)
    return RunPlan(cases=tuple(Case(workload, "", spec, backend) for backend in backends))


def main() -> int:
    out, worker, workload, *backends = sys.argv[1:]
    if worker == "STUB":
        child.WORKER = "stub_worker"
    again = (Path(out) / RUN_FILE).exists()
    repetitions = 5 if worker == "STUB" else 2  # a real worker takes its time to start
    what = replace(plan(tuple(backends), workload), resume=again, repetitions=repetitions)
    try:
        summary = run_workloads(what, Path(out), Loud())
    except SavermarkError as error:
        sys.stderr.write(f"{error}\n")
        return 9
    except KeyboardInterrupt:
        return 130
    return summary.exit_code


if __name__ == "__main__":
    sys.exit(main())
