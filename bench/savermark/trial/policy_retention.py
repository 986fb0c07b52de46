"""A policy as a trial's retention: planned, carried out, verified by re-reading, read again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from savermark.backends.base import Capability
from savermark.backends.shared import one_line
from savermark.errors import ContractError, Unsupported
from savermark.history.arows import arow_access
from savermark.history.rows import row_access
from savermark.records import Check, Phase, SampleSet
from savermark.retention.findings import CHECKS
from savermark.retention.plan import plans
from savermark.retention.policy import RetentionPolicy, parse_policy
from savermark.retention.records import ThreadPlan
from savermark.retention.told import Told, told_targets
from savermark.retention.verify import (
    SHOWN,
    Promises,
    Verification,
    asnapshot_promises,
    averify_retention,
    snapshot_promises,
    verify_retention,
)
from savermark.trial.policy_calls import Done, apply_rules, call_function
from savermark.trial.policy_case import is_function, load_policy
from savermark.trial.policy_reads import read_again
from savermark.trial.retention import Retained
from savermark.trial.verify import read_back

if TYPE_CHECKING:
    from savermark.history.rows import RowAccess
    from savermark.trial.ground import Ground
    from savermark.trial.policy_case import RetainCase
    from savermark.trial.retention import Retain

T = TypeVar("T")
#: Nothing else is at work on a trial's store, so no row is too young to be judged.
GRACE = timedelta(0)
LISTED = 20  # refusals and failures that the notes spell out
RAN = "policy"  # the check that a function came to its end


def retain_by_policy(case: RetainCase) -> Retain:
    """The retention of this case, to be carried out on a loaded store."""

    async def retain(ground: Ground) -> Retained:
        if Capability.KEEPS not in ground.store.capabilities:
            raise Unsupported(f"{case.backend} keeps nothing: there is nothing to retain")
        return await _retain(ground, case)

    return retain


async def _retain(ground: Ground, case: RetainCase) -> Retained:
    names = [thread.thread_id for thread in ground.threads]
    protect = _tips(ground) if case.protect_tips else frozenset[str]()
    now = datetime.now(UTC)  # one moment for the plan and what comes of it
    policy = None if is_function(case.policy) else parse_policy(case.policy)
    planned = None if policy is None else await _planned(ground, policy, names, protect, now)
    proved = [thread.thread_id for thread in read_back(ground.threads)]
    start = ground.clock()
    before = await _promises(ground, proved, protect, planned)
    reading = ground.clock() - start
    start = ground.clock()
    if policy is None:
        done = await call_function(ground, load_policy(case.policy), names, protect)
    else:
        done = await apply_rules(ground, policy, names, protect, now, GRACE)
    _time(ground, "apply", ground.clock() - start)
    start = ground.clock()
    found = await _verified(ground, before, done)
    _time(ground, "verify", reading + ground.clock() - start)
    broken = _file(ground, found, done)
    _note(ground, case, found, done)
    dropped = frozenset(_dropped(ground, done, protect))
    stayed = _addressable(done, ground.loaded.probe)

    async def after(phase: Phase) -> None:
        await read_again(ground, phase, done.deleted, protect if stayed is None else stayed)

    return Retained(done.deleted, done.pruned, dropped, broken, after)


def _tips(ground: Ground) -> frozenset[str]:
    """The checkpoints that the script ends or leaves a branch at."""
    return frozenset(
        str(config["configurable"]["checkpoint_id"])
        for tips in ground.loaded.tips.values()
        for config in tips.values()
    )


async def _planned(
    ground: Ground,
    policy: RetentionPolicy,
    names: Sequence[str],
    protect: Collection[str],
    now: datetime,
) -> list[ThreadPlan]:
    """The plans of all threads, timed; the first one's is made before, as a warm-up."""

    def made(rows: RowAccess, threads: Sequence[str]) -> list[ThreadPlan]:
        found = plans(rows, policy, threads=threads, protect=protect, now=now, grace=GRACE)
        return list(found)

    await _on_rows(ground, lambda rows: made(rows, names[:1]))
    start = ground.clock()
    found = await _on_rows(ground, lambda rows: made(rows, names))
    _time(ground, "plan", ground.clock() - start)
    return found


