"""Clean-up beside live runs, beside readers and beside itself: no value is lost, nothing hangs.

Runs go on in threads of this process and in another process, each over a connection of its own;
what they come to is compared with the same conversation on a store that nobody cleans.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from fix_threads import Kept, at
from killable_prune import SHAPE
from retention_world import Act, Played, World, ids, one_act, play
from savermark.errors import UsageError
from savermark.history.arows import arow_access
from savermark.history.rows import ThreadBusy, row_access
from savermark.retention.apply import aapply, apply
from savermark.retention.copy import copy_thread
from savermark.retention.fold import graph_fold
from savermark.retention.policy import parse_policy
from savermark.retention.steady import Vanished, steady_state, with_steady
from test_apply_live import side_by_side
from test_retention_crash import Jobs

if TYPE_CHECKING:
    from fix_databases import Left
    from savermark.retention.records import Applied

WORDS = "say ask exit say update async send command ask say"
TALK = [Act(kind) for kind in WORDS.split()]
# Where runs must be told that a checkpoint was folded under them, they start again; a question is
# answered once, and a lasting subgraph that could not be loaded is taken for one that has run.
SMALL_TALK = [act for act in TALK if act.kind != "ask"]
SMALL_SHAPE: Any = ("call", (3, 7, 2))
LINKS = [Act(kind) for kind in ("say", "stamp", "exit", "stamp", "say", "stamp")]
POLICIES = ("keep-latest", "compact", "keep-turns=1,older-than=0s", "older-than=0s", "snapshot")

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def undisturbed(shape: Any, talk: list[Act]) -> Any:
    """What a conversation comes to when nobody cleans up."""
    saver = InMemorySaver()
    world, kept = World(*shape, saver), Kept("memory", None, saver, row_access(saver))  # type: ignore[arg-type]
    play(kept, world, "alone", talk)
    return world.state_of("alone")


def talks(left: Left, thread: str) -> Callable[[], None]:
    """A live conversation over a connection of its own."""

    def run() -> None:
        with left.store.saver() as saver:
            kept = Kept(left.name, left.store, saver, row_access(saver))
            play(kept, World(*SHAPE, saver), thread, TALK)

    return run


def insists(left: Left, thread: str) -> Callable[[], None]:
    """The same through a saver that notices when its checkpoint is folded while it is loaded.

    Whoever gets to hear of it starts again, or goes on where the run has come to.
    """

    def run() -> None:
        with left.store.saver() as plain:
            saver = with_steady(plain)
            kept = Kept(left.name, left.store, saver, row_access(saver))
            world, played = World(*SMALL_SHAPE, saver), Played(thread)
            for number, act in enumerate(SMALL_TALK):
                start = ids(kept, thread)[-1:]
                while True:
                    try:
                        if ids(kept, thread)[-1:] == start:
                            one_act(kept, world, played, act, number)
                        elif world.graph.get_state(at(thread)).next:
                            world.graph.invoke(None, at(thread))
                        break
                    except Vanished:
                        continue

    return run


def until(done: threading.Event, *jobs: Callable[[], None]) -> Callable[[], None]:
    """These one after the other, and the word that they are through."""

    def run() -> None:
        try:
            for job in jobs:
                job()
        finally:
            done.set()

    return run


class Cleaners:
    """Clean-up over and over, in each api, until the runs are through."""

    def __init__(
        self, left: Left, shape: Any, policy: str, threads: list[str], done: threading.Event
    ) -> None:
        self.left, self.shape, self.policy = left, shape, policy
        self.threads, self.done = threads, done
        self.found: list[Applied] = []

    def sync(self) -> None:
        with self.left.store.saver() as saver:
            rows, fold = row_access(saver), graph_fold(World(*self.shape, None).graph, saver)
            while not self.done.wait(0.003):
                policy = parse_policy(self.policy)
                self.found += apply(rows, policy, threads=self.threads, fold=fold)

    def asynchronous(self) -> None:
        asyncio.run(self._asynchronous())

    async def _asynchronous(self) -> None:
        async with self.left.store.asaver() as saver, arow_access(saver) as rows:
            fold = graph_fold(World(*self.shape, None).graph, saver)
            while not self.done.is_set():
                policy, threads = parse_policy(self.policy), self.threads[::-1]
                self.found += [x async for x in aapply(rows, policy, threads=threads, fold=fold)]
                await asyncio.sleep(0.003)

    def reads(self) -> None:
        """States of live threads: never less than was there before."""
        with self.left.store.saver() as saver:
            graph, seen = World(*self.shape, saver).graph, dict.fromkeys(self.threads, 0)
            while not self.done.wait(0.002):
                for name in self.threads:
                    with suppress(Vanished):  # twice in a row: told, and not an empty state
                        size = len(steady_state(graph, at(name)).values.get("said", ()))
                        assert size >= seen[name], (name, size, seen[name])
                        seen[name] = size


@pytest.mark.parametrize("policy", POLICIES)
def test_live_runs_lose_nothing(left: Left, jobs: Jobs, policy: str) -> None:
    steady, folds = policy == "compact", policy in ("compact", "snapshot")
    threads, done = [f"live-{at}" for at in range(2 if steady else 3)], threading.Event()
    talk, shape = (insists, SMALL_SHAPE) if steady else (talks, SHAPE)
    expected = undisturbed(shape, SMALL_TALK if steady else TALK)
    cleaners = Cleaners(left, shape, policy, threads, done)
    pid = jobs.start(
        {"uri": left.uri, "name": left.name, "op": "live", "how": "sync", "log": "/dev/null"}
        | {"threads": [] if steady else threads[2:], "acts": [act.kind for act in TALK]}
    )

    def elsewhere() -> None:
        assert not jobs.kill(pid, 120), "the run of the other process did not come to an end"

    side_by_side(
        until(done, lambda: side_by_side(*(talk(left, n) for n in threads[:2]), elsewhere)),
        cleaners.sync,
        cleaners.sync,
        cleaners.asynchronous,
        cleaners.reads,
    )
    world = World(*shape, left.saver)
    for name in threads:
        assert world.state_of(name) == expected, name
    gone = sum(each.deleted.get("checkpoints", 0) for each in cleaners.found)
    print(f"\n{left.name}, {policy}: {len(cleaners.found)} clean-ups, {gone} checkpoints gone")  # noqa: T201
    assert gone == 0 if policy == "snapshot" else gone > 20
    assert any(each.plan.folds for each in cleaners.found if not each.refused) == folds
    refused = {each.refused for each in cleaners.found if each.refused}
    assert all(folds and "try again" in each for each in refused), refused  # busy, and said so
    rows, fold = row_access(left.saver), graph_fold(world.graph, left.saver)
    for last in (policy, "keep-latest") if policy == "snapshot" else (policy,):
        for each in apply(rows, parse_policy(last), threads=threads, fold=fold):
            assert not each.refused
    for name in threads:
        assert world.state_of(name) == expected, name
        world.graph.invoke({"said": ["and on"]}, at(name))
    assert len({repr(world.state_of(name)) for name in threads}) == 1


@pytest.mark.parametrize("policy", ["keep-latest", "compact", "duration-leaves,leaf-siblings"])
def test_jobs_that_meet(left: Left, jobs: Jobs, policy: str) -> None:
    """Four jobs over the same threads, in each order, here and elsewhere: done once, by someone."""
    world, names = World(*SHAPE, left.saver), [f"meet-{at}" for at in range(8)]
    kept = Kept(left.name, left.store, left.saver, row_access(left.saver))
    play(kept, world, "source", LINKS)
    left.store.clone_threads({"source": names})
    before = world.state_of("source")
    found: list[Applied] = []

    def job(order: int) -> Callable[[], None]:
        def work() -> None:
            with left.store.saver() as saver:
                rows, fold = row_access(saver), graph_fold(World(*SHAPE, None).graph, saver)
                found.extend(apply(rows, parse_policy(policy), threads=names[::order], fold=fold))

        return work

    pid = jobs.start(
        {"uri": left.uri, "name": left.name, "op": policy, "how": "sync", "log": "/dev/null"}
        | {"threads": names}
    )
    side_by_side(job(1), job(-1), job(1), lambda: None if not jobs.kill(pid, 120) else 1 / 0)
    assert not [each.refused for each in found if each.refused]
    again = apply(
        kept.rows, parse_policy(policy), threads=names, fold=graph_fold(world.graph, left.saver)
    )
    assert all(each.plan.empty for each in again)
    for name in names:
        assert world.state_of(name) == before
        done = [e for e in found if e.thread_id == name and e.deleted.get("checkpoints")]
        assert len(done) <= 1


def test_copies_crosswise(left: Left) -> None:
    """Two threads copied onto one another at once: both hold rows, so both are refused."""
    kept = Kept(left.name, left.store, left.saver, row_access(left.saver))
    play(kept, World(*SHAPE, left.saver), "a", TALK[:1])
    left.store.clone_threads({"a": ["b"]})
    said: list[str] = []

    def copies(source: str, target: str) -> Callable[[], None]:
        def work() -> None:
            with left.store.saver() as saver:
                for _ in range(3):
                    try:
                        copy_thread(saver, source, target)
                    except (UsageError, ThreadBusy) as error:
                        said.append(str(error))

        return work

    side_by_side(copies("a", "b"), copies("b", "a"))
    assert len(said) == 6


def test_a_lock_that_is_not_had_in_time(left: Left) -> None:
    """Who limits how long a lock is waited for gets a busy thread, and the others go on."""
    if left.name == "sqlite":
        pytest.skip("SQLite has one lock, and its own limit")
    kept = Kept(left.name, left.store, left.saver, row_access(left.saver))
    play(kept, World(*SHAPE, left.saver), "held", TALK[:4])
    left.store.clone_threads({"held": ["free"]})
    left.saver.conn.execute("SET lock_timeout = '20ms'")  # type: ignore[attr-defined]
    with left.store.saver() as other, row_access(other).transaction("held"):
        done = list(
            apply(kept.rows, parse_policy("keep-turns=1"), threads=["held", "free"], retries=1)
        )
    assert done[0].refused and "lock timeout" in done[0].refused
    assert done[1].deleted["checkpoints"] and not done[1].refused
    (later,) = apply(kept.rows, parse_policy("keep-turns=1"), threads=["held"])
    assert later.deleted["checkpoints"] == done[1].deleted["checkpoints"]
