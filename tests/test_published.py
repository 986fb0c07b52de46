"""The published graphs, and whether a run lands on the figures that others published."""

from __future__ import annotations

import sqlite3
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from savermark.backends.base import Location
from savermark.errors import WorkloadError
from savermark.frame import to_frame
from savermark.graphs import build_graph
from savermark.graphs.play import play
from savermark.published import COLUMNS, GATES, check_published
from savermark.records import Status
from savermark.results import RunResult
from savermark.script import state_digest, write_script
from savermark.spec import fingerprint, load_workload, spec_from_json, workload_names
from savermark.trial import Case, run_trial

if TYPE_CHECKING:
    from pathlib import Path

    from savermark.spec import WorkloadSpec

STEPS = {"human-ai": 4, "ai-only": 3, "channels": 3}  # checkpoints a turn
QUICKLY = ("measure.cold=false", "measure.reads=1")  # neither is part of the fingerprint


def small(graph: str, kind: str) -> WorkloadSpec:
    extra = {"extra": {"count": 3, "frequencies": [2, 3]}} if graph == "channels" else {}
    return spec_from_json(
        {
            "name": "small",
            "graph": graph,
            "state": {"messages": {"kind": kind, "snapshot_frequency": 4}, **extra},
            "conversation": {"threads": 2, "turns": 7, "human_bytes": 120, "model_bytes": 90},
        }
    )


@pytest.fixture
def measured(tmp_path: Path) -> Any:
    """Runs variants of shipped workloads: `measured("memory", name, *overrides) -> frames`."""

    def run(backend: str, *wanted: tuple[str, ...]) -> dict[str, pd.DataFrame]:
        cases = [
            Case(name, variant.label, variant.spec, backend)
            for name, *overrides in wanted
            for variant in load_workload(name, [*overrides, *QUICKLY])
        ]
        trials = [
            run_trial(case, Location(tmp_path, f"store{index}")) for index, case in enumerate(cases)
        ]
        assert [trial.status for trial in trials] == [Status.OK] * len(cases)
        header = {"run_id": "r1", "cases": [case.to_json() for case in cases]}
        result = RunResult(tmp_path / "run.jsonl", header, trials)
        return {name: to_frame(result, name) for name in ("storage", "footprint", "latency")}

    return run


def drive(spec: WorkloadSpec, saver: Any) -> None:
    graph = build_graph(spec, saver)
    for thread in write_script(spec):
        outcome = play(graph, saver, thread, spec, lambda _: nullcontext())
        values = graph.get_state(outcome.tips["head"]).values
        assert state_digest(values) == thread.tips["head"].digest


@pytest.mark.parametrize("kind", ["full", "delta"])
@pytest.mark.parametrize("graph", STEPS)
def test_the_published_graphs_end_where_the_oracle_says(
    graph: str, kind: str, tmp_path: Path
) -> None:
    spec = small(graph, kind)
    saver = InMemorySaver()
    drive(spec, saver)
    assert {len(thread[""]) for thread in saver.storage.values()} == {7 * STEPS[graph]}
    path = tmp_path / "published.sqlite"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        drive(spec, SqliteSaver(connection))


def test_message_ids_and_lengths_are_the_published_ones() -> None:
    saver = InMemorySaver()
    for graph, channel, first in (("human-ai", "messages", "h0"), ("channels", "c2", "c2_0")):
        spec = small(graph, "delta")
        compiled = build_graph(spec, saver)
        thread = replace(write_script(spec)[0], thread_id=graph)
        outcome = play(compiled, saver, thread, spec, lambda _: nullcontext())
        messages = compiled.get_state(outcome.tips["head"]).values[channel]
        assert (messages[0].id, len(messages[0].content)) == (first, 120)


def test_a_section_that_a_published_graph_lacks_is_refused() -> None:
    spec = small("human-ai", "full")
    with pytest.raises(WorkloadError, match=r"no \[state\.extra\]"):
        write_script(replace(spec, state=small("channels", "full").state))
    with pytest.raises(WorkloadError, match=r"state\.extra\.count"):
        write_script(replace(spec, graph="channels"))


def test_every_gate_speaks_about_one_exact_case_and_names_its_source() -> None:
    assert {gate.workload for gate in GATES} == {
        name for name in workload_names() if name.startswith("published-")
    }
    for gate in GATES:
        assert gate.source and "\n" not in gate.source
        assert gate.bounds.low < gate.bounds.high
        for case in filter(None, (gate.case, gate.against)):
            assert len(load_workload(gate.workload, case)) == 1
    figures = [(gate.workload, gate.figure) for gate in GATES]
    assert len(set(figures)) == len(figures)


