"""Frames: documented columns with fixed types, every row of the file, and one row a case."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

import savermark
from fix_results import FakeCase, FakeRun, make_trial, matrix, write_run
from savermark.errors import ResultError, SavermarkError, UsageError
from savermark.frame import CASE, FRAMES, OWN, SUMMARY, columns, load_runs, summarize, to_frame
from savermark.records import Phase, Status

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cases = [
        FakeCase(backend="sqlite", mode="full", turns=10, threads=3, first_slow=9.0),
        FakeCase(backend="postgres", mode="delta", turns=10, threads=3, unsupported="walk_native"),
        FakeCase(backend="memory", status=Status.TIMEOUT, cause="120 s are over"),
    ]
    run = FakeRun(cases, repetitions=2, quick=True)
    return write_run(tmp_path_factory.mktemp("frame") / "run", run)


def _types(kind: str) -> dict[str, str]:
    return SUMMARY if kind == "summary" else {**CASE, **OWN[kind]}


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_and_types_are_the_documented_ones(kind: str, small: Path) -> None:
    frame = to_frame(load_runs(small), kind)
    assert len(frame) > 0
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == _types(kind)
    assert list(frame.columns) == list(_types(kind))
    assert list(frame.index) == list(range(len(frame)))


@pytest.mark.parametrize("kind", FRAMES)
def test_an_empty_run_gives_an_empty_frame_of_the_same_shape(
    kind: str, small: Path, fake_run: Callable[..., Path]
) -> None:
    empty = to_frame(load_runs(fake_run(cases=[], repetitions=0)), kind)
    assert len(empty) == 0
    pd.testing.assert_series_equal(empty.dtypes, to_frame(load_runs(small), kind).dtypes)


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_survive_parquet(kind: str, small: Path, tmp_path: Path) -> None:
    frame = to_frame(load_runs(small), kind)
    frame.to_parquet(tmp_path / "frame.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "frame.parquet"), frame)


@pytest.mark.parametrize("kind", FRAMES)
def test_every_column_is_documented(kind: str) -> None:
    text = (ROOT / "docs" / "schema.md").read_text(encoding="utf-8")
    assert f"### `{kind}`" in text
    for name in _types(kind):
        assert f"| `{name}` |" in text


def test_case_columns_come_from_the_stored_spec(small: Path) -> None:
    frame = to_frame(load_runs(small), "trials")
    assert list(frame["repetition"]) == [0, 0, 0, 1, 1, 1]
    first = frame.iloc[0]
    assert (first["workload"], first["backend"], first["api"]) == ("chat", "sqlite", "sync")
    assert (first["threads"], first["turns"], first["durability"]) == (3, 10, "sync")
    assert first["mode"] == "full" and pd.isna(first["snapshot_frequency"])
    assert frame.iloc[1]["snapshot_frequency"] == 50


def test_storage_holds_every_row_and_sums_to_the_whole(small: Path) -> None:
    trial = make_trial(FakeCase(backend="sqlite", mode="full", turns=10, threads=3), 0, 1)
    frame = to_frame(load_runs(small), "storage")
    mine = frame[(frame["backend"] == "sqlite") & (frame["repetition"] == 0)]
    for part in trial.phases:
        phase = mine[mine["phase"] == str(part.phase)]
        assert phase["rows"].sum() == sum(row.rows for row in part.storage)
        assert phase["logical_bytes"].sum() == sum(row.logical_bytes for row in part.storage)
    assert mine[mine["table"] == "checkpoints"]["channel"].isna().all()


def test_failed_trials_are_rows_without_numbers(small: Path) -> None:
    frame = to_frame(load_runs(small), "trials")
    lost = frame[frame["backend"] == "memory"]
    assert set(lost["status"]) == {"timeout"}
    assert set(lost["cause"]) == {"120 s are over"}
    assert lost["peak_rss_bytes"].isna().all()
    assert not (to_frame(load_runs(small), "samples")["backend"] == "memory").any()


def test_samples_mark_warmups_and_latency_leaves_them_out(small: Path) -> None:
    run = load_runs(small)
    samples, latency = to_frame(run, "samples"), to_frame(run, "latency")
    warm = (samples["op"] == "get_state") & (samples["temperature"] == "warm")
    assert samples[warm].groupby(["backend", "repetition"])["warmup"].sum().eq(1).all()
    read = latency[(latency["op"] == "get_state") & (latency["temperature"] == "warm")]
    assert set(read["n"]) == {19}
    one = samples[
        warm & (samples["backend"] == "sqlite") & (samples["repetition"] == 0) & ~samples["warmup"]
    ]
    row = read[(read["backend"] == "sqlite") & (read["repetition"] == 0)].iloc[0]
    assert row["p50_ns"] == one["ns"].median()
    assert row["max_ns"] == one["ns"].max()
    assert row["p50_low_ns"] <= row["p50_ns"] <= row["p50_high_ns"]


def test_percentiles_that_n_does_not_carry_are_missing(small: Path) -> None:
    frame = to_frame(load_runs(small), "latency")
    for name, needs in (("p90_ns", 10), ("p95_ns", 20), ("p99_ns", 100)):
        assert (frame[name].isna() == (frame["n"] < needs)).all()


def test_windows_are_of_the_write_path_only(small: Path) -> None:
    frame = to_frame(load_runs(small), "latency")
    assert set(frame[frame["temperature"] != "run"]["window"]) == {"all"}
    put = frame[(frame["op"] == "put") & (frame["backend"] == "sqlite")]
    assert list(put["window"].unique()) == ["all", "first", "middle", "last"]
    by_window = put.groupby("window")["p50_ns"].median()
    assert by_window["last"] > by_window["first"]  # full channels grow


def test_summary_is_one_row_a_case(small: Path) -> None:
    frame = summarize(load_runs(small)).set_index("backend")
    assert list(frame.index) == ["sqlite", "postgres", "memory"]
    assert list(frame["status"]) == ["ok", "ok", "timeout"]
    lite = frame.loc["sqlite"]
    assert lite["checkpoints_rows"] == 90
    assert lite["bytes_per_thread"] == pytest.approx(lite["logical_bytes"] / 3)
    assert lite["amplification"] == pytest.approx(lite["logical_bytes"] / lite["floor_bytes"])
    assert lite["footprint_compacted_bytes"] < lite["footprint_loaded_bytes"]
    assert lite["get_state_cold_p50_ns"] > lite["get_state_warm_p50_ns"]
    assert frame.loc["memory"].drop(labels=list(CASE), errors="ignore")[3:].isna().all()


def test_summary_gives_no_number_beside_a_failed_check(fake_run: Callable[..., Path]) -> None:
    folder = fake_run(cases=[FakeCase(failed_check="final_state")], repetitions=2)
    row = summarize(load_runs(folder)).iloc[0]
    assert row["status"] == "ok" and not row["checks_ok"]
    assert row[list(SUMMARY)[list(SUMMARY).index("checks_ok") + 1 :]].isna().all()


def test_summary_lists_cases_that_no_trial_tried(fake_run: Callable[..., Path]) -> None:
    frame = summarize(load_runs(fake_run(cases=matrix(), repetitions=0, finished=False)))
    assert len(frame) == 18
    assert set(frame["status"]) == {"skipped"} and set(frame["repetitions"]) == {0}


def test_several_runs_stand_one_below_the_other(fake_run: Callable[..., Path]) -> None:
    cases = [FakeCase()]
    one, two = (fake_run(name, cases=cases, run_id=name) for name in ("one", "two"))
    frame = savermark.to_frame(savermark.load_runs(one, two / "run.jsonl"), "checks")
    assert list(frame["run_id"].unique()) == ["one", "two"]
    assert len(to_frame(load_runs(one)[0], "checks")) == len(frame) // 2


def test_an_unknown_frame_is_named_with_the_nearest(small: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'latency'"):
        to_frame(load_runs(small), "latencies")


def test_a_trial_of_an_unknown_case_is_an_error_that_says_so(small: Path, tmp_path: Path) -> None:
    lines = (small / "run.jsonl").read_text(encoding="utf-8").replace("@memory", "@other", 1)
    (tmp_path / "run.jsonl").write_text(lines, encoding="utf-8")
    with pytest.raises(SavermarkError, match="memory") as caught:
        to_frame(load_runs(tmp_path), "trials")
    assert isinstance(caught.value, ResultError)


def test_columns_puts_the_case_first() -> None:
    assert columns("floor")[: len(CASE)] == list(CASE)


def test_importing_the_package_leaves_pandas_alone() -> None:
    code = "import savermark, sys; assert 'pandas' not in sys.modules; savermark.load_runs"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError):
        _ = savermark.nothing  # type: ignore[attr-defined]


def test_phases_are_spelled_as_in_the_records(small: Path) -> None:
    frame = to_frame(load_runs(small), "footprint")
    assert list(frame["phase"].unique()) == [str(phase) for phase in Phase]
