"""A fresh store on every registered backend, and on a third-party saver named by its factory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from savermark.backends.base import Backend, Capability, Location, Store
from savermark.backends.registry import backend_names, get_backend
from savermark.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

THIRD_PARTY = "langgraph.checkpoint.memory:InMemorySaver"


@dataclass(frozen=True)
class Place:
    """Where the store under test is, and more places like it."""

    backend: type[Backend]
    location: Location

    def other(self, name: str) -> Location:
        return replace(self.location, name=name)


@pytest.fixture(params=[*backend_names(), THIRD_PARTY])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A backend and an empty location for it; a server comes from a fixture `<name>_dsn`."""
    try:
        backend = get_backend(request.param)
    except BackendError as error:
        pytest.skip(str(error))
    try:
        dsn = request.getfixturevalue(f"{request.param}_dsn")
    except pytest.FixtureLookupError:
        dsn = None
    return Place(backend, Location(tmp_path, f"store-{tmp_path.name}", dsn))


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    """A fresh, empty store."""
    made = place.backend.create(place.location)
    yield made
    made.destroy()


@pytest.fixture
def require(store: Store) -> Any:
    """Skips the test where the store lacks a capability."""

    def check(*needed: Capability) -> None:
        missing = [each for each in needed if each not in store.capabilities]
        if missing:
            pytest.skip(f"no {', '.join(missing)}")

    return check
