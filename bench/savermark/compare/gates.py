"""What forbids a comparison, and which surroundings differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from savermark.compare.model import Difference
from savermark.errors import NotComparableError
from savermark.frame.summary import state_checks
from savermark.records import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from savermark.records import TrialResult
    from savermark.results import RunResult

# What makes a machine another one for a stopwatch. The host's name does not: a container has a
# new one each time. The file system does: a flush to memory costs nothing.
MACHINE = ("system", "machine", "cpu", "cores", "scratch_filesystem")
MEMORY = "memory_bytes"
MEMORY_SHARE = 0.05  # a kernel keeps a little more or less to itself from boot to boot
# Backend facts that by themselves change a call's time by a factor (fsync: three to nine).
DECISIVE_SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "journal_mode",
    "synchronous",
    "transport",
)
# Facts of the moment, not of the surroundings.
MOMENT = ("load_average", "autovacuum_runs", "autoanalyze_runs")


def refuse(a: RunResult, b: RunResult) -> None:
    """Raise `NotComparableError` where nothing of the two results may be put side by side."""
    left, right = a.header["schema_version"], b.header["schema_version"]
    if left != right:
        raise NotComparableError(f"results of schema {left} and {right}: run the older one again")
    if a.quick:
        raise NotComparableError(
            f"{name(a)} is a quick result, which is never a baseline: "
            "run it without --quick, or with --profile standard"
        )
    common = a.cases.keys() & b.cases.keys()
    if not common:
        raise NotComparableError(
            f"{name(a)} and {name(b)} have no case in common: run the same workloads and backends"
        )
    if all(a.cases[case]["fingerprint"] != b.cases[case]["fingerprint"] for case in common):
        why = changed_keys(a.cases[min(common)]["spec"], b.cases[min(common)]["spec"])
        raise NotComparableError(
            f"no common case of {name(a)} and {name(b)} has the same spec ({why}): "
            "run both with the same workload files and options"
        )


def name(run: RunResult) -> str:
    """What a result is called in messages: its run id."""
    return str(run.header["run_id"])


def case_gate(
    case_id: str,
    a: RunResult,
    b: RunResult,
    trials_a: Sequence[TrialResult],
    trials_b: Sequence[TrialResult],
) -> str:
    """Why this case has no number at all; empty when it may have one."""
    for run, side in ((a, "B"), (b, "A")):
        if case_id not in run.cases:
            return f"only in {side}"
    left, right = a.cases[case_id], b.cases[case_id]
    if left["fingerprint"] != right["fingerprint"]:
        return f"another spec: {changed_keys(left['spec'], right['spec'])}"
    whys = [why for why in (unusable(trials_a, "A"), unusable(trials_b, "B")) if why]
    return "; ".join(whys)


def unusable(trials: Sequence[TrialResult], side: str) -> str:
    """Why the trials of one side carry no number: one that did not end well, or a failed check."""
    if not trials:
        return f"not run in {side}"
    for trial in trials:
        if trial.status is not Status.OK:
            return f"{trial.status} in {side}: {trial.cause or 'no cause given'}"
    if state_checks(trials) is False:
        failed = next(check for trial in trials for check in trial.checks if not check.ok)
        return f"state check {failed.check} failed in {side}"
    return ""


def broke(trials_a: Sequence[TrialResult], trials_b: Sequence[TrialResult]) -> bool:
    """Whether a case that held in A was tried in B and failed there."""
    lost = (Status.FAILED, Status.TIMEOUT)
    fails = state_checks(trials_b) is False or any(trial.status in lost for trial in trials_b)
    return fails and not unusable(trials_a, "A")


def time_gate(
    a: RunResult, b: RunResult, trials_a: Sequence[TrialResult], trials_b: Sequence[TrialResult]
) -> str:
    """Why the times and the memory of a case may not be compared; empty when they may."""
    left, right = a.header["environment"], b.header["environment"]
    other = [fact for fact in MACHINE if left.get(fact) != right.get(fact)]
    if _memory_differs(left.get(MEMORY), right.get(MEMORY)):
        other.append(MEMORY)
    if other:
        return f"another machine: other {', '.join(other)}"
    mine, theirs = flat(_described(trials_a)), flat(_described(trials_b))
    changed = [
        f"{key} {mine.get(key)} and {theirs.get(key)}"
        for key in sorted(mine.keys() | theirs.keys())
        if _last(key) in DECISIVE_SETTINGS and mine.get(key) != theirs.get(key)
    ]
    return f"other settings: {', '.join(changed)}" if changed else ""


def _memory_differs(a: int | None, b: int | None) -> bool:
    if a is None or b is None:
        return a is not b
    return abs(a - b) > MEMORY_SHARE * max(a, b)


def _last(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def _described(trials: Sequence[TrialResult]) -> dict[str, Any]:
    return next((trial.backend for trial in trials if trial.backend), {})


def differences(a: RunResult, b: RunResult) -> list[Difference]:
    """Every fact about machine, versions, settings and run that is not the same on both sides."""
    left, right = flat(_surroundings(a)), flat(_surroundings(b))
    return [
        Difference(key, _shown(left, key), _shown(right, key))
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key) and _last(key) not in MOMENT
    ]


def _surroundings(run: RunResult) -> dict[str, Any]:
    backends: dict[str, Any] = {}
    for trial in run.trials:
        if trial.backend and trial.case_id in run.cases:
            backends.setdefault(run.cases[trial.case_id]["backend"], trial.backend)
    asked = {key: run.header.get(key) for key in ("profile", "seed")}
    return {**asked, **run.header["environment"], "backend": backends}


def _shown(facts: Mapping[str, Any], key: str) -> str:
    return str(facts[key]) if key in facts else "–"


def flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested facts under dotted names."""
    return dict(_flat(facts, prefix))


def _flat(facts: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def changed_keys(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """The spec keys that differ, with both values: `conversation.turns 10 and 20`."""
    left, right = flat(a), flat(b)
    changed = [
        f"{key} {left.get(key)} and {right.get(key)}"
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]
    shown = ", ".join(changed[:3]) or "the fingerprints differ"
    return f"{shown} (and {len(changed) - 3} more)" if len(changed) > 3 else shown
