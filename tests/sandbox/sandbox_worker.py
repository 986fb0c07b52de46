"""What the tests run in other processes: writers that compete, and writers that get killed.

    sandbox_worker.py append PLACE NUMBER     four tasks append to one thread; prints their ids
    sandbox_worker.py references PLACE        lists all references; prints how much memory it took
    sandbox_worker.py zygote                  reads jobs as JSON lines, forks a child for each

A zygote has everything imported, so that a child costs a fork and not a start of Python. A child
prints its pid when it starts to work, and then works until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import psutil

from savermark.sandbox import errors
from savermark.sandbox.capture import CaptureNotes, capture_workspace
from savermark.sandbox.folder_blobs import FolderBlobStore
from savermark.sandbox.lease import LeaseTimes
from savermark.sandbox.postgres import PostgresSandboxStore
from savermark.sandbox.protocols import keep_newest
from savermark.sandbox.records import ForkRequest
from savermark.sandbox.sqlite import SqliteSandboxStore
from savermark.sandbox.sweep import sweep_sandbox_blobs
from savermark.sandbox.testkit.harness import artifact, checkpoint, file

LEASE = LeaseTimes(100_000.0, 1_000.0)


def open_place(place: dict[str, Any], ahead_ms: float = 0.0) -> AbstractAsyncContextManager[Any]:
    """The store of a place; `ahead_ms` runs its clock ahead, past the leases of the dead."""

    def clock() -> float:
        return time.time() * 1000.0 + ahead_ms

    if "sqlite" in place:
        return SqliteSandboxStore.open(place["sqlite"], clock=clock, lease=LEASE, synchronous="OFF")
    return PostgresSandboxStore.open(
        place["dsn"], schema=place["schema"], clock=clock, lease=LEASE, pool_size=4
    )


async def acquire(store: Any, thread: str) -> Any:
    while True:
        try:
            return await store.acquire_writer(thread)
        except errors.SandboxCheckpointWriterConflictError:
            await asyncio.sleep(random.uniform(0.0, 0.1))


async def add(store: Any, lease: Any, name: str) -> str:
    head = await store.get_head(lease.thread_id)
    files = [file(f"f{at}", f"shared-{random.randrange(9)}") for at in range(5)]
    given = checkpoint(
        name,
        lease.thread_id,
        head,
        label=str(lease.fence),
        files=files,
        artifacts=[artifact("1", f"art-{random.randrange(4)}")],
    )
    done: str = await store.append(given, expected_head_id=head, writer=lease)
    return done


async def compete(place: dict[str, Any], number: str) -> None:
    async with open_place(place) as store:

        async def one(task: int) -> None:
            for turn in range(5):
                lease = await acquire(store, "t")
                name = await add(store, lease, f"{number}-{task}-{turn}")
                await lease.release()
                sys.stdout.write(f"{name}\n")

        await asyncio.gather(*(one(task) for task in range(4)))


async def references(place: dict[str, Any]) -> dict[str, Any]:
    number, uses, in_order, last, memory = 0, 0, True, "", []
    this = psutil.Process()
    async with open_place(place) as store:
        async for item in store.list_blob_references():
            number, uses = number + 1, uses + item.count
            in_order, last = in_order and last < item.key, item.key
            if number % 20_000 == 0:
                memory.append(this.memory_info().rss // 1000)
    growth = max(memory) - memory[0]
    return {"number": number, "uses": uses, "sorted": in_order, "growth_kb": growth}


class Loop:
    """One endless job on a thread of its own; `said` gets the id of each finished append."""

    def __init__(self, store: Any, job: dict[str, Any], lease: Any) -> None:
        self.store, self.job, self.lease, self.at = store, job, lease, 0

    def name(self) -> str:
        self.at += 1
        return f"{self.job['tag']}-{self.at}"

    def said(self, name: str) -> None:
        with Path(self.job["log"]).open("a") as log:
            log.write(f"{name}\n")

    async def add(self) -> str:
        name = await add(self.store, self.lease, self.name())
        self.said(name)
        return name

    async def append(self) -> None:
        await self.add()

    async def delete(self) -> None:
        for _ in range(3):
            head = await self.add()
        thread = self.lease.thread_id
        if self.at % 2:
            await self.store.delete_head(thread, head, writer=self.lease)
        else:
            await self.store.delete_checkpoints(thread, keep=1, writer=self.lease)

    async def fork(self) -> None:
        thread = self.lease.thread_id
        source = await self.store.get_head(thread) or await self.add()
        name = self.name()
        target = await self.store.acquire_writer(name)
        request = ForkRequest(thread, source, name, name, 1.0, target)
        await self.store.fork_from_checkpoint(request)
        self.said(name)
        if self.at % 4 == 0:
            await self.add()

    async def capture(self) -> None:
        root = Path(self.job["workspace"])
        for at in range(3):
            (root / f"f{at}").write_bytes(b"%d" % random.randrange(40))
        name = self.name()
        await capture_workspace(
            self.store,
            FolderBlobStore(self.job["blobs"]),
            self.lease.thread_id,
            root,
            CaptureNotes(checkpoint_id=name),
        )
        self.said(name)

    async def sweep(self) -> None:
        for _ in range(2):
            await self.capture()
        await keep_newest(self.store, self.lease.thread_id, 1)
        await sweep_sandbox_blobs(
            checkpoints=self.store, blobs=FolderBlobStore(self.job["blobs"]), older_than_ms=0.0
        )


async def until_killed(job: dict[str, Any], rounds: int = -1, ahead_ms: float = 0.0) -> None:
    async with open_place(job["place"], ahead_ms) as store:
        lease = await acquire(store, "t")
        if job["op"] in ("capture", "sweep"):
            await lease.release()  # a capture takes its own
        loop = Loop(store, job, lease)
        if rounds < 0:
            sys.stdout.write(f"{os.getpid()}\n")
            sys.stdout.flush()
        while rounds:
            await getattr(loop, job["op"])()
            rounds -= 1
        await lease.release()


def zygote() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need no one to wait for them
    for line in sys.stdin:
        if os.fork() == 0:
            random.seed()
            try:
                asyncio.run(until_killed(json.loads(line)))
            finally:
                sys.stdout.write("failed\n")
                sys.stdout.flush()
                os._exit(1)


if __name__ == "__main__":
    if sys.argv[1] == "zygote":
        zygote()
    elif sys.argv[1] == "references":
        sys.stdout.write(json.dumps(asyncio.run(references(json.loads(sys.argv[2])))))
    else:
        asyncio.run(compete(json.loads(sys.argv[2]), sys.argv[3]))
