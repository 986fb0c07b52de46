"""A store of which nothing is known but its saver: what null and third-party savers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from savermark.backends.base import Capability, Store
from savermark.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from savermark.storage import FloorRow, FootprintRow, StorageRow


class PlainStore(Store):
    """Every measurement raises `Unsupported`, so that it becomes a row and never a zero."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    label: str = "this backend"

    def _cannot(self, what: str) -> NoReturn:
        raise Unsupported(f"{self.label} cannot {what}: it is a plain saver without a backend")

    def storage(self, threads: Sequence[str] | None = None) -> list[StorageRow]:
        """Unsupported."""
        self._cannot("count its rows and bytes")

    def floor(self, threads: Sequence[str] | None = None) -> list[FloorRow]:
        """Unsupported."""
        self._cannot("tell its distinct payloads")

    def footprint(self) -> list[FootprintRow]:
        """Unsupported."""
        self._cannot("tell its size")

    def row_digests(self, threads: Sequence[str] | None = None) -> dict[str, str]:
        """Unsupported."""
        self._cannot("read its rows")

    def compact(self) -> None:
        """Unsupported."""
        self._cannot("give space back")

    def settle(self) -> None:
        """Nothing to do that is known."""

    def drop_caches(self) -> None:
        """Unsupported."""
        self._cannot("drop its caches")

    def clone_threads(self, sources: Mapping[str, Sequence[str]]) -> int:
        """Unsupported."""
        self._cannot("clone threads")

    def describe(self) -> dict[str, Any]:
        """Only the name."""
        return {"backend": self.label}

    def close(self) -> None:
        """Nothing is held open."""

    def destroy(self) -> None:
        """Nothing was made."""
