"""Probes the releases of a package in turn, each in an environment of its own."""

from __future__ import annotations

import random
import statistics
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from savermark.baseline.measure import as_trial
from savermark.errors import BackendError, UsageError
from savermark.installs import Install, install, newest_versions
from savermark.probe import OWN, Ask
from savermark.runner import Planned, Progress, RunPlan, Silent, check_plan
from savermark.runner.duel import duel
from savermark.runner.run import start_services, terminable
from savermark.runner.scratch import scratch_folder
from savermark.tracking.store import Ratio, Version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from savermark.probe import Pairs, Probe
    from savermark.trial import Case

    Turn = tuple[Probe, Pairs | None]

PAIRS = 30  # timed pairs a probe
ROUNDS = 5  # pairs of processes of each version and the newest one
ASK = Ask(walks=(OWN, "base"), rounds=PAIRS)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A release that cannot be installed here, and why."""

    version: str
    why: str


def installed_releases(
    package: str, last: int, cache: Path | None = None, told: Callable[[str], object] = len
) -> tuple[list[Install], list[Skipped]]:
    """Environments of the newest `last` releases that can be installed, newest first.

    Older ones take the place of those that cannot, as many again at most. Raises `BackendError`
    when there is none.
    """
    if last < 1:
        raise UsageError(f"last is {last}: give 1 or more")
    found: list[Install] = []
    skipped: list[Skipped] = []
    for version in newest_versions(package):
        if len(found) == last or len(skipped) > last:
            break
        told(f"environment of {package}=={version} ...")
        try:
            found.append(install(f"{package}=={version}", cache))
        except BackendError as error:
            skipped.append(Skipped(version, str(error)))
    if not found:
        raise BackendError(skipped[0].why if skipped else f"{package} has no releases")
    return found, skipped


def track(
    installs: Sequence[Install],
    case: Case,
    *,
    dsn: str | None = None,
    rounds: int = ROUNDS,
    seed: int = 1,
    progress: Progress | None = None,
) -> list[Version]:
    """One line for each of these releases, newest first as they came.

    In every round each takes turns with the newest one, in an order drawn anew: what drifts on
    the machine hits both. Raises `BackendError` where counts do not repeat: then they are none.
    """
    plan = RunPlan(cases=(case,), dsn=dsn)
    check_plan(plan)
    if rounds < 1:
        raise UsageError(f"rounds is {rounds}: give 1 or more")
    told, draw = progress or Silent(), random.Random(seed)
    found: list[list[Turn]] = [[] for _ in installs]
    total = rounds * max(1, len(installs) - 1)
    with terminable(), ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(False))
        dsn = start_services(stack, [Planned(case, 0)], scratch, plan)[case.family][case.backend]
        told.started(total, 0)
        for done in range(total):
            told.trial_started(Planned(case, done), done, total)
            if not done % max(1, len(installs) - 1):
                order = draw.sample(range(1, len(installs)), len(installs) - 1) or [0]
            at = order.pop()
            pythons = installs[0].python, installs[at].python
            (first, other), pairs = duel(case, ASK, scratch, dsn, pythons, PAIRS)
            found[0].append((first, None))
            if at:
                found[at].append((other, pairs))
            told.trial_finished(as_trial(other), done + 1, total)
    pairs_of = zip(installs, found, strict=True)
    return [_line(made, turns, installs[0].version) for made, turns in pairs_of]


def _line(made: Install, turns: Sequence[Turn], newest: str) -> Version:
    probes = [probe for probe, _ in turns]
    failed = next((probe.cause for probe in probes if probe.cause), "")
    if failed:
        raise BackendError(f"{made.title}: {failed}")
    first = probes[0]
    if any((p.counts, p.storage) != (first.counts, first.storage) for p in probes):
        raise BackendError(f"{made.title}: its counts differ from process to process")
    line = Version(
        package=made.distribution,
        version=made.version,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        probe=replace(first, pairs=None),
        newest=newest,
    )
    beside = [probe.pairs for probe in probes if probe.pairs]
    if not beside:  # a workload without a walk
        return line
    against = [statistics.median(pairs.ratios) for _, pairs in turns if pairs]
    return replace(
        line,
        walk_ns=statistics.median(_walk_ns(each) for each in beside),
        to_base=ratio_of([statistics.median(each.ratios) for each in beside]),
        to_newest=ratio_of(against) if against else None,
    )


def _walk_ns(pairs: Pairs) -> float:
    return statistics.median(pairs.tested_ns)


def ratio_of(rounds: Sequence[float]) -> Ratio:
    """The median of the rounds' ratios, and their extremes."""
    several = len(rounds) > 1
    return Ratio(
        value=round(statistics.median(rounds), 4),
        low=round(min(rounds), 4) if several else None,
        high=round(max(rounds), 4) if several else None,
        rounds=len(rounds),
    )
