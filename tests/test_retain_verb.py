"""`savermark retain`: exit codes, tables, JSON, the block for a pull request, page and plots."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savermark.cli import run
from savermark.frame import load_runs
from savermark.report import write_report

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = (
    *("--set", "conversation.turns=5", "--set", "conversation.threads=2"),
    *("--set", "state.messages.kind=delta", "--set", "state.messages.snapshot_frequency=3"),
    *("--set", "measure.reads=6", "--set", "measure.cold=false"),
)


@pytest.fixture(scope="session")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """A real run of a right and of a naive policy: exit code and folder."""
    out = tmp_path_factory.mktemp("retain") / "pruned"
    policies = ["--policy", "keep-turns=2", "--policy", "planted_policies:naive"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        code = run(["retain", "chat", *policies, "-b", "sqlite", *SMALL, "--out", str(out), "-q"])
    return code, out


@pytest.fixture(scope="session")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """A real run of the run-history scenario."""
    out = tmp_path_factory.mktemp("retain") / "scenario"
    where = ["-b", "sqlite", "--out", str(out), "-q"]
    return run(["retain", "--scenario", "run-history", *where, *SMALL]), out


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line: exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(arguments))
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return call


def shown(folder: Path, fmt: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the verb prints of a finished result."""
    from savermark.cli.retain_tables import print_retention

    capsys.readouterr()
    (found,) = load_runs(folder)
    print_retention(found, fmt)
    return capsys.readouterr().out


# --- the run --------------------------------------------------------------------------------------


