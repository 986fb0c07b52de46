"""Plans carried out: one transaction a thread, the plan made again inside it.

Usual threads share one, a batch of them at a time (`fast`). A thread that cannot be handled is left
as it was, its reason stands in `Applied.refused`, and the others go on. A job that was interrupted
is simply started again: what is done already has an empty plan.

A run that is live meanwhile may append; what it appends is neither seen nor touched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from savermark.history.bulk import batches
from savermark.retention.fast import apply_batch, lane
from savermark.retention.keep import GRACE
from savermark.retention.plan import checked_threads, terms_of
from savermark.retention.records import Applied
from savermark.retention.settle import RETRIES, Job, asettle, invalidate, settle

if TYPE_CHECKING:
    from savermark.history.arows import AsyncRows
    from savermark.history.image import ThreadImage
    from savermark.history.rows import RowAccess
    from savermark.retention.exhaustive import Protect
    from savermark.retention.fold import Materializer
    from savermark.retention.policy import RetentionPolicy
    from savermark.retention.records import CacheLifecycle


FLEET = 250  # threads at a time: fewer cost more for each, more hold their locks longer


def apply_thread(
    rows: RowAccess,
    thread_id: str | int,
    policy: RetentionPolicy,
    *,
    protect: Protect = (),
    now: datetime | None = None,
    grace: timedelta = GRACE,
    lifecycle: CacheLifecycle | None = None,
    fold: Materializer | None = None,
    retries: int = RETRIES,
) -> Applied:
    """Carry out a policy on one thread (arguments as of `apply`)."""
    terms = terms_of(policy, protect=protect, now=now, grace=grace)
    return settle(rows, rows.image(thread_id), Job(terms, lifecycle, fold, retries))


def apply(
    rows: RowAccess,
    policy: RetentionPolicy,
    *,
    threads: Sequence[str | int] | None = None,
    protect: Protect = (),
    now: datetime | None = None,
    grace: timedelta = GRACE,
    batch: int = FLEET,
    sleep: float = 0.0,
    lifecycle: CacheLifecycle | None = None,
    fold: Materializer | None = None,
    retries: int = RETRIES,
    keys: bool = False,
    on_progress: Callable[[Applied], object] | None = None,
) -> Iterator[Applied]:
    """Carry out a policy on these threads, or on all, one after the other, as it is iterated.

    `batch` threads are read at a time, and after as many that were changed the job rests `sleep`
    seconds. `fold` makes the values that `compact` stores. A thread found busy is tried again
    `retries` times, then refused. Under `keep-latest` usual threads share a transaction, a batch of
    whole threads, and have plans that count what goes (`fast.SetPlan`); with `keys` each thread has
    its own, and a plan that names every row. Raises `UsageError` for wrong arguments at once,
    `BackendError` where the engine itself fails.
    """
    terms = terms_of(policy, protect=protect, now=now, grace=grace)
    job = Job(terms, lifecycle, fold, retries, keys)
    return _fleet(rows, job, checked_threads(threads), batch, sleep, on_progress)


def aapply(
    rows: AsyncRows,
    policy: RetentionPolicy,
    *,
    threads: Sequence[str | int] | None = None,
    protect: Protect = (),
    now: datetime | None = None,
    grace: timedelta = GRACE,
    batch: int = FLEET,
    sleep: float = 0.0,
    lifecycle: CacheLifecycle | None = None,
    fold: Materializer | None = None,
    retries: int = RETRIES,
    keys: bool = False,
    on_progress: Callable[[Applied], object] | None = None,
) -> AsyncIterator[Applied]:
    """The async twin of `apply`; the lifecycle is called beside the event loop."""
    terms = terms_of(policy, protect=protect, now=now, grace=grace)
    job = Job(terms, lifecycle, fold, retries, keys)
    return _afleet(rows, job, checked_threads(threads), batch, sleep, on_progress)


def _fleet(
    rows: RowAccess,
    job: Job,
    threads: Sequence[str] | None,
    batch: int,
    sleep: float,
    on_progress: Callable[[Applied], object] | None,
) -> Iterator[Applied]:
    changed = 0
    for found in _found(rows, job, threads, batch):
        applied = found if isinstance(found, Applied) else settle(rows, found, job)
        if on_progress is not None:
            on_progress(applied)
        yield applied
        changed += bool(applied.deleted)
        if sleep and applied.deleted and changed % batch == 0:
            time.sleep(sleep)


async def _afleet(
    rows: AsyncRows,
    job: Job,
    threads: Sequence[str] | None,
    batch: int,
    sleep: float,
    on_progress: Callable[[Applied], object] | None,
) -> AsyncIterator[Applied]:
    changed = 0
    results = await rows.run(lambda sync: _found(sync, job, threads, batch))
    while (found := await rows.run(lambda _: next(results, None))) is not None:
        applied = found if isinstance(found, Applied) else await asettle(rows, found, job)
        if on_progress is not None:
            on_progress(applied)
        yield applied
        changed += bool(applied.deleted)
        if sleep and applied.deleted and changed % batch == 0:
            await asyncio.sleep(sleep)


def _found(
    rows: RowAccess, job: Job, threads: Sequence[str] | None, batch: int
) -> Iterator[Applied | ThreadImage]:
    """What statements over sets have settled, and the images of the other threads, in order."""
    bulk = None if job.keys else lane(rows, job.terms)
    if bulk is None:
        yield from rows.images(threads, batch=batch)
        return
    for names in batches(bulk, threads, batch):
        done = apply_batch(bulk, names, job.terms, partial(invalidate, job.lifecycle))
        others = rows.images([name for name in names if name not in done], batch=batch)
        for name in names:
            yield done[name] if name in done else next(others)
