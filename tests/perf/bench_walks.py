"""The walks of each saver as a suite of pytest-benchmark, for `make perf` and not for `make test`.

    pytest tests/perf/bench_walks.py --benchmark-json=a.json
    savermark compare a.json b.json

Rounds are `pedantic` with a set-up each; the fingerprint of what was played and its exact counts
are in `extra_info`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.history.walks import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from savermark.probe import Probe

TURNS = (30, 200)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A saver of each backend on a store of its own, as its documentation opens it."""
    backend = get_backend(request.param)
    with backend.service(tmp_path) as dsn:
        store = backend.create(Location(tmp_path, f"bench-{tmp_path.name}", dsn))
        try:
            with store.saver() as opened:
                yield opened
        finally:
            store.destroy()


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("name", ["base", "native", "onepass"])
@pytest.mark.benchmark(group="walks")
def test_walk(
    saver: Any, name: str, turns: int, history_walk_benchmark: Callable[..., Probe]
) -> None:
    if not walk(name).supports(saver):
        pytest.skip(f"{type(saver).__name__} has no walk {name!r}")
    found = history_walk_benchmark(saver, turns=turns, walk=name, rounds=30)
    assert found.counts[f"walk {name}"]["values"] > 0
