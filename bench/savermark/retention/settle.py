"""One thread settled: the plan made, and made again inside the transaction that carries it out.

What a thread looked like before only decides whether a transaction is worth it; what is deleted is
decided by the rows the transaction itself sees. Whoever caches histories is told before the first
delete, and a failure there deletes nothing.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING

from savermark.backends.shared import one_line
from savermark.errors import ContractError, SavermarkError, Unsupported, UsageError
from savermark.history.rows import ThreadBusy
from savermark.retention.fold import Evidence, Values, check_versions, evidence
from savermark.retention.plan import plan_by
from savermark.retention.records import Applied
from savermark.retention.statements import execute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from savermark.history.arows import AsyncRows
    from savermark.history.image import ThreadImage
    from savermark.history.rows import RowAccess
    from savermark.retention.fold import Materializer
    from savermark.retention.keep import Terms
    from savermark.retention.records import CacheLifecycle

RETRIES = 3  # of a thread that another job or a live run got in the way of
PAUSE = 0.05  # seconds before the first of them; doubles
_REFUSALS = (ContractError, UsageError, Unsupported)


@dataclass(frozen=True, slots=True)
class Job:
    """What is done to each thread, checked."""

    terms: Terms
    lifecycle: CacheLifecycle | None = None
    fold: Materializer | None = None
    retries: int = RETRIES
    keys: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """Values made before the transaction, and the rows they were made from."""

    values: Values
    evidence: Evidence = ()


NOTHING = Ready({})


def settle(rows: RowAccess, image: ThreadImage, job: Job) -> Applied:
    """Do to one thread what is to be done, from an image of it that may be old by now."""
    for attempt in range(max(job.retries, 0) + 1):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
            image = rows.image(image.thread_id)
        first = foresee(image, job)
        if first.plan.empty and not first.refused:
            return first
        try:  # also a refusal is only believed inside: a thread may be caught in the middle
            folds = first.plan.folds
            ready = NOTHING
            if folds:
                with _reading():
                    values = _maker(job).values(image.thread_id, folds)
                ready = Ready(values, evidence(image, folds))
            return carry_out(rows, image.thread_id, job, ready, (image, first))
        except ThreadBusy as error:
            first = replace(first, refused=str(error))
        except _REFUSALS as error:
            first = replace(first, refused=str(error))
            if not first.plan.folds or rows.image(image.thread_id) == image:
                break  # else its values were read while somebody changed them
    return first


async def asettle(rows: AsyncRows, image: ThreadImage, job: Job) -> Applied:
    """The async twin of `settle`: only the values are made on the event loop."""
    for attempt in range(max(job.retries, 0) + 1):
        if attempt:
            await asyncio.sleep(PAUSE * 2 ** (attempt - 1))
            image = await rows.run(methodcaller("image", image.thread_id))
        first = foresee(image, job)
        if first.plan.empty and not first.refused:
            return first
        try:  # also a refusal is only believed inside: a thread may be caught in the middle
            folds = first.plan.folds
            ready = NOTHING
            if folds:
                with _reading():
                    values = await _maker(job).avalues(image.thread_id, folds)
                ready = Ready(values, evidence(image, folds))
            seen = (image, first)
            work = partial(carry_out, thread_id=image.thread_id, job=job, ready=ready, seen=seen)
            return await rows.run(work)
        except ThreadBusy as error:
            first = replace(first, refused=str(error))
        except _REFUSALS as error:
            first = replace(first, refused=str(error))
            now = await rows.run(methodcaller("image", image.thread_id))
            if not first.plan.folds or now == image:
                break  # else its values were read while somebody changed them
    return first


def foresee(image: ThreadImage, job: Job) -> Applied:
    """The plan from an image, as the result of having done nothing."""
    start = time.perf_counter_ns()
    plan = plan_by(image, job.terms)
    spent = time.perf_counter_ns() - start
    return Applied(image.thread_id, plan, refused=plan.refused, plan_ns=spent)


def carry_out(
    rows: RowAccess,
    thread_id: str,
    job: Job,
    ready: Ready = NOTHING,
    seen: tuple[ThreadImage, Applied] | None = None,
) -> Applied:
    """Plan once more inside a transaction, and do it.

    Where the rows are those of the image that was `seen`, its plan is the plan.

    Raises `ThreadBusy` where the rows under the values have changed, `ContractError` where a cache
    could not be told; nothing was changed then.
    """
    with rows.transaction(thread_id) as txn:
        image = txn.image()
        found = seen[1] if seen is not None and seen[0] == image else foresee(image, job)
        start = time.perf_counter_ns()
        if found.refused or found.plan.empty:
            return found
        if found.plan.folds and evidence(image, found.plan.folds) != ready.evidence:
            raise ThreadBusy("the rows to fold changed while they were read: try again")
        check_versions(image, ready.values)
        invalidate(job.lifecycle, thread_id)
        deleted = execute(txn, found.plan, image, ready.values)
    return replace(found, deleted=deleted, apply_ns=time.perf_counter_ns() - start)


def _maker(job: Job) -> Materializer:
    if job.fold is None:
        raise UsageError("values must be folded: give the graph (--graph module:attr), or reducers")
    return job.fold


@contextmanager
def _reading() -> Iterator[None]:
    """A thread whose values cannot be read is refused, whatever its serializer raises."""
    try:
        yield
    except SavermarkError:
        raise
    except Exception as error:
        raise ContractError(
            f"its values cannot be read ({one_line(error)}): open it through the serializer that "
            "wrote it, or use keep-latest"
        ) from error


def invalidate(lifecycle: CacheLifecycle | None, thread_id: str) -> None:
    """Tell whoever caches this thread; raises `ContractError` where that fails."""
    if lifecycle is None:
        return
    try:
        lifecycle.invalidate(thread_id)
    except Exception as error:  # the cache is the application's: whatever it raises
        raise ContractError(
            f"its cached history could not be invalidated ({one_line(error)}), so nothing was "
            "deleted: make the cache reachable and try again"
        ) from error
