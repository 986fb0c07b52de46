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
from savermark.probe import OWN, Ask, Probe
from savermark.runner import Planned, Progress, RunPlan, Silent, check_plan
from savermark.runner.probes import probe_case
from savermark.runner.run import start_services, terminable
from savermark.runner.scratch import scratch_folder
from savermark.tracking.store import Ratio, Version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from savermark.probe import Pairs
    from savermark.trial import Case

PAIRS = 30  # timed pairs a probe
ROUNDS = 5  # probes of each version, in turn with the others


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

    Every round probes each of them once, in an order drawn anew, so that what drifts on the
    machine hits all alike. Raises `BackendError` where counts do not repeat: then they are none.
    """
    plan = RunPlan(cases=(case,), dsn=dsn)
    check_plan(plan)
    if rounds < 1:
        raise UsageError(f"rounds is {rounds}: give 1 or more")
    told, draw = progress or Silent(), random.Random(seed)
    seen: list[list[Probe]] = [[] for _ in installs]
    total = rounds * len(installs)
    with terminable(), ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(False))
        servers = start_services(stack, [Planned(case, 0)], scratch, plan)
        told.started(total, 0)
        for number in range(rounds):
            for done, at in enumerate(draw.sample(range(len(installs)), len(installs))):
                told.trial_started(Planned(case, number), number * len(installs) + done, total)
                ask = Ask(walks=(OWN, "base"), rounds=PAIRS)
                probe = probe_case(
                    case, ask, scratch, servers[case.family][case.backend], installs[at].python
                )
                seen[at].append(probe)
                told.trial_finished(as_trial(probe), number * len(installs) + done + 1, total)
    pairs = zip(installs, seen, strict=True)
    return [_line(made, probes, seen[0], installs[0]) for made, probes in pairs]


def _line(made: Install, probes: Sequence[Probe], newest: Sequence[Probe], to: Install) -> Version:
    failed = next((probe.cause for probe in probes if probe.cause), "")
    if failed:
        raise BackendError(f"{made.title}: {failed}")
    first = probes[0]
    if any((p.counts, p.storage) != (first.counts, first.storage) for p in probes):
        raise BackendError(f"{made.title}: its counts differ from process to process")
    pairs = [probe.pairs for probe in probes if probe.pairs]
    beside = [probe.pairs for probe in newest if probe.pairs]
    line = Version(
        package=made.distribution,
        version=made.version,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        probe=replace(first, pairs=None),
        newest=to.version,
    )
    if len(pairs) != len(beside) or not pairs:  # a workload without a walk
        return line
    return replace(
        line,
        walk_ns=statistics.median(_walk_ns(each) for each in pairs),
        to_base=ratio_of([statistics.median(each.ratios) for each in pairs]),
        to_newest=ratio_of([_walk_ns(a) / _walk_ns(b) for a, b in zip(pairs, beside, strict=True)]),
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
