"""Probes of cases for a baseline and for a check of one."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from savermark.baseline.file import Baseline, Entry
from savermark.errors import BackendError
from savermark.records import Status, TrialResult
from savermark.runner import Planned, Progress, RunPlan, Silent, check_plan
from savermark.runner.duel import duel
from savermark.runner.probes import probe_case
from savermark.runner.run import start_services, terminable
from savermark.runner.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from savermark.probe import Ask, Pairs, Probe
    from savermark.trial import Case

#: Processes that a saved baseline rests on: a count is exact that both agree on.
PROBES = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """How to probe: which walks, on which server, and for how long at most."""

    ask: Ask
    dsn: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class Prober:
    """Probes cases in fresh processes, while the services that they need are running."""

    how: Measured
    scratch: Path
    servers: Mapping[str, Mapping[str, str | None]]

    def __call__(self, case: Case) -> Probe:
        """One probe of our environment."""
        return probe_case(
            case, self.how.ask, self.scratch, self._dsn(case), timeout_s=self.how.timeout_s
        )

    def against(self, case: Case, python: Path, rounds: int) -> tuple[Probe, Pairs | None]:
        """One probe of our environment, and its walk in turn with that of another interpreter."""
        (_, ours), pairs = duel(
            case, self.how.ask, self.scratch, self._dsn(case), (python, None), rounds,
            self.how.timeout_s,
        )  # fmt: skip
        return ours, pairs

    def _dsn(self, case: Case) -> str | None:
        return self.servers[case.family][case.backend]


@contextmanager
def prober(how: Measured, cases: Sequence[Case]) -> Iterator[Prober]:
    """What probes a case in a fresh process, with the services that the cases need running."""
    plan = RunPlan(cases=tuple(cases), dsn=how.dsn, timeout_s=how.timeout_s)
    check_plan(plan)
    with terminable(), ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(False))
        todo = [Planned(case, 0) for case in cases]
        yield Prober(how, scratch, start_services(stack, todo, scratch, plan))


def measure(how: Measured, cases: Sequence[Case], progress: Progress | None = None) -> Baseline:
    """A new baseline of these cases. Raises `BackendError` where one of them fails."""
    told = progress or Silent()
    told.started(PROBES * len(cases), 0)
    found: dict[str, list[Probe]] = {case.case_id: [] for case in cases}
    with prober(how, cases) as probe:
        for number in range(PROBES):  # drift hits all cases alike
            for place, case in enumerate(cases):
                done = number * len(cases) + place
                told.trial_started(Planned(case, number), done, PROBES * len(cases))
                seen = probe(case)
                if seen.cause:
                    raise BackendError(f"{case.case_id} failed, nothing is saved: {seen.cause}")
                found[case.case_id].append(seen)
                told.trial_finished(as_trial(seen), done + 1, PROBES * len(cases))
    return Baseline(how.ask, tuple(entry(case, found[case.case_id]) for case in cases))


def as_trial(probe: Probe) -> TrialResult:
    """How a probe ended, in the words of a trial, for whoever is told."""
    status = Status.FAILED if probe.cause else Status.OK
    return TrialResult(probe.case_id, 0, status, probe.cause)


def entry(case: Case, probes: Sequence[Probe]) -> Entry:
    """What the probes of one case agree on, and the ratios of all of them."""
    first = probes[0]
    unsteady: list[str] = []
    counts = {}
    for op, numbers in first.counts.items():
        counts[op] = {
            name: value
            for name, value in numbers.items()
            if _agree(unsteady, f"{op}: {name}", [p.counts.get(op, {}).get(name) for p in probes])
        }
    storage = {
        name: value
        for name, value in first.storage.items()
        if _agree(unsteady, f"stored {name}", [p.storage.get(name) for p in probes])
    }
    ratios = [ratio for probe in probes if probe.pairs for ratio in probe.pairs.ratios]
    kept = replace(first, counts=counts, storage=storage, pairs=None)
    return Entry(case, kept, tuple(ratios), tuple(unsteady))


def _agree(unsteady: list[str], name: str, values: Sequence[int | None]) -> bool:
    if len(set(values)) == 1:
        return True
    unsteady.append(name)
    return False
