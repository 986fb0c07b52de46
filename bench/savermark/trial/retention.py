"""The step between `loaded` and `retained`. The simplest there is: deleting whole threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savermark.recording import overrides
from savermark.records import Phase, SampleSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.trial.ground import Ground


@dataclass(frozen=True, slots=True)
class Retained:
    """What a retention did. Threads it does not name must be unchanged to the byte."""

    deleted: frozenset[str] = frozenset()  # threads that must hold nothing
    pruned: frozenset[str] = frozenset()  # threads that lost some rows
    dropped: frozenset[str] = frozenset()  # tips of pruned threads, as `thread/tip`, given up
    broken: bool = False  # it filed a failed check: nothing is read of what it left
    after: Callable[[Phase], Awaitable[None]] | None = None  # reads of what is left, each phase


#: A retention works on a loaded store through `ground.driver`; it may file samples and notes.
Retain = Callable[["Ground"], Awaitable[Retained]]


async def delete_share(ground: Ground) -> Retained:
    """Delete `measure.delete_share` of the threads with the saver's own `delete_thread`."""
    method = "adelete_thread" if ground.spec.run.api == "async" else "delete_thread"
    if not overrides(ground.saver, method):
        ground.unsupported("retention", f"{ground.case.backend} does not implement {method}")
        return Retained()
    names = [thread.thread_id for thread in ground.threads]
    chosen = choose_share(names, ground.spec.measure.delete_share)
    times = []
    for name in chosen:
        start = ground.clock()
        await ground.driver.call(ground.saver, "delete_thread", name)
        times.append(ground.clock() - start)
    if chosen:
        depth = tuple(ground.loaded.checkpoints[name] for name in chosen)
        ground.samples.append(
            SampleSet("delete_thread", Phase.RETAINED, "warm", "", depth, tuple(times))
        )
    return Retained(deleted=frozenset(chosen))


def choose_share(names: Sequence[str], share: float) -> list[str]:
    """About `share` of the names, evenly spread; at least one, but never the only one."""
    if share <= 0 or len(names) < 2:
        return []
    count = max(1, round(share * len(names)))
    return [names[(2 * i + 1) * len(names) // (2 * count)] for i in range(count)]
