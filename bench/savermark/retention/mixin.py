"""For authors of savers: four hooks, and prune, copy_thread and delete_for_runs are there.

    class MySaver(DeltaChannelAwarePruneMixin, BaseCheckpointSaver):
        def _list_thread_heads(self, thread_id): ...
        def _list_thread_checkpoint_ids(self, thread_id): ...
        def _delete_checkpoint_rows(self, thread_id, keys): ...
        def _copy_thread_rows(self, source_id, target_id): ...

What may go is worked out here, through the saver's own `get_tuple` and `list`; the hooks only touch
rows. An async saver overrides the hooks whose names begin with `_a`; by default these run the sync
ones beside the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from savermark.errors import ContractError, UsageError
from savermark.history.image import ThreadImage, WriteRow
from savermark.history.keepset import akeep_set, keep_set, stops_at_none, tuple_row
from savermark.history.rows import target_in_use
from savermark.retention.runs_plan import plan_runs

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

    from savermark.history.lineage import Channels, CheckpointKey

    _Saver = BaseCheckpointSaver[Any]
else:
    _Saver = object

STRATEGIES = ("keep_latest", "delete")


class DeltaChannelAwarePruneMixin(_Saver):
    """Cleanup that never severs the history of a delta channel. Stands before the saver's class.

    Checkpoint keys are pairs of namespace and id, since an id may occur in two namespaces.
    `DELTA_CHANNELS` may name the delta channels; by default they are found from the data.
    """

    DELTA_CHANNELS: ClassVar[Channels] = "auto"

    def _list_thread_heads(self, thread_id: str) -> list[RunnableConfig]:
        """The configs of the checkpoints that must read back as before: the newest of each
        namespace, and the tips of forks that are to stay.
        """
        raise NotImplementedError

    def _list_thread_checkpoint_ids(self, thread_id: str) -> set[CheckpointKey]:
        """Namespace and id of every checkpoint of a thread; none for an unknown one."""
        raise NotImplementedError

    def _delete_checkpoint_rows(self, thread_id: str, keys: set[CheckpointKey]) -> None:
        """In one transaction: delete these checkpoints with their writes, and stored values that no
        other checkpoint of the namespace names; others whose parent goes have none afterwards.
        """
        raise NotImplementedError

    def _copy_thread_rows(self, source_id: str, target_id: str) -> None:
        """In one transaction: copy all rows of a thread under another id, otherwise unchanged."""
        raise NotImplementedError

    async def _alist_thread_heads(self, thread_id: str) -> list[RunnableConfig]:
        """The async twin."""
        return await asyncio.to_thread(self._list_thread_heads, thread_id)

    async def _alist_thread_checkpoint_ids(self, thread_id: str) -> set[CheckpointKey]:
        """The async twin."""
        return await asyncio.to_thread(self._list_thread_checkpoint_ids, thread_id)

    async def _adelete_checkpoint_rows(self, thread_id: str, keys: set[CheckpointKey]) -> None:
        """The async twin."""
        await asyncio.to_thread(self._delete_checkpoint_rows, thread_id, keys)

    async def _acopy_thread_rows(self, source_id: str, target_id: str) -> None:
        """The async twin."""
        await asyncio.to_thread(self._copy_thread_rows, source_id, target_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep each head with all it is rebuilt from, or delete threads.

        Raises `TypeError` for a single string, `ValueError` for an unknown strategy, and at the
        end `ContractError` that names the threads left untouched because their chain is broken.
        """
        refused = []
        for thread_id in check_threads(thread_ids, strategy):
            stored = self._list_thread_checkpoint_ids(thread_id)
            kept: set[CheckpointKey] = set()
            try:
                for head in self._list_thread_heads(thread_id) if strategy != "delete" else ():
                    kept.update(_keys(head, keep_set(self, head, self.DELTA_CHANNELS)))
            except ContractError as error:
                refused.append(str(error))
                continue
            if stored - kept:
                self._delete_checkpoint_rows(thread_id, stored - kept)
        _raise(refused)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """The async twin of `prune`."""
        refused = []
        for thread_id in check_threads(thread_ids, strategy):
            stored = await self._alist_thread_checkpoint_ids(thread_id)
            kept: set[CheckpointKey] = set()
            try:
                heads = [] if strategy == "delete" else await self._alist_thread_heads(thread_id)
                for head in heads:
                    kept.update(_keys(head, await akeep_set(self, head, self.DELTA_CHANNELS)))
            except ContractError as error:
                refused.append(str(error))
                continue
            if stored - kept:
                await self._adelete_checkpoint_rows(thread_id, stored - kept)
        _raise(refused)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs that no checkpoint of another run needs.

        One `get_tuple` a checkpoint of the threads concerned. Raises `TypeError` for a single
        string, `ContractError` as `prune` does.
        """
        names, refused = _check_runs(run_ids), list[str]()
        found = (
            item.config["configurable"]["thread_id"]
            for run in names
            for item in list(self.list(None, filter={"run_id": run}))
        )
        for thread_id in dict.fromkeys(found):
            keys = self._list_thread_checkpoint_ids(thread_id)
            tuples = [self.get_tuple(_config(thread_id, key)) for key in sorted(keys)]
            gone = self._of_runs(thread_id, tuples, names, refused)
            if gone:
                self._delete_checkpoint_rows(thread_id, gone)
        _raise(refused)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """The async twin of `delete_for_runs`."""
        names, refused = _check_runs(run_ids), list[str]()
        found = [
            item.config["configurable"]["thread_id"]
            for run in names
            for item in await _listed(self.alist(None, filter={"run_id": run}))
        ]
        for thread_id in dict.fromkeys(found):
            keys = await self._alist_thread_checkpoint_ids(thread_id)
            tuples = [await self.aget_tuple(_config(thread_id, key)) for key in sorted(keys)]
            gone = self._of_runs(thread_id, tuples, names, refused)
            if gone:
                await self._adelete_checkpoint_rows(thread_id, gone)
        _raise(refused)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all rows of a thread. Raises `UsageError` for an unknown source, a used target."""
        source, target = str(source_thread_id), str(target_thread_id)
        stored = self._list_thread_checkpoint_ids(source)
        _check_copy(source, target, stored, self._list_thread_checkpoint_ids(target))
        self._copy_thread_rows(source, target)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """The async twin of `copy_thread`."""
        source, target = str(source_thread_id), str(target_thread_id)
        stored = await self._alist_thread_checkpoint_ids(source)
        _check_copy(source, target, stored, await self._alist_thread_checkpoint_ids(target))
        await self._acopy_thread_rows(source, target)

    def _of_runs(
        self,
        thread_id: str,
        tuples: Iterable[CheckpointTuple | None],
        names: Collection[str],
        refused: list[str],
    ) -> set[CheckpointKey]:
        """The checkpoints of the runs that may go, from the thread's tuples."""
        image = _image(thread_id, [each for each in tuples if each], stops_at_none(self))
        protect: set[str] = set()
        while True:
            plan = plan_runs(image, names, protect=protect).plan
            if plan.refused:
                refused.append(plan.refused)
                return set()
            # Single writes cannot be deleted through the hooks: where the run's would be left on
            # a checkpoint whose children all go, one child stays to account for them.
            left = {key[:2] for key in plan.writes} - plan.checkpoints
            if not left:
                return set(plan.checkpoints)
            protect |= {image.children[key][0].checkpoint_id for key in left}


