"""Rules of the blob counts, and of the sweep that trusts them."""

from __future__ import annotations

import math
from typing import Any

from savermark.sandbox import errors
from savermark.sandbox.blobs import MemoryBlobStore
from savermark.sandbox.protocols import StoreCapability, keep_newest
from savermark.sandbox.records import DirectoryEntry
from savermark.sandbox.sweep import sweep_sandbox_blobs
from savermark.sandbox.testkit.harness import (
    Bench,
    ConformanceError,
    RuleBook,
    artifact,
    artifact_blob,
    checkpoint,
    expect_equal,
    file,
    file_blob,
)

RULES = RuleBook("blobs")
SWEEP = RuleBook("sweep")


@RULES.rule()
async def a_repeated_key_counts_once(bench: Bench) -> None:
    """A checkpoint counts once for each distinct key of its files and artifacts."""
    files = [file("a", "k"), file("b", "k"), file("c", "other"), DirectoryEntry("d")]
    artifacts = [artifact("1", "k"), artifact("2", "k")]
    await bench.add(checkpoint("c", files=files, artifacts=artifacts), await bench.writer())
    wanted = {artifact_blob("k"): 1, file_blob("k"): 1, file_blob("other"): 1}
    expect_equal(await bench.references(), wanted, "references")


@RULES.rule()
async def no_blobs_no_references(bench: Bench) -> None:
    """A checkpoint without files and artifacts counts nothing."""
    empty = checkpoint("c", files=[DirectoryEntry("d")], artifacts=[])
    await bench.add(empty, await bench.writer())
    expect_equal(await bench.references(), {}, "references")


@RULES.rule()
async def shared_keys_are_counted_over_threads(bench: Bench) -> None:
    """A key counts once for each checkpoint that uses it, over all threads."""
    one, two = await bench.writer("one"), await bench.writer("two")
    files = [file("a", "shared")]
    await bench.chain(one, ["a1", "a2"], files=files, artifacts=[])
    await bench.chain(two, ["b1"], files=files, artifacts=[])
    key = file_blob("shared")
    expect_equal(await bench.references(), {key: 3}, "references of three checkpoints")
    await bench.store.delete_head("one", "a2", writer=one)
    expect_equal(await bench.references(), {key: 2}, "references after one delete")
    await bench.store.delete_head("two", "b1", writer=two)
    expect_equal(await bench.references(), {key: 1}, "references after two deletes")
    await bench.store.delete_head("one", "a1", writer=one)
    expect_equal(await bench.references(), {}, "references after all deletes")
    await bench.add(checkpoint("a3", "one", files=files, artifacts=[]), one)
    expect_equal(await bench.references(), {key: 1}, "references after a new use")


@RULES.rule()
async def delete_head_uncounts_distinct_keys(bench: Bench) -> None:
    """Delete_head subtracts one for each distinct key, and leaves the other keys alone."""
    writer = await bench.writer()
    await bench.add(checkpoint("a", files=[file("x", "1"), file("y", "2")]), writer)
    files = [file("x", "1"), file("y", "1"), file("z", "3")]
    await bench.add(checkpoint("b", parent="a", files=files), writer)
    expect_equal((await bench.references())[file_blob("1")], 2, "count of the shared key")
    await bench.store.delete_head("thread", "b", writer=writer)
    wanted = {artifact_blob("a"): 1, file_blob("1"): 1, file_blob("2"): 1}
    expect_equal(await bench.references(), wanted, "references after delete_head")


@RULES.rule()
async def references_sort_by_utf8_bytes(bench: Bench) -> None:
    """All references are listed, once each, by the UTF-8 bytes of the key."""
    files = [file(f"f{at}", f"f{at}") for at in range(2_500)]
    artifacts = [artifact(f"a{at}", f"a{at}") for at in range(30)]
    await bench.add(checkpoint("c", files=files, artifacts=artifacts), await bench.writer())
    wanted = sorted([item.blob_key for item in files] + [item.blob_key for item in artifacts])
    found = [item.key for item in await bench.reference_list()]
    expect_equal(len(found), len(wanted), "the number of references")
    expect_equal(found, wanted, "references in order")


