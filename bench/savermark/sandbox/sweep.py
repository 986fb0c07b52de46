"""Deletes the blobs that no checkpoint uses.

The references are read after the listing, so a checkpoint that was added in between protects its
blobs; and right before a blob goes, its age is looked at again where the blob store can tell it,
so one that was uploaded anew since the listing stays. What remains is the capture that found an
old, unused blob and skipped its upload: sweep when no capture runs, or let captures refresh what
is old (`capture_workspace(refresh_after_ms=...)`).
"""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from savermark.sandbox.errors import SandboxRangeError
from savermark.sandbox.memory import system_clock
from savermark.sandbox.records import ARTIFACTS_PREFIX, FILES_PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from savermark.sandbox.blobs import BlobInfo
    from savermark.sandbox.protocols import SandboxCheckpointStore
    from savermark.sandbox.records import Clock

PREFIXES = (ARTIFACTS_PREFIX, FILES_PREFIX)
AT_ONCE = 16  # deletes under way at one time


class SweptBlobs(Protocol):
    """What a sweep needs of a blob store. `head`, if there is one, is used to look again."""

    def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """Every blob under the prefix, all pages."""

    async def delete(self, key: str) -> None:
        """Removes the blob; a missing one is no error."""


async def sweep_sandbox_blobs(
    *,
    checkpoints: SandboxCheckpointStore,
    blobs: SweptBlobs,
    older_than_ms: float,
    clock: Clock = system_clock,
) -> list[str]:
    """Deletes each unused blob that is older than the limit, and returns their keys, sorted.

    Only keys under `sandbox-files/` and `sandbox-artifacts/` are looked at. Make `older_than_ms`
    longer than the longest capture, whose new blobs have no count yet. Raises `SandboxRangeError`
    (a ValueError) unless it is a finite number of 0 or more.
    """
    check_age(older_than_ms)
    candidates: set[str] = set()
    for prefix in PREFIXES:
        async with aclosing(_closable(blobs.list(prefix))) as found:
            async for info in found:
                if is_old(info, older_than_ms, clock()):
                    candidates.add(info.key)
    if candidates:
        async with aclosing(_closable(checkpoints.list_blob_references())) as references:
            async for reference in references:
                candidates.discard(reference.key)
    return await _delete(blobs, sorted(candidates), older_than_ms, clock)


def check_age(older_than_ms: Any) -> None:
    """Raises `SandboxRangeError` unless the limit is a finite number of 0 or more."""
    number = isinstance(older_than_ms, (int, float)) and not isinstance(older_than_ms, bool)
    if not number or not math.isfinite(older_than_ms) or older_than_ms < 0:
        raise SandboxRangeError(
            f"older_than_ms must be a finite number of 0 or more, not {older_than_ms!r:.60}"
        )


def is_old(info: BlobInfo, older_than_ms: float, now: float) -> bool:
    """Whether the blob is older than the limit; one of exactly that age is not."""
    return now - info.uploaded_at > older_than_ms


async def _delete(
    blobs: SweptBlobs, keys: list[str], older_than_ms: float, clock: Clock
) -> list[str]:
    head = getattr(blobs, "head", None)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(key: str) -> bool:
        async with slots:
            if head is not None:
                info = await head(key)
                if info is None or not is_old(info, older_than_ms, clock()):
                    return False
            await blobs.delete(key)
            return True

    gone: list[str] = []
    for at in range(0, len(keys), 1000):
        part = keys[at : at + 1000]
        done = await asyncio.gather(*(one(key) for key in part))
        gone += [key for key, deleted in zip(part, done, strict=True) if deleted]
    return gone


def _closable(source: AsyncIterator[Any]) -> Any:
    """The iterator as a generator, whose `aclose` gives back what the iteration holds."""
    if hasattr(source, "aclose"):
        return source

    async def wrapped() -> AsyncIterator[Any]:
        async for item in source:
            yield item

    return wrapped()
