"""Rules of the writer lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from savermark.sandbox import errors
from savermark.sandbox.protocols import WriterLease, store_capabilities
from savermark.sandbox.testkit.harness import (
    Bench,
    RuleBook,
    checkpoint,
    expect,
    expect_equal,
    refused,
)

RULES = RuleBook("lease")

_LOST = errors.SandboxCheckpointWriterLostError
_CONFLICT = errors.SandboxCheckpointWriterConflictError


@RULES.rule()
async def a_lease_has_its_times(bench: Bench) -> None:
    """A lease ends at now plus the duration, and asks to be renewed before that."""
    lease = await bench.writer()
    expect_equal(lease.thread_id, "thread", "thread of the lease")
    wanted = bench.clock.now + bench.lease.duration_ms
    expect_equal(lease.expires_at, wanted, "expires_at")
    expect_equal(lease.renew_after_ms, bench.lease.renew_after_ms, "renew_after_ms")
    expect(bool(lease.owner_token), "the lease has an owner token")


@RULES.rule()
async def an_active_lease_excludes_others(bench: Bench) -> None:
    """Acquire raises WRITER_CONFLICT, without waiting, until the lease ends."""
    first = await bench.writer()
    for ms in (0, bench.lease.duration_ms - 1):
        bench.clock.now = first.expires_at - bench.lease.duration_ms + ms
        await refused(bench.writer(), _CONFLICT, f"a second lease {ms} ms after the first")
    expect_equal(await bench.add(checkpoint("c"), first), "c", "the first holder's append")


@RULES.rule()
async def leases_of_threads_are_independent(bench: Bench) -> None:
    """A lease of one thread leaves the others free."""
    one, two = await bench.writer("one"), await bench.writer("two")
    expect(one.owner_token != two.owner_token, "the tokens differ")
    await one.release()
    await refused(bench.writer("two"), _CONFLICT, "thread two after the release of one")
    await bench.add(checkpoint("c", "two"), two)


@RULES.rule()
async def an_expired_lease_can_be_taken(bench: Bench) -> None:
    """At expires_at the lease has ended and another may be had."""
    first = await bench.writer()
    bench.clock.now = first.expires_at
    second = await bench.writer()
    expect(second.owner_token != first.owner_token, "the new lease has a token of its own")
    expect(second.fence > first.fence, "the fence rises")
    expect_equal(second.expires_at, bench.clock.now + bench.lease.duration_ms, "expires_at")


@RULES.rule()
async def fences_rise_with_every_lease(bench: Bench) -> None:
    """Each lease of a thread has a higher fence and a new token, also after a release."""
    fences, tokens = [], set()
    for turn in range(4):
        lease = await bench.writer()
        fences.append(lease.fence)
        tokens.add(lease.owner_token)
        if turn % 2:
            bench.clock.advance(bench.lease.duration_ms)
        else:
            await lease.release()
    expect_equal(fences, sorted(set(fences)), "fences")
    expect_equal(len(tokens), 4, "distinct tokens")


@RULES.rule()
async def fences_survive_an_emptied_thread(bench: Bench) -> None:
    """The fence still rises when the thread's checkpoints are all gone."""
    first = await bench.writer()
    await bench.add(checkpoint("c"), first)
    await bench.store.delete_head("thread", "c", writer=first)
    await first.release()
    expect((await bench.writer()).fence > first.fence, "the fence after the thread was emptied")


@RULES.rule()
async def one_of_concurrent_acquires_wins(bench: Bench) -> None:
    """Of acquires at one time exactly one gets the lease, the rest raise WRITER_CONFLICT."""
    done = await asyncio.gather(*(bench.writer() for _ in range(8)), return_exceptions=True)
    codes = [getattr(e, "code", repr(e)) for e in done if isinstance(e, BaseException)]
    expect_equal(codes, [_CONFLICT.code] * 7, "what the others raised")


