"""Rules of the optional `delete_checkpoints`."""

from __future__ import annotations

import math
from typing import Any

from savermark.sandbox import errors
from savermark.sandbox.protocols import StoreCapability
from savermark.sandbox.records import Writer
from savermark.sandbox.testkit.harness import (
    Bench,
    RuleBook,
    SkipRuleError,
    checkpoint,
    expect_equal,
    file,
    file_blob,
    plain,
)

RULES = RuleBook("prune", StoreCapability.DELETE_CHECKPOINTS)


async def _prune(bench: Bench, keep: Any, writer: Any, thread: str = "thread") -> list[str]:
    return list((await bench.store.delete_checkpoints(thread, keep=keep, writer=writer)).deleted)


@RULES.rule()
async def the_newest_of_the_chain_stay(bench: Bench) -> None:
    """The head and the newest before it stay; the removed ids come oldest first."""
    writer = await bench.writer()
    await bench.chain(writer, ["e", "d", "c", "b", "a"])
    expect_equal(await _prune(bench, 2, writer), ["e", "d", "c"], "removed ids")
    expect_equal(await bench.listed(), ["b", "a"], "list")
    expect_equal(await bench.store.get_head("thread"), "a", "head")
    expect_equal(await bench.store.get("c"), None, "get of a removed checkpoint")


@RULES.rule()
async def newest_follows_the_chain_not_the_clock(bench: Bench) -> None:
    """With times that fall along the chain, the newest of the chain still stay."""
    writer = await bench.writer()
    parent: str | None = None
    for at, item in enumerate("abcd"):
        parent = await bench.add(checkpoint(item, parent=parent, created_at=100.0 - at), writer)
    expect_equal(await _prune(bench, 2, writer), ["a", "b"], "removed ids")
    expect_equal(sorted(await bench.listed()), ["c", "d"], "list")


@RULES.rule()
async def nothing_to_remove(bench: Bench) -> None:
    """A chain that is not longer than `keep`, and an empty thread, lose nothing."""
    writer = await bench.writer()
    expect_equal(await _prune(bench, 1, writer), [], "removed ids of an empty thread")
    await bench.chain(writer, ["a", "b"])
    for keep in (2, 3, 2**53 - 1):
        expect_equal(await _prune(bench, keep, writer), [], f"removed ids at keep {keep}")
    expect_equal(await bench.listed(), ["a", "b"], "list")


@RULES.rule()
async def keep_is_a_safe_integer(bench: Bench) -> None:
    """A `keep` that is no integer of 1 or more raises INVALID_ENTRY."""
    writer = await bench.writer()
    await bench.chain(writer, ["a", "b"])
    values: tuple[Any, ...] = (0, -1, 1.5, math.nan, math.inf, 2**53, None, "1", True)
    for keep in values:
        call = bench.store.delete_checkpoints("thread", keep=keep, writer=writer)
        await bench.refused(call, errors.SandboxCheckpointInvalidEntryError, f"keep {keep!r}")


@RULES.rule()
async def the_lease_is_needed(bench: Bench) -> None:
    """Without the current lease of the thread it raises WRITER_LOST."""
    writer, other = await bench.writer(), await bench.writer("other")
    await bench.chain(writer, ["a", "b"])
    lost = errors.SandboxCheckpointWriterLostError
    for bad in (other, Writer("thread", "guess", writer.fence)):
        call = bench.store.delete_checkpoints("thread", keep=1, writer=bad)
        await bench.refused(call, lost, "a foreign writer")
    bench.clock.now = writer.expires_at
    call = bench.store.delete_checkpoints("thread", keep=1, writer=writer)
    await bench.refused(call, lost, "an expired lease")


@RULES.rule()
async def bad_ids_are_refused(bench: Bench) -> None:
    """A bad thread id raises INVALID_ID."""
    writer = await bench.writer()
    for bad in ("", "\ud800", None):
        call = bench.store.delete_checkpoints(bad, keep=1, writer=writer)
        await bench.refused(call, errors.SandboxCheckpointInvalidIdError, f"thread {bad!a}")


@RULES.rule()
async def counts_go_down(bench: Bench) -> None:
    """Each removed checkpoint subtracts one from each of its distinct keys."""
    writer = await bench.writer()
    parent: str | None = None
    for item in "abcd":
        files = [file("x", "shared"), file("y", "shared"), file("z", f"own-{item}")]
        given = checkpoint(item, parent=parent, files=files, artifacts=[])
        parent = await bench.add(given, writer)
    await _prune(bench, 2, writer)
    wanted = {file_blob("shared"): 2, file_blob("own-c"): 1, file_blob("own-d"): 1}
    expect_equal(await bench.references(), wanted, "references")


@RULES.rule()
async def kept_checkpoints_do_not_change(bench: Bench) -> None:
    """What stays reads back as before, the parent id of the oldest included."""
    writer = await bench.writer()
    await bench.chain(writer, ["a", "b", "c"])
    before = [plain(await bench.store.get(item)) for item in ("b", "c")]
    await _prune(bench, 2, writer)
    after = [plain(await bench.store.get(item)) for item in ("b", "c")]
    expect_equal(after, before, "the kept checkpoints")


@RULES.rule()
async def a_pruned_chain_goes_on(bench: Bench) -> None:
    """A pruned chain can be appended to, pruned again, and emptied by delete_head."""
    writer = await bench.writer()
    await bench.chain(writer, ["a", "b", "c"])
    await _prune(bench, 2, writer)
    await bench.add(checkpoint("d", parent="c"), writer)
    expect_equal(await _prune(bench, 2, writer), ["b"], "removed ids of the second prune")
    await bench.store.delete_head("thread", "d", writer=writer)
    expect_equal(await bench.store.get_head("thread"), "c", "head after delete_head")
    await bench.store.delete_head("thread", "c", writer=writer)
    expect_equal(await bench.store.get_head("thread"), None, "head when the parent was pruned")
    expect_equal(await bench.references(), {}, "references of the emptied thread")
    await bench.add(checkpoint("new"), writer)
    expect_equal(await bench.listed(), ["new"], "list after a new root")


@RULES.rule()
async def other_threads_stay(bench: Bench) -> None:
    """Other threads lose nothing, even where they share blobs."""
    one, two = await bench.writer("one"), await bench.writer("two")
    files = [file("x", "shared")]
    await bench.chain(one, ["a1", "a2"], files=files, artifacts=[])
    await bench.chain(two, ["b1", "b2"], files=files, artifacts=[])
    expect_equal(await _prune(bench, 1, one, "one"), ["a1"], "removed ids")
    expect_equal(await bench.listed("two"), ["b1", "b2"], "list of the other thread")
    expect_equal(await bench.references(), {file_blob("shared"): 3}, "references")


@RULES.rule()
async def checkpoints_off_the_chain_stay(bench: Bench) -> None:
    """A checkpoint that the head does not lead to stays, its blobs counted."""
    if bench.plant is None:
        raise SkipRuleError("no way was given to plant a checkpoint off the head chain")
    writer = await bench.writer()
    await bench.chain(writer, ["a", "b", "c"], artifacts=[])
    off = checkpoint("off", parent="a", created_at=1.0, artifacts=[])
    await bench.plant(bench.store, off)
    expect_equal(await bench.listed(), ["off", "a", "b", "c"], "list with one off the chain")
    expect_equal(await _prune(bench, 1, writer), ["a", "b"], "removed ids")
    expect_equal(await bench.listed(), ["off", "c"], "list after the prune")
    expect_equal(set(await bench.references()), {file_blob("off"), file_blob("c")}, "references")
