"""The reads of a trial once more, on what a policy left of the thread that they aim at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from savermark.records import Phase
from savermark.trial.reads import check_walks, cold_reads, read_targets, warm_reads

if TYPE_CHECKING:
    from collections.abc import Collection

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

    from savermark.trial.ground import Ground


async def read_again(
    ground: Ground, phase: Phase, deleted: Collection[str], addressable: Collection[str]
) -> None:
    """Sample the head, and the older places that stayed addressable, as before the policy.

    The places keep the names they had, so that before and after stand side by side.
    """
    loaded = ground.loaded
    if loaded.probe in deleted:
        ground.unsupported(f"reads {phase}", "the thread that they aim at was deleted")
        return
    root: RunnableConfig = {"configurable": {"thread_id": loaded.probe, "checkpoint_ns": ""}}
    left = {_id(each.config): each.config for each in await _listed(ground, root)}
    now = replace(
        loaded,
        tips={loaded.probe: {"head": left[max(left)]}},
        checkpoints={loaded.probe: len(left)},
        older=[(n, at) for n, at in loaded.older if _id(at) in addressable],
    )
    targets = await read_targets(ground, now)
    await check_walks(ground, targets, phase)
    await warm_reads(ground, targets, phase)
    if phase is Phase.RETAINED:
        cold_reads(ground, targets, phase)


async def _listed(ground: Ground, root: RunnableConfig) -> list[CheckpointTuple]:
    return await ground.driver.rows(ground.saver, "list", root)


def _id(config: RunnableConfig) -> str:
    return str(config["configurable"]["checkpoint_id"])
