"""The command line: help with examples, data on stdout, one line and a code for each mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fix_results import FakeCase, FakeRun, write_run
from savermark.cli import VERBS, cli, run
from savermark.cli.output import recorded_command
from savermark.results import load_run

SMALL = ("--set", "threads=1", "--set", "turns=2", "--set", "measure.cold=false", "--no-report")


def _fails(capsys: pytest.CaptureFixture[str], code: int, *argv: str) -> str:
    """The complaint of a command that must end with `code` and one line on stderr."""
    assert run(argv) == code
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith("try: ")]
    assert len(lines) == 1, err
    assert lines[0].startswith("savermark: ")
    assert "Traceback" not in err
    return lines[0]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_one_line_of_help_and_an_example(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "xample" in text
    assert f"savermark {verb}" in text
    assert len(VERBS[verb]) < 90


def test_help_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(verb in text for verb in VERBS)
    assert list(VERBS) == cli.list_commands(None)  # type: ignore[attr-defined,arg-type]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["shwo"], "did you mean 'show'"),
        (["run"], "name workloads or a --profile"),
        (["run", "chta"], "did you mean 'chat'"),
        (["run", "nothing-*"], "no workload matches"),
        (["run", "chat", "--profile", "quick"], "one of the two"),
        (["run", "--profile", "qick"], "did you mean 'quick'"),
        (["run", "chat", "-b", "postgrse"], "did you mean 'postgres'"),
        (["run", "chat", "--set", "conversation.turn=3"], "conversation.turns"),
        (["run", "chat", "--set", "turns"], "key=value"),
        (["run", "chat", "--set", "turns=-1"], "turns"),
        (["run", "chat", "--set", "messages.kind=half"], "full"),
        (["run", "chat", "--repetitions", "0"], "1 or more"),
        (["run", "chat", "--timeout", "0"], "more than 0"),
        (["run", "chat", "--timeout", "nan"], "more than 0"),
        (["run", "chat", "--timeout", "inf"], "at most 86400"),
        (["run", "--resume", "latest", "--out", "x"], "leave --out out"),
        (["run", "--resume", "latest", "--set", "turns=3"], "name the workloads, too"),
        (["run", "chat", "-b", "nowhere.at_all:factory"], "nowhere"),
        (["list", "workload"], "workloads"),
        (["show", "--frame", "storrage", "RESULT"], "did you mean 'storage'"),
        (["compare", "RESULT", "RESULT", "--threshold", "0.5"], "above 1"),
    ],
)
def test_mistakes_are_one_line_that_names_the_fix(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    result = write_run(tmp_path / "result", FakeRun([FakeCase()]))
    argv = [str(result) if word == "RESULT" else word for word in argv]
    out = ["--out", str(tmp_path / "out")] if argv[:2] == ["run", "chat"] else []
    assert words in _fails(capsys, 2, *argv, *out)
    assert not (tmp_path / "out").exists()  # nothing half-made is left


@pytest.mark.parametrize(
    "argv",
    [("--dsn", "host=h password='se cret'", "-q"), ("--dsn=postgresql://u:se@cr/et@h/d", "-q")],
)
def test_no_quoting_brings_a_password_into_the_recorded_command(argv: tuple[str, ...]) -> None:
    recorded = recorded_command(["run", "chat", *argv])
    assert recorded.replace("=", " ").replace("'", "") == "savermark run chat --dsn *** -q"


def test_a_syntax_error_has_line_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[conversation]\nturns = = 3\n", encoding="utf-8")
    assert "line 2, column 9" in _fails(capsys, 2, "run", str(file))


def test_results_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "a", FakeRun([FakeCase()]))
    file = folder / "run.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    header = json.loads(lines[0])
    newer = json.dumps({**header, "schema_version": header["schema_version"] + 1})
    file.write_text("\n".join([newer, *lines[1:]]) + "\n", encoding="utf-8")
    assert "upgrade savermark" in _fails(capsys, 1, "show", str(folder))
    assert "latest" in _fails(capsys, 2, "show", str(tmp_path / "nowhere"))


def test_a_truncated_last_line_is_read_around(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "a", FakeRun([FakeCase()], truncated=True))
    assert run(["show", str(folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["workload"] == "chat"


def test_what_must_not_be_compared_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = write_run(tmp_path / "a", FakeRun([FakeCase()]))
    other = write_run(tmp_path / "b", FakeRun([FakeCase(workload="fleet")]))
    quick = write_run(tmp_path / "c", FakeRun([FakeCase()], quick=True))
    _fails(capsys, 4, "compare", str(a), str(other))
    assert "quick" in _fails(capsys, 4, "compare", str(quick), str(a))


def test_a_regression_exits_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = FakeCase()
    a = write_run(tmp_path / "a", FakeRun([case]))
    b = write_run(tmp_path / "b", FakeRun([replace(case, heavier=1.5)], run_id="b"))
    assert run(["compare", str(a), str(b), "--format", "md"]) == 3
    assert "**Verdict: worse**" in capsys.readouterr().out
    assert run(["compare", str(a), str(a), "--format", "csv"]) == 0


def test_an_unreachable_server_is_one_line_without_its_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = "postgresql://someone:s3cret@127.0.0.1:1/db"
    out = str(tmp_path / "out")
    line = _fails(capsys, 1, "run", "chat", "-b", "postgres", "--dsn", dsn, "--out", out, *SMALL)
    assert "s3cret" not in line
    assert not Path(out).exists()


def test_a_folder_that_is_a_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("x", encoding="utf-8")
    out = str(tmp_path / "taken" / "below")
    assert "--out" in _fails(capsys, 1, "run", "chat", "-b", "memory", "--out", out, *SMALL)


def test_run_show_and_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    argv = ["run", "chat", "-b", "memory", "--out", out, *SMALL, "--set", "messages.kind=delta"]
    assert run(argv) == 0
    assert capsys.readouterr().out == ""  # --no-report measures only
    assert run(["show", out, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["status"] == "ok"
    assert row["checks_ok"] is True
    assert run(["show", out, "--frame", "storage", "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("run_id,workload,")
    assert run(["show", out, "--format", "md"]) == 0
    assert capsys.readouterr().out.startswith("| workload |")
    assert "already holds a result" in _fails(capsys, 1, *argv)


def test_a_changed_workload_file_is_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "mine.toml", str(tmp_path / "out")
    file.write_text("[conversation]\nthreads = 1\nturns = 2\n", encoding="utf-8")
    assert run(["run", str(file), "-b", "null", "--out", out, "--no-report", "-q"]) == 0
    again = ["run", str(file), "-b", "null", "--resume", out, "--no-report", "-q"]
    assert run(again) == 0
    file.write_text("[conversation]\nthreads = 1\nturns = 3\n", encoding="utf-8")
    capsys.readouterr()
    assert "changed since the result was started" in _fails(capsys, 1, *again)


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("workloads", "backends", "profiles", "results"):
        assert run(["list", kind, "--format", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert kind == "results" or len(rows) >= 3


def test_env_keeps_people_and_places_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["env", "--format", "json"]) == 0
    text = capsys.readouterr().out
    assert "langgraph" in json.loads(text)["packages"]
    assert os.path.expanduser("~") + os.sep not in text  # noqa: PTH111


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "savermark", "run", "chat", "-b", "memory", "--out", str(out)]
    command += [*SMALL, "--repetitions", "30"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not (out / "run.jsonl").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"--resume {out}" in err
    assert "Traceback" not in err
    assert load_run(out).complete is False
