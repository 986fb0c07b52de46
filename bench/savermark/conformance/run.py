"""Runs every check on fresh stores of a backend or of a saver's factory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from savermark.backends.base import Backend, Location, Store
from savermark.backends.custom import CustomStore
from savermark.backends.registry import get_backend
from savermark.conformance import (
    cleanup_checks,
    history_checks,
    interface_checks,
    keepset_checks,
    reconstruction_checks,
)
from savermark.conformance.apis import Api, AsyncApi, SyncApi, finish
from savermark.conformance.model import Check, Row, Status, outcome
from savermark.conformance.public import GROUP as PUBLIC
from savermark.conformance.public import public_rows
from savermark.errors import Unsupported, UsageError, unknown

CHECKS: tuple[Check, ...] = (
    *history_checks.CHECKS,
    *keepset_checks.CHECKS,
    *reconstruction_checks.CHECKS,
    *interface_checks.CHECKS,
    *cleanup_checks.CHECKS,
)
GROUPS = (PUBLIC, *dict.fromkeys(check.group for check in CHECKS))
APIS = ("sync", "async")

Factory = Callable[..., Any]


def run_conformance(
    factory: str | Factory,
    *,
    groups: Collection[str] | None = None,
    apis: Collection[str] = APIS,
    dsn: str | None = None,
    on_row: Callable[[Row], object] = lambda row: None,
) -> list[Row]:
    """Every check on a fresh store, through each api; `on_row` hears of each row at once.

    `factory` is the name of a backend, `package.module:factory`, or a callable that gives what such
    a factory gives (`savermark.backends.custom`): a saver, or a context manager of either kind that
    yields one. An api that the saver lacks is one `unsupported` row. Call it outside an event
    loop. Raises `UsageError` for an unknown name, `BackendError` for a saver that cannot be opened.
    """
    chosen = _known("group", groups, GROUPS)
    named = _known("api", apis, APIS)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="savermark-conformance-") as name:
        folder = Path(name)
        for store in _stores(factory, folder, dsn):
            for row in _rows_of(store, chosen, named):
                rows.append(row)
                on_row(row)
    if all(row.status is Status.UNSUPPORTED for row in rows):
        raise Unsupported(
            f"nothing could be tried: {rows[0].detail if rows else 'no api was asked'}"
        )
    return rows


def _known(what: str, asked: Collection[str] | None, known: Collection[str]) -> tuple[str, ...]:
    for name in asked or ():
        if name not in known:
            raise UsageError(unknown(what, name, known))
    return tuple(name for name in known if asked is None or name in asked)


def _stores(factory: str | Factory, folder: Path, dsn: str | None) -> Iterator[Store]:
    """One fresh store."""
    if not isinstance(factory, str):
        store: Store = _Held(Location(folder, "conformance", dsn), factory)
        yield store
        store.destroy()
        return
    backend: type[Backend] = get_backend(factory)
    with backend.service(folder, dsn) as served:
        store = backend.create(Location(folder, f"conformance-{uuid4().hex[:8]}", served))
        try:
            yield store
        finally:
            store.destroy()


class _Held(CustomStore):
    """The store behind a callable."""

    def __init__(self, location: Location, factory: Factory) -> None:
        super().__init__(location, getattr(factory, "__qualname__", repr(factory)))
        self._factory = factory

    def factory(self) -> Factory:
        """The callable that was given."""
        return self._factory


def _rows_of(store: Store, groups: Collection[str], apis: Collection[str]) -> Iterator[Row]:
    for api in apis:
        try:
            if api == "sync":
                with store.saver() as saver:
                    yield from _each(SyncApi(saver), groups, finish)
            else:
                yield from asyncio.run(_through_async(store, groups))
        except Unsupported as reason:
            yield Row(
                api,
                "interface",
                "sync and async",
                "both are there",
                Status.UNSUPPORTED,
                str(reason),
            )


async def _through_async(store: Store, groups: Collection[str]) -> list[Row]:
    async with store.asaver() as saver:
        api = AsyncApi(saver)
        rows = await public_rows(api) if PUBLIC in groups else []
        return rows + [await outcome(check, api) for check in CHECKS if check.group in groups]


def _each(api: Api, groups: Collection[str], drive: Callable[[Any], Any]) -> Iterator[Row]:
    if PUBLIC in groups:
        yield from drive(public_rows(api))
    for check in CHECKS:
        if check.group in groups:
            yield drive(outcome(check, api))
