"""Where the bytes of files and artifacts live, by the SHA-256 of the content."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from savermark.sandbox.errors import SandboxBlobError, SandboxRangeError
from savermark.sandbox.records import ARTIFACTS_PREFIX, FILES_PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from savermark.sandbox.records import Clock

_DIGEST_LENGTH = 64


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """A stored blob: its key, its size in bytes and when it was stored (ms)."""

    key: str
    size: int
    uploaded_at: float


@runtime_checkable
class BlobStore(Protocol):
    """Bytes by key. A put is atomic: a reader sees all of the bytes or no blob."""

    async def get(self, key: str) -> bytes | None:
        """The bytes, or None for a missing key."""

    async def head(self, key: str) -> BlobInfo | None:
        """Size and age without the bytes, or None for a missing key."""

    async def put(self, key: str, data: bytes) -> None:
        """Stores the bytes, in place of what the key held."""

    def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """Every blob whose key starts with the prefix, all pages, by UTF-8 bytes of the key."""

    async def delete(self, key: str) -> None:
        """Removes the blob; a missing one is no error."""


def file_key(data: bytes) -> str:
    """The blob key of a file with this content."""
    return f"{FILES_PREFIX}sha256/{hashlib.sha256(data).hexdigest()}"


def artifact_key(data: bytes) -> str:
    """The blob key of an artifact with this content."""
    return f"{ARTIFACTS_PREFIX}sha256/{hashlib.sha256(data).hexdigest()}"


def check_key(key: str) -> None:
    """Raises `SandboxRangeError` for a key that could leave a folder or mean two things."""
    parts = key.split("/")
    if not key or "\0" in key or "\\" in key or any(part in ("", ".", "..") for part in parts):
        raise SandboxRangeError(f"{key!r:.100} is no blob key: parts between slashes, none special")


async def read_blob(blobs: BlobStore, key: str, size: int) -> bytes:
    """The bytes of a content-addressed key. Raises `SandboxBlobError` if missing or damaged."""
    data = await blobs.get(key)
    if data is None:
        raise SandboxBlobError(f"blob {key} is missing; restore the bucket from a backup")
    if len(data) != size or hashlib.sha256(data).hexdigest() != key[-_DIGEST_LENGTH:]:
        raise SandboxBlobError(f"blob {key} holds other bytes than its name says; it is damaged")
    return data


def _now() -> float:
    return time.time() * 1000.0


class MemoryBlobStore:
    """Blobs in memory."""

    def __init__(self, *, clock: Clock = _now) -> None:
        self._clock = clock
        self._blobs: dict[str, tuple[bytes, float]] = {}

    async def get(self, key: str) -> bytes | None:
        """The bytes, or None for a missing key."""
        found = self._blobs.get(key)
        return found[0] if found else None

    async def head(self, key: str) -> BlobInfo | None:
        """Size and age without the bytes, or None for a missing key."""
        found = self._blobs.get(key)
        return BlobInfo(key, len(found[0]), found[1]) if found else None

    async def put(self, key: str, data: bytes) -> None:
        """Stores the bytes, in place of what the key held."""
        check_key(key)
        self._blobs[key] = (bytes(data), self._clock())

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """Every blob whose key starts with the prefix, by UTF-8 bytes of the key."""
        for key in sorted(key for key in self._blobs if key.startswith(prefix)):
            found = await self.head(key)
            if found is not None:
                yield found

    async def delete(self, key: str) -> None:
        """Removes the blob; a missing one is no error."""
        self._blobs.pop(key, None)
