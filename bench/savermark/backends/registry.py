"""Finds backends through the entry-point group `savermark.backends`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from savermark.errors import BackendError, UsageError, unknown

if TYPE_CHECKING:
    from savermark.backends.base import Backend

GROUP = "savermark.backends"


def backend_names() -> list[str]:
    """Registered backends, sorted by name."""
    return sorted(entry_points(group=GROUP).names)


def get_backend(name: str) -> type[Backend]:
    """The backend of this name, or of a third-party saver named `package.module:factory`.

    Raises `UsageError` for an unknown name, `BackendError` when its package cannot be imported.
    """
    if ":" in name:
        from savermark.backends.custom import custom_backend

        return custom_backend(name)
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        raise UsageError(f"{unknown('backend', name, found)}; others as package.module:factory")
    try:
        backend: type[Backend] = found[name].load()
    except ImportError as error:
        raise BackendError(f"backend {name!r} cannot be imported: {error}") from error
    return backend
