"""Blobs in memory."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from savermark.sandbox.blobs import MemoryBlobStore
from savermark.sandbox_trial.places.base import BlobPlace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from savermark.backends.base import Location


class MemoryBlobs(BlobPlace):
    """One store object, the same at every opening."""

    cold = False

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self._store = MemoryBlobStore()

    def create(self) -> None:
        """Nothing: a new object is empty."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MemoryBlobStore]:
        yield self._store

    def describe(self) -> dict[str, Any]:
        return {"blobs": "MemoryBlobStore"}

    def destroy(self) -> None:
        self._store = MemoryBlobStore()


PLACE = MemoryBlobs
