"""The write path: lay each workspace, change it, capture it; undo and fork as the script says."""

from __future__ import annotations

import resource
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savermark.records import Phase, ProcessCost
from savermark.sandbox.capture import (
    ArtifactSource,
    CaptureNotes,
    CaptureOptions,
    capture_workspace,
)
from savermark.sandbox.records import ForkRequest
from savermark.sandbox.restore import restore_workspace
from savermark.sandbox_trial.log import Log, RecordedBlobs, RecordedStore
from savermark.sandbox_trial.script import EPOCH_MS, Link, message, root_id
from savermark.trial.usage import peak_rss_bytes

if TYPE_CHECKING:
    from savermark.sandbox_trial.ground import Ground
    from savermark.sandbox_trial.script import Step, ThreadScript, Tree
    from savermark.spec import SandboxSpec

_MIME = "application/octet-stream"


async def load(ground: Ground, began_ns: int) -> ProcessCost:
    """Play every thread; tells what the process used meanwhile."""
    log = Log(ground.clock)
    store, blobs = RecordedStore(ground.store, log), RecordedBlobs(ground.blobs, log)
    player = Player(ground.spec, store, blobs, log)
    setup_ns = time.monotonic_ns() - began_ns
    before = resource.getrusage(resource.RUSAGE_SELF)
    for thread in ground.threads:
        folder = ground.folder(f"work-{thread.thread_id}")
        await player.play(thread, folder)
        if thread is not ground.probe:
            shutil.rmtree(folder)
    after = resource.getrusage(resource.RUSAGE_SELF)
    ground.samples += log.samples(Phase.LOADED)
    return ProcessCost(
        setup_ns=setup_ns,
        run_wall_ns=player.wall_ns,
        saver_busy_ns=log.busy_ns(),
        cpu_user_ns=int((after.ru_utime - before.ru_utime) * 1e9),
        cpu_system_ns=int((after.ru_stime - before.ru_stime) * 1e9),
        peak_rss_bytes=peak_rss_bytes(),
    )


class Player:
    """Plays threads on recorded stores. Writing the workspace itself is off the clock."""

    def __init__(self, spec: SandboxSpec, store: Any, blobs: Any, log: Log) -> None:
        self.spec, self.store, self.blobs, self.log = spec, store, blobs, log
        self.wall_ns = 0

    async def play(self, thread: ThreadScript, folder: Path) -> None:
        """Every capture of the thread, with its undos, in a folder that is left as it ends."""
        tree: Tree = {}
        settled: tuple[str, Tree] | None = None  # the checkpoint that an undo goes back to
        self.log.depth = 0
        folder.mkdir()
        if thread.source is not None:
            settled = await self._fork(thread, folder)
            tree = settled[1]
        for step in thread.steps:
            lay(self.spec, folder, tree, step.state.tree)
            tree = step.state.tree
            await self._timed(self.capture(thread.thread_id, step, folder))
            self.log.depth += 1
            if step.undone and settled is not None:
                await self._timed(self._undo(thread.thread_id, step, settled[0], folder))
                tree = settled[1]
            else:
                settled = (step.checkpoint_id, tree)

    async def capture(self, thread_id: str, step: Step, folder: Path) -> None:
        """One capture with all that the checkpoint says beside the files."""
        state = step.state
        notes = CaptureNotes(
            checkpoint_id=step.checkpoint_id,
            conversation=[message(self.spec, thread, number) for thread, number in state.talk],
            artifacts=[
                ArtifactSource(
                    product.artifact_id,
                    f"{product.artifact_id}.bin",
                    _MIME,
                    product.content.data(self.spec.payload),
                    EPOCH_MS,
                )
                for product in state.products
            ],
            created_at=step.created_at,
        )
        with self.log.timed("capture"):
            await capture_workspace(
                self.store, self.blobs, thread_id, folder, notes, CaptureOptions()
            )

    async def _undo(self, thread_id: str, step: Step, settled: str, folder: Path) -> None:
        lease = await self.store.acquire_writer(thread_id)
        try:
            await self.store.delete_head(thread_id, step.checkpoint_id, writer=lease)
        finally:
            await lease.release()
        self.log.depth -= 1
        with self.log.timed("restore"):
            await restore_workspace(self.store, self.blobs, settled, folder, replace=True)

    async def _fork(self, thread: ThreadScript, folder: Path) -> tuple[str, Tree]:
        assert thread.source is not None
        source, step = thread.source
        lease = await self.store.acquire_writer(thread.thread_id)
        request = ForkRequest(
            source_thread_id=source,
            source_checkpoint_id=step.checkpoint_id,
            destination_thread_id=thread.thread_id,
            destination_checkpoint_id=root_id(thread.thread_id),
            created_at=EPOCH_MS,
            writer=lease,
        )
        await self._timed(self.store.fork_from_checkpoint(request))
        await lease.release()
        self.log.depth = 1
        with self.log.timed("restore"):
            await restore_workspace(self.store, self.blobs, root_id(thread.thread_id), folder)
        return root_id(thread.thread_id), step.state.tree

    async def _timed(self, work: Any) -> None:
        start = self.log.clock()
        await work
        self.wall_ns += self.log.clock() - start


def lay(spec: SandboxSpec, folder: Path, before: Tree, after: Tree) -> None:
    """Turn a workspace that holds `before` into one that holds `after`."""
    for path in before.keys() - after.keys():
        (folder / path).unlink()
    for path, item in after.items():
        if before.get(path) == item:
            continue
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(item, Link):
            place.unlink(missing_ok=True)
            place.symlink_to(item.target)
        else:
            place.write_bytes(item.data(spec.payload))
