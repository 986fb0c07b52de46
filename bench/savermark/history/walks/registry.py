"""Finds walks through the entry-point group `savermark.walks`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from savermark.errors import BackendError, UsageError, unknown

if TYPE_CHECKING:
    from savermark.history.walks.base import Walk

GROUP = "savermark.walks"


def walk_names() -> list[str]:
    """Registered walks, sorted by name."""
    return sorted(entry_points(group=GROUP).names)


def walk(name: str) -> Walk:
    """The walk of this name. Looks through the installed packages, so ask once and keep it.

    Raises `UsageError` for an unknown name, `BackendError` when its package cannot be imported.
    """
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        raise UsageError(unknown("walk", name, found))
    return _made(found[name])


def walks() -> dict[str, Walk]:
    """Every registered walk by name."""
    return {point.name: _made(point) for point in sorted(entry_points(group=GROUP))}


@cache
def _made(point: EntryPoint) -> Walk:
    """What an entry point names: a walk, or what makes one without arguments (a class)."""
    try:
        named = point.load()
    except (ImportError, AttributeError) as error:
        raise BackendError(f"walk {point.name!r} cannot be imported: {error}") from error
    made: Walk = named if hasattr(named, "history") and not isinstance(named, type) else named()
    return made
