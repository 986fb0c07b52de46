"""Holds a writer lease for as long as a piece of work takes, and renews it meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from savermark.sandbox.errors import SandboxCheckpointWriterLostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    from savermark.sandbox.protocols import SandboxCheckpointStore, WriterLease

    T = TypeVar("T")

_TRY_AGAIN = 10  # a renewal that failed for another reason is tried again after a tenth of the time


async def with_lease(
    store: SandboxCheckpointStore,
    thread_id: str,
    work: Callable[[WriterLease], Awaitable[T]],
) -> T:
    """Runs the work under the lease of the thread, and releases it however the work ends.

    Raises WRITER_CONFLICT when another holds it, and WRITER_LOST, the work cancelled, as soon as a
    renewal finds that it is lost.
    """
    lease = await store.acquire_writer(thread_id)
    try:
        return await _race(lease, work)
    finally:
        await lease.release()


async def _race(lease: WriterLease, work: Callable[[WriterLease], Awaitable[T]]) -> T:
    job = asyncio.ensure_future(work(lease))
    keeper = asyncio.ensure_future(_keep(lease))
    try:
        await asyncio.wait({job, keeper}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            keeper.result()  # raises: the keeper only ends when the lease is lost
        return await job
    finally:
        job.cancel()
        keeper.cancel()
        await asyncio.gather(job, keeper, return_exceptions=True)


async def _keep(lease: WriterLease) -> None:
    pause = lease.renew_after_ms / 1000.0
    wait = pause
    while True:
        await asyncio.sleep(wait)
        try:
            await lease.renew()
            wait = pause
        except SandboxCheckpointWriterLostError:
            raise
        except (
            Exception
        ):  # the database may be back before the lease ends; append has the last word
            wait = pause / _TRY_AGAIN
