"""Policies as a user of `savermark retain` writes them: right ones, and wrong ones to be caught."""

from __future__ import annotations

from typing import Any

from savermark.history.arows import arow_access
from savermark.history.rows import row_access
from savermark.retention.apply import aapply, apply
from savermark.retention.policy import RetentionPolicy
from savermark.retention.records import ThreadPlan

LATEST = RetentionPolicy(keep_latest=True)
SEEN: list[Any] = []  # what the last call was given


def naive(saver: Any, thread_ids: list[str]) -> None:
    """Keep the newest row of each thread: the guide's mistake, which loses delta channels."""
    rows = row_access(saver)
    for thread in thread_ids:
        with rows.transaction(thread) as txn:
            keys = sorted(row.key for row in txn.image().checkpoints)
            txn.delete_writes_of(keys[:-1])
            txn.delete_checkpoints(keys[:-1])


def careful(saver: Any, thread_ids: list[str]) -> Any:
    """The engine's own keep-latest, which says what it did."""
    return list(apply(row_access(saver), LATEST, threads=thread_ids))


def silent(saver: Any, thread_ids: list[str]) -> int:
    """The same, but it tells a number only."""
    return len(careful(saver, thread_ids))


def protecting(saver: Any, thread_ids: list[str], protect: frozenset[str]) -> Any:
    """One that wants to know what is protected."""
    SEEN[:] = [protect]
    return list(apply(row_access(saver), LATEST, threads=thread_ids, protect=protect))


async def awaited(saver: Any, thread_ids: list[str]) -> Any:
    """A coroutine function."""
    async with arow_access(saver) as rows:
        return [each async for each in aapply(rows, LATEST, threads=thread_ids)]


def raising(saver: Any, thread_ids: list[str]) -> None:
    """One that breaks off in the middle."""
    naive(saver, thread_ids[:1])
    raise RuntimeError("the disk is on fire")


def refusing(saver: Any, thread_ids: list[str]) -> None:
    """One that cannot handle this saver."""
    raise NotImplementedError("only for other savers")


def wiping(saver: Any, thread_ids: list[str]) -> None:
    """Every thread goes."""
    for thread in thread_ids:
        saver.delete_thread(thread)


def boasting(saver: Any, thread_ids: list[str]) -> dict[str, list[str]]:
    """One that names every checkpoint as kept, and keeps the newest state alone."""
    rows = row_access(saver)
    every = {
        thread: [row.checkpoint_id for row in rows.image(thread).checkpoints]
        for thread in thread_ids
    }
    careful(saver, thread_ids)
    return every


def hiding(saver: Any, thread_ids: list[str]) -> list[ThreadPlan]:
    """One that deletes and says it refused."""
    careful(saver, thread_ids)
    return [ThreadPlan(thread, refused="too busy") for thread in thread_ids]


NUMBER = 3
