"""Two results: exact for rows and bytes, careful for times, silent where nothing may be said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fix_results import FakeCase, matrix
from savermark.compare import (
    COLUMNS,
    Comparison,
    Difference,
    Kind,
    Row,
    Verdict,
    compare_runs,
    exit_code,
    to_markdown,
)
from savermark.compare.judge import Rules, judge
from savermark.compare.measures import Measure
from savermark.errors import NotComparableError
from savermark.frame import load_runs
from savermark.records import Status, TrialResult

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden"
CASE = FakeCase(turns=20, threads=2)


@pytest.fixture
def compared(fake_run: Callable[..., Path]) -> Callable[..., Comparison]:
    """Compares runs of the cases given, each with its own run fields and seed."""

    def make(a: Any, b: Any, run_a: Any = None, run_b: Any = None) -> Comparison:
        left = {"cases": a, "run_id": "run-a", "seed": 1, **(run_a or {})}
        right = {"cases": b, "run_id": "run-b", "seed": 2, **(run_b or {})}
        one, two = load_runs(fake_run("a", **left), fake_run("b", **right))
        return compare_runs(one, two)

    return make


def _rows(comparison: Comparison, **want: Any) -> dict[str, Verdict]:
    return {
        row.metric: row.verdict
        for row in comparison.rows
        if all(getattr(row, name) == value for name, value in want.items())
    }


# -- verdicts --------------------------------------------------------------------------------------


def test_the_same_code_twice_is_never_better_or_worse(
    compared: Callable[..., Comparison],
) -> None:
    comparison = compared(matrix(turns=10, threads=2), matrix(turns=10, threads=2))
    assert set(_rows(comparison).values()) <= {Verdict.SAME, Verdict.UNRESOLVED}
    assert comparison.counts[Verdict.SAME] > 0.9 * len(comparison.rows)
    assert exit_code(comparison) == 0


def test_slower_code_is_worse_in_times_only(compared: Callable[..., Comparison]) -> None:
    comparison = compared([CASE], [replace(CASE, slower=1.6)])
    times = _rows(comparison, kind=Kind.TIME)
    assert "turn, last tenth" in times
    assert times.pop("get_state cold at head") is not Verdict.SAME  # two samples a trial
    assert set(times.values()) == {Verdict.WORSE}
    assert set(_rows(comparison, kind=Kind.ROWS).values()) == {Verdict.SAME}
    assert set(_rows(comparison, kind=Kind.BYTES).values()) == {Verdict.SAME}
    assert comparison.verdict is Verdict.WORSE and exit_code(comparison) == 3
    for row in comparison.rows:
        if row.kind is Kind.TIME and row.low and row.high and row.ratio:
            assert row.low <= row.ratio <= row.high
            assert row.ratio == pytest.approx((row.b or 0) / (row.a or 1))


def test_faster_code_is_better(compared: Callable[..., Comparison]) -> None:
    comparison = compared([CASE], [replace(CASE, slower=0.5)])
    assert set(_rows(comparison, kind=Kind.TIME).values()) == {Verdict.BETTER}
    assert comparison.verdict is Verdict.BETTER and exit_code(comparison) == 0


def test_more_bytes_of_the_same_rows_are_worse(compared: Callable[..., Comparison]) -> None:
    comparison = compared([CASE], [replace(CASE, heavier=1.05)])
    sizes = _rows(comparison, kind=Kind.BYTES)
    assert sizes["logical bytes"] is Verdict.WORSE
    assert set(_rows(comparison, kind=Kind.ROWS).values()) == {Verdict.SAME}
    assert exit_code(comparison) == 3


def _sizes(kind: Kind, *values: float) -> Measure:
    return Measure("m", kind, tuple(np.array([value]) for value in values))


@pytest.mark.parametrize(
    ("kind", "a", "b", "checkpoints", "verdict"),
    [
        (Kind.ROWS, [100, 100], [100, 100], 9, Verdict.SAME),
        (Kind.ROWS, [100, 100], [101, 101], 9, Verdict.WORSE),
        (Kind.ROWS, [100, 100], [99, 99], 9, Verdict.BETTER),
        (Kind.ROWS, [0], [0], 9, Verdict.SAME),
        (Kind.ROWS, [0], [3], 9, Verdict.WORSE),
        (Kind.ROWS, [100, 101], [101, 102], 9, Verdict.UNRESOLVED),
        (Kind.BYTES, [1e6], [1e6 + 400], 9, Verdict.SAME),  # 0.05 % is 500
        (Kind.BYTES, [1e6], [1e6 + 600], 9, Verdict.WORSE),
        (Kind.BYTES, [10_000], [10_080], 9, Verdict.SAME),  # version strings: 30 * sqrt(9)
        (Kind.BYTES, [10_000], [10_100], 9, Verdict.WORSE),
        (Kind.SPACE, [100_000], [100_900], 9, Verdict.SAME),  # one per cent
        (Kind.SPACE, [100_000], [160_000], 9, Verdict.UNRESOLVED),  # less than eight pages
        (Kind.SPACE, [100_000], [170_000], 9, Verdict.WORSE),
        (Kind.SPACE, [1e8], [1.02e8], 9, Verdict.WORSE),
        (Kind.MEMORY, [1e8, 1.01e8], [1.05e8, 1.06e8], 9, Verdict.SAME),
        (Kind.MEMORY, [1e8, 1.01e8], [1.5e8, 1.51e8], 9, Verdict.WORSE),
        (Kind.MEMORY, [1e8, 1.5e8], [1.3e8, 1.6e8], 9, Verdict.UNRESOLVED),
    ],
)
def test_sizes(
    kind: Kind, a: list[float], b: list[float], checkpoints: float, verdict: Verdict
) -> None:
    assert judge("c", _sizes(kind, *a), _sizes(kind, *b), Rules(checkpoints)).verdict is verdict


def _times(rng: np.random.Generator, median: float, *, n: int = 40, reps: int = 3) -> Measure:
    return Measure("m", Kind.TIME, tuple(median * rng.lognormal(0.0, 0.1, n) for _ in range(reps)))


@pytest.mark.parametrize(
    ("factor", "reps", "n", "verdict", "words"),
    [
        (1.02, 3, 40, Verdict.SAME, ""),
        (1.6, 3, 40, Verdict.WORSE, ""),
        (0.6, 3, 40, Verdict.BETTER, ""),
        (1.26, 3, 40, Verdict.UNRESOLVED, "to say same within 1.25"),
        (1.4, 1, 40, Verdict.UNRESOLVED, "fewer than 3 repetitions only 1.5 and more"),
        (1.8, 1, 40, Verdict.WORSE, ""),
        (9.0, 1, 4, Verdict.UNRESOLVED, "fewer than 6 samples"),
    ],
)
def test_times(factor: float, reps: int, n: int, verdict: Verdict, words: str) -> None:
    rng = np.random.default_rng(1)
    row = judge(
        "c", _times(rng, 1e6, n=n, reps=reps), _times(rng, 1e6 * factor, n=n, reps=reps), Rules()
    )
    assert row.verdict is verdict
    assert words in row.detail


def test_a_time_of_zero_is_no_ratio() -> None:
    zero = Measure("m", Kind.TIME, (np.zeros(9),))
    row = judge("c", zero, _times(np.random.default_rng(1), 1e6), Rules())
    assert (row.verdict, row.ratio) == (Verdict.UNRESOLVED, None)


def test_one_slow_repetition_is_not_a_regression() -> None:
    rng = np.random.default_rng(1)
    calm = _times(rng, 1e6)
    drifted = Measure(
        "m",
        Kind.TIME,
        (_times(rng, 1e6, reps=1).pooled, *(_times(rng, 1.8e6, reps=1).pooled for _ in range(2))),
    )
    row = judge("c", calm, drifted, Rules())
    assert row.verdict is Verdict.UNRESOLVED
    assert row.detail == "repetitions of the same result differ nearly as much"


def test_luck_of_whole_trials_rarely_looks_like_a_difference() -> None:
    rng = np.random.default_rng(8)

    def side() -> Measure:  # each repetition has a level of its own: half or double is usual
        levels = 1e6 * rng.lognormal(0.0, 0.5, 3)
        return Measure("m", Kind.TIME, tuple(level * rng.lognormal(0, 0.1, 20) for level in levels))

    verdicts = [judge("c", side(), side(), Rules()).verdict for _ in range(400)]
    assert sum(verdict in (Verdict.WORSE, Verdict.BETTER) for verdict in verdicts) <= 6
    assert verdicts.count(Verdict.SAME) <= 8, "nor like sameness"


def test_few_repetitions_on_a_busy_machine_say_nothing() -> None:
    rng = np.random.default_rng(1)
    a, b = _times(rng, 1e6, reps=1), _times(rng, 3e6, reps=1)
    assert judge("c", a, b, Rules()).verdict is Verdict.WORSE
    busy = judge("c", a, b, Rules(busy=True))
    assert busy.verdict is Verdict.UNRESOLVED and "busy machine" in busy.detail


def test_a_busy_machine_is_noted(compared: Callable[..., Comparison]) -> None:
    comparison = compared([CASE], [replace(CASE, load_average=5.0)])
    assert comparison.notes == ("B (run-b) was measured on a busy machine.",)


def test_heavy_tails_alone_do_not_decide() -> None:
    rng = np.random.default_rng(3)
    a = Measure("m", Kind.TIME, tuple(1e6 * rng.lognormal(0, 1.5, 12) for _ in range(3)))
    b = Measure("m", Kind.TIME, tuple(1.5e6 * rng.lognormal(0, 1.5, 12) for _ in range(3)))
    assert judge("c", a, b, Rules()).verdict is Verdict.UNRESOLVED


# -- what forbids ----------------------------------------------------------------------------------


def test_nothing_in_common_is_an_error_of_exit_code_4(
    compared: Callable[..., Comparison],
) -> None:
    with pytest.raises(NotComparableError, match="no case in common") as caught:
        compared([CASE], [replace(CASE, workload="branching")])
    assert caught.value.exit_code == 4


def test_only_changed_specs_are_an_error_that_names_the_keys(
    compared: Callable[..., Comparison],
) -> None:
    with pytest.raises(NotComparableError, match=r"conversation\.turns\.value 20 and 21"):
        compared([CASE], [replace(CASE, turns=21)])


def test_a_quick_baseline_is_refused(compared: Callable[..., Comparison]) -> None:
    with pytest.raises(NotComparableError, match="run-a is a quick result"):
        compared([CASE], [CASE], {"quick": True})


def test_a_quick_b_is_noted(compared: Callable[..., Comparison]) -> None:
    assert "quick result" in compared([CASE], [CASE], None, {"quick": True}).notes[0]


def test_another_schema_is_refused(fake_run: Callable[..., Path]) -> None:
    one, two = load_runs(fake_run("a", cases=[CASE]), fake_run("b", cases=[CASE]))
    now = one.header["schema_version"]
    two.header["schema_version"] = now + 1
    with pytest.raises(NotComparableError, match=f"schema {now} and {now + 1}"):
        compare_runs(one, two)


def test_one_changed_spec_is_one_row(compared: Callable[..., Comparison]) -> None:
    other = replace(CASE, backend="postgres")
    comparison = compared([CASE, other], [CASE, replace(other, turns=30)])
    mine = [row for row in comparison.rows if row.case_id == other.case_id]
    assert [(row.verdict, row.metric, row.a) for row in mine] == [
        (Verdict.NOT_COMPARABLE, "all", None)
    ]
    assert "another spec: conversation.turns.value 20 and 30" in mine[0].detail


def test_cases_of_one_side_are_rows(compared: Callable[..., Comparison]) -> None:
    other = replace(CASE, backend="postgres")
    details = {row.detail for row in compared([CASE, other], [CASE]).rows if row.metric == "all"}
    assert details == {"only in A"}
    details = {row.detail for row in compared([CASE], [CASE, other]).rows if row.metric == "all"}
    assert details == {"only in B"}


@pytest.mark.parametrize(
    "environment",
    [{"cpu": "Other CPU"}, {"memory_bytes": 16_000_000_000}, {"scratch_filesystem": "tmpfs"}],
)
def test_another_machine_forbids_times_but_not_bytes(
    environment: dict[str, Any], compared: Callable[..., Comparison]
) -> None:
    comparison = compared([CASE], [CASE], None, {"environment": environment})
    assert _rows(comparison, kind=Kind.TIME) == {}
    assert _rows(comparison, kind=Kind.MEMORY) == {}
    assert _rows(comparison, kind=Kind.BYTES)["logical bytes"] is Verdict.SAME
    (row,) = [row for row in comparison.rows if row.verdict is Verdict.NOT_COMPARABLE]
    assert row.metric == "times and memory"
    assert row.detail == f"another machine: other {next(iter(environment))}"


def test_a_little_more_memory_is_the_same_machine(compared: Callable[..., Comparison]) -> None:
    comparison = compared([CASE], [CASE], None, {"environment": {"memory_bytes": 7_990_000_000}})
    assert comparison.counts[Verdict.NOT_COMPARABLE] == 0


def test_another_durability_forbids_times(compared: Callable[..., Comparison]) -> None:
    comparison = compared([CASE], [replace(CASE, fsync="off")])
    details = [row.detail for row in comparison.rows if row.verdict is Verdict.NOT_COMPARABLE]
    assert details == ["other settings: settings.fsync on and off"]


def test_other_versions_are_shown_and_do_not_forbid(compared: Callable[..., Comparison]) -> None:
    environment = {"packages": {"langgraph": "1.3.0"}, "load_average": [9, 9, 9]}
    comparison = compared([CASE], [CASE], None, {"environment": environment})
    assert comparison.counts[Verdict.NOT_COMPARABLE] == 0
    shown = {item.what: (item.a, item.b) for item in comparison.differences}
    assert shown["packages.langgraph"] == ("1.2.24", "1.3.0")
    assert shown["packages.langgraph-checkpoint"] == ("4.3.2", "–")
    assert not any("load" in what or "autovacuum" in what for what in shown)


@pytest.mark.parametrize(
    ("change", "words", "code"),
    [
        ({"failed_check": "tips"}, "state check tips failed in B", 3),
        ({"status": Status.FAILED, "cause": "disk is full"}, "failed in B: disk is full", 3),
        ({"status": Status.TIMEOUT}, "timeout in B: no cause given", 3),
        ({"status": Status.SKIPPED, "cause": "too large"}, "skipped in B: too large", 4),
    ],
)
def test_a_case_that_did_not_hold_has_no_number(
    change: dict[str, Any], words: str, code: int, compared: Callable[..., Comparison]
) -> None:
    comparison = compared([CASE], [replace(CASE, **change)])
    (row,) = comparison.rows
    assert row.verdict is Verdict.NOT_COMPARABLE
    assert (row.a, row.b, row.ratio) == (None, None, None)
    assert row.detail == words
    assert exit_code(comparison) == code
    assert comparison.broken == ((CASE.case_id,) if code == 3 else ())


def test_a_case_that_was_broken_before_is_no_regression(
    compared: Callable[..., Comparison],
) -> None:
    bad = replace(CASE, failed_check="tips")
    comparison = compared([bad], [bad])
    assert comparison.broken == () and exit_code(comparison) == 4


def test_a_metric_of_one_side_only(compared: Callable[..., Comparison]) -> None:
    comparison = compared([replace(CASE, unsupported="walk_native")], [CASE])
    (row,) = [row for row in comparison.rows if row.verdict is Verdict.NOT_COMPARABLE]
    assert (row.metric, row.detail) == ("walk_native warm at head", "only measured in B")
    assert (row.a, row.b) == (None, None)


def test_moving_together_on_several_backends_is_noted(
    compared: Callable[..., Comparison],
) -> None:
    cases = [CASE, replace(CASE, backend="postgres")]
    slower = [replace(case, slower=1.4) for case in cases]
    (note,) = compared(cases, slower).notes
    assert "moved the same way on 2 backends (median ratio 1.39)" in note
    assert compared(cases, [slower[0], cases[1]]).notes == ()


def test_an_unfinished_result_is_noted(compared: Callable[..., Comparison]) -> None:
    comparison = compared([CASE], [CASE], None, {"finished": False})
    assert comparison.notes == ("B (run-b) did not run to its end.",)


# -- how it is shown -------------------------------------------------------------------------------


def _story(compared: Callable[..., Comparison]) -> Comparison:
    sqlite, postgres = CASE, replace(CASE, backend="postgres")
    memory = replace(CASE, backend="memory")
    chatty = replace(CASE, workload="tool-heavy")
    return compared(
        [sqlite, postgres, memory, chatty],
        [
            replace(sqlite, slower=1.7),
            replace(postgres, slower=0.4, heavier=1.01),
            replace(memory, failed_check="final_state"),
            replace(chatty, turns=30),
        ],
        None,
        {"environment": {"packages": {"langgraph": "1.3.0", "savermark": "0.1.0"}}},
    )


def test_markdown_equals_the_golden_file(compared: Callable[..., Comparison]) -> None:
    made = to_markdown(_story(compared))
    golden = GOLDEN / "comparison.md"
    assert made == golden.read_text(encoding="utf-8"), "if meant: write `made` to the golden file"


def test_markdown_tables_have_equal_rows(compared: Callable[..., Comparison]) -> None:
    lines = to_markdown(_story(compared)).splitlines()
    assert lines[0].startswith("**Verdict: worse** (")
    assert "Broken in B: `chat[state.messages.kind=delta]@memory`" in lines[0]
    for line in lines:
        if line.startswith("| `"):
            assert line.replace("\\|", "").count("|") == 8


def test_free_text_cannot_break_the_table() -> None:
    row = Row("c[a|b]@x", "all", None, Verdict.NOT_COMPARABLE, "failed in B: one | two\nthree")
    whole = Comparison("a", "b", (row,), (Difference("cpu", "x|y", "z"),), (), (), {})
    lines = to_markdown(whole).splitlines()
    assert (
        "| `c[a\\|b]@x` | all |  |  |  | not comparable | failed in B: one \\| two three |" in lines
    )
    assert "| cpu | x\\|y | z |" in lines


def test_without_a_difference_the_tables_are_folded(compared: Callable[..., Comparison]) -> None:
    made = to_markdown(compared([CASE], [CASE], None, {"seed": 1}))
    before, _, folded = made.partition("<details>")
    assert before.endswith("No metric is better or worse.\n\n")
    assert folded.count("| `") == len(compared([CASE], [CASE]).rows)


def test_values_that_look_equal_are_spelled_out() -> None:
    def line(kind: Kind, a: float, b: float) -> str:
        row = Row("c@x", "m", kind, Verdict.WORSE, a=a, b=b, ratio=b / a)
        whole = Comparison("a", "b", (row,), (), (), (), {})
        return next(text for text in to_markdown(whole).splitlines() if "`c@x`" in text)

    assert "| 219,190,000 B | 219,310,000 B | 1.0005 | worse |" in line(
        Kind.BYTES, 219.19e6, 219.31e6
    )
    assert "| 219 MB | 230 MB | 1.0493 | worse |" in line(Kind.BYTES, 219.19e6, 230e6)
    assert "| 12 | 13 |" in line(Kind.ROWS, 12, 13)
    assert "| 219 MB | 219 MB | 1 |" in line(Kind.BYTES, 219.19e6, 219.19e6)


def test_frame_csv_and_json(compared: Callable[..., Comparison], tmp_path: Path) -> None:
    comparison = _story(compared)
    frame = comparison.to_frame()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == COLUMNS
    assert len(frame) == len(comparison.rows)
    frame.to_csv(tmp_path / "c.csv", index=False)
    assert (tmp_path / "c.csv").read_text(encoding="utf-8").splitlines()[0] == ",".join(COLUMNS)
    data = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert data["verdict"] == "worse"
    assert len(data["rows"]) == len(frame)
    assert data["broken"] == ["chat[state.messages.kind=delta]@memory"]


def test_columns_are_documented() -> None:
    text = (Path(__file__).parents[1] / "docs" / "schema.md").read_text(encoding="utf-8")
    for name in COLUMNS:
        assert f"| `{name}` |" in text


def test_repeating_a_comparison_gives_the_same(compared: Callable[..., Comparison]) -> None:
    assert to_markdown(_story(compared)) == to_markdown(_story(compared))


def test_one_more_statement_is_worse_and_an_inexact_count_is_nothing(
    fake_run: Callable[..., Path],
) -> None:
    one, two = load_runs(fake_run("a", cases=[CASE]), fake_run("b", cases=[CASE]))
    named = "get_state at head: statements"
    same = {row.metric: row.verdict for row in compare_runs(one, two).rows}
    assert same[named] is Verdict.SAME

    def costlier(trial: TrialResult, exact: bool) -> TrialResult:
        (row,) = trial.costs
        counts = replace(row.counts, statements=4)
        names = row.exact if exact else tuple(n for n in row.exact if n != "statements")
        return replace(trial, costs=(replace(row, counts=counts, exact=names),))

    two.trials = [costlier(trial, exact=True) for trial in two.trials]
    worse = compare_runs(one, two)
    (row,) = [row for row in worse.rows if row.verdict is Verdict.WORSE]
    assert (row.metric, row.a, row.b) == (named, 3, 4)
    assert exit_code(worse) == 3
    for run in (one, two):
        run.trials = [costlier(trial, exact=False) for trial in run.trials]
    assert named not in {row.metric for row in compare_runs(one, two).rows}
