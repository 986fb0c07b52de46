"""Result files: nothing lost, nothing overwritten, one clear line for what cannot be read."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from savermark import results
from savermark.errors import ResultError, UsageError
from savermark.records import (
    SCHEMA_VERSION,
    Check,
    Phase,
    PhaseStorage,
    ProcessCost,
    SampleSet,
    Status,
    TrialResult,
)
from savermark.results import (
    append,
    append_trial,
    create_run,
    find_result,
    finished_trials,
    list_runs,
    load_run,
    locked,
    new_run_id,
    prepare_folder,
    trim,
)
from savermark.storage import FloorRow, FootprintRow, StorageRow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEADER: dict[str, Any] = {
    "run_id": "r1",
    "created_at": "2026-01-05T10:15:00+00:00",
    "profile": "standard",
    "quick": False,
    "seed": 1,
    "command": "savermark run chat",
    "environment": {"cores": 2},
    "cases": [{"case_id": "chat@memory", "fingerprint": "0" * 16}],
}
FULL = TrialResult(
    case_id="chat@memory",
    repetition=2,
    status=Status.FAILED,
    cause="check final_state: 1 of 4 wrong",
    started_at="2026-01-05T10:16:00.000+00:00",
    duration_ns=5,
    samples=(SampleSet("put", Phase.LOADED, "run", "", (0, 1), (7, 8), 1),),
    phases=(
        PhaseStorage(
            Phase.LOADED,
            (StorageRow("t00000", "", "blobs", "messages", 3, 300, None),),
            (FootprintRow("total", None, 4096),),
            (FloorRow("t00000", 2, 200),),
        ),
    ),
    checks=(Check(Phase.LOADED, "final_state", False, "1 of 4 wrong"),),
    process=ProcessCost(1, 2, 3, 4, 5, 6),
    backend={"versions": {"langgraph": "1.2.24"}},
    notes={"cores": 2},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_run(tmp_path, HEADER)
    return tmp_path


def trial(repetition: int, status: Status = Status.OK) -> TrialResult:
    return TrialResult("chat@memory", repetition, status)


def test_a_trial_reads_back_as_it_was_written(folder: Path) -> None:
    append_trial(folder / "run.jsonl", FULL)
    run = load_run(folder)
    assert run.trials == [FULL]
    assert run.header == {"record": "run", "schema_version": SCHEMA_VERSION, **HEADER}
    assert run.cases == {"chat@memory": HEADER["cases"][0]}
    assert (run.run_id, run.quick, run.complete, run.truncated_line) == ("r1", False, False, False)
    assert load_run(folder / "run.jsonl") == run


def test_a_result_is_never_overwritten(folder: Path) -> None:
    with pytest.raises(ResultError, match="already holds a result: name another folder"):
        create_run(folder, HEADER)


def test_the_end_makes_it_complete(folder: Path) -> None:
    append(folder / "run.jsonl", {"record": "end", "ok": 0})
    assert load_run(folder).complete


def test_a_trial_that_was_run_again_replaces_the_earlier_one(folder: Path) -> None:
    for status in (Status.SKIPPED, Status.OK):
        append_trial(folder / "run.jsonl", trial(0, status))
    assert [item.status for item in load_run(folder).trials] == [Status.OK]


def test_finished_trials() -> None:
    run = results.RunResult(None, HEADER, [trial(0), trial(1, Status.SKIPPED)])  # type: ignore[arg-type]
    assert finished_trials(run) == {("chat@memory", 0), ("chat@memory", 1)}
    assert finished_trials(run, {Status.SKIPPED}) == {("chat@memory", 0)}


# --- damage ---------------------------------------------------------------------------------------


def test_a_cut_at_any_byte_loses_at_most_the_last_line(folder: Path) -> None:
    path = folder / "run.jsonl"
    append_trial(path, trial(0))
    whole = path.read_bytes()
    append_trial(path, trial(1))
    longer = path.read_bytes()
    for size in range(len(whole), len(longer) + 1):
        path.write_bytes(longer[:size])
        run = load_run(folder)
        kept = 1 if size < len(longer) - 1 else 2  # without its newline alone, a line is whole
        assert [item.repetition for item in run.trials] == [0, 1][:kept]
        assert run.truncated_line == (len(whole) < size < len(longer) - 1)
        trim(path)
        append_trial(path, trial(2))
        again = load_run(folder)
        assert [item.repetition for item in again.trials] == [*[0, 1][:kept], 2]
        assert not again.truncated_line


def test_damage_in_the_middle_is_named_by_its_line(folder: Path) -> None:
    path = folder / "run.jsonl"
    with path.open("a") as file:
        file.write('{"record": "trial", "case\n')
    append_trial(path, trial(0))
    with pytest.raises(ResultError, match="line 2: not a JSON record"):
        load_run(folder)


def test_a_foreign_trial_is_named_by_its_line(folder: Path) -> None:
    append(folder / "run.jsonl", {"record": "trial", "case_id": "x"})
    with pytest.raises(ResultError, match=r"line 2: not a trial of schema version 2 \('status'\)"):
        load_run(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "first line is not a run record"),
        ('{"record": "end"}\n', "first line is not a run record"),
        ('{"record": "run"}\n', "states no schema version"),
        ('{"record": "run", "schema_version": 99}\n', "newer than 2, .*: upgrade savermark"),
        ('{"record": "run", "schema_version": 1}\n', "lacks run_id, created_at, profile, seed"),
        ("not json\n", "line 1: not a JSON record"),
    ],
)
def test_what_is_no_result_of_ours(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(ResultError, match=message) as caught:
        load_run(tmp_path)
    assert "\n" not in str(caught.value)


def test_upgrades_go_step_by_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(name: str) -> Callable[[results.Records], results.Records]:
        return lambda records: [{**records[0], name: True}, *records[1:]]

    now = SCHEMA_VERSION
    monkeypatch.setattr(results, "SCHEMA_VERSION", now + 2)
    monkeypatch.setattr(results, "UPGRADES", {now: step("first"), now + 1: step("second")})
    before = (folder / "run.jsonl").read_bytes()
    header = load_run(folder).header
    assert list(header)[-2:] == ["first", "second"]
    assert (folder / "run.jsonl").read_bytes() == before


def test_there_is_an_upgrade_from_every_version() -> None:
    assert set(results.UPGRADES) == set(range(1, SCHEMA_VERSION))


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_golden_files_of_every_version_read(version: int, request: pytest.FixtureRequest) -> None:
    golden = request.path.parent / "golden" / f"run-v{version}.jsonl"
    run = load_run(golden)
    assert run.complete
    assert [item.status for item in run.trials] == list(Status)
    assert run.trials[0].samples
    assert run.trials[0].phases[0].storage
    assert run.trials[0].process is not None
    assert bool(run.trials[0].costs) == (version >= 2)


# --- writing --------------------------------------------------------------------------------------


def test_a_full_disk_takes_the_line_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "run.jsonl"
    append_trial(path, trial(0))
    before = path.read_bytes()

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with (
        monkeypatch.context() as patch,
        pytest.raises(ResultError, match=r"disk is full.*--resume"),
    ):
        patch.setattr(os, "fsync", full)
        append_trial(path, trial(1))
    assert path.read_bytes() == before
    append_trial(path, trial(1))
    assert len(load_run(folder).trials) == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_device_that_is_full_says_so(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").symlink_to("/dev/full")
    with pytest.raises(ResultError, match="disk is full"):
        append_trial(tmp_path / "run.jsonl", trial(0))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match=r"not a directory\): name another folder with --out"):
        prepare_folder(tmp_path / "file" / "run")


def test_no_nan_reaches_a_file(folder: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        append(folder / "run.jsonl", {"record": "trial", "notes": {"x": float("nan")}})
    assert load_run(folder).trials == []


def test_two_runs_cannot_write_one_result(folder: Path) -> None:
    with locked(folder):
        code = (
            "import sys; from pathlib import Path\n"
            "from savermark.errors import ResultError\n"
            "from savermark.results import locked\n"
            "try:\n    locked(Path(sys.argv[1])).__enter__()\n"
            "except ResultError as error:\n    print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
        )
        assert "another run is writing" in done.stdout
    assert list(folder.iterdir()) == [folder / "run.jsonl"]
    with locked(folder):
        pass


# --- finding --------------------------------------------------------------------------------------


def test_results_are_found_by_name(tmp_path: Path) -> None:
    for day, name in ((7, "b"), (5, "a"), (6, "c")):
        created = f"2026-01-0{day}T00:00:00+00:00"
        prepare_folder(tmp_path / name)
        create_run(tmp_path / name, {**HEADER, "run_id": name, "created_at": created})
    append_trial(tmp_path / "c" / "run.jsonl", trial(0))
    append(tmp_path / "c" / "run.jsonl", {"record": "end"})
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.jsonl").write_text("{")
    runs = list_runs(tmp_path)
    assert [run.run_id for run in runs] == ["a", "c", "b"]
    assert [(run.trials, run.cases, run.complete) for run in runs] == [
        (0, 1, False),
        (1, 1, True),
        (0, 1, False),
    ]
    file = tmp_path / "b" / "run.jsonl"
    for name in ("latest", "b", str(tmp_path / "b"), str(file)):
        assert find_result(name, tmp_path) == file
    with pytest.raises(UsageError, match=r"unknown result 'late': did you mean 'latest'\?"):
        find_result("late", tmp_path)


def test_no_result_yet(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"no result in .*: `savermark run` makes one"):
        find_result("latest", tmp_path / "results")


def test_run_ids_sort_by_time_and_differ() -> None:
    first, second = new_run_id(), new_run_id()
    assert first[:16] <= second[:16]
    assert first != second


def test_a_synthetic_result_reads(fake_run: Callable[..., Path]) -> None:
    run = load_run(fake_run(truncated=True))
    assert run.truncated_line
    assert not run.complete
    assert json.dumps(run.trials[0].to_json())
