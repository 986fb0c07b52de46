"""Conformance: good savers pass every check, and each planted fault is seen where it is."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

import faulty_savers
from faulty_savers import FAULTS
from savermark.cli import conformance_verb, run
from savermark.conformance import Row, Status, run_conformance
from savermark.conformance.run import APIS, GROUPS
from savermark.errors import BackendError, Unsupported, UsageError
from savermark.retention.savers import RetainingInMemorySaver

if TYPE_CHECKING:
    from pathlib import Path


def _wrong(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.status in (Status.FAILED, Status.ERROR)]


def test_a_good_saver_passes_everything_in_both_apis() -> None:
    rows = run_conformance(RetainingInMemorySaver)
    assert [row for row in rows if row.status is not Status.OK] == []
    counts = Counter((row.api, row.group) for row in rows)
    for group in ("public", "delta", "interface", "cleanup"):
        assert counts["sync", group] == counts["async", group] > 0
    capabilities = {row.capability for row in rows if row.group == "public"}
    assert len(capabilities) == 8
    assert len({(row.api, row.group, row.capability, row.check) for row in rows}) == len(rows)


@pytest.mark.parametrize("name", ["memory", "sqlite", "postgres"])
def test_langgraphs_own_savers(name: str, request: pytest.FixtureRequest) -> None:
    """What they lack is unsupported, and Postgres refuses to prune delta threads unharmed."""
    dsn = request.getfixturevalue("postgres_dsn") if name == "postgres" else None
    rows = run_conformance(name, dsn=dsn)
    assert _wrong(rows) == []
    lacking = {row.capability for row in rows if row.status is Status.UNSUPPORTED}
    assert lacking - {"sync and async"} == {"prune", "delete_for_runs", "copy_thread"}
    refused = {row.detail for row in rows if row.detail.startswith("refuses threads")}
    assert bool(refused) == (name == "postgres")


@pytest.mark.parametrize("faulty", FAULTS, ids=lambda kind: kind.__name__)
def test_a_fault_is_seen_where_it_is(faulty: type[InMemorySaver]) -> None:
    apis = ["sync", "async"] if faulty is faulty_savers.TwoMinds else ["sync"]
    rows = run_conformance(faulty, apis=apis)
    assert {(row.group, row.capability) for row in _wrong(rows)} == FAULTS[faulty]
    assert all(row.detail for row in _wrong(rows))


def test_every_group_has_a_fault() -> None:
    seen = {place[0] for places in FAULTS.values() for place in places}
    assert seen == {"public", "delta", "interface", "cleanup"}


def test_a_wrong_order_of_parallel_writers_shows_in_the_graph_that_has_them() -> None:
    rows = _wrong(run_conformance(faulty_savers.ByArrival, groups=["delta"]))
    shapes = {row.check.partition(":")[0] for row in rows if row.check.endswith("at the head")}
    assert shapes == {"three parallel writers, the first by path the slowest"}
    rows = _wrong(run_conformance(faulty_savers.TextNumbers, groups=["delta"]))
    shapes = {row.check.partition(":")[0] for row in rows if row.check.endswith("at the head")}
    assert shapes == {"twelve writes from one task"}


class Raises(InMemorySaver):
    """Raises where it is asked for a namespace."""

    def get_tuple(self, config: Any) -> Any:
        if config["configurable"].get("checkpoint_ns"):
            raise RuntimeError("no\nnamespaces here")
        return super().get_tuple(config)


def test_what_a_saver_raises_is_an_error_on_one_line() -> None:
    rows = run_conformance(Raises, groups=["interface"], apis=["sync"])
    errors = {row.detail for row in rows if row.status is Status.ERROR}
    assert errors == {"RuntimeError: no namespaces here"}


class SyncOnly(InMemorySaver):
    """Has no async methods."""

    async def aget_tuple(self, config: Any) -> Any:
        raise NotImplementedError


def test_a_missing_api_is_one_row() -> None:
    rows = run_conformance(SyncOnly, groups=["interface"])
    lacking = [row for row in rows if row.api == "async"]
    assert [(row.status, row.check) for row in lacking] == [(Status.UNSUPPORTED, "both are there")]
    with pytest.raises(Unsupported, match="nothing could be tried"):
        run_conformance(SyncOnly, apis=["async"])


def test_the_verb_knows_the_groups() -> None:
    assert (conformance_verb.GROUPS, conformance_verb.APIS) == (GROUPS, APIS)


def test_wrong_names() -> None:
    with pytest.raises(UsageError, match="did you mean 'sqlite'"):
        run_conformance("sqlit")
    with pytest.raises(UsageError, match="unknown group"):
        run_conformance("memory", groups=["dleta"])
    with pytest.raises(UsageError, match="unknown api"):
        run_conformance("memory", apis=["asink"])
    with pytest.raises(BackendError, match="not a BaseCheckpointSaver"):
        run_conformance(lambda: object())


def test_rows_are_heard_of_as_they_come() -> None:
    heard: list[Row] = []
    rows = run_conformance(InMemorySaver, groups=["interface"], apis=["sync"], on_row=heard.append)
    assert heard == rows


def test_the_verb(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ["conformance", "memory", "--group", "interface", "--api", "sync"]
    assert run(asked) == 0
    out, err = capsys.readouterr()
    assert "namespace in every key" in out
    assert "21 ok" in err
    target = tmp_path / "rows.json"
    assert run([*asked, "--format", "json", "-o", str(target), "-q"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", "")
    rows = json.loads(target.read_text(encoding="utf-8"))
    assert {row["status"] for row in rows} == {"ok"}
    assert set(rows[0]) == {"api", "group", "capability", "check", "status", "detail"}


def test_the_verb_on_a_broken_saver(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["conformance", "faulty_savers:NaivePrune", "--group", "cleanup", "--format", "csv"]
    assert run(asked) == 3
    out, err = capsys.readouterr()
    assert "25 supersteps: the latest state is as before,failed" in out
    assert "4 failed" in err


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["conformance", "memroy"], 2, "did you mean 'memory'"),
        (["conformance", "no.such:thing"], 2, "cannot be imported"),
        (["conformance", "memory", "--group", "x"], 2, "'x' is not one of"),
        (["conformance", "memory", "-o", "/nowhere/at/all.json"], 2, "/nowhere/at"),
    ],
)
def test_mistakes_are_one_line(
    argv: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len([line for line in err.splitlines() if not line.startswith("try: ")]) == 1
