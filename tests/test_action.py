"""The GitHub action: its steps are run here as the runner would run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from planted_savers import PLANT
from savermark.cli import VERBS, run

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent


def _yaml(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


ACTION = _yaml(ROOT / "action.yml")
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


class Runner:
    """As much of a runner as the steps need: expressions, outputs, and bash with `-e`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.values = {f"inputs.{name}": i["default"] for name, i in ACTION["inputs"].items()}
        self.values |= {
            "runner.temp": str(folder / "temp"),
            "github.action_path": str(ROOT),
            "github.token": "a-token",
            "github.repository": "me/saver",
            "github.event.pull_request.number": "7",
        }
        self.summary = folder / "summary.md"
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        gh = bin_folder / "gh"
        gh.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/gh.txt\n', encoding="utf-8")
        gh.chmod(0o755)
        self.path = f"{bin_folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def expand(self, text: str) -> str:
        return re.sub(r"\$\{\{\s*(.+?)\s*\}\}", lambda found: self.values[found[1]], text)

    def run(self, name: str) -> int:
        step, output = STEPS[name], self.folder / "output.txt"
        assert "${{" not in step["run"]  # nothing that others write is pasted into a script
        assert step["shell"] == "bash"
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
            env={
                **os.environ,
                **{key: self.expand(value) for key, value in step.get("env", {}).items()},
                "PATH": self.path,
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(self.summary),
            },
            cwd=self.folder,
            check=False,
        )
        if output.exists() and "id" in step:
            for line in output.read_text(encoding="utf-8").splitlines():
                key, _, value = line.partition("=")
                self.values[f"steps.{step['id']}.outputs.{key}"] = value
        return done.returncode


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    return Runner(tmp_path)


def _saved(folder: Path) -> None:
    save = ["baseline", "save", "chat", "--saver", "planted_savers:planted", "--rounds", "0", "-q"]
    sets = ["turns=3", "threads=1", "state.messages.kind=delta"]
    keys = [word for key in sets for word in ("--set", key)]
    assert run([*save, *keys, "--file", str(folder / "savermark-baseline.json")]) == 0


def test_a_pull_request_with_a_regression(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _saved(tmp_path)
    assert runner.run("Install savermark") == 0
    assert runner.run("Check the baseline") == 0
    assert runner.run("Verdict") == 0
    assert "**Verdict: same**" in runner.summary.read_text(encoding="utf-8")

    monkeypatch.setenv(PLANT, "1")
    assert runner.run("Check the baseline") == 0  # the comment comes first, the verdict last
    assert runner.run("Comment on the pull request") == 0
    said = (tmp_path / "gh.txt").read_text(encoding="utf-8").split("\n")
    assert said[:5] == ["pr", "comment", "7", "--repo", "me/saver"]
    comment = Path(said[said.index("--body-file") + 1]).read_text(encoding="utf-8")
    assert "walk own: statements" in comment
    kept = Path(runner.expand(STEPS["Keep the comparison"]["with"]["path"]))
    assert json.loads((kept / "check.json").read_text(encoding="utf-8"))["verdict"] == "worse"
    assert runner.run("Verdict") == 3


def test_a_missing_baseline_is_told_in_the_comment(runner: Runner, tmp_path: Path) -> None:
    assert runner.run("Check the baseline") == 0
    summary = runner.summary.read_text(encoding="utf-8")
    assert "could not be checked" in summary
    assert "savermark baseline save" in summary
    assert runner.run("Verdict") == 1


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "examples").glob("*.yml")))
def test_example_workflows_use_what_there_is(path: Path) -> None:
    workflow = _yaml(path)
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    used = [step for step in steps if "/savermark@" in step.get("uses", "")]
    assert used
    assert all(set(step["with"]) <= set(ACTION["inputs"]) for step in used)
    calls = re.findall(r"savermark (\w+)", " ".join(step.get("run", "") for step in steps))
    assert set(calls) <= set(VERBS)
    assert "ab" in calls


def test_the_branch_step_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call of the example, with two sides that need no network."""
    workflow = _yaml(ROOT / "docs" / "examples" / "regressions.yml")
    steps = workflow["jobs"]["branch-against-base"]["steps"]
    call = next(step["run"] for step in steps if "savermark ab" in step.get("run", ""))
    call = call.replace('"$BASE"', "installed").replace("--b .", "--b installed")
    small = (
        "--set turns=2 --set threads=1 --set measure.cold=false "
        "--repetitions 1 --threshold 99 --out ab"
    )
    summary = tmp_path / "summary.md"
    done = subprocess.run(
        ["bash", "-e", "-c", call.replace(" chat ", f" chat {small} ")],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GITHUB_STEP_SUMMARY": str(summary),
        },
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0
    assert "the same build" in summary.read_text(encoding="utf-8")
