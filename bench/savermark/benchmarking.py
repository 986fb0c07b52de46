"""Fixtures of pytest for whoever writes a saver; docs/regressions.md shows them in use.

def test_my_saver(history_walk_benchmark, storage_snapshot, tmp_path):
    with MySaver.from_conn_string(str(tmp_path / "my.db")) as saver:
        cost = history_walk_benchmark(saver, turns=50)
        assert cost.counts["walk own"]["statements"] <= 2
        assert storage_snapshot(saver)["writes rows"] == 100
"""

# pytest loads this file wherever savermark is installed: nothing but pytest is imported until a
# fixture is used.

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.probe import Probe

    Saver = BaseCheckpointSaver[Any]

ROUNDS = 50
EXTRA = "savermark"  # the key of `extra_info`; `savermark compare` reads it


@pytest.fixture
def history_walk_benchmark(request: pytest.FixtureRequest) -> Callable[..., Probe]:
    """Benchmarks the walk that rebuilds a delta channel, with its exact costs beside the times.

    `history_walk_benchmark(saver, turns=30, walk="own", rounds=50, workload="chat")` plays one
    thread of a real graph on the empty sync saver, checks that its state reads back right, counts
    what writing and reading cost, and times the walk in rounds by pytest-benchmark's `pedantic`.
    Counts, stored rows and bytes and the spec's fingerprint go into `extra_info` and are returned.
    `walk` is the saver's own or a registered one (`savermark list walks`).
    """

    def run(
        saver: Saver,
        *,
        turns: int = 30,
        walk: str = "own",
        rounds: int = ROUNDS,
        workload: str = "chat",
    ) -> Probe:
        from savermark.probe import OWN
        from savermark.probe.given import given_case, probe_saver

        benchmark = _benchmark(request)
        case = given_case(saver, turns, workload)
        found = probe_saver(saver, case, () if walk == OWN else (walk,))
        benchmark.extra_info[EXTRA] = found.to_json()
        benchmark.pedantic(
            _walk(saver, walk), setup=_setup(saver, case), rounds=rounds, warmup_rounds=6
        )
        return found

    return run


def _walk(saver: Saver, name: str) -> Callable[..., Any]:
    from savermark.history.walks import walk
    from savermark.probe import OWN

    if name == OWN:
        return saver.get_delta_channel_history
    chosen = walk(name)

    def named(*, config: Any, channels: Sequence[str]) -> Any:
        return chosen.history(saver, config, channels)

    return named


def _setup(saver: Saver, case: Any) -> Callable[[], tuple[tuple[()], dict[str, Any]]]:
    """What each round begins with: arguments of its own, and no rubbish of the round before."""
    from savermark.probe.given import thread_of

    named: Any = {"configurable": {"thread_id": thread_of(case), "checkpoint_ns": ""}}
    head = saver.get_tuple(named)
    assert head is not None
    at = dict(head.config["configurable"])

    def setup() -> tuple[tuple[()], dict[str, Any]]:
        gc.collect(0)
        return (), {"config": {"configurable": dict(at)}, "channels": ["messages"]}

    return setup


def _benchmark(request: pytest.FixtureRequest) -> Any:
    """The fixture of pytest-benchmark."""
    try:
        return request.getfixturevalue("benchmark")
    except pytest.FixtureLookupError as error:
        raise pytest.UsageError(
            "history_walk_benchmark needs pytest-benchmark: pip install pytest-benchmark"
        ) from error


@pytest.fixture
def storage_snapshot() -> Callable[..., dict[str, int]]:
    """Rows and payload bytes that a sync saver holds, by table.

    `storage_snapshot(saver, threads=None)` gives `{"checkpoints rows": 90, "checkpoints bytes":
    ..., "blobs rows": ..., "writes rows": ..., ...}` of these threads or of all. It knows the
    tables of InMemorySaver, SqliteSaver, PostgresSaver and of what is derived from them.
    """

    def snapshot(saver: Saver, threads: Sequence[str] | None = None) -> dict[str, int]:
        from savermark.probe import stored_rows

        return stored_rows(saver, threads)

    return snapshot
