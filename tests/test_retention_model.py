"""Random threads, random policies, and every promise that the policy makes, on each kind of store.

`SAVERMARK_MODEL` multiplies the number of examples: `SAVERMARK_MODEL=20 pytest
tests/test_retention_model.py` is the long run that docs/reliability.md tells of.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, note, settings
from hypothesis import strategies as st
from langgraph.types import Command

import tiny_graph
from fix_threads import Kept, at, clone
from retention_by_hand import CASES, NOW, Built, Case, build
from retention_oracle import Key, keys, listed, made_at, reading, whole_rows
from retention_world import KINDS, SHAPES, Act, Played, World, play
from savermark.history.arows import arow_access
from savermark.retention.apply import aapply, apply, apply_thread
from savermark.retention.fast import SetPlan
from savermark.retention.fold import graph_fold, reducer_fold
from savermark.retention.policy import RetentionPolicy, parse_policy
from savermark.retention.records import Applied
from savermark.retention.verify import snapshot_promises, verify_retention

FACTOR = int(os.environ.get("SAVERMARK_MODEL", "1"))
NUMBERS = itertools.count()
DELTAS = ("said", "rare", "files", "own")
TALLY: Counter[str] = Counter()
HOUR = timedelta(hours=1)
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, *[Phase.shrink] * (FACTOR == 1)]
PROFILE = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)


@pytest.fixture(scope="module", autouse=True)
def _tally(request: pytest.FixtureRequest) -> Iterator[None]:
    """Says what the long run met."""
    yield
    if FACTOR > 1:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print("\n", *(f"{name}: {count}" for name, count in sorted(TALLY.items())), sep="\n  ")  # noqa: T201


def met(what: str) -> None:
    event(what)
    TALLY[what] += 1


# --- policies -----------------------------------------------------------------------------------

KEEP = (
    *("keep-latest", "keep-turns=1", "keep-turns=2", "older-than=1h"),
    *("keep-turns=1,older-than=1h", "keep-latest,older-than=1h", "keep-latest,keep-turns=3"),
)


@st.composite
def policies(draw: Any) -> str:
    """Rules of each kind, combined."""
    if draw(st.integers(0, 4)) == 0:
        return "keep-latest"  # the one that statements over sets may carry out
    parts = [draw(st.sampled_from(["", *KEEP, *KEEP]))]
    parts.append(draw(st.sampled_from(["", "", "", "compact", "compact", "refuse", "snapshot"])))
    if parts[-1] == "snapshot":
        return ",".join(filter(None, parts))
    parts += draw(st.sets(st.sampled_from(["leaf-siblings", "duration-leaves"])))
    parts.append(
        draw(st.sampled_from([*[""] * 10, "idle-threads=1h", "idle-threads=1h", "delete"]))
    )
    if parts[-1] == "delete":  # takes whole threads, and so stands beside no keep rule
        return "delete"
    return ",".join(filter(None, parts)) or "keep-latest"


@dataclass(frozen=True)
class Order:
    """What is asked: a policy, places of protected checkpoints, and where its age ends."""

    policy: str
    protect: tuple[int, ...]
    cut: int
    how: str

    def now(self, names: list[str]) -> datetime:
        """A moment at which some checkpoint, or the newest, is just not an hour old."""
        if self.cut < 0:
            return datetime.now(UTC) + 3 * HOUR
        return made_at(names[self.cut % len(names)]) + HOUR


ORDERS = st.builds(
    Order,
    policy=policies(),
    protect=st.one_of(st.just(()), st.lists(st.integers(0, 99), max_size=2).map(tuple)),
    cut=st.integers(-1, 60),
    how=st.sampled_from(["thread", "fleet", "async"]),
)


Folding = Callable[[Any], Any]  # from a saver to what folds through it


def carried_out(
    kept: Kept, threads: list[str], order: Order, protect: list[str], now: datetime, fold: Folding
) -> list[Applied]:
    """The policy applied to these threads, one way or another."""
    policy = parse_policy(order.policy)
    more: dict[str, Any] = {"protect": protect, "now": now}
    if order.how == "async":
        return asyncio.run(_carried_out(kept, threads, policy, more, fold))
    more["fold"] = fold(kept.saver)
    if order.how == "fleet":
        return list(apply(kept.rows, policy, threads=threads, **more))
    return [apply_thread(kept.rows, thread, policy, **more) for thread in threads]


async def _carried_out(
    kept: Kept, threads: list[str], policy: RetentionPolicy, more: dict[str, Any], fold: Folding
) -> list[Applied]:
    if kept.name == "memory":
        async with arow_access(kept.saver) as rows:
            more["fold"] = fold(kept.saver)
            return [each async for each in aapply(rows, policy, threads=threads, **more)]
    async with kept.store.asaver() as saver, arow_access(saver) as rows:
        more["fold"] = fold(saver)
        return [each async for each in aapply(rows, policy, threads=threads, **more)]


def promised(policy: RetentionPolicy, had: set[Key], played: Played, now: datetime) -> set[Key]:
    """What a policy with a keep rule must leave addressable, whatever else it does."""
    root = sorted(name for space, name in had if space == "")
    real = [name for name in root if name not in played.stamped]
    heads = {space: name for space, name in sorted(had) if ":" not in space and space}
    found = set(heads.items()) | {("", real[-1])}
    if policy.older_than is not None:
        edge = now - policy.older_than
        found |= {key for key in had if made_at(key[1]) > edge and key[1] not in played.stamped}
    turns = policy.keep_turns
    if turns is not None and played.line and len(played.bases) >= turns:
        base = played.bases[-turns]
        start = max((name for name in real if base and name <= base), default="")
        found |= {("", name) for name in real if name >= start}
    return found


# --- threads that the runtime wrote -------------------------------------------------------------

ACTS = st.lists(st.builds(Act, st.sampled_from(KINDS), st.integers(0, 60)), min_size=2, max_size=7)


@settings(PROFILE, max_examples=8 * FACTOR)
@given(
    acts=ACTS,
    shape=st.sampled_from(SHAPES),
    frequencies=st.sampled_from([(3, 7, 2), (1, 2, 4), (50, 4, 3), (2, 50, 50)]),
    plain=st.sampled_from([0, 0, 0, 1, 2]),
    order=ORDERS,
    ends=st.lists(st.integers(0, 60), min_size=1, max_size=2),
)
def test_what_the_runtime_wrote(
    kept: Kept, acts: Any, shape: str, frequencies: Any, plain: int, order: Order, ends: Any
) -> None:
    world = World(shape, frequencies, kept.saver)
    thread = f"model-{next(NUMBERS)}"
    played = play(kept, world, thread, acts, plain)
    try:
        judged(kept, world, played, order, ends)
    finally:
        forget(kept, thread)


def forget(kept: Kept, thread: str) -> None:
    """Delete a thread and its clones: the memory saver slows down with each."""
    for name in [
        each for each in kept.rows.threads() if each.startswith(f"{thread}-") or each == thread
    ]:
        kept.saver.delete_thread(name)


def judged(kept: Kept, world: World, played: Played, order: Order, ends: list[int]) -> None:
    thread, twin = played.thread, clone(kept, played.thread)
    policy = parse_policy(order.policy)
    had = keys(kept.saver, thread, kept.rows.image(thread).spaces)
    names = sorted({name for _, name in had})
    protect = [names[place % len(names)] for place in order.protect]
    now = order.now(names)
    before, rows = readings(kept, thread, had), whole_rows(kept.saver, thread)
    history = listed(world.graph, thread, names)
    proof = snapshot_promises(kept.saver, [thread], protect=protect, graph=world.graph)
    (applied,) = carried_out(kept, [thread], order, protect, now, partial(graph_fold, world.graph))
    met(outcome(applied))
    note(f"{order} {applied.refused} {applied.deleted}")
    if applied.refused:
        assert whole_rows(kept.saver, thread) == rows and not applied.deleted
        assert may_refuse(policy, applied.refused)
        return
    verdict = verify_retention(proof, kept.saver, plans=[applied], now=now)
    assert verdict.ok, verdict.as_text()
    if applied.plan.whole:
        assert not any(whole_rows(kept.saver, thread).values())
        assert policy.delete or all(made_at(name) < now - HOUR for name in names)
        assert not set(protect) & set(names)
        return
    targets = {(space, one) for space, each in applied.plan.kept.items() for one in each.targets}
    assert {key for key in had if key[1] in protect} <= targets
    if policy.keeps:
        gone_by_leaf = had - targets if policy.leaf_siblings else set()
        assert promised(policy, had, played, now) - gone_by_leaf <= targets
    else:
        only_leaves(kept, twin, had, targets, played, policy, protect)
    same_readings(before, readings(kept, thread, targets), applied)
    root = {name for space, name in targets if space == ""}
    assert listed(world.graph, thread, root) == {name: history[name] for name in root}
    no_loose_ends(kept, thread, twin)
    rows = whole_rows(kept.saver, thread)
    (again,) = carried_out(kept, [thread], order, protect, now, partial(graph_fold, world.graph))
    if again.plan.whole:  # idle only now: what was young in it went the first time
        assert policy.idle_threads is not None
        return
    assert again.plan.empty and not again.refused and whole_rows(kept.saver, thread) == rows
    goes_on_alike(kept, world, (thread, twin), [sorted(root)[place % len(root)] for place in ends])


def outcome(applied: Applied) -> str:
    if applied.refused:
        why = ("has delta", "holds the", "share a version", "not stored", "itself", "differ")
        word = applied.refused.split(":")[0]
        return f"refused: {next((each for each in why if each in applied.refused), word)}"
    if applied.plan.whole:
        return "the thread goes"
    parts = ["deleted" if applied.deleted else "nothing to do"]
    parts += ["by sets"] * isinstance(applied.plan, SetPlan)
    parts += ["folded"] * bool(applied.plan.folds)
    parts += sorted({graft.handling for graft in applied.plan.grafts})
    return ", ".join(parts)


def may_refuse(policy: RetentionPolicy, why: str) -> bool:
    """Threads of this runtime are sound, so only what a policy says of itself is a reason."""
    if policy.delta == "refuse" and why.startswith("has delta channels"):
        return True
    if policy.folds and "share a version" in why:
        return True
    return policy.delete and why.startswith("holds the protected checkpoint")


def readings(kept: Kept, thread: str, wanted: set[Key]) -> dict[Key, tuple[Any, ...]]:
    return {key: reading(kept.saver, thread, key, DELTAS) for key in wanted}


def same_readings(before: Any, after: Any, applied: Applied) -> None:
    moved = {(g.checkpoint_ns, g.parent_id) for g in applied.plan.grafts if g.handling == "move"}
    for key, found in after.items():
        was = before[key]
        if key in moved:  # it owns what its link owned as well
            assert set(map(repr, was[3])) <= set(map(repr, found[3]))
            was, found = was[:3], found[:3]
        assert found == was, key


def no_loose_ends(kept: Kept, thread: str, twin: str) -> None:
    """Nothing that is left misses a row it had, and nothing is left that nobody needs.

    What others left before is told apart: a parent that was missing, rows of absent checkpoints.
    """
    after, before = kept.rows.image(thread), kept.rows.image(twin)
    stored, had = ({row.key for row in image.checkpoints} for image in (after, before))
    assert stored <= had
    for row in after.checkpoints:
        parent = (row.checkpoint_ns, row.parent_id)
        assert row.parent_id is None or parent in stored or parent not in had
    named, known = (
        {(row.checkpoint_ns, *pair) for row in image.checkpoints for pair in row.versions.items()}
        for image in (after, before)
    )
    blobs, held = ({blob.key for blob in image.blobs} for image in (after, before))
    assert held & named <= blobs
    assert blobs <= named | (held - known)
    writes = {write.key for write in after.writes}
    assert {write.key for write in before.writes if write.key[:2] in stored} <= writes
    assert all(key[:2] in stored or key[:2] not in had for key in writes)


def only_leaves(
    kept: Kept,
    twin: str,
    had: set[Key],
    targets: set[Key],
    played: Played,
    policy: RetentionPolicy,
    protect: list[str],
) -> None:
    """Without a keep rule only copies, and tips of side branches without writes, may go."""
    gone, image = had - targets, kept.rows.image(twin)
    copies = {key for key in gone if key[1] in played.stamped}
    assert policy.duration_leaves or not copies
    for space, name in gone - copies:
        assert policy.leaf_siblings and name not in protect
        assert not image.own_writes.get((space, name))
        assert all(child.key in gone for child in image.children.get((space, name), ()))
        assert name != max(n for s, n in had if s == space and n not in played.stamped)


def goes_on_alike(kept: Kept, world: World, threads: tuple[str, str], targets: list[str]) -> None:
    """Going on from a checkpoint, or from the newest, does and gives what it would have."""
    for target in [*targets, None]:
        ends = []
        for thread in threads:
            copy = clone(kept, thread)
            ends.append((onward(world, copy, target), sorted(world.ran)))
        assert ends[0] == ends[1], target


def onward(world: World, thread: str, target: str | None) -> Any:
    """Answers what is asked, finishes what is pending, or says something new."""
    world.ran.clear()
    state = world.graph.get_state(at(thread, target))
    given: Any = {"said": ["again"]}
    if state.next:
        given = Command(resume="at last") if state.interrupts else None
    world.graph.invoke(given, at(thread, target))
    if world.graph.get_state(at(thread)).interrupts:
        world.graph.invoke(Command(resume="and on"), at(thread))
    world.graph.invoke({"said": ["more"]}, at(thread))
    return world.state_of(thread)


# --- threads put row by row ---------------------------------------------------------------------


@settings(PROFILE, max_examples=25 * FACTOR)
@given(cases=st.lists(CASES, min_size=1, max_size=3), order=ORDERS)
def test_what_was_put_by_hand(kept: Kept, cases: list[Case], order: Order) -> None:
    number = next(NUMBERS)
    threads = [f"by-hand-{number}-{at}" for at in range(len(cases))]
    built = [build(kept, case, name) for case, name in zip(cases, threads, strict=True)]
    try:
        judged_all(kept, built, order)
    finally:
        forget(kept, f"by-hand-{number}")


def judged_all(kept: Kept, built: list[Built], order: Order) -> None:
    """Several threads in one job: what befalls one is no matter of another's."""
    names = sorted({name for each in built for found in each.ids.values() for name in found})
    protect = [names[place % len(names)] for place in order.protect]
    now = order.now(names) if order.cut >= 0 else NOW
    threads = [each.hand.thread for each in built]
    twins = {name: clone(kept, name) for name in threads}
    rows = {name: whole_rows(kept.saver, name) for name in threads}
    fold = partial(reducer_fold, dict.fromkeys("abe", tiny_graph.extend))
    done = carried_out(kept, threads, order, protect, now, fold)
    assert [each.thread_id for each in done] == threads
    for each, applied in zip(built, done, strict=True):
        met(outcome(applied))
        note(f"{order} {applied.refused} {applied.deleted}")
        if applied.refused:
            assert whole_rows(kept.saver, applied.thread_id) == rows[applied.thread_id]
        elif applied.plan.whole:
            assert not any(whole_rows(kept.saver, applied.thread_id).values())
        else:
            judged_one(kept, each, applied, twins[applied.thread_id], order, protect, now)
    rows = {name: whole_rows(kept.saver, name) for name in threads}
    again = carried_out(kept, threads, order, protect, now, fold)
    for each, was, twice in zip(built, done, again, strict=True):
        assert twice.refused == was.refused
        left = rows[twice.thread_id]
        if twice.plan.whole:  # idle only now: what was young in it went the first time
            assert parse_policy(order.policy).idle_threads is not None
            continue
        if twice.plan.folds and not twice.refused:
            # Where nobody counts any more, a channel that holds nothing may be a delta channel.
            assert not any(twice.deleted.values())
            continue
        if each.harm and twice.deleted:
            # Blobs that somebody else made orphans wait for the thread to be quiet, and what was
            # young in it may have gone.
            assert not twice.deleted["checkpoints"] and not twice.deleted["writes"]
            left = {**left, "blobs": whole_rows(kept.saver, twice.thread_id)["blobs"]}
        else:
            assert twice.plan.empty or twice.refused
        assert whole_rows(kept.saver, twice.thread_id) == left


