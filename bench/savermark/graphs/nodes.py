"""What the nodes of every shape have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from savermark.spec import WorkloadSpec


def node(spec: WorkloadSpec, step: Callable[[Any], Any]) -> Any:
    """`step` as a node: a coroutine function when the graph is driven through the async api.

    A plain function in an async graph would go through a thread, which no async application does.
    """
    if spec.run.api == "sync":
        return step

    async def astep(state: Any) -> Any:
        return step(state)

    return astep
