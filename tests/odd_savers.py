"""Savers that go wrong in known ways; a worker process loads them as `odd_savers:<name>`."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver


class _Odd(InMemorySaver):
    """Goes wrong on its fifth put: in the middle of a conversation."""

    puts = 0

    def put(self, *args: Any) -> Any:
        self.puts += 1
        if self.puts == 5:
            self.go_wrong()
        return super().put(*args)

    def go_wrong(self) -> None:
        raise NotImplementedError


class Hangs(_Odd):
    def go_wrong(self) -> None:
        time.sleep(600)


class Crashes(_Odd):
    def go_wrong(self) -> None:
        sys.stderr.write("something foreboding\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGSEGV)


class OutOfMemory(_Odd):
    def go_wrong(self) -> None:
        raise MemoryError


class Exits(_Odd):
    def go_wrong(self) -> None:
        sys.stderr.write("license expired\n")
        sys.stderr.flush()
        os._exit(7)


class Talkative(_Odd):
    """Floods both output streams, and leaves half a line of JSON on them."""

    def go_wrong(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.write("noise " * 200_000 + '{"record": "trial"')
            stream.flush()


class Fails(_Odd):
    def go_wrong(self) -> None:
        raise ValueError("cannot reach postgresql://me:hunter2@db/x")


class Forgets(InMemorySaver):
    """Loses every third call's writes, without an error."""

    puts = 0

    def put_writes(self, *args: Any, **options: Any) -> None:
        self.puts += 1
        if self.puts % 3:
            super().put_writes(*args, **options)


class SyncOnly(InMemorySaver):
    async def aget_tuple(self, config: Any) -> Any:
        raise NotImplementedError

    async def aput(self, *args: Any) -> Any:
        raise NotImplementedError


class HalfList(InMemorySaver):
    """Lists every other checkpoint only."""

    def list(self, *args: Any, **options: Any) -> Any:
        return list(super().list(*args, **options))[::2]


class KeepsAll(InMemorySaver):
    """Says it deleted a thread, and did not."""

    def delete_thread(self, thread_id: str) -> None:
        return
