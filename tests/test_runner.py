"""Runs: order, isolation, failures as rows, and what a kill leaves."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from killable_run import SPEC, plan
from savermark.errors import BackendError, ResultError, UsageError
from savermark.records import Status, TrialResult
from savermark.results import load_run
from savermark.runner import (
    Planned,
    RunPlan,
    Silent,
    cell_key,
    plan_trials,
    resumed_plan,
    run_workloads,
)
from savermark.runner import plan as planning
from savermark.runner import run as running
from savermark.script import estimate_bytes
from savermark.spec import ConversationSpec, MessagesSpec, RunSpec, StateSpec, WorkloadSpec, fixed
from savermark.trial import Case, child
from savermark.trial.child import exit_cause, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials by a worker that only pretends."""
    monkeypatch.setattr(child, "WORKER", "stub_worker")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs make their scratch folders."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def sized(turns: int, kind: Any = "delta", backend: str = "memory") -> Case:
    spec = WorkloadSpec(
        name="chat",
        state=StateSpec(messages=MessagesSpec(kind=kind)),
        conversation=ConversationSpec(turns=fixed(turns)),
    )
    return Case("chat", f"turns={turns},kind={kind}", spec, backend)


class Log(Silent):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def started(self, total: int, resumed: int) -> None:
        self.events.append(("run", total, resumed))

    def trial_started(self, planned: Planned, done: int, total: int) -> None:
        self.events.append(("start", planned.case.case_id, done, total))

    def trial_finished(self, result: TrialResult, done: int, total: int) -> None:
        self.events.append(("end", result.case_id, done, total))


# --- the plan -------------------------------------------------------------------------------------

MANY = RunPlan(
    cases=tuple(
        replace(sized(turns, kind), backend=backend)
        for turns in (1, 2, 3)
        for kind in ("full", "delta")
        for backend in ("memory", "sqlite", "postgres")
    ),
    repetitions=2,
    seed=3,
)


def test_order_is_shuffled_by_the_seed_and_interleaved_over_backends() -> None:
    order = plan_trials(MANY)
    assert order == plan_trials(MANY)
    assert order != plan_trials(replace(MANY, seed=4))
    assert [planned.repetition for planned in order] == [0] * 18 + [1] * 18
    runs = [list(group) for _, group in groupby(order, key=lambda p: p.case.variant)]
    assert [len({planned.case.backend for planned in group}) for group in runs] == [3] * 12
    assert [p.case for p in order[:18]] != [p.case for p in order[18:]]
    assert set(order) == {Planned(case, n) for case in MANY.cases for n in (0, 1)}


