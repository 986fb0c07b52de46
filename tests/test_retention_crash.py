"""SIGKILL at random points of a clean-up over many threads: each is as before or as after."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fix_threads import Kept
from killable_prune import RUNS, SHAPE, work
from retention_oracle import sql_rows
from retention_world import Act, World, play
from savermark.history.rows import row_access
from savermark.retention.verify import snapshot_promises, verify_retention

if TYPE_CHECKING:
    from fix_databases import Left

KILLS = 50  # on each kind of store
CLONES = 4  # of each conversation, so that a job has many threads
OPS = (
    ("keep-latest", "sync"),
    ("keep-latest,duration-leaves", "sync"),
    ("compact", "sync"),
    ("snapshot", "sync"),
    ("keep-turns=1,leaf-siblings,duration-leaves", "sync"),
    ("keep-latest,duration-leaves", "async"),
    ("compact", "async"),
    ("duration-leaves", "sync"),
    ("delete", "sync"),
    ("runs", "sync"),
    ("copy", "sync"),
)
CONVERSATIONS = {
    "plain": "say say say",
    "links": "say stamp exit stamp say stamp",
    "forks": "say stamp say branch edit",
    "asks": "say say ask",
    "others": "say update overwrite command stamp",
}
NUMBERS = itertools.count()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Jobs:
    """The process that forks a child for each job."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("killable_prune.py"))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def start(self, job: dict[str, Any]) -> int:
        """The pid of a child that has begun to work."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        said = self._said()
        assert said.isdigit(), said
        return int(said)

    def kill(self, pid: int, after_s: float) -> bool:
        """Kill a child after a while; whether it was still at work."""
        assert self._process.stdout is not None
        done, _, _ = select.select([self._process.stdout], [], [], after_s)
        if done:
            said = self._said()
            assert said == "done", said
            return False
        os.kill(pid, signal.SIGKILL)
        for _ in range(10_000):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.001)
        else:
            raise AssertionError(f"{pid} did not die")
        done, _, _ = select.select([self._process.stdout], [], [], 0)
        if done:  # it was through just before
            assert self._said() == "done"
        return not done

    def _said(self) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 60)
        assert ready, "the child is silent"
        return self._process.stdout.readline().decode().strip()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


class Fleet:
    """Clones of some real conversations in a database, and what each may come to."""

    def __init__(self, left: Left) -> None:
        self.left, self.sqlite = left, left.name == "sqlite"
        self.uri = left.uri if self.sqlite else make_conninfo(left.uri, application_name="killed")
        kept = Kept(left.name, left.store, left.saver, row_access(left.saver))
        self.world = World(*SHAPE, left.saver)
        for name, acts in CONVERSATIONS.items():
            play(kept, self.world, name, [Act(act, 9) for act in acts.split()])
        if not self.sqlite:
            self.watch = psycopg.connect(left.uri, autocommit=True)
        self.before = self.digests(list(CONVERSATIONS))

    def close(self) -> None:
        if not self.sqlite:
            self.watch.close()

    def digests(self, threads: list[str]) -> dict[str, str]:
        """All bytes of each thread in short, as somebody else reads them."""
        if self.sqlite:
            with sqlite3.connect(self.left.uri) as connection:
                found = sql_rows(connection, threads, True)
            connection.close()
        else:
            self._wait_for_the_dead()
            found = sql_rows(self.watch, threads, False)
        return {
            name: hashlib.sha256(
                repr([(table, sorted(map(repr, rows))) for table, rows in tables.items()]).encode()
            ).hexdigest()
            for name, tables in found.items()
        }

    def _wait_for_the_dead(self) -> None:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'killed'"
        for _ in range(5_000):
            if self.watch.execute(query).fetchone() == (0,):
                return
            time.sleep(0.002)
        raise AssertionError("the connections of a killed client are still open")

    def cloned(self, each: int) -> dict[str, str]:
        """New threads by the conversation that they are, in mixed order."""
        number = next(NUMBERS)
        names = {f"t{number}-{kind}-{at}": kind for kind in CONVERSATIONS for at in range(each)}
        sources = {
            kind: [name for name, of in names.items() if of == kind] for kind in CONVERSATIONS
        }
        self.left.store.clone_threads(sources)
        mixed = list(names)
        random.shuffle(mixed)
        return {name: names[name] for name in mixed}

    def forget(self, threads: dict[str, str]) -> None:
        for name in threads:
            self.left.saver.delete_thread(name)
            self.left.saver.delete_thread(f"{name}-copy")


@pytest.fixture
def fleet(left: Left) -> Iterator[Fleet]:
    made = Fleet(left)
    yield made
    made.close()


def test_each_thread_is_whole_after_a_kill(fleet: Fleet, jobs: Jobs, tmp_path: Path) -> None:
    told = Counter[str]()
    for op, how in OPS:
        job = {"uri": fleet.uri, "name": fleet.left.name, "op": op, "how": how}
        after, took = undisturbed(fleet, jobs, job, tmp_path)
        wanted = told["killed"] + -(-KILLS // len(OPS))
        for _ in range(KILLS):
            told += killed(fleet, jobs, job, tmp_path, after, took * random.uniform(0.0, 0.9))
            if told["killed"] >= wanted:
                break
    print(f"\n{fleet.left.name}: {dict(told)}")  # noqa: T201
    assert told["killed"] >= KILLS
    assert told["inside a transaction"] >= KILLS * 0.1
    assert told["some threads done, some not"] >= KILLS * 0.2


def undisturbed(
    fleet: Fleet, jobs: Jobs, job: dict[str, Any], folder: Path
) -> tuple[dict[str, str], float]:
    """What each conversation comes to when nobody interferes, and how long all of them take.

    That it is right is shown by reading it: this is what the promises are compared with.
    """
    one = fleet.cloned(1)
    saver, graph = fleet.left.saver, fleet.world.graph
    proof = snapshot_promises(saver, list(one), graph=graph)
    done = work({**job, "threads": list(one)}, saver)
    if done:
        assert not [each.refused for each in done if each.refused]
        verdict = verify_retention(proof, saver, plans=done)
        assert verdict.ok, verdict.as_text()
    found = fleet.digests([*one, *(f"{name}-copy" for name in one)])
    after = {kind: found[name] for name, kind in one.items()}
    for name, kind in one.items():
        if job["op"] == "copy":
            assert found[f"{name}-copy"] == found[name] == fleet.before[kind]
    fleet.forget(one)
    many = fleet.cloned(CLONES)
    pid = jobs.start({**job, "threads": list(many), "log": str(folder / "log-0")})
    start = time.perf_counter()
    assert not jobs.kill(pid, 60)
    took = time.perf_counter() - start
    assert {name: after[kind] for name, kind in many.items()} == fleet.digests(list(many))
    fleet.forget(many)
    return after, took


def killed(
    fleet: Fleet,
    jobs: Jobs,
    job: dict[str, Any],
    folder: Path,
    after: dict[str, str],
    delay: float,
) -> Counter[str]:
    """One kill, the state of every thread, and the job started again."""
    threads, log = fleet.cloned(CLONES), folder / f"log-{next(NUMBERS)}"
    pid = jobs.start({**job, "threads": list(threads), "log": str(log)})
    alive = jobs.kill(pid, delay)
    found = fleet.digests(list(threads))
    states = set()
    for name, kind in threads.items():
        assert found[name] in (fleet.before[kind], after[kind]), (name, job["op"])
        if fleet.before[kind] != after[kind]:
            states.add("before" if found[name] == fleet.before[kind] else "after")
    copies = whole_copies(fleet, threads) if job["op"] == "copy" else set()
    rest = {name: kind for name, kind in threads.items() if name not in copies}
    work({**job, "threads": list(rest)}, fleet.left.saver)
    assert fleet.digests(list(threads)) == {name: after[kind] for name, kind in threads.items()}
    if job["op"] == "copy":
        assert whole_copies(fleet, threads) == set(threads)
        states = {"before", "after"} if 0 < len(copies) < len(threads) else set()
    fleet.forget(threads)
    inside = alive and log.exists() and log.read_bytes().endswith(b"b")
    return Counter(
        {
            "jobs": 1,
            "killed": alive,
            "inside a transaction": inside,
            "some threads done, some not": alive and len(states) == 2,
        }
    )


def whole_copies(fleet: Fleet, threads: dict[str, str]) -> set[str]:
    """The threads that were copied; a copy is whole or it is not there."""
    found = fleet.digests([f"{name}-copy" for name in threads])
    (nothing,) = fleet.digests(["nobody"]).values()
    copied = set()
    for name, kind in threads.items():
        if found[f"{name}-copy"] != nothing:
            assert found[f"{name}-copy"] == fleet.before[kind]
            copied.add(name)
    return copied


def test_runs_are_in_every_conversation() -> None:
    """The job that deletes runs has something to do: conversations have more acts than runs."""
    assert all(len(acts.split()) > len(RUNS) for acts in CONVERSATIONS.values())
