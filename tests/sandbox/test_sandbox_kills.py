"""SIGKILL at random points: counts agree with a recount, no blob is missing, a retry works."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from sandbox_recount import postgres_problems, sqlite_problems
from sandbox_stores import drop_schema
from sandbox_worker import open_place, until_killed

KILLS = 50
LONGEST_S = 0.06  # a child lives this long at most once it works
YEAR_MS = 365 * 86_400_000.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Zygote:
    """A process that forks a child for each job."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("sandbox_worker.py")), "zygote"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def start(self, job: dict[str, Any]) -> int:
        """The pid of a child that has begun to work."""
        self._in.write(json.dumps(job).encode() + b"\n")
        ready, _, _ = select.select([self._out], [], [], 60)
        assert ready, "the child did not start"
        said = self._out.readline().decode().strip()
        assert said.isdigit(), said
        return int(said)

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        for _ in range(10_000):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.001)
        raise AssertionError(f"{pid} did not die")

    def close(self) -> None:
        self._in.close()
        self._process.wait(30)
        self._out.close()


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


Problems = Callable[[Path], list[str]]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Problems]]:
    if request.param == "sqlite":
        path = tmp_path / "kills.db"
        yield {"sqlite": str(path)}, lambda blobs: sqlite_problems(path, blobs)
        return
    dsn = request.getfixturevalue("postgres_dsn")
    schema = f"kills_{secrets.token_hex(4)}"
    marked = make_conninfo(dsn, application_name=schema)
    with psycopg.connect(dsn, autocommit=True) as watch:

        def problems(blobs: Path) -> list[str]:
            _wait_for_the_dead(watch, schema)
            return postgres_problems(dsn, schema, blobs)

        yield {"dsn": marked, "schema": schema}, problems
    drop_schema(dsn, schema)


def _wait_for_the_dead(watch: psycopg.Connection, name: str) -> None:
    """Waits until the server has noticed that the killed client's connections are gone."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    for _ in range(5_000):
        row = watch.execute(query, (name,)).fetchone()
        if row is not None and row[0] == 0:
            return
        time.sleep(0.002)
    raise AssertionError("the connections of a killed client are still open")


@pytest.mark.parametrize("op", ["append", "delete", "fork", "capture", "sweep"])
def test_a_kill_breaks_nothing(
    op: str, place: tuple[Any, Problems], zygote: Zygote, tmp_path: Path
) -> None:
    where, problems = place
    blobs, workspace, log = tmp_path / "blobs", tmp_path / "workspace", tmp_path / "log"
    workspace.mkdir()
    log.touch()
    real_blobs = blobs if op in ("capture", "sweep") else None
    job = {"op": op, "place": where, "log": str(log), "blobs": str(blobs)}
    job["workspace"] = str(workspace)
    for turn in range(KILLS):
        pid = zygote.start({**job, "tag": f"k{turn}"})
        time.sleep(random.uniform(0.0, LONGEST_S))
        zygote.kill(pid)
        assert problems(real_blobs) == [], f"after kill {turn}"  # type: ignore[arg-type]
        asyncio.run(retry({**job, "tag": f"r{turn}"}, turn))
        assert problems(real_blobs) == [], f"after retry {turn}"  # type: ignore[arg-type]
    names = log.read_text().split()
    assert len(names) > KILLS
    assert asyncio.run(unknown(where, names)) == []


async def retry(job: dict[str, Any], turn: int) -> None:
    """Does the job again, past the lease of the dead: each retry's clock is a year further on."""
    await until_killed(job, rounds=1, ahead_ms=0.0 if turn < 0 else YEAR_MS)


async def unknown(where: Any, names: list[str]) -> list[str]:
    """The ids that a child was told are stored, but that the store never heard of."""
    async with open_place(where) as store:

        async def work(ledger: Any) -> list[str]:
            return [name for name in names if not (await ledger.facts("t", name)).id_used]

        found: list[str] = await store._write(work)
        return found
