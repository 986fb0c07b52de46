"""Rules of the optional `fork_from_checkpoint`."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

from savermark.sandbox import errors
from savermark.sandbox.protocols import StoreCapability
from savermark.sandbox.records import (
    CheckpointReason,
    ForkRequest,
    ThreadRecordKind,
    Writer,
)
from savermark.sandbox.testkit.harness import (
    Bench,
    RuleBook,
    checkpoint,
    expect,
    expect_equal,
    file_blob,
    plain,
    refused,
)

RULES = RuleBook("fork", StoreCapability.FORK)
_RECORDS = StoreCapability.THREAD_RECORDS
_NOT_EMPTY = errors.SandboxCheckpointForkDestinationNotEmptyError
_LOST = errors.SandboxCheckpointWriterLostError


async def _source(bench: Bench) -> None:
    writer = await bench.writer("source")
    await bench.chain(writer, ["s1", "s2", "s3"], label="kept", source_run_id="run")
    await writer.release()


async def _request(bench: Bench, **fields: Any) -> ForkRequest:
    base = ForkRequest("source", "s2", "fork", "f1", 5_000.0, Writer("fork", "", 0))
    request = replace(base, **fields)
    if "writer" in fields:
        return request
    return replace(request, writer=await bench.writer(request.destination_thread_id))


async def _refuses(bench: Bench, request: ForkRequest, error: Any, why: str) -> None:
    await bench.refused(bench.store.fork_from_checkpoint(request), error, why)


@RULES.rule()
async def a_fork_copies_a_historical_checkpoint(bench: Bench) -> None:
    """The new root has the source's content, an id and time of its own, and no parent or label."""
    await _source(bench)
    before = plain(await bench.store.get("s2"))
    root = await bench.store.fork_from_checkpoint(await _request(bench))
    wanted = before | {
        "id": "f1",
        "thread_id": "fork",
        "created_at": 5_000.0,
        "parent": None,
        "reason": str(CheckpointReason.FORK_ROOT),
        "label": None,
        "source_run_id": None,
    }
    expect_equal(plain(root), wanted, "the returned root")
    expect_equal(plain(await bench.store.get("f1")), wanted, "get of the root")
    expect_equal(await bench.store.get_head("fork"), "f1", "head of the fork")
    expect_equal(await bench.listed("fork"), ["f1"], "list of the fork")


@RULES.rule()
async def the_source_is_untouched(bench: Bench) -> None:
    """The source thread keeps its checkpoints and its head; shared blobs count once more."""
    await _source(bench)
    before = [plain(item) for item in await bench.store.list("source")]
    await bench.store.fork_from_checkpoint(await _request(bench))
    after = [plain(item) for item in await bench.store.list("source")]
    expect_equal(after, before, "list of the source")
    expect_equal(await bench.store.get_head("source"), "s3", "head of the source")
    counts = await bench.references()
    found = [counts.get(file_blob(item)) for item in ("s1", "s2", "s3")]
    expect_equal(found, [1, 2, 1], "reference counts")


@RULES.rule()
async def a_fork_goes_its_own_way(bench: Bench) -> None:
    """Both threads go on independently, and a fork outlives its source."""
    await _source(bench)
    request = await _request(bench)
    await bench.store.fork_from_checkpoint(request)
    await bench.add(checkpoint("f2", "fork", "f1"), request.writer)
    source = await bench.writer("source")
    for item in ("s3", "s2", "s1"):
        await bench.store.delete_head("source", item, writer=source)
    expect_equal(sorted(await bench.listed("fork")), ["f1", "f2"], "list of the fork")
    expect((await bench.references())[file_blob("s2")] == 1, "the fork still counts its blob")
    await bench.store.delete_head("fork", "f2", writer=request.writer)
    expect_equal(await bench.store.get_head("fork"), "f1", "head of the fork")


@RULES.rule()
async def bad_ids_are_refused(bench: Bench) -> None:
    """A bad id of either side raises INVALID_ID."""
    await _source(bench)
    good = await _request(bench)
    names = (
        "source_thread_id", "source_checkpoint_id", "destination_thread_id",
        "destination_checkpoint_id",
    )  # fmt: skip
    for name in names:
        for bad in ("", "\ud800", None):
            changes: dict[str, Any] = {name: bad}
            request = replace(good, **changes)
            invalid = errors.SandboxCheckpointInvalidIdError
            await _refuses(bench, request, invalid, f"{name} {bad!a}")


@RULES.rule()
async def times_are_finite_numbers(bench: Bench) -> None:
    """A time that is no finite number raises INVALID_ENTRY, before the source is looked at."""
    await _source(bench)
    good = await _request(bench, source_checkpoint_id="missing")
    times: tuple[Any, ...] = (math.nan, math.inf, None, "1")
    for bad in times:
        invalid = errors.SandboxCheckpointInvalidEntryError
        await _refuses(bench, replace(good, created_at=bad), invalid, f"created_at {bad!r}")


@RULES.rule()
async def a_thread_cannot_fork_into_itself(bench: Bench) -> None:
    """One thread as source and destination raises SOURCE_THREAD_MISMATCH."""
    await _source(bench)
    request = await _request(bench, destination_thread_id="source", source_checkpoint_id="none")
    mismatch = errors.SandboxCheckpointForkSourceThreadMismatchError
    await _refuses(bench, request, mismatch, "one thread, and a missing source")


@RULES.rule()
async def a_missing_source_is_refused(bench: Bench) -> None:
    """A source that does not exist raises SOURCE_NOT_FOUND, before the writer is looked at."""
    await _source(bench)
    wrong = Writer("fork", "guess", 1)
    missing = errors.SandboxCheckpointForkSourceNotFoundError
    for writer in ({}, {"writer": wrong}):
        request = await _request(bench, source_checkpoint_id="missing", **writer)
        await _refuses(bench, request, missing, "a missing source")


