"""The fixtures for a saver's author, run as the author would: in a test suite of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from savermark.cli import run
from savermark.compare.benchmark_json import load_benchmarks

pytest_plugins = ["pytester"]
DOCS = Path(__file__).parents[1] / "docs" / "regressions.md"


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest-benchmark writes no file inside a worker of pytest-xdist, where these tests run."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


def _example() -> str:
    found = re.search(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_of_the_docs_is_five_lines_and_runs(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    example = _example()
    body = example[example.index("    with") :].rstrip().splitlines()
    assert len(body) == 5
    pytester.makepyfile(test_mine=example)
    for name in ("a", "b"):
        done = pytester.runpytest_subprocess(f"--benchmark-json={name}.json")
        done.assert_outcomes(passed=1)
    a, b = pytester.path / "a.json", pytester.path / "b.json"
    (found,) = load_benchmarks(a).benchmarks.values()
    assert found.rounds == len(found.seconds) == 50
    assert found.probe is not None
    assert found.probe.fingerprint
    assert found.probe.counts["walk own"]["statements"] == 2
    assert found.probe.storage["writes rows"] == 60
    # The same code twice: no exact number moved.
    capsys.readouterr()
    run(["compare", str(a), str(b), "--format", "json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["verdict"] for row in rows if row["kind"] != "time"} == {"same"}
    assert len(rows) > 20


def test_mistakes_of_an_author_are_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest
        from langgraph.checkpoint.base import BaseCheckpointSaver
        from langgraph.checkpoint.memory import InMemorySaver
        from savermark.errors import SavermarkError

        def test_twice(history_walk_benchmark):
            saver = InMemorySaver()
            history_walk_benchmark(saver, turns=3, walk="base", rounds=2)
            with pytest.raises(SavermarkError, match="give an empty one"):
                history_walk_benchmark(saver, turns=3)

        def test_unknown(history_walk_benchmark, storage_snapshot):
            class Mine(BaseCheckpointSaver):
                pass
            with pytest.raises(SavermarkError, match="no sync methods"):
                history_walk_benchmark(Mine(), turns=3)
            with pytest.raises(SavermarkError, match="not known"):
                storage_snapshot(Mine())

        def test_empty(storage_snapshot):
            assert set(storage_snapshot(InMemorySaver()).values()) == {0}
        """
    )
    pytester.runpytest_subprocess("-x").assert_outcomes(passed=3)


def test_unused_it_costs_no_import(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        import sys

        def test_nothing(request):
            assert request.config.pluginmanager.hasplugin("savermark")
            assert "langgraph" not in sys.modules
            assert "savermark.probe" not in sys.modules
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