def test_each_published_workload_has_a_gate_as_shipped() -> None:
    for name in {gate.workload for gate in GATES}:
        shipped = {fingerprint(variant.spec) for variant in load_workload(name)}
        met = [
            gate
            for gate in GATES
            if gate.workload == name
            and {
                fingerprint(load_workload(name, case)[0].spec)
                for case in filter(None, (gate.case, gate.against))
            }
            <= shipped
        ]
        assert met, name


def test_pr_7586_lands_at_100_turns(measured: Any) -> None:
    frames = measured("memory", ("published-pr7586", "turns=100", "messages.kind=full"))
    (row,) = check_published(**frames).to_dict("records")
    assert row["ok"]
    assert row["figure"] == "messages blobs, full, 100 turns"
    assert row["measured"] == pytest.approx(8.789e6, rel=0.001)
    assert row["ratio"] == row["measured"] / row["published"]


def test_deep_agents_a_lands_at_10_turns_and_needs_both_modes(measured: Any) -> None:
    frames = measured("memory", ("published-deepagents-a", "turns=10"))
    table = check_published(**frames)
    assert list(table["ok"]) == [True]
    assert 4.9 < table["measured"][0] < 5.4  # ours is 5.1
    one = {name: frame[frame["mode"] == "full"] for name, frame in frames.items()}
    assert check_published(**one).empty


def test_the_file_of_pr_7699_lands_at_200_turns(measured: Any) -> None:
    table = check_published(**measured("sqlite", ("published-pr7699-file",)))
    assert list(table["figure"]) == [
        "file, 1 channel, delta 50, 200 turns",
        "file, 1 channel, full, 200 turns",
    ]
    assert table["ok"].all()
    assert (table["ratio"] - 1).abs().max() < 0.03


def test_what_was_changed_meets_no_gate_and_what_is_off_fails(measured: Any) -> None:
    changed = measured(
        "memory",
        ("published-pr7586", "turns=9", "messages.kind=full"),
        ("published-pr7586", "turns=10", "messages.kind=full", "human_bytes=200"),
        ("published-pr7586", "turns=10", "messages.kind=full", "threads=2"),
    )
    table = check_published(**changed)
    assert table.empty
    assert list(table.columns) == list(COLUMNS)
    frames = measured("memory", ("published-pr7586", "turns=10", "messages.kind=full"))
    assert check_published(**frames)["ok"].all()
    storage = frames["storage"].copy()
    storage["logical_bytes"] = storage["logical_bytes"] * 2
    assert list(check_published(storage)["ok"]) == [False]


def test_other_runs_have_no_published_figures(fake_run: Any) -> None:
    from savermark.frame import load_runs

    runs = load_runs(fake_run())
    assert check_published(to_frame(runs, "storage"), to_frame(runs, "footprint")).empty


def latency(times: dict[tuple[str, ...], float]) -> pd.DataFrame:
    """A latency frame of PR 7676's cases at 500 turns, warm medians in ms."""
    rows = []
    for case, ms in times.items():
        (variant,) = load_workload("published-pr7676", ("conversation.turns=500", *case))
        rows.append(
            {
                "run_id": "r1",
                "workload": "published-pr7676",
                "backend": "postgres",
                "fingerprint": fingerprint(variant.spec),
                "repetition": 0,
                "phase": "loaded",
                "op": "get_state",
                "temperature": "warm",
                "at": "head",
                "window": "all",
                "p50_ns": ms * 1e6,
            }
        )
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("full", "ten", "never", "expected"),
    [
        (12.0, 14.7, 48.5, [True, True]),  # what we saw
        (12.0, 60.0, 45.0, [True, True]),  # a noisy machine: reported, not failed
        (12.0, 90.0, 40.0, [False, False]),  # grossly off
    ],
)
def test_the_shape_of_pr_7676_forgives_noise_only(
    full: float, ten: float, never: float, expected: list[bool]
) -> None:
    frequency = "state.messages.snapshot_frequency="
    delta = "state.messages.kind=delta"
    frame = latency(
        {
            ("state.messages.kind=full",): full,
            (delta, f"{frequency}10"): ten,
            (delta, f"{frequency}1000000"): never,
        }
    )
    storage = frame.iloc[:0]
    table = check_published(storage, latency=frame)
    assert list(table["ok"]) == expected
    assert all("fails" in gate for gate in table["gate"])
