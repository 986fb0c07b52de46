"""Puts a walk into a saver, so that a graph compiled with the saver reads through it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

from savermark.errors import Unsupported, UsageError
from savermark.history.walks.base import ASYNC, SYNC, Histories, Keeping, Walk, Walked
from savermark.history.walks.registry import walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver

S = TypeVar("S", bound="BaseCheckpointSaver[Any]")


def _sync(self: Any, *, config: RunnableConfig, channels: Sequence[str]) -> Histories:
    """The answer of the class's walk."""
    found: Histories = self.walk.history(self, config, channels)
    return found


async def _async(self: Any, *, config: RunnableConfig, channels: Sequence[str]) -> Histories:
    """The answer of the class's walk."""
    found: Histories = await self.walk.ahistory(self, config, channels)
    return found


def with_walk(saver: S, how: str | Walk) -> S:
    """A saver of a subclass, over the same store, connection and lock, that walks by `how`.

    `saver` itself stays as it is. Clones that the runtime makes (strict msgpack) keep the walk.
    Raises `UsageError` for an unknown name, `Unsupported` for a saver that the walk cannot read.
    """
    chosen = walk(how) if isinstance(how, str) else how
    if not chosen.supports(saver):
        raise Unsupported(
            f"the walk {chosen.name!r} cannot read a {type(saver).__name__}: use 'base'"
        )
    if getattr(saver, "inner", None) is not None:
        raise UsageError("put the walk on the saver inside the wrapper, and wrap that")
    kind = type(saver)
    made = copy.copy(saver)
    # The saver's class first and no slots: only a class of its layout can take an object over.
    added = {"walk": chosen, SYNC: _sync, ASYNC: _async, "__slots__": ()}
    if isinstance(chosen, Keeping):
        added |= chosen.methods(kind)
        chosen.cache(made)
    made.__class__ = type(kind.__name__, (kind, Walked), added | {"__module__": kind.__module__})
    return made
