"""WorkloadSpec -> a real compiled StateGraph, one file a shape.

A new shape adds one line to the table here and one to `savermark.script.SHAPES`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from savermark.errors import WorkloadError, unknown

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    from savermark.spec import WorkloadSpec

__all__ = ["SHAPES", "build_graph"]

#: Graph shape -> module with `build(spec, saver)`, imported when it is used: the deep agent is an
#: optional dependency.
SHAPES: dict[str, str] = {
    "agent": "savermark.graphs.agent",
    "human-ai": "savermark.graphs.published",
    "ai-only": "savermark.graphs.published",
    "channels": "savermark.graphs.published",
    "deep-agent": "savermark.graphs.deep_agent",
}


def build_graph(
    spec: WorkloadSpec, saver: BaseCheckpointSaver[Any] | None
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The workload's graph, compiled with `saver`; raises `WorkloadError` for an unknown shape."""
    if spec.graph not in SHAPES:
        raise WorkloadError(unknown("graph", spec.graph, SHAPES))
    graph: CompiledStateGraph[Any, Any, Any, Any] = import_module(SHAPES[spec.graph]).build(
        spec, saver
    )
    return graph