@RULES.rule()
async def a_refused_append_counts_nothing(bench: Bench) -> None:
    """An append that raises leaves the counts as they were."""
    writer = await bench.writer()
    await bench.chain(writer, ["root"])
    before = await bench.references()
    for given in (checkpoint("x"), checkpoint("root", parent="root")):
        try:
            await bench.add(given, writer)
        except errors.SandboxCheckpointError:
            continue
        raise ConformanceError("a bad append was accepted")
    expect_equal(await bench.references(), before, "references after refused appends")


class _ListAndDelete:
    """A blob store that can only list and delete, and notes what was deleted."""

    def __init__(self, blobs: MemoryBlobStore) -> None:
        self._blobs = blobs
        self.deleted: list[str] = []

    def list(self, prefix: str) -> Any:
        return self._blobs.list(prefix)

    async def delete(self, key: str) -> None:
        self.deleted.append(key)
        await self._blobs.delete(key)


async def _sweep(bench: Bench, keys: dict[str, float], older_than_ms: float) -> list[str]:
    blobs = MemoryBlobStore(clock=bench.clock)
    now = bench.clock.now
    for key, age in keys.items():
        bench.clock.now = now - age
        await blobs.put(key, b"x")
    bench.clock.now = now
    swept = _ListAndDelete(blobs)
    gone = await sweep_sandbox_blobs(
        checkpoints=bench.store, blobs=swept, older_than_ms=older_than_ms, clock=bench.clock
    )
    expect_equal(sorted(gone), sorted(swept.deleted), "returned and deleted keys")
    return sorted(gone)


@SWEEP.rule()
async def used_blobs_stay(bench: Bench) -> None:
    """The sweep keeps every blob that a checkpoint uses and deletes the others."""
    await bench.add(checkpoint("c"), await bench.writer())
    used = {file_blob("c"): 500.0, artifact_blob("c"): 500.0}
    unused = {file_blob("u"): 500.0, artifact_blob("u"): 500.0}
    gone = await _sweep(bench, {**used, **unused}, 100)
    expect_equal(gone, sorted(unused), "deleted keys")


@SWEEP.rule()
async def young_blobs_stay(bench: Bench) -> None:
    """The sweep deletes only what is older than the limit; exactly the limit is not."""
    ages = {file_blob("old"): 100.1, file_blob("limit"): 100.0, file_blob("young"): 5.0}
    expect_equal(await _sweep(bench, ages, 100), [file_blob("old")], "deleted keys")
    zero = {file_blob("now"): 0.0, file_blob("old"): 1.0}
    expect_equal(await _sweep(bench, zero, 0), [file_blob("old")], "deleted keys at limit 0")


@SWEEP.rule()
async def other_keys_stay(bench: Bench) -> None:
    """The sweep looks only below its two prefixes."""
    others = {"backups/x": 500.0, "sandbox-files.txt": 500.0, "sandbox-artifacts-2/x": 500.0}
    expect_equal(
        await _sweep(bench, {**others, "sandbox-files/x": 500.0}, 100),
        ["sandbox-files/x"],
        "deleted keys",
    )


@SWEEP.rule()
async def the_limit_is_a_finite_number(bench: Bench) -> None:
    """The sweep raises ValueError for a limit that is negative, infinite or no number."""
    values: tuple[Any, ...] = (-1, math.nan, math.inf, -math.inf, None, "1", True)
    for value in values:
        try:
            await _sweep(bench, {file_blob("u"): 1e9}, value)
        except ValueError:
            continue
        raise ConformanceError(f"the sweep accepted a limit of {value!r}")


@SWEEP.rule(StoreCapability.DELETE_CHECKPOINTS)
async def prune_then_sweep_frees_the_bytes(bench: Bench) -> None:
    """After keep-newest the sweep deletes what only the removed checkpoints used."""
    writer = await bench.writer()
    made = await bench.chain(writer, ["a", "b", "c"], artifacts=[])
    await writer.release()
    await keep_newest(bench.store, "thread", 1)
    gone = await _sweep(bench, {file_blob(item.id): 500.0 for item in made}, 100)
    expect_equal(gone, sorted([file_blob("a"), file_blob("b")]), "deleted keys")