@RULES.rule()
async def renew_extends_from_now(bench: Bench) -> None:
    """Renew moves expires_at to now plus the duration, and the lease shows it."""
    lease = await bench.writer()
    end = lease.expires_at
    bench.clock.advance(bench.lease.renew_after_ms)
    await lease.renew()
    expect_equal(lease.expires_at, end + bench.lease.renew_after_ms, "expires_at after renew")
    bench.clock.now = end
    await refused(bench.writer(), _CONFLICT, "a second lease at the first expiry of a renewed one")
    expect_equal(await bench.add(checkpoint("c"), lease), "c", "append after the first expiry")
    bench.clock.now = lease.expires_at
    await bench.refused(bench.add(checkpoint("d", parent="c"), lease), _LOST, "after the second")


@RULES.rule()
async def a_lost_lease_cannot_be_renewed(bench: Bench) -> None:
    """Renew raises WRITER_LOST when the lease expired, was released or was replaced."""
    expired = await bench.writer("expired")
    bench.clock.now = expired.expires_at
    await refused(expired.renew(), _LOST, "renew at the expiry")
    replaced = await bench.writer()
    bench.clock.now = replaced.expires_at
    newer = await bench.writer()
    await refused(replaced.renew(), _LOST, "renew of a replaced lease")
    await newer.release()
    await refused(newer.renew(), _LOST, "renew of a released lease")
    await refused(replaced.renew(), _LOST, "renew of a replaced lease after a release")


@RULES.rule()
async def release_frees_the_thread(bench: Bench) -> None:
    """After release the thread can be taken at once, and releasing again is harmless."""
    first = await bench.writer()
    await first.release()
    await bench.refused(bench.add(checkpoint("c"), first), _LOST, "append after release")
    second = await bench.writer()
    await first.release()
    await refused(bench.writer(), _CONFLICT, "a third lease after the first was released again")
    expect_equal(await bench.add(checkpoint("c"), second), "c", "the new holder's append")


@RULES.rule()
async def a_stale_release_is_harmless(bench: Bench) -> None:
    """Release of an expired or replaced lease disturbs no one and never raises."""
    first = await bench.writer()
    bench.clock.now = first.expires_at
    second = await bench.writer()
    await first.release()
    await refused(bench.writer(), _CONFLICT, "a third lease after a stale release")
    expect_equal(await bench.add(checkpoint("c"), second), "c", "the new holder's append")
    bench.clock.now = second.expires_at
    await second.release()
    await second.release()
    expect((await bench.writer()).fence > second.fence, "the fence after the releases")


def _writes(bench: Bench, lease: WriterLease) -> dict[str, Callable[[], Any]]:
    store = bench.store
    calls: dict[str, Callable[[], Any]] = {
        "append": lambda: bench.add(checkpoint("x", parent="child"), lease),
        "delete_head": lambda: store.delete_head("thread", "child", writer=lease),
        "renew": lease.renew,
    }
    if "delete_checkpoints" in store_capabilities(store):
        calls["delete_checkpoints"] = lambda: store.delete_checkpoints(
            "thread", keep=1, writer=lease
        )
    return calls


@RULES.rule()
async def a_stale_holder_cannot_write(bench: Bench) -> None:
    """After its lease expired, and after another took over, a holder can change nothing."""
    first = await bench.writer()
    await bench.chain(first, ["root", "child"])
    bench.clock.now = first.expires_at
    for what, call in _writes(bench, first).items():
        await bench.refused(call(), _LOST, f"{what} with an expired lease")
    second = await bench.writer()
    for what, call in _writes(bench, first).items():
        await bench.refused(call(), _LOST, f"{what} after a takeover")
    await second.release()
    for what, call in _writes(bench, first).items():
        await bench.refused(call(), _LOST, f"{what} after the successor's release")


@RULES.rule()
async def a_write_needs_time_left(bench: Bench) -> None:
    """A write one millisecond before the expiry goes through, one at the expiry does not."""
    lease = await bench.writer()
    bench.clock.now = lease.expires_at - 1
    await bench.add(checkpoint("c"), lease)
    bench.clock.now = lease.expires_at
    await bench.refused(bench.add(checkpoint("d", parent="c"), lease), _LOST, "at the expiry")