def test_a_workload_says_how_often_unless_the_plan_does() -> None:
    often = replace(sized(1).spec, measure=replace(sized(1).spec.measure, repetitions=3))
    both = RunPlan(cases=(replace(sized(1), spec=often), sized(2)))
    assert [planned.repetition for planned in plan_trials(both)] == [0, 0, 1, 2]
    assert len(plan_trials(replace(both, repetitions=1))) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cases": ()}, "nothing to run"),
        ({"cases": (sized(1), sized(1))}, "is there twice"),
        ({"repetitions": 0}, "repetitions is 0: give 1 or more"),
        ({"timeout_s": 0.0}, "timeout is 0 s: give more than 0"),
        ({"cases": (sized(1, backend="sqlit"),)}, "did you mean 'sqlite'"),
    ],
)
def test_a_plan_that_makes_no_sense(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_workloads(replace(RunPlan(cases=(sized(1),)), **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_cell_is_one_size_whatever_the_mode_api_and_backend() -> None:
    one = sized(5)
    alike = [
        sized(5, "full"),
        replace(one, backend="sqlite"),
        replace(one, spec=replace(one.spec, run=RunSpec(api="async"))),
    ]
    assert {cell_key(case) for case in alike} == {cell_key(one)}
    assert cell_key(sized(6)) != cell_key(one)


def test_a_cell_beyond_the_cap_is_skipped_as_a_whole(
    stub: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the full mode of 90 turns is too large; its delta twin goes with it."""
    small, large = (
        estimate_bytes(sized(90).spec),
        estimate_bytes(sized(90, "full").spec),
    )
    monkeypatch.setattr(planning, "CAP_BYTES", (small + large) // 2)
    cases = (sized(5), sized(5, "full"), sized(90), sized(90, "full"))
    summary = run_workloads(RunPlan(cases=cases), tmp_path / "run")
    assert (summary.counts[Status.OK], summary.counts[Status.SKIPPED]) == (2, 2)
    assert summary.exit_code == 0
    skipped = [t for t in load_run(tmp_path / "run").trials if t.status is Status.SKIPPED]
    assert {trial.case_id for trial in skipped} == {case.case_id for case in cases[2:]}
    assert "--allow-large runs it" in skipped[0].cause

    lifted = RunPlan(cases=cases, resume=True, allow_large=True)
    assert run_workloads(lifted, tmp_path / "run").counts[Status.OK] == 4
    run = load_run(tmp_path / "run")
    assert (len(run.trials), run.complete) == (4, True)


# --- a run ----------------------------------------------------------------------------------------


def test_a_run_leaves_its_result_and_nothing_else(
    stub: None, tmp_path: Path, scratch: Path
) -> None:
    log = Log()
    out = tmp_path / "20260105-101500-abcd"
    few = replace(plan(("memory", "null")), repetitions=2, profile="mine", command="savermark run")
    summary = run_workloads(few, out, log)
    assert list(out.iterdir()) == [summary.path]
    assert list(scratch.iterdir()) == []
    run = load_run(out)
    assert run.complete
    assert {(t.case_id, t.repetition) for t in run.trials} == {
        (f"ok@{backend}", n) for backend in ("memory", "null") for n in (0, 1)
    }
    header = run.header
    assert (header["run_id"], header["profile"], header["quick"]) == (out.name, "mine", False)
    assert header["environment"]["packages"]["langgraph"]
    assert [case["repetitions"] for case in header["cases"]] == [2, 2]
    assert Case.from_json(header["cases"][0]).spec == SPEC
    folders = {trial.notes["folder"] for trial in run.trials}
    assert len(folders) == 4  # a store of its own for each trial
    assert log.events[0] == ("run", 4, 0)
    assert [event[0] for event in log.events[1:]] == ["start", "end"] * 4
    assert log.events[-1][2:] == (4, 4)


def test_keep_leaves_the_scratch_folder(stub: None, tmp_path: Path, scratch: Path) -> None:
    once = replace(plan(("memory",)), repetitions=1, keep=True)
    run_workloads(once, tmp_path / "run")
    (kept,) = scratch.iterdir()
    assert [path.name[:6] for path in sorted(kept.iterdir())] == ["servic", "trial-"]


def test_failures_become_rows_and_the_run_goes_on(tmp_path: Path) -> None:
    """The real worker, each way a trial can end."""
    odd = ("Crashes", "OutOfMemory", "Exits", "Talkative", "Fails", "Forgets")
    backends = ("memory", *(f"odd_savers:{name}" for name in odd))
    few = replace(plan(backends), repetitions=1)
    summary = run_workloads(few, tmp_path / "run")
    assert summary.exit_code == 1
    assert summary.counts[Status.FAILED] == 5
    assert all(trial.duration_ns and trial.started_at for trial in load_run(summary.path).trials)
    rows = {
        trial.case_id.partition("@")[2].rpartition(":")[2]: (trial.status, trial.cause)
        for trial in load_run(tmp_path / "run").trials
    }
    assert rows["memory"] == rows["Talkative"] == (Status.OK, "")
    assert rows["Crashes"] == (Status.FAILED, "killed by SIGSEGV: something foreboding")
    assert rows["Exits"] == (Status.FAILED, "ended with code 7 and no result: license expired")
    assert rows["OutOfMemory"][1].startswith("MemoryError (tests/odd_savers.py:")
    assert rows["Fails"][1].startswith("ValueError: cannot reach postgresql://me:***@db/x")
    assert rows["Forgets"][1].startswith("check final_state: ")


def test_a_timeout_is_a_row_and_ends_every_process(
    stub: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_PIDS", str(tmp_path / "pids"))
    cases = (*plan(("memory",), "hang").cases, *plan(("memory",)).cases)
    summary = run_workloads(RunPlan(cases=cases, repetitions=1, timeout_s=3.0), tmp_path / "run")
    assert summary.exit_code == 1
    rows = {trial.case_id: trial for trial in load_run(tmp_path / "run").trials}
    assert rows["ok@memory"].status is Status.OK
    late = rows["hang@memory"]
    assert (late.status, late.cause) == (Status.TIMEOUT, "no result after 3 s")
    assert late.started_at
    assert late.duration_ns > 0
    for pid in (tmp_path / "pids").read_text().split():
        wait_until(lambda pid=int(pid): gone(pid), "a process outlived its trial")


def test_no_password_reaches_a_result(stub: None, tmp_path: Path) -> None:
    dsn = "postgresql://me:hunter2@db.example/x"
    cases = (*plan(("memory",), "print-dsn").cases, *plan(("memory",)).cases)
    command = f"savermark run ok --dsn {dsn}"
    leaky = RunPlan(cases=cases, repetitions=1, dsn=dsn, command=command)
    path = run_workloads(leaky, tmp_path / "run").path
    assert "hunter2" not in path.read_text()
    run = load_run(path)
    (failed,) = [trial for trial in run.trials if trial.status is Status.FAILED]
    assert failed.cause == (
        "ended with code 3 and no result: connection to postgresql://me:***@db.example/x failed"
    )
    assert run.header["command"] == "savermark run ok --dsn postgresql://me:***@db.example/x"


# --- what cannot be run ---------------------------------------------------------------------------


def test_a_service_that_does_not_start_leaves_no_result(
    stub: None, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def service(folder: Path, dsn: str | None = None) -> Iterator[str | None]:
        raise BackendError("cannot reach the server: start it")
        yield dsn

    monkeypatch.setattr("savermark.backends.memory.MemoryBackend.service", service)
    with pytest.raises(BackendError, match="start it"):
        run_workloads(plan(("memory",)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert list(scratch.iterdir()) == []


def test_services_are_started_once_and_ended(
    stub: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = []

    @contextmanager
    def service(folder: Path, dsn: str | None = None) -> Iterator[str | None]:
        assert folder.is_dir()
        log.append("start")
        yield dsn
        log.append("end")

    monkeypatch.setattr("savermark.backends.memory.MemoryBackend.service", service)
    run_workloads(plan(("memory",)), tmp_path / "run")
    assert log == ["start", "end"]


def test_a_full_disk_ends_the_run_with_one_line(
    stub: None, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, trial: TrialResult) -> None:
        raise ResultError("the disk is full: cannot write")

    monkeypatch.setattr(running, "append_trial", full)
    with pytest.raises(ResultError, match="disk is full"):
        run_workloads(plan(("memory",)), tmp_path / "run")
    assert list(scratch.iterdir()) == []
    assert not load_run(tmp_path / "run").complete


def test_a_scratch_folder_that_cannot_be_made(
    stub: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(ResultError, match=r"cannot write .*missing.*set TMPDIR"):
        run_workloads(plan(("memory",)), tmp_path / "run")


# --- going on -------------------------------------------------------------------------------------


@pytest.fixture
def half_done(stub: None, tmp_path: Path) -> Path:
    """A result whose last trials are missing, the file cut in the middle of a line."""
    path = run_workloads(plan(("memory", "null")), tmp_path / "run").path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]) + lines[5][:40])
    return path.parent


def test_resume_runs_what_is_missing(half_done: Path) -> None:
    log = Log()
    before = (half_done / "run.jsonl").read_bytes()
    summary = run_workloads(resumed_plan(load_run(half_done)), half_done, log)
    assert log.events[0] == ("run", 6, 4)
    assert (summary.resumed, summary.counts[Status.OK]) == (4, 10)
    run = load_run(half_done)
    assert (len(run.trials), run.complete, run.truncated_line) == (10, True, False)
    assert (half_done / "run.jsonl").read_bytes().startswith(before[: before.rfind(b"\n") + 1])


def test_resuming_what_is_complete_changes_nothing(half_done: Path) -> None:
    run_workloads(resumed_plan(load_run(half_done)), half_done)
    before = (half_done / "run.jsonl").read_bytes()
    again = run_workloads(resumed_plan(load_run(half_done)), half_done)
    assert (again.resumed, (half_done / "run.jsonl").read_bytes()) == (10, before)


def test_a_changed_spec_is_refused(half_done: Path) -> None:
    before = (half_done / "run.jsonl").read_bytes()
    longer = replace(SPEC, conversation=ConversationSpec(threads=1, turns=fixed(3)))
    cases = (Case("ok", "", longer, "memory"),)
    with pytest.raises(ResultError, match="case ok@memory changed since") as caught:
        run_workloads(RunPlan(cases=cases, resume=True), half_done)
    assert "\n" not in str(caught.value)
    with pytest.raises(ResultError, match="has no case ok@sqlite: start a new run"):
        run_workloads(replace(plan(("sqlite",)), resume=True), half_done)
    assert (half_done / "run.jsonl").read_bytes() == before


def test_more_of_the_same_is_no_changed_spec(half_done: Path) -> None:
    more = replace(SPEC, measure=replace(SPEC.measure, repetitions=6))
    cases = (Case("ok", "", more, "memory"), Case("ok", "", SPEC, "null"))
    summary = run_workloads(RunPlan(cases=cases, resume=True), half_done)
    assert summary.counts[Status.OK] == 11


def test_another_environment_is_refused(half_done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**running.capture_environment(), "python": "3.99.0"}
    monkeypatch.setattr(running, "capture_environment", lambda: other)
    with pytest.raises(ResultError, match=r"environment changed .*\(python: .* -> 3\.99\.0\)"):
        run_workloads(resumed_plan(load_run(half_done)), half_done)


def test_a_run_without_resume_does_not_touch_a_result(half_done: Path) -> None:
    with pytest.raises(ResultError, match="already holds a result"):
        run_workloads(plan(("memory",)), half_done)


def test_a_header_from_elsewhere_cannot_be_resumed(fake_run: Callable[..., Path]) -> None:
    with pytest.raises(ResultError, match=r"cannot be resumed: .*; start a new run"):
        resumed_plan(load_run(fake_run()))


# --- kills ----------------------------------------------------------------------------------------


@contextmanager
def started(out: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(HERE / "killable_run.py"), str(out), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, otherwise
        time.sleep(0.02)


def recorded(out: Path) -> set[tuple[str, str]]:
    path = out / "run.jsonl"
    if not path.exists() or b"\n" not in path.read_bytes():
        return set()
    return {(trial.case_id, str(trial.repetition)) for trial in load_run(out).trials}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_kill_at_any_moment_loses_at_most_the_trial_in_flight(tmp_path: Path, seed: int) -> None:
    out, rng = tmp_path / "run", random.Random(seed)
    backends = ("memory", "null", "sqlite")
    told: set[tuple[str, str]] = set()
    for _ in range(3):
        with started(out, "STUB", "ok", *backends) as process:
            assert process.stdout is not None
            process.stdout.readline()  # the first trial of this attempt was started
            time.sleep(rng.random() / 4)
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split("\n")[:-1]  # whole lines
        finished = [line.split()[1:] for line in rest if line.startswith("finished")]
        begun = 1 + sum(line.startswith("started") for line in rest)
        told |= {(case_id, number) for case_id, number in finished}
        kept = recorded(out)
        assert told <= kept
        assert len(kept) <= len(told) + 1  # on disk, but killed before it could say so
        assert begun - len(finished) <= 1
    with started(out, "STUB", "ok", *backends) as process:
        assert process.wait() == 0
    run = load_run(out)
    assert run.complete
    assert len(run.trials) == len(recorded(out)) == 15
    lines = (out / "run.jsonl").read_text().count('"record":"trial"')
    assert lines == 15  # none was run twice


def test_a_real_run_killed_and_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with started(out, "REAL", "ok", "sqlite") as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(3)]  # the second trial was started
        assert [line.split()[0] for line in seen] == ["started", "finished", "started"]
        workers = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGKILL)
    for worker in workers:
        wait_until(lambda pid=worker.pid: gone(pid), "a worker outlived its run")
    kept = recorded(out)
    assert ("ok@sqlite", "0") in kept
    with started(out, "REAL", "ok", "sqlite") as process:
        assert process.wait() == 0
    run = load_run(out)
    assert (len(run.trials), run.complete) == (2, True)
    assert {trial.status for trial in run.trials} == {Status.OK}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_an_interrupted_run_cleans_up(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    with started(tmp_path / "run", "STUB", "hang", "memory") as process:
        wait_until((tmp_path / "pids").exists, "the trial did not start")
        process.send_signal(getattr(signal, name))
        assert process.wait() == 130
    for pid in (tmp_path / "pids").read_text().split():
        wait_until(lambda pid=int(pid): gone(pid), "a process outlived its run")
    assert list((tmp_path / "scratch").iterdir()) == []
    run = load_run(tmp_path / "run")
    assert (run.trials, run.complete) == ([], False)


def test_the_next_run_removes_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch" / "savermark-of-others").mkdir(parents=True)
    with started(tmp_path / "run", "STUB", "hang", "null") as living:
        wait_until(lambda: len(left(tmp_path)) == 1, "the run did not start")
        (of_the_living,) = left(tmp_path)
        with started(tmp_path / "killed", "STUB", "hang", "null") as process:
            assert process.stdout is not None
            process.stdout.readline()  # a trial was started
            process.send_signal(signal.SIGKILL)
        assert len(left(tmp_path)) == 2
        with started(tmp_path / "next", "STUB", "ok", "null") as process:
            assert process.wait() == 0
        assert left(tmp_path) == {of_the_living}
        living.send_signal(signal.SIGTERM)
        assert living.wait() == 130
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["savermark-of-others"]


def left(tmp_path: Path) -> set[Path]:
    return {lock.parent for lock in (tmp_path / "scratch").glob("*/scratch.lock")}


# --- how a worker ended ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "printed", "cause"),
    [
        (-9, "", "killed by SIGKILL (out of memory?)"),
        (-11, "a\nb\n\n", "killed by SIGSEGV: b"),
        (-200, "", "killed by signal 200"),
        (1, "Traceback\nMemoryError\n", "ended with code 1 and no result: MemoryError"),
        (0, "", "ended with code 0 and no result"),
    ],
)
def test_exit_cause(code: int, printed: str, cause: str) -> None:
    assert exit_cause(code, printed) == cause


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p%40ss@h/d?x=1", "postgresql://u:***@h/d?x=1"),
        ("host=h password=secret user=u", "host=h password=*** user=u"),
        ("password = 'two words' user=u", "password = *** user=u"),
        (r"password='it\'s two' user=u", "password=*** user=u"),
        ("postgresql://u:p@ss/w@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@h/d\nsecond", "postgresql://u@h/d second"),
        ("x" * 600, "x" * 499 + "…"),
    ],
)
def test_redact(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_a_worker_dies_when_its_pipe_closes(tmp_path: Path) -> None:
    """Also when whoever started it cannot kill it any more."""
    job = {"kind": "trial", "result": str(tmp_path / "r"), "leads_group": False}
    code = (
        "import sys, time, savermark.worker as worker\n"
        "worker._do = lambda job: time.sleep(600)\n"
        "worker.main()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(f"{json.dumps(job)}\n".encode())
        process.stdin.flush()
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(timeout=60) == -signal.SIGKILL
