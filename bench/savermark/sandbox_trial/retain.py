"""The step between `loaded` and `retained`: prune most threads to their newest, then sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from savermark.records import Phase
from savermark.sandbox.memory import system_clock
from savermark.sandbox.protocols import keep_newest
from savermark.sandbox.sweep import sweep_sandbox_blobs
from savermark.sandbox_trial.log import Log, RecordedBlobs, RecordedStore
from savermark.sandbox_trial.verify import thread_digests

if TYPE_CHECKING:
    from savermark.sandbox_trial.ground import Ground

#: The sweep's clock runs ahead of the blobs' by this: all of them are old enough to go.
_LATER_MS = 3_600_000.0


async def retain(ground: Ground) -> None:
    """Keep the newest of a share of the threads, sweep, and prove that the others are the same."""
    names = [thread.thread_id for thread in ground.threads]
    count = round(ground.spec.retention.share * len(names))
    chosen = [names[(2 * i + 1) * len(names) // (2 * count)] for i in range(count)]
    before = await thread_digests(ground)
    log = Log(ground.clock)
    store: Any = RecordedStore(ground.store, log)
    blobs: Any = RecordedBlobs(ground.blobs, log)
    lengths = {t.thread_id: len(t.chain) + (t.source is not None) for t in ground.threads}
    for name in chosen:
        log.depth = lengths[name]
        with log.timed("keep_newest"):
            await keep_newest(store, name, ground.spec.retention.keep)
    log.depth = max(lengths.values())
    with log.timed("sweep"):
        gone = await sweep_sandbox_blobs(
            checkpoints=store,
            blobs=blobs,
            older_than_ms=0.0,
            clock=lambda: system_clock() + _LATER_MS,
        )
    ground.pruned = frozenset(chosen)
    ground.notes["swept_blobs"] = len(gone)
    kept = ("keep_newest", "delete_checkpoints", "sweep", "list_blob_references")
    ground.samples += [
        replace(sample, temperature="warm")
        for sample in log.samples(Phase.RETAINED)
        if sample.op in kept
    ]
    after = await thread_digests(ground)
    untouched = [name for name in names if name not in ground.pruned]
    broken = [f"{name} changed" for name in untouched if after[name] != before[name]]
    ground.check(Phase.RETAINED, "untouched_threads", len(untouched), broken)
