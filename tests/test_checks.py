"""Each finding fires on what it is about, names it, offers a remedy, and stays quiet otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fix_results import FakeCase
from savermark.checks import Finding, Severity, find, label
from savermark.frame import load_runs, to_frame
from savermark.records import Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def found(fake_run: Callable[..., Path]) -> Callable[..., list[Finding]]:
    """The findings of a run of one case, or of the cases given."""

    def make(*cases: FakeCase, **run: Any) -> list[Finding]:
        return find(load_runs(fake_run(cases=list(cases) or [FakeCase()], **run))[0])

    return make


def test_a_calm_run_has_no_finding(found: Callable[..., list[Finding]]) -> None:
    assert found(FakeCase(), FakeCase(backend="postgres", mode="full")) == []


CASES = [
    ("wide spread", FakeCase(spread=1.2), Severity.WARNING, "of the median"),
    ("slow first sample", FakeCase(first_slow=12.0), Severity.NOTE, "times the next ones"),
    ("near the clock's resolution", FakeCase(backend="null", slower=0.5), Severity.NOTE, "clock"),
    ("too few samples", FakeCase(reads=2), Severity.NOTE, "3 samples over all repetitions"),
    ("autovacuum during a measurement", FakeCase(autovacuum=2), Severity.WARNING, "3 of 3 trials"),
    ("failed state check", FakeCase(failed_check="tips"), Severity.ERROR, "tips at phase loaded"),
    ("unsupported", FakeCase(unsupported="walk_native"), Severity.NOTE, "walk_native: no such"),
    (
        "unsupported",
        FakeCase(status=Status.UNSUPPORTED, cause="needs a file"),
        Severity.NOTE,
        "3 of 3 trials: needs a file",
    ),
    ("failed trial", FakeCase(status=Status.FAILED, cause="disk is full"), Severity.ERROR, "disk"),
    ("timed out", FakeCase(status=Status.TIMEOUT), Severity.ERROR, "no cause"),
    ("skipped", FakeCase(status=Status.SKIPPED, cause="estimated 3 GB"), Severity.NOTE, "3 GB"),
]


@pytest.mark.parametrize(("name", "case", "severity", "words"), CASES)
def test_a_case_finding(
    name: str,
    case: FakeCase,
    severity: Severity,
    words: str,
    found: Callable[..., list[Finding]],
) -> None:
    mine = [
        finding for finding in found(case, FakeCase(backend="postgres")) if finding.finding == name
    ]
    assert len(mine) == 1, "one a case and kind"
    assert mine[0].subject == case.case_id
    assert mine[0].severity is severity
    assert words in mine[0].detail
    assert mine[0].remedy


def test_busy_machine(found: Callable[..., list[Finding]]) -> None:
    busy = found(FakeCase(load_average=3.5), FakeCase(backend="postgres"))
    assert [(finding.finding, finding.subject) for finding in busy] == [("busy machine", "run")]
    assert "3 of 6 trials began at a load above 2.0 on 2 cores, at most 3.5" in busy[0].detail
    assert found(FakeCase(load_average=3.5), environment={"cores": 8}) == []
    assert found(FakeCase(load_average=3.5), environment={"cores": 0}) == []


def test_quick_and_incomplete_runs(found: Callable[..., list[Finding]]) -> None:
    names = [finding.finding for finding in found(quick=True, finished=False)]
    assert names == ["incomplete run", "quick profile"], "the graver one first"


def test_rows_that_differ_between_repetitions(
    fake_run: Callable[..., Path], tmp_path: Path
) -> None:
    path = fake_run(cases=[FakeCase()]) / "run.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[1] = lines[1].replace('"rows": 60', '"rows": 61', 1)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (finding,) = find(load_runs(path)[0])
    assert finding.finding == "rows differ between repetitions"
    assert "checkpoints_rows is 240 to 241" in finding.detail


def test_growth_along_a_thread_is_not_spread(found: Callable[..., list[Finding]]) -> None:
    names = [finding.finding for finding in found(FakeCase(mode="full", turns=200, threads=1))]
    assert names == ["too few samples"]  # one thread, so one cold read a repetition


def test_the_frame_has_the_case_where_there_is_one(fake_run: Callable[..., Path]) -> None:
    frame = to_frame(load_runs(fake_run(cases=[FakeCase(spread=1.2)], quick=True)), "findings")
    assert list(frame["finding"]) == ["wide spread", "quick profile"]
    assert frame["workload"].fillna("-").tolist() == ["chat", "-"]
    assert frame["repetition"].isna().all()
    assert frame["run_id"].notna().all()


def test_labels_read_as_words() -> None:
    assert label(("loaded", "get_state", "warm", "head")) == "get_state warm at head"
    assert label(("loaded", "put", "run", "")) == "put"
    assert label(("retained", "resume", "cold", "depth:5")) == "resume cold at depth:5 (retained)"