def check_threads(thread_ids: Sequence[str], strategy: str) -> list[str]:
    """The thread ids as text, each once; raises as `prune` does."""
    if isinstance(thread_ids, str):
        raise TypeError("thread_ids must be a sequence of thread ids, not a str")
    if strategy not in STRATEGIES:
        known = " or ".join(map(repr, STRATEGIES))
        raise ValueError(f"unknown prune strategy {strategy!r}: use {known}")
    return list(dict.fromkeys(str(thread) for thread in thread_ids))


def _check_runs(run_ids: Sequence[str]) -> list[str]:
    if isinstance(run_ids, str):
        raise TypeError("run_ids must be a sequence of run ids, not a str")
    return list(dict.fromkeys(str(run) for run in run_ids))


def _check_copy(
    source: str, target: str, stored: Collection[CheckpointKey], used: Collection[CheckpointKey]
) -> None:
    if source == target:
        raise UsageError(f"thread {source!r} cannot be copied to itself: choose an unused id")
    if not stored:
        raise UsageError(f"thread {source!r} holds no checkpoints: name one that does")
    if used:
        raise target_in_use(target)


def _raise(refused: Sequence[str]) -> None:
    if refused:
        raise ContractError(f"left untouched, the others are done: {'; '.join(refused)}")


def _keys(head: RunnableConfig, ids: Iterable[str]) -> Iterator[CheckpointKey]:
    space = head["configurable"].get("checkpoint_ns", "")
    return ((space, name) for name in ids)


def _config(thread_id: str, key: CheckpointKey) -> RunnableConfig:
    where = {"thread_id": thread_id, "checkpoint_ns": key[0], "checkpoint_id": key[1]}
    return {"configurable": where}


async def _listed(items: AsyncIterator[CheckpointTuple]) -> list[CheckpointTuple]:
    return [item async for item in items]


def _image(thread_id: str, tuples: Sequence[CheckpointTuple], none_stops: bool) -> ThreadImage:
    rows = [tuple_row(each, none_stops) for each in tuples]
    writes = [
        WriteRow(row.checkpoint_ns, row.checkpoint_id, str(write[0]), number, write[1], "", 0)
        for row, each in zip(rows, tuples, strict=True)
        for number, write in enumerate(each.pending_writes or ())
    ]
    return ThreadImage(thread_id, tuple(rows), tuple(writes))