@RULES.rule()
async def a_source_of_another_thread_is_refused(bench: Bench) -> None:
    """A source of another thread raises SOURCE_THREAD_MISMATCH, before the writer is looked at."""
    await _source(bench)
    await bench.add(checkpoint("o1", "other"), await bench.writer("other"))
    mismatch = errors.SandboxCheckpointForkSourceThreadMismatchError
    for fields in ({"source_checkpoint_id": "o1"}, {"source_thread_id": "nobody"}):
        request = await _request(bench, writer=Writer("fork", "guess", 1), **fields)
        await _refuses(bench, request, mismatch, f"a source with {fields}")


@RULES.rule()
async def the_destination_lease_is_needed(bench: Bench) -> None:
    """A missing, foreign, guessed or expired writer raises WRITER_LOST."""
    await _source(bench)
    good = await _request(bench)
    source = await bench.writer("source")
    writers: tuple[tuple[str, Any], ...] = (
        ("a missing writer", None),
        ("the source's writer", source),
        ("a guessed token", Writer("fork", "guess", good.writer.fence)),
        ("a wrong fence", Writer("fork", good.writer.owner_token, good.writer.fence + 1)),
    )
    for why, writer in writers:
        await _refuses(bench, replace(good, writer=writer), _LOST, why)
    bench.clock.advance(bench.lease.duration_ms)
    await _refuses(bench, good, _LOST, "an expired lease")
    newer = await bench.writer("fork")
    await _refuses(bench, good, _LOST, "a replaced lease")
    await bench.store.fork_from_checkpoint(replace(good, writer=newer))


@RULES.rule()
async def a_used_thread_is_no_destination(bench: Bench) -> None:
    """A destination with a checkpoint raises DESTINATION_NOT_EMPTY, after the writer's check."""
    await _source(bench)
    request = await _request(bench)
    await bench.add(checkpoint("old", "fork"), request.writer)
    await _refuses(bench, request, _NOT_EMPTY, "a thread with a checkpoint")
    lost = replace(request, writer=Writer("fork", "guess", 1))
    await _refuses(bench, lost, _LOST, "a lost writer and a used thread")


@RULES.rule()
async def a_used_id_is_no_destination(bench: Bench) -> None:
    """A destination checkpoint id of any thread raises DESTINATION_NOT_EMPTY."""
    await _source(bench)
    await bench.add(checkpoint("o1", "other"), await bench.writer("other"))
    request = await _request(bench)
    for used in ("o1", "s1", "s2"):
        again = replace(request, destination_checkpoint_id=used)
        await _refuses(bench, again, _NOT_EMPTY, f"the used id {used}")
    await bench.store.fork_from_checkpoint(request)
    expect_equal(await bench.listed("fork"), ["f1"], "list after the retry")


@RULES.rule(_RECORDS)
async def the_transcript_is_the_checkpoints(bench: Bench) -> None:
    """The fork's transcript is the checkpoint's conversation, not the source's current one."""
    await _source(bench)
    await bench.store.save_transcript("source", [{"content": "later"}])
    wanted = list((await bench.store.get("s2")).conversation)
    await bench.store.fork_from_checkpoint(await _request(bench))
    expect_equal(list(await bench.store.get_transcript("fork") or []), wanted, "the transcript")
    kept = await bench.store.get_transcript("source")
    expect_equal(list(kept or []), [{"content": "later"}], "the source's transcript")


@RULES.rule(_RECORDS)
async def any_thread_record_makes_it_used(bench: Bench) -> None:
    """A transcript, be it empty, a run, generation, interrupt or artifact makes a thread used."""
    await _source(bench)
    await bench.store.save_transcript("t-empty", [])
    threads = ["t-empty"]
    for kind in ThreadRecordKind:
        if kind is not ThreadRecordKind.TRANSCRIPT:
            threads.append(f"t-{kind}")
            await bench.store.save_thread_record(threads[-1], kind, "1")
    for thread in threads:
        request = await _request(bench, destination_thread_id=thread)
        await _refuses(bench, request, _NOT_EMPTY, f"thread {thread}")


@RULES.rule()
async def one_of_concurrent_forks_wins(bench: Bench) -> None:
    """Of forks to one destination at one time exactly one is stored."""
    await _source(bench)
    request = await _request(bench)
    tries = [replace(request, destination_checkpoint_id=f"f{at}") for at in range(6)]
    forks = (bench.store.fork_from_checkpoint(item) for item in tries)
    done = await asyncio.gather(*forks, return_exceptions=True)
    codes = [getattr(item, "code", None) for item in done]
    expect_equal(codes.count(None), 1, "forks that won")
    expect_equal(codes.count(_NOT_EMPTY.code), 5, "forks that found the destination used")
    expect_equal(len(await bench.listed("fork")), 1, "checkpoints of the destination")


@RULES.rule()
async def a_failed_fork_can_be_tried_again(bench: Bench) -> None:
    """A refused fork leaves the destination empty, and the next one succeeds."""
    await _source(bench)
    request = await _request(bench)
    bad = replace(request, source_checkpoint_id="missing")
    missing = errors.SandboxCheckpointForkSourceNotFoundError
    await refused(bench.store.fork_from_checkpoint(bad), missing, "a missing source")
    expect_equal(await bench.listed("fork"), [], "list after a refused fork")
    expect_equal(await bench.store.get_head("fork"), None, "head after a refused fork")
    await bench.store.fork_from_checkpoint(request)
    expect_equal(await bench.listed("fork"), ["f1"], "list after the retry")