def judged_one(
    kept: Kept,
    built: Built,
    applied: Applied,
    twin: str,
    order: Order,
    protect: list[str],
    now: datetime,
) -> None:
    thread, policy = applied.thread_id, parse_policy(order.policy)
    had = {row.key for row in kept.rows.image(twin).checkpoints}
    targets = {(space, one) for space, each in applied.plan.kept.items() for one in each.targets}
    assert {key for key in had if key[1] in protect} <= targets
    played = Played(thread, stamped=built.stamped, line=False)
    if policy.keeps and any(space == "" for space, _ in had):
        gone_by_leaf = had - targets if policy.leaf_siblings else set()
        assert promised(policy, had, played, now) - gone_by_leaf <= targets
    if not policy.keeps and (policy.leaf_siblings or policy.duration_leaves):
        only_leaves(kept, twin, had, targets, played, policy, protect)
    deltas = ("a", "b")
    before = {key: reading(kept.saver, twin, key, deltas) for key in targets}
    after = {key: reading(kept.saver, thread, key, deltas) for key in targets}
    same_readings(before, after, applied)
    no_loose_ends(kept, thread, twin)
    if policy.keeps or policy.leaf_siblings or policy.duration_leaves:
        left = {write.checkpoint_id for write in kept.rows.image(thread).writes}
        for name in built.orphans.keys() - {name for _, name in had}:
            assert (name in left) == (now - made_at(name) <= HOUR)
