"""Walk trials: threads as the spec says, right before fast, and the same counts again."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, DeltaChannelHistory
from langgraph.checkpoint.memory import InMemorySaver

from fix_threads import STORES
from savermark.backends.base import Location
from savermark.errors import UsageError, WorkloadError
from savermark.families import case_from_json
from savermark.history.walks import walk, walk_names
from savermark.records import Status, TrialResult
from savermark.spec import (
    WALKS,
    WalkSpec,
    fingerprint,
    load_walk_workload,
    load_workload,
    spec_from_json,
    spec_to_json,
    workload_names,
)
from savermark.spec.load import workload_folder
from savermark.spec.parse import spec_keys
from savermark.walking import ground as grounds
from savermark.walking.case import WalkCase, make_walk_cases
from savermark.walking.family import FAMILY
from savermark.walking.rows import (
    checkpoint_id,
    expected,
    foreign_spec,
    snapshot_places,
    thread_rows,
)
from savermark.walking.story import _since, run_walk_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = (
    "thread.depth=24",
    "channels.frequencies=[[7, 10, 500]]",
    "channels.count=3",
    "other_bytes=200",
    "measure.reads=2",
    "reads.history=3",
)
READS = ("get_state", "resume", "history_3", "history_all")


def _spec(*overrides: str) -> WalkSpec:
    template = str(workload_folder() / "_walk-template.toml")
    (variant,) = load_walk_workload(template, overrides)
    return replace(variant.spec, name="small")


@pytest.fixture
def trial(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., TrialResult]:
    """Runs one walk trial on a backend."""

    def run(backend: str, *overrides: str) -> TrialResult:
        dsn = request.getfixturevalue("postgres_dsn") if backend == "postgres" else None
        case = WalkCase("small", "", _spec(*SMALL, *overrides), backend)
        return run_walk_trial(case, Location(tmp_path, f"walk-{tmp_path.name}", dsn))

    return run


# --- the workload ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", workload_names("walks"))
def test_each_workload_loads_and_survives_json(name: str) -> None:
    variants = load_walk_workload(name)
    assert len(variants) > 2, "a walk workload sweeps what it asks about"
    for variant in variants:
        assert variant.spec.name == name and 0 < len(variant.spec.summary) < 100
        again = json.loads(json.dumps(spec_to_json(variant.spec)))
        assert spec_from_json(again, WALKS) == variant.spec
        case = WalkCase(name, variant.label, variant.spec, "sqlite")
        assert case_from_json(json.loads(json.dumps(case.to_json()))) == case
        assert FAMILY.estimate_bytes(case) < 2**30, "beyond the cap it would never run"
    assert len({fingerprint(variant.spec) for variant in variants}) == len(variants)


def test_the_template_has_every_key_with_its_default_and_a_comment() -> None:
    text = (workload_folder() / "_walk-template.toml").read_text(encoding="utf-8")
    assert _spec() == WalkSpec(name="small")
    table = tomllib.loads(text)
    assert (table.pop("family"), table.pop("sweep")) == ("walks", {})
    flat = {
        f"{section}.{key}" if isinstance(value, dict) else section
        for section, value in table.items()
        for key in (value if isinstance(value, dict) else (section,))
    }
    assert flat == set(spec_keys(WALKS))
    lines = [line for line in text.splitlines() if re.match(r"[a-z_]+ = ", line)]
    assert [line for line in lines if "#" not in line] == []


def test_every_number_has_a_range() -> None:
    kinds = spec_keys(WALKS)
    numbers = {key for key, kind in kinds.items() if kind in (int, float, tuple[int, ...])}
    assert numbers == set(WALKS.ranges)


def test_wrong_values_name_the_fix() -> None:
    with pytest.raises(WorkloadError, match=r"from 2 to 1,000,000,000"):
        _spec("channels.frequencies=[[1]]")
    with pytest.raises(WorkloadError, match=r"did you mean 'thread.depth'\?"):
        _spec("thread.dept=3")
    with pytest.raises(WorkloadError, match="name walks apart by commas"):
        _spec('reads.walks=" "')
    with pytest.raises(WorkloadError, match="it is a walk workload: use `savermark walk walk-dep"):
        load_workload("walk-depth")


# --- the thread -----------------------------------------------------------------------------------


def test_the_head_is_one_update_short_of_the_next_snapshot() -> None:
    spec = _spec("thread.depth=24", "channels.frequencies=[[7, 24, 23, 2]]", "channels.count=4")
    assert [list(snapshot_places(spec, channel)) for channel in range(3)] == [[3, 10, 17], [], [1]]
    assert snapshot_places(spec, 3)[-1] == 22  # the head is 23
    last = _spec("thread.depth=24", "channels.frequencies=[[7]]", 'channels.snapshots="last"')
    assert list(snapshot_places(last, 0)) == [17]


def test_what_a_walk_must_find() -> None:
    spec = _spec("thread.depth=24", "channels.frequencies=[[7]]", "channels.snapshot_items=2")
    seed, writes = expected(spec, 0)
    assert seed is not None and (len(seed), len(writes)) == (2, 6)
    none, all_writes = expected(_spec("thread.depth=24"), 0)
    assert none is None and len(all_writes) == 23


def test_rows_are_a_function_of_the_spec_and_tell_their_ids_apart() -> None:
    spec = _spec("thread.depth=300", "thread.forks=3", "other_bytes=10")
    rows = list(thread_rows(spec))
    assert rows == list(thread_rows(spec))
    ids = [row.checkpoint["id"] for row in rows]
    assert len(set(ids)) == len(ids) == 300 + 99
    assert ids == sorted(ids), "ids sort by time"
    by_id = dict(zip(ids, rows, strict=True))
    assert all(row.parent is None or row.parent < name for name, row in by_id.items())
    versions = [row.new_versions["other"] for row in rows]
    assert len(set(versions)) == len(versions), "no two checkpoints share a blob"
    children = [row.parent for row in rows]
    assert children.count(checkpoint_id(3)) == 2 and children.count(checkpoint_id(4)) == 1


def test_a_thread_as_the_runtime_counts_it() -> None:
    rows = list(thread_rows(_spec("thread.depth=24", "channels.frequencies=[[7]]")))
    counters = [row.metadata["counters_since_delta_snapshot"].get("log0") for row in rows]
    assert counters[0] is None and counters[1] == [1, 1]
    assert (counters[16], counters[17], counters[18], counters[23]) == (
        [6, 6],
        None,
        [1, 1],
        [6, 6],
    )


def test_other_threads_are_short_whatever_the_thread_is() -> None:
    spec = _spec("item_bytes=100_000", "other_bytes=1_000_000", "channels.count=8")
    (*_, row) = thread_rows(foreign_spec(spec, 30))
    assert len(str(row.checkpoint)) < 3_000


# --- the trial ------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["sync", "async"])
@pytest.mark.parametrize("backend", STORES)
def test_a_trial_samples_counts_and_checks(
    trial: Callable[..., TrialResult], backend: str, api: str
) -> None:
    result = trial(backend, f"reads.api={api}", "forks=5", "foreign=150", "channels.kind=message")
    assert result.status is Status.OK, result.cause
    assert {check.check: check.ok for check in result.checks} == dict.fromkeys(
        ("thread", "walks", "floor", "states"), True
    )
    names = walk_names()
    walked = {f"walk_{name}" for name in [*names, "floor"]}
    states = {f"{what}_{n}" for n in names for what in READS}
    missing = set(result.notes.get("unsupported", {}))
    assert {item.op for item in result.samples} == (walked | states) - missing
    assert {row.op for row in result.costs} == {item.op for item in result.samples}
    assert result.notes["foreign_checkpoints"] == 200
    for row in result.costs:
        known = set(row.counts.known())
        if row.op.endswith(("_base", "_native", "_floor")):
            assert set(row.exact) == known, row.op
        # A walk that learns from its calls may ask for a little more in one of them.
        assert set(row.exact) >= known - {"bytes", "blocks", "vm_steps"}, row.op
    assert all(row.thread_id == "walk-00000" for part in result.phases for row in part.storage)
    assert TrialResult.from_json(json.loads(json.dumps(result.to_json()))) == result


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_the_floor_fetches_the_needed_rows_in_one_statement(
    trial: Callable[..., TrialResult], backend: str
) -> None:
    costs = {row.op: row.counts for row in trial(backend, "reads.states=false").costs}
    # 6 and 9 writes since the snapshots, 23 of the channel without one, and two seeds.
    assert (costs["walk_floor"].statements, costs["walk_floor"].rows) == (1, 6 + 9 + 23 + 2)
    floor = costs["walk_floor"].values
    for name in ("base", "native"):
        assert costs[f"walk_{name}"].values >= floor  # type: ignore[operator]


def test_cold_walks_are_sampled_in_another_process(trial: Callable[..., TrialResult]) -> None:
    result = trial("sqlite", "measure.cold=true", "reads.states=false", 'reads.walks="base,native"')
    cold = [item for item in result.samples if item.temperature == "cold"]
    assert [item.op for item in cold] == ["walk_base", "walk_native"]
    assert all(0 < len(item.ns) <= 3 for item in cold)


class _Liar:
    """A walk that forgets one write."""

    name, title = "liar", "forgets the newest write"

    def supports(self, saver: object) -> bool:
        return True

    def history(self, saver: Any, config: Any, channels: Any) -> dict[str, DeltaChannelHistory]:
        found = BaseCheckpointSaver.get_delta_channel_history(
            saver, config=config, channels=channels
        )
        return {name: {**one, "writes": one["writes"][:-1]} for name, one in found.items()}


def test_a_wrong_walk_fails_the_trial(
    trial: Callable[..., TrialResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grounds, "walk", lambda name: _Liar() if name == "liar" else walk(name))
    result = trial("memory", 'reads.walks="base,liar"', "reads.states=false")
    assert result.status is Status.FAILED
    assert "walk_liar" in result.cause


def test_an_unknown_walk_is_named_before_anything_is_built(
    trial: Callable[..., TrialResult],
) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'native'\?"):
        trial("memory", 'reads.walks="nativ"')


def test_a_store_that_keeps_nothing_is_unsupported(trial: Callable[..., TrialResult]) -> None:
    result = trial("null")
    assert result.status is Status.UNSUPPORTED and "keeps nothing" in result.cause


def test_a_saver_without_a_walk_of_its_own_says_so(trial: Callable[..., TrialResult]) -> None:
    """A third party's saver: the base walk runs, what cannot be is noted and not zero."""
    result = trial(f"{__name__}:PlainSaver", 'reads.walks="base,native"', "reads.states=false")
    assert result.status is Status.OK, result.cause
    assert "walk_native" in result.notes["unsupported"]


class PlainSaver(BaseCheckpointSaver[str]):
    """A saver that brings no walk, over one that does."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = InMemorySaver()
        self.get_tuple = self.inside.get_tuple  # type: ignore[method-assign]
        self.put = self.inside.put  # type: ignore[method-assign]
        self.put_writes = self.inside.put_writes  # type: ignore[method-assign]
        self.list = self.inside.list  # type: ignore[method-assign]


def test_cases_are_one_for_each_variant_and_backend() -> None:
    cases = make_walk_cases("walk-near", ("memory", "sqlite"), ("thread.depth=[5, 6]",))
    assert [case.case_id for case in cases] == [
        "walk-near[depth=5]@memory",
        "walk-near[depth=5]@sqlite",
        "walk-near[depth=6]@memory",
        "walk-near[depth=6]@sqlite",
    ]


def test_upkeep_while_the_store_was_filled_is_no_finding() -> None:
    before = {"server": "18", "autovacuum_runs": 3, "autoanalyze_runs": 0}
    after = {"server": "18", "autovacuum_runs": 3, "autoanalyze_runs": 2}
    assert _since(before, after) == after | {"autovacuum_runs": 0}
    assert _since({}, {"version": "3.40"}) == {"version": "3.40"}
