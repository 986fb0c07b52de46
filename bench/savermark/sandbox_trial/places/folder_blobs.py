"""Blobs as files of a folder."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from savermark.sandbox.folder_blobs import FolderBlobStore
from savermark.sandbox_trial.places.base import BlobPlace
from savermark.sandbox_trial.places.files import forget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from savermark.backends.base import Location
    from savermark.sandbox.blobs import BlobInfo


class FolderBlobs(BlobPlace):
    """A folder within the trial's."""

    component = "heap"

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        self.root = location.folder / "blobs"

    def create(self) -> None:
        """Nothing: the store makes its folder."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FolderBlobStore]:
        yield FolderBlobStore(self.root)

    def space(self, blob: BlobInfo) -> int:
        """The blocks that the file takes; its length where the system does not tell."""
        found = (self.root / blob.key).stat()
        return getattr(found, "st_blocks", 0) * 512 or found.st_size

    def drop_caches(self) -> None:
        for path in self.root.rglob("*"):
            if path.is_file():
                forget(path)

    def describe(self) -> dict[str, Any]:
        return {"blobs": "FolderBlobStore"}

    def destroy(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


PLACE = FolderBlobs