def test_a_broken_policy_exits_3_and_is_shown_failing_beside_a_right_one(
    pruned: tuple[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = pruned
    assert code == 3
    text = shown(out, "table", capsys)
    assert "Verification FAILED in 1 of 2 cases: these have no numbers." in text
    assert "thread 't00000': latest resume: the newest state" in text
    assert "ok: 2 threads read back as promised" in text
    # Numbers of the right one only.
    whole = text[text.index("Rows and bytes by table") :]
    whole = whole[: whole.index("thread 't00000'")]
    assert "keep-turns=2" in whole and "naive │" not in whole


def test_the_scenario_exits_0(
    scenario: tuple[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = scenario
    assert code == 0
    text = shown(out, "table", capsys)
    assert "Run history and its cache leaf" in text and "admission" in text
    table = json.loads(shown(out, "json", capsys))["run_history"]
    assert {row["policy"]: row["scans"] for row in table} == {"kept": 5, "idle": 15, "admission": 5}


def test_a_resumed_run_is_judged_again(
    pruned: tuple[int, Path], printed: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, _ = printed("retain", "--resume", str(pruned[1]), "-q", "--format", "json")
    assert code == 3 and len(json.loads(out)["verdicts"]) == 2


# --- what is printed ------------------------------------------------------------------------------


def test_json_is_one_document_with_verdicts_and_frames(
    pruned: tuple[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(shown(pruned[1], "json", capsys))
    assert set(found) == {"run_id", "verdicts", "space", "effort", "reads", "run_history"}
    assert [each["ok"] for each in found["verdicts"]] == [True, False]
    assert {row["policy"] for row in found["space"]} == {"keep-turns=2"}
    assert found["effort"][0]["rows_deleted"] > 0


def test_csv_has_a_row_a_table(
    pruned: tuple[int, Path],
    scenario: tuple[int, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = shown(pruned[1], "csv", capsys).splitlines()
    assert lines[0].startswith("workload,variant,backend,policy,setting,table,rows_loaded")
    assert [line.split(",")[5] for line in lines[1:]] == [
        "checkpoints",
        "blobs",
        "writes",
        "all tables",
    ]
    assert shown(scenario[1], "csv", capsys).startswith("workload,variant,backend,policy,setting,r")


def test_the_block_for_a_pull_request_carries_the_verdict(
    pruned: tuple[int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(pruned[1], "md", capsys)
    assert (pruned[1] / "retention.md").read_text(encoding="utf-8") == text
    assert text.startswith("## savermark retain\n\n**Verification FAILED")
    assert "### What broke: `chat[policy=planted_policies:naive]@sqlite`" in text
    widths = 0
    for line in text.splitlines():
        if line.startswith("|"):
            cells = line.count("|") - line.count("\\|")
            assert widths in (0, cells), line
            widths = cells
        else:
            widths = 0
    assert text.rstrip().endswith("```") and "Run pruned:" in text  # the command that made it


# --- page and plots -------------------------------------------------------------------------------


class Text(HTMLParser):
    """The text of a page, and its open elements."""

    void = ("meta", "link", "br", "path", "use", "rect", "line", "circle", "image")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.void:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def _text(folder: Path) -> str:
    page = Text()
    page.feed((folder / "report.html").read_text(encoding="utf-8"))
    assert page.open == []
    return " ".join(" ".join(page.found).split())


def test_the_page_tells_before_after_and_what_broke(pruned: tuple[int, Path]) -> None:
    text = _text(pruned[1])
    assert "Before and after the policy Verification FAILED in 1 of 2 cases" in text
    assert "of the payload freed by keep-turns=2, on sqlite" in text
    assert "latest resume t00000 : the newest state" in text
    assert "The whole store on sqlite:" in text


def test_the_page_of_the_scenario_tells_what_a_pass_while_idle_costs(
    scenario: tuple[int, Path],
) -> None:
    text = _text(scenario[1])
    assert "when a pass deletes the leaf after each" in text
    assert "15, 5 and 5 of 15 reads scan the thread, and 0, 5 and 1 leaves are left" in text


def test_bars_are_labelled_with_what_they_stand_for(
    pruned: tuple[int, Path], scenario: tuple[int, Path]
) -> None:
    for folder, name, words in (
        (pruned[1], "chat.policy-space", ("checkpoints", "writes", "whole store", "after")),
        (scenario[1], "run-history.run-history", ("kept", "idle", "admission", "sqlite")),
    ):
        assert (folder / "plots" / f"{name}.png").stat().st_size > 5_000
        svg = (folder / "plots" / f"{name}.svg").read_text(encoding="utf-8")
        ET.fromstring(svg)  # our own file
        for word in words:
            assert f">{word}<" in svg


def test_the_report_is_made_from_the_raw_file_alone(pruned: tuple[int, Path]) -> None:
    before = (pruned[1] / "retention.md").read_bytes()
    (pruned[1] / "retention.md").unlink()
    write_report(pruned[1])
    assert (pruned[1] / "retention.md").read_bytes() == before
    names = {path.stem for path in (pruned[1] / "frames").glob("retention_*.csv")}
    assert names == {"retention_space", "retention_effort", "retention_reads"}


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (("chat",), "--policy"),
        (("--policy", "keep-latest"), "name a workload"),
        (("chat", "--policy", "keep-latst"), "did you mean 'keep-latest'"),
        (("chat", "--policy", "keep-turns=0"), "must be 1 or more"),
        (("chat", "--policy", "nowhere_at_all:f"), "cannot be imported"),
        (("chat", "--policy", "json:JSON"), "unknown name in json"),
        (("chats", "--policy", "keep-latest"), "unknown workload"),
        (("chat", "--scenario", "run-history"), "leave WORKLOAD"),
        (("--scenario", "run-histry"), "run-history"),
        (("chat", "--policy", "keep-latest", "-b", "sqlit"), "unknown backend"),
        (("walk-depth", "--policy", "keep-latest"), "savermark walk"),
    ],
)
def test_each_mistake_is_one_line_that_names_the_fix(
    printed: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    fix: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = printed("retain", *arguments)
    assert code in (1, 2) and out == ""
    lines = [line for line in err.splitlines() if not line.startswith("try: ")]
    assert len(lines) == 1 and fix in lines[0], err
    assert not list(tmp_path.glob("results/local/*"))


def test_policies_are_listed(printed: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = printed("list", "policies", "--format", "json")
    rules = [row["rule"] for row in json.loads(out)]
    assert code == 0 and {"keep-latest", "keep-turns=N", "duration-leaves"} <= set(rules)
