"""Benchmarks and storage measurement for the checkpoint stores of LLM agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from savermark.frame import load_runs, to_frame

__all__ = ["load_runs", "to_frame"]


def __getattr__(name: str) -> Any:
    # A worker process imports this package on somebody's clock: pandas waits until it is asked for.
    if name in __all__:
        from savermark import frame

        return getattr(frame, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
