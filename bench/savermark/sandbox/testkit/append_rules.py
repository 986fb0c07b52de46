"""Rules of the writes that move a head: append with its order of checks, and delete_head."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from savermark.sandbox import errors
from savermark.sandbox.records import Writer
from savermark.sandbox.testkit.harness import (
    Bench,
    RuleBook,
    checkpoint,
    expect,
    expect_equal,
    file,
    file_blob,
    refused,
)

RULES = RuleBook("write")


@RULES.rule()
async def stale_head_is_refused(bench: Bench) -> None:
    """Append raises STALE_HEAD when the head is not the expected one, null included."""
    writer = await bench.writer()
    append, stale = bench.store.append, errors.SandboxCheckpointConflictError
    early = checkpoint("x", parent="ghost")
    await bench.refused(
        append(early, expected_head_id="ghost", writer=writer), stale, "a head on an empty thread"
    )
    await bench.chain(writer, ["root", "child"])
    for head in (None, "root", "ghost"):
        late = checkpoint("x", parent=head)
        await bench.refused(
            append(late, expected_head_id=head, writer=writer), stale, f"expected {head}"
        )


@RULES.rule()
async def parent_mismatch_is_refused(bench: Bench) -> None:
    """Append raises PARENT_MISMATCH when the head is right and the parent is another."""
    writer, wrong = await bench.writer(), errors.SandboxCheckpointParentMismatchError
    append = bench.store.append
    await bench.refused(
        append(checkpoint("x", parent="ghost"), expected_head_id=None, writer=writer),
        wrong,
        "a root with a parent",
    )
    await bench.chain(writer, ["root", "child"])
    for parent in (None, "root", "ghost"):
        await bench.refused(
            append(checkpoint("x", parent=parent), expected_head_id="child", writer=writer),
            wrong,
            f"parent {parent}",
        )


@RULES.rule()
async def head_is_checked_before_parent(bench: Bench) -> None:
    """With a stale head and a wrong parent, append raises STALE_HEAD."""
    writer = await bench.writer()
    await bench.chain(writer, ["root"])
    await bench.refused(
        bench.store.append(checkpoint("x", parent="ghost"), expected_head_id=None, writer=writer),
        errors.SandboxCheckpointConflictError,
        "stale head and wrong parent",
    )


@RULES.rule()
async def ids_are_unique_in_a_thread(bench: Bench) -> None:
    """Append raises DUPLICATE_ID for an id of the same thread."""
    writer = await bench.writer()
    await bench.chain(writer, ["root", "child"])
    for item in ("root", "child"):
        await bench.refused(
            bench.add(checkpoint(item, parent="child"), writer),
            errors.SandboxCheckpointDuplicateIdError,
            f"id {item} again",
        )


@RULES.rule()
async def ids_are_unique_over_all_threads(bench: Bench) -> None:
    """Append raises DUPLICATE_ID for an id of another thread."""
    await bench.chain(await bench.writer("one"), ["root"])
    await bench.refused(
        bench.add(checkpoint("root", "two"), await bench.writer("two")),
        errors.SandboxCheckpointDuplicateIdError,
        "the id of another thread",
    )
    expect_equal((await bench.store.get("root")).thread_id, "one", "the thread of the id")


@RULES.rule()
async def id_is_checked_before_head(bench: Bench) -> None:
    """With a used id and a stale head, append raises DUPLICATE_ID."""
    writer = await bench.writer()
    await bench.chain(writer, ["root", "child"])
    await bench.refused(
        bench.store.append(checkpoint("root"), expected_head_id=None, writer=writer),
        errors.SandboxCheckpointDuplicateIdError,
        "used id and stale head",
    )


@RULES.rule()
async def writer_is_checked_before_id(bench: Bench) -> None:
    """With a lost writer and a used id, append raises WRITER_LOST."""
    writer = await bench.writer()
    await bench.chain(writer, ["root"])
    await writer.release()
    await bench.refused(
        bench.add(checkpoint("root", parent="root"), writer),
        errors.SandboxCheckpointWriterLostError,
        "lost writer and used id",
    )


@RULES.rule()
async def content_is_checked_before_writer(bench: Bench) -> None:
    """With bad content and an expired lease of the thread, append raises INVALID_ENTRY."""
    writer = await bench.writer()
    bench.clock.advance(bench.lease.duration_ms)
    await bench.refused(
        bench.add(checkpoint("x", files=[file("/absolute")]), writer),
        errors.SandboxCheckpointInvalidEntryError,
        "bad path and expired lease",
    )


@RULES.rule()
async def ids_are_checked_before_content(bench: Bench) -> None:
    """With a bad id and bad content, append raises INVALID_ID."""
    writer = await bench.writer()
    await bench.refused(
        bench.add(checkpoint("", files=[file("/absolute")]), writer),
        errors.SandboxCheckpointInvalidIdError,
        "bad id and bad path",
    )


BAD_IDS: tuple[Any, ...] = ("", "\ud800", "a\udc00b", None, 5)


@RULES.rule()
async def bad_ids_are_refused_by_append(bench: Bench) -> None:
    """Append raises INVALID_ID for a bad checkpoint, thread, parent or expected head id."""
    writer = await bench.writer()
    good = checkpoint("x")
    for bad in BAD_IDS:
        tries = [(replace(good, id=bad), None), (replace(good, thread_id=bad), None)]
        if bad is not None:
            tries += [(replace(good, parent_checkpoint_id=bad), None), (good, bad)]
        for given, head in tries:
            await bench.refused(
                bench.store.append(given, expected_head_id=head, writer=writer),
                errors.SandboxCheckpointInvalidIdError,
                f"id {bad!a}",
            )


@RULES.rule()
async def bad_ids_are_refused_elsewhere(bench: Bench) -> None:
    """Get, list, get_head, acquire_writer and delete_head raise INVALID_ID for a bad id."""
    store, writer = bench.store, await bench.writer()
    for bad in BAD_IDS:
        for what, call in (
            ("get", store.get(bad)),
            ("list", store.list(bad)),
            ("get_head", store.get_head(bad)),
            ("acquire_writer", store.acquire_writer(bad)),
            ("delete_head", store.delete_head(bad, "x", writer=writer)),
            ("delete_head", store.delete_head("thread", bad, writer=writer)),
        ):
            why = f"{what} of {bad!a}"
            await refused(call, errors.SandboxCheckpointInvalidIdError, why)


@RULES.rule()
async def delete_head_moves_to_the_parent(bench: Bench) -> None:
    """Delete_head removes the head, then its parent, down to an empty thread."""
    writer = await bench.writer()
    await bench.chain(writer, ["a", "b", "c"])
    for gone, left in (("c", ["a", "b"]), ("b", ["a"]), ("a", [])):
        await bench.store.delete_head("thread", gone, writer=writer)
        expect_equal(await bench.listed(), left, f"list after deleting {gone}")
        head = left[-1] if left else None
        expect_equal(await bench.store.get_head("thread"), head, f"head after deleting {gone}")
        expect_equal(await bench.store.get(gone), None, f"get of the deleted {gone}")
    expect_equal(await bench.references(), {}, "references of the emptied thread")
    await bench.add(checkpoint("new-root"), writer)
    expect_equal(await bench.listed(), ["new-root"], "list after a new root")


@RULES.rule()
async def only_the_head_can_be_deleted(bench: Bench) -> None:
    """Delete_head raises NOT_HEAD for an older, unknown or foreign checkpoint."""
    writer, other = await bench.writer(), await bench.writer("other")
    not_head = errors.SandboxCheckpointNotHeadError
    delete = bench.store.delete_head
    await bench.refused(delete("thread", "x", writer=writer), not_head, "an empty thread")
    await bench.chain(writer, ["root", "child"])
    await bench.chain(other, ["foreign"])
    for item in ("root", "unknown", "foreign"):
        await bench.refused(delete("thread", item, writer=writer), not_head, f"deleting {item}")


@RULES.rule()
async def a_foreign_writer_is_refused(bench: Bench) -> None:
    """The writer must be of the thread that is written, with the token and fence of its lease."""
    writer, other = await bench.writer(), await bench.writer("other")
    await bench.chain(writer, ["root"])
    wrong = (
        other,
        Writer("thread", other.owner_token, writer.fence),
        Writer("thread", "guess", writer.fence),
        Writer("thread", writer.owner_token, writer.fence + 1),
        Writer("thread", writer.owner_token, writer.fence - 1),
        Writer("other", writer.owner_token, writer.fence),
    )
    lost = errors.SandboxCheckpointWriterLostError
    for bad in wrong:
        await bench.refused(bench.add(checkpoint("x", parent="root"), bad), lost, "append")
        delete = bench.store.delete_head("thread", "root", writer=bad)
        await bench.refused(delete, lost, "delete_head")
    same = Writer("thread", writer.owner_token, writer.fence)
    expect_equal(await bench.add(checkpoint("x", parent="root"), same), "x", "a copy of the lease")


@RULES.rule()
async def an_unleased_thread_refuses_writes(bench: Bench) -> None:
    """A thread whose lease was never taken accepts no writer."""
    await bench.refused(
        bench.add(checkpoint("x"), Writer("thread", "guess", 0)),
        errors.SandboxCheckpointWriterLostError,
        "append without a lease",
    )


@RULES.rule()
async def one_of_concurrent_appends_wins(bench: Bench) -> None:
    """Of appends to one head at one time exactly one is stored, the rest raise STALE_HEAD."""
    writer = await bench.writer()
    await bench.chain(writer, ["root"])
    tries = [bench.add(checkpoint(f"c{at}", parent="root"), writer) for at in range(8)]
    done = await asyncio.gather(*tries, return_exceptions=True)
    won = [item for item in done if isinstance(item, str)]
    codes = {getattr(item, "code", repr(item)) for item in done if not isinstance(item, str)}
    expect_equal(len(won), 1, "appends that won")
    expect_equal(codes, {errors.SandboxCheckpointConflictError.code}, "what the others raised")
    expect_equal(sorted(await bench.listed()), sorted(["root", *won]), "list")
    expect_equal(await bench.store.get_head("thread"), won[0], "head")


@RULES.rule()
async def one_of_concurrent_ids_wins(bench: Bench) -> None:
    """Of appends of one id to many threads exactly one is stored, the rest raise DUPLICATE_ID."""
    writers = [await bench.writer(f"t{at}") for at in range(8)]
    tries = [bench.add(checkpoint("same", writer.thread_id), writer) for writer in writers]
    done = await asyncio.gather(*tries, return_exceptions=True)
    codes = [getattr(item, "code", repr(item)) for item in done if not isinstance(item, str)]
    wanted = [errors.SandboxCheckpointDuplicateIdError.code] * 7
    expect_equal(codes, wanted, "what the others raised")
    stored = [writer.thread_id for writer in writers if await bench.listed(writer.thread_id)]
    expect_equal(stored, [(await bench.store.get("same")).thread_id], "threads that hold the id")
    counts = await bench.references()
    expect(counts.get(file_blob("same")) == 1, f"one reference, got {counts!r:.200}")
