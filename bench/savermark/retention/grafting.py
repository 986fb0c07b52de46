"""Grafts on a saver: plan, read what is needed, carry out in one transaction, read again."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from savermark.errors import ContractError, SavermarkError
from savermark.history.arows import arow_access
from savermark.history.rows import row_access
from savermark.retention.digest import value_digest
from savermark.retention.duration import root_config
from savermark.retention.fold import graph_fold
from savermark.retention.graft import (
    GraftRefused,
    apply_graft,
    plan_graft,
    prove_graft,
    wanted_values,
)
from savermark.retention.lifecycle import lifecycle_of
from savermark.retention.records import Fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.pregel import Pregel

    from savermark.history.image import ThreadImage
    from savermark.history.rows import RowAccess, Typed
    from savermark.retention.exhaustive import Protect
    from savermark.retention.fold import Materializer
    from savermark.retention.fold import Values as Folded
    from savermark.retention.records import CacheLifecycle, Graft

    State = Mapping[str, Any]


def graft(
    saver: BaseCheckpointSaver[Any],
    thread_id: str | int,
    link_id: str,
    *,
    checkpoint_ns: str = "",
    protect: Protect = (),
    graph: Pregel[Any, Any, Any, Any] | None = None,
    fold: Materializer | None = None,
    lifecycle: CacheLifecycle | None = None,
) -> Graft:
    """Remove a duration-only link; what was done with its children and its writes.

    No run of the thread may start from the link meanwhile. `graph`, compiled with this saver, gives
    the values of children that need one (so does `fold`), and is read again afterwards. Raises
    `GraftRefused` with nothing changed, `Unsupported` for a saver whose rows are unknown, and
    `ContractError` should a checkpoint read differently afterwards.
    """
    work = _Work(saver, thread_id, (checkpoint_ns, link_id), protect, lifecycle)
    rows = row_access(saver)
    watched = work.plan(rows.image(str(thread_id)))
    if graph is not None:
        work.read([[graph.get_state(at).values for at in watched] for _ in range(2)])
        fold = fold or graph_fold(graph, saver)
    if fold is not None and work.folds:
        with work.refusing():
            work.take(fold.values(work.thread, work.folds))
    work.carry_out(rows)
    if graph is not None:
        work.compare([graph.get_state(at).values for at in watched])
    return work.made


async def agraft(
    saver: BaseCheckpointSaver[Any],
    thread_id: str | int,
    link_id: str,
    *,
    checkpoint_ns: str = "",
    protect: Protect = (),
    graph: Pregel[Any, Any, Any, Any] | None = None,
    fold: Materializer | None = None,
    lifecycle: CacheLifecycle | None = None,
) -> Graft:
    """The async twin of `graft`."""
    work = _Work(saver, thread_id, (checkpoint_ns, link_id), protect, lifecycle)
    async with arow_access(saver) as rows:
        watched = work.plan(await rows.run(lambda access: access.image(str(thread_id))))
        if graph is not None:
            work.read([[(await graph.aget_state(at)).values for at in watched] for _ in range(2)])
            fold = fold or graph_fold(graph, saver)
        if fold is not None and work.folds:
            with work.refusing():
                work.take(await fold.avalues(work.thread, work.folds))
        await rows.run(work.carry_out)
        if graph is not None:
            work.compare([(await graph.aget_state(at)).values for at in watched])
    return work.made


class _Work:
    """One graft between its two drivers: everything but the reading of states."""

    made: Graft

    def __init__(
        self,
        saver: BaseCheckpointSaver[Any],
        thread_id: str | int,
        key: tuple[str, str],
        protect: Protect,
        lifecycle: CacheLifecycle | None,
    ) -> None:
        self.saver, self.key = saver, key
        self.thread, self.raw = str(thread_id), thread_id
        self.protect = protect if isinstance(protect, str) else list(protect)
        self.lifecycle = lifecycle_of(saver, lifecycle)
        self.names: list[str] = []
        self.folds: list[Fold] = []
        self.values: dict[tuple[str, str], Typed] = {}
        self.digests: list[dict[str, bytes]] = []

    def plan(self, image: ThreadImage) -> list[RunnableConfig]:
        """Plan on an image; the checkpoints whose states a graph should read."""
        self.image, self.made = image, plan_graft(image, self.key, self.protect)
        space, link = self.key
        wanted = wanted_values(image, self.made)
        self.folds = [Fold(space, child, channels) for child, channels in wanted.items()]
        siblings = image.children[space, self.made.parent_id]
        names = {*self.made.children, image.heads[space].checkpoint_id}
        names |= {row.checkpoint_id for row in siblings} - {link}
        self.names = sorted(names)
        root = root_config(self.saver, self.raw)["configurable"]
        return [
            {"configurable": {**root, "checkpoint_ns": space, "checkpoint_id": name}}
            for name in self.names
        ]

    def read(self, readings: Sequence[Sequence[State]]) -> None:
        """Take the states, read twice: what differs between two readings proves nothing later."""
        first, second = ([self._digested(state) for state in each] for each in readings)
        self.digests = [
            {name: found for name, found in one.items() if two.get(name) == found}
            for one, two in zip(first, second, strict=True)
        ]

    def take(self, values: Folded) -> None:
        """The values that children are given.

        A state will not do: it has the writes of a command applied, also for an explicit id.
        """
        self.values = {(child, name): value for (_, child, name), value in values.items()}

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """What says why a value cannot be had says why there is no graft."""
        try:
            yield
        except SavermarkError as error:
            raise self._refusal(str(error)) from error

    def carry_out(self, rows: RowAccess) -> None:
        """Plan again on the thread as it is now, forget caches, change the rows, prove them."""
        with rows.transaction(self.thread) as txn:
            before = txn.image()
            again = plan_graft(before, self.key, self.protect)
            if again != self.made or self._ground(before) != self._ground(self.image):
                raise self._refusal("it changed meanwhile: try again")
            try:
                self.lifecycle.invalidate(self.thread)
            except Exception as error:  # whatever a cache raises: then its answers would be stale
                raise self._refusal(f"cached histories were not forgotten ({error})") from error
            apply_graft(txn, again, self.values)
            prove_graft(before, txn.image(), again)

    def compare(self, states: Sequence[State]) -> None:
        """Raises `ContractError` where a checkpoint no longer reads as it did."""
        for name, state, before in zip(self.names, states, self.digests, strict=True):
            now = self._digested(state)
            for channel, digest in before.items():
                if now.get(channel) != digest:
                    raise ContractError(
                        f"thread {self.thread!r}: since link {self.key[1]} was removed checkpoint "
                        f"{name} reads {channel!r} differently: restore the thread"
                    )

    def _digested(self, state: State) -> dict[str, bytes]:
        return {name: value_digest(value, self.saver.serde) for name, value in state.items()}

    def _ground(self, image: ThreadImage) -> object:
        """What the plan and the values that were read rest on."""
        space, link = self.key
        names = (link, self.made.parent_id, *self.made.children)
        return [
            (image.row(space, name), image.own_writes.get((space, name)) if name == link else None)
            for name in names
        ]

    def _refusal(self, why: str) -> GraftRefused:
        return GraftRefused(f"thread {self.thread!r}, checkpoint {self.key[1]}: not grafted, {why}")