async def _on_rows(ground: Ground, work: Callable[[RowAccess], T]) -> T:
    if ground.spec.run.api == "async":
        async with arow_access(ground.saver) as access:
            return await access.run(work)
    return work(row_access(ground.saver))


def _time(ground: Ground, op: str, ns: int) -> None:
    """One sample for all threads together; its depth is the checkpoints that they had."""
    depth = sum(ground.loaded.checkpoints[thread.thread_id] for thread in ground.threads)
    ground.samples.append(SampleSet(op, Phase.RETAINED, "warm", "", (depth,), (ns,)))


# --- what came of it ------------------------------------------------------------------------------


async def _promises(
    ground: Ground, names: Sequence[str], protect: Collection[str], planned: Told
) -> Promises:
    """What the threads promise; where the plan is known, only what it keeps is read."""
    options: dict[str, Any] = {"protect": protect, "graph": ground.graph, "plans": planned}
    if ground.spec.run.api == "async":
        return await asnapshot_promises(ground.saver, names, **options)
    return snapshot_promises(ground.saver, names, **options)


async def _verified(ground: Ground, before: Promises, done: Done) -> Verification:
    """A reading that fails is a thread that is lost: that, too, is a verdict."""
    try:
        if ground.spec.run.api == "async":
            return await averify_retention(before, ground.saver, plans=done.told, grace=GRACE)
        return verify_retention(before, ground.saver, plans=done.told, grace=GRACE)
    except ContractError as error:
        done.error = done.error or one_line(error)
        return Verification()


def _file(ground: Ground, found: Verification, done: Done) -> bool:
    """The verification as checks of the trial; whether any failed."""
    if done.error:
        ground.checks.append(Check(Phase.RETAINED, RAN, False, done.error))
    for name in CHECKS:
        checks = [check for check in found.checks if check.check == name]
        wrong = [
            f"{check.thread_id}: {SHOWN[check.verdict]}: {check.detail}"
            for check in checks
            if not check.ok
        ]
        if checks:
            ground.check(Phase.RETAINED, f"verify-{name}", len(checks), wrong)
    return bool(done.error) or not found.ok


def _note(ground: Ground, case: RetainCase, found: Verification, done: Done) -> None:
    ok = found.ok and not done.error
    ground.notes["retention"] = {
        "policy": case.policy,
        "protect_tips": case.protect_tips,
        "threads": len(ground.threads),
        "changed": len(done.deleted | done.pruned),
        "refused": len(done.refused),
        "reasons": [list(pair) for pair in list(done.refused.items())[:LISTED]],
        "deleted": done.rows,
        "ok": ok,
        "verified": found.threads,
        "verdict": f"FAILED: {done.error}" if done.error else found.verdict,
        "checks": found.counts(),
        "failures": [asdict(check) for check in found.failures[:LISTED]],
        "more_failures": max(0, len(found.failures) - LISTED),
    }


def _addressable(done: Done, thread: str) -> frozenset[str] | None:
    """The ids of a thread that the policy says it kept addressable; None where it says nothing."""
    targets = told_targets(done.told).get(thread)
    if targets is None:
        return None
    return frozenset(name for names in targets.values() for name in names)


def _dropped(ground: Ground, done: Done, protect: Collection[str]) -> Iterator[str]:
    """The tips that the policy gave up. One that does not say what it kept gave up all but heads.

    What it left of those is judged by the verification alone.
    """
    for thread in done.pruned:
        stayed = _addressable(done, thread)
        for tip, config in ground.loaded.tips[thread].items():
            place = str(config["configurable"]["checkpoint_id"])
            if tip != "head" and place not in (protect if stayed is None else stayed):
                yield f"{thread}/{tip}"
