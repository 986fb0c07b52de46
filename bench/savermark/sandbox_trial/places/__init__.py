"""The stores that sandbox workloads are measured on: a checkpoint store and a blob store each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from savermark.errors import UsageError, unknown

if TYPE_CHECKING:
    from savermark.sandbox_trial.places.base import BlobPlace, StorePlace

# Imported when asked for, so that a pair needs no driver of another one.
STORES = {name: f"{__name__}.{name}" for name in ("memory", "sqlite", "postgres")}
BLOBS = {name: f"{__name__}.{name}_blobs" for name in ("memory", "folder", "s3")}
PAIRS = tuple(f"{store}+{blobs}" for store in STORES for blobs in BLOBS)


def store_place(pair: str) -> type[StorePlace]:
    """The checkpoint store of a pair such as `sqlite+folder`; raises `UsageError`."""
    place: type[StorePlace] = import_module(STORES[_split(pair)[0]]).PLACE
    return place


def blob_place(pair: str) -> type[BlobPlace]:
    """The blob store of a pair; raises `UsageError`."""
    place: type[BlobPlace] = import_module(BLOBS[_split(pair)[1]]).PLACE
    return place


def _split(pair: str) -> tuple[str, str]:
    if pair not in PAIRS:
        raise UsageError(unknown("backend", pair, PAIRS))
    store, _, blobs = pair.partition("+")
    return store, blobs
