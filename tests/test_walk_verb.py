"""`savermark walk`: cases from options, tables, growth, the recommendation, page and plots."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from fix_results import FakeCase
from savermark.cli import run
from savermark.errors import UsageError
from savermark.frame import load_runs, to_frame
from savermark.frame.walks import COLUMNS, choices_of, growth_of, walk_table
from savermark.plots import PLOTS, NoData, draw
from savermark.walking.plan import Request
from savermark.walking.recommend import Choice, parse_budget, recommend

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = ("--set", "measure.reads=6", "--set", "reads.history=3", "-q")


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run over four depths."""
    out = tmp_path_factory.mktemp("walks") / "swept"
    depths = [part for depth in (5, 10, 20, 40) for part in ("--depth", str(depth))]
    where = ["--walk", "native", "-b", "sqlite", "--out", str(out)]
    done = run(["walk", *where, *depths, *SMALL, "--no-report"])
    assert done == 0
    return out


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line: exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(arguments))
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return call


# --- the cases ------------------------------------------------------------------------------------


def _depths(request: Request) -> list[int]:
    return [case.spec.thread.depth for case in request.cases()]


def test_depths_and_walks_go_into_every_workload() -> None:
    request = Request(("walk-depth", "walk-forks"), ("sqlite",), (5, 7), ("native", "native"))
    assert _depths(request) == [5, 7] + 4 * [5, 7]
    assert {case.spec.reads.walks for case in request.cases()} == {"base,native"}


def test_quick_leaves_deep_threads_out() -> None:
    assert _depths(Request(quick=True, backends=("memory",))) == [10, 30, 100, 300]
    # One whose every case is deeper is walked at the greatest quick depth.
    assert set(_depths(Request(("walk-forks",), ("memory",), quick=True))) == {300}
    (deep,) = Request(quick=True, backends=("memory",), depths=(1_000,)).cases()
    assert (deep.spec.thread.depth, deep.variant) == (1_000, ""), "one depth is no sweep"


def test_a_recommendation_sweeps_frequencies_where_the_workload_does_not() -> None:
    (*_, plain) = Request(recommend=True, backends=("memory",)).cases()
    assert plain.workload == "walk-frequency"
    messages = Request(("walk-messages",), ("memory",), (200,), recommend=True).cases()
    assert [case.spec.channels.frequencies[0] for case in messages][:3] == [5, 10, 50]
    assert {case.spec.thread.depth for case in messages} == {200}
    talk = Request(("chat",), ("memory",), recommend=True).cases()
    assert {case.spec.state.messages.kind for case in talk} == {"delta"} and len(talk) == 6
    with pytest.raises(UsageError, match="leave --depth and --walk out"):
        Request(("chat",), ("memory",), (5,), recommend=True).cases()
    with pytest.raises(UsageError, match=r"did you mean 'native'\?"):
        Request(walks=("nativ",)).cases()


# --- what is printed ------------------------------------------------------------------------------


def test_the_table_tells_time_ratio_and_counts(swept: Path) -> None:
    table = walk_table(load_runs(swept))
    assert tuple(table.columns) == COLUMNS
    reads = {"walk", "get_state", "resume", "history_3", "history_all"}
    assert set(table["read"]) == reads and set(table["walk"]) == {"base", "native", "floor"}
    sqlite = table[table["read"] == "walk"].set_index(["turns", "walk"])
    assert (sqlite.xs("floor", level="walk")["times_floor"] == 1).all()
    assert [sqlite.loc[(d, "base"), "statements"] for d in (5, 10, 20, 40)] == [10, 20, 40, 80]
    assert [sqlite.loc[(d, "native"), "statements"] for d in (5, 10, 20, 40)] == [2] * 4
    assert table[table["read"] != "walk"]["times_floor"].isna().all()
    assert list(sqlite.index.get_level_values("turns").unique()) == [5, 10, 20, 40]


def test_what_is_compared_stands_together(swept: Path) -> None:
    table = walk_table(load_runs(swept))
    (first, *_) = (rows for _, rows in table.groupby("variant", sort=False))
    told = list(zip(first["read"], first["walk"], strict=True))
    walks = [("walk", name) for name in ("floor", "base", "native")]
    reads = ("get_state", "resume", "history_3", "history_all")
    assert told == walks + [(read, name) for read in reads for name in ("base", "native")]


def test_a_whole_history_is_quadratic_by_its_counts(swept: Path) -> None:
    table = walk_table(load_runs(swept))
    rows = growth_of(table, "rows")
    assert rows["sqlite", "walk", "native"].exponent == pytest.approx(1, abs=0.1)
    assert rows["sqlite", "history_all", "native"].exponent == pytest.approx(2, abs=0.25)
    statements = growth_of(table, "statements")
    assert statements["sqlite", "walk", "native"].exponent == 0
    assert statements["sqlite", "walk", "base"].exponent == pytest.approx(1)


def test_a_mixture_of_sweeps_has_no_law(swept: Path) -> None:
    table = walk_table(load_runs(swept))
    other = table.assign(variant=table["variant"].astype(str) + ",forks=1")
    assert growth_of(pd.concat([table, other])) == {}
    plot = next(plot for plot in PLOTS if plot.kind == "walk-over-depth")
    drawing = draw(plot, {"walks": pd.concat([table, other])}, "walk-depth")
    assert drawing.reason.startswith("other keys than the depth are swept")


def test_counts_are_the_frame_cost(swept: Path) -> None:
    cost = to_frame(load_runs(swept), "cost")
    base = cost[(cost["op"] == "walk_base") & (cost["backend"] == "sqlite")]
    assert sorted(base["statements"]) == [10, 20, 40, 80]
    assert all(set(names.split(",")) >= {"statements", "rows", "vm_steps"} for names in base.exact)


def test_report_has_plots_sentences_and_a_page(swept: Path, printed: Callable[..., Any]) -> None:
    code, _, _ = printed("report", str(swept))
    assert code == 0
    plots = {path.name for path in (swept / "plots").iterdir() if path.suffix == ".svg"}
    assert plots == {"walk-depth.walk-over-depth.svg", "walk-depth.walk-ratio.svg"}
    text = (swept / "report.md").read_text(encoding="utf-8")
    assert "times the floor" in text and "grows with the depth to the power" in text
    page = (swept / "report.html").read_text(encoding="utf-8")
    assert "Walks over depth" in page and "times the floor" in page
    for held in (text, page):
        assert "VM steps" in held and "time ~ depth^" in held
    assert "history_3 base" in page and "history_3 base" not in text, "in short: walks only"
    assert "| sqlite | delta | depth=40 |" in text, "a swept depth is not told as turns, too"
    pd.testing.assert_frame_equal(
        pd.read_parquet(swept / "frames" / "walks.parquet"),
        walk_table(load_runs(swept)),
        check_dtype=False,
    )
    code, shown, _ = printed("show", str(swept), "--format", "json")
    assert code == 0 and len(json.loads(shown)) == 4
    code, said, _ = printed("compare", str(swept), str(swept))
    assert code == 0, said


def test_a_run_prints_the_table_and_the_growth(tmp_path: Path, printed: Callable[..., Any]) -> None:
    depths = ("--depth", "5", "--depth", "10")
    where = ("-b", "sqlite", "--walk", "native", "--out", str(tmp_path / "run"))
    code, out, _ = printed("walk", *depths, *where, *SMALL)
    assert code == 0
    assert "× floor" in out and "VM steps" in out and "walk native" in out
    assert "how it grows with the depth" in out and "n too small" in out
    code, out, _ = printed("walk", "--resume", str(tmp_path / "run"), "-q", "--format", "json")
    assert code == 0
    rows = json.loads(out)
    assert {row["variant"] for row in rows} == {"depth=5", "depth=10"}
    assert all(row["p50_ns"] > 0 for row in rows)


def test_a_recommendation_is_printed_first(tmp_path: Path, printed: Callable[..., Any]) -> None:
    where = ("-b", "sqlite", "--walk", "native", "--out", str(tmp_path / "run"))
    sweep = ("--depth", "61", "--set", "channels.frequencies=[[5], [20], [1000]]")
    code, out, _ = printed("walk", "--recommend", "--read-budget", "10s", *where, *sweep, *SMALL)
    assert code == 0
    first = out.splitlines()[0]
    assert first.startswith("sqlite, walk base: no snapshot needed: ") and "budget 10.0 s" in first
    assert "what it was chosen from" in out and "every 20 updates" in out
    chosen = choices_of(*load_runs(tmp_path / "run"))
    by_frequency = {c.frequency: c.stored_bytes for c in chosen if c.walk == "native"}
    assert by_frequency[5] > by_frequency[20] > by_frequency[None]
    plot = next(plot for plot in PLOTS if plot.kind == "walk-frequency")
    assert (tmp_path / "run" / "plots" / "walk-frequency.walk-frequency.svg").is_file()
    assert draw(plot, {}, "x").reason == "the run holds no walks"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--recommend",), "--recommend and --read-budget go together"),
        (("--read-budget", "5ms"), "--recommend and --read-budget go together"),
        (("--recommend", "--read-budget", "5"), "give a time with its unit, for example 20ms"),
        (("--recommend", "--read-budget", "0ms"), "give a time with its unit"),
        (("--recommend", "--read-budget", "5ms", "--no-report"), "leave --no-report out"),
        (("--walk", "onepas"), "unknown walk 'onepas'"),
        (("chat",), "it is a saver workload: use `savermark run chat`"),
        (("walk-depht",), "did you mean 'walk-depth'?"),
        (("--depth", "1"), "must be from 2 to 1,000,000"),
        (("-b", "sqlit"), "did you mean 'sqlite'?"),
    ],
)
def test_mistakes_are_one_line(
    arguments: tuple[str, ...], message: str, printed: Callable[..., Any], tmp_path: Path
) -> None:
    code, out, err = printed("walk", *arguments, "--out", str(tmp_path / "run"))
    assert (code, out) == (2, "")
    assert message in err and len(err.strip().splitlines()) <= 2
    assert not (tmp_path / "run").exists()


# --- the choice -----------------------------------------------------------------------------------


def _choices(*told: tuple[int | None, float, float, float | None]) -> list[Choice]:
    return [Choice("sqlite", "native", *one) for one in told]


def test_the_least_bytes_within_the_budget_are_chosen() -> None:
    choices = _choices(
        (10, 9e6, 2e6, 2.1e6),
        (50, 3e6, 8e6, 8.5e6),
        (100, 2e6, 15e6, 16e6),
        (None, 1e6, 90e6, 95e6),
    )
    (answer,) = recommend(choices, 20e6)
    assert answer.chosen is not None and answer.chosen.frequency == 100
    assert str(answer) == (
        "sqlite, walk native: snapshot every 100 updates: 2.00 MB a thread, read in 15.0 ms "
        "(budget 20.0 ms); no snapshot would take 90.0 ms for 1.00 MB"
    )
    (answer,) = recommend(choices, 15.5e6)
    assert answer.chosen is not None and answer.chosen.frequency == 50, "the interval counts"
    (answer,) = recommend(choices, 1e6)
    assert answer.chosen is None and "no frequency surely reads within 1.00 ms" in str(answer)
    (answer,) = recommend(choices, 1e9)
    assert "no snapshot needed: 1.00 MB a thread" in str(answer)
    assert [choice.frequency for choice in answer.choices] == [None, 100, 50, 10]


def test_a_conversations_choices(fake_run: Callable[..., Path]) -> None:
    """Of frequencies that are never reached one is left, and it is called no snapshot."""

    def case(frequency: int, heavier: float) -> FakeCase:
        name = f"every-{frequency}"
        return FakeCase(workload=name, snapshot_frequency=frequency, heavier=heavier)

    def found(*cases: FakeCase) -> list[int | None]:
        choices = choices_of(*load_runs(fake_run("-".join(c.workload for c in cases), cases=cases)))
        assert all(c.high_ns is not None and c.high_ns >= c.read_ns for c in choices)
        assert all(c.stored_bytes > 0 for c in choices)
        return [c.frequency for c in choices]

    assert found(case(5, 4), case(50, 2), case(500, 1), case(1_000_000, 1)) == [5, 50, None]
    assert found(case(5, 4), case(500, 2), case(1_000_000, 1)) == [5, 500, None]
    assert found(case(5, 4), case(50, 2)) == [5, 50]
    full = FakeCase(workload="full", mode="full")
    assert found(case(5, 4), full, case(50, 2)) == [5, 50]


def test_each_workload_of_a_run_has_its_own_choice(swept: Path) -> None:
    """A sweep of depths beside it offers none, and is not mixed in."""
    (run,) = load_runs(swept)
    assert {choice.workload for choice in choices_of(run)} == {""}
    two = [
        replace(choice, workload=name)
        for name in ("w1", "w2")
        for choice in _choices((10, 2e6, 1e6, None), (50, 1e6, 3e6, None))
    ]
    assert [str(answer)[:12] for answer in recommend(two, 2e6)] == ["w1, sqlite, ", "w2, sqlite, "]


def test_one_frequency_is_no_choice() -> None:
    with pytest.raises(UsageError, match="needs several snapshot frequencies"):
        recommend(_choices((10, 1e6, 1e6, None)), 1e6)
    with pytest.raises(UsageError, match="needs several snapshot frequencies"):
        recommend([], 1e6)


@pytest.mark.parametrize(
    ("text", "ns"), [("20ms", 2e7), ("1.5 s", 1.5e9), ("800us", 8e5), ("800µs", 8e5)]
)
def test_budgets(text: str, ns: float) -> None:
    assert parse_budget(text) == ns


@pytest.mark.parametrize("kind", ["walk-over-depth", "walk-ratio", "walk-frequency"])
def test_an_empty_plot_says_why(kind: str) -> None:
    plot = next(plot for plot in PLOTS if plot.kind == kind)
    empty = pd.DataFrame(columns=list(COLUMNS))
    with pytest.raises(NoData, match="the run holds no walks"):
        plot.draw({"walks": empty}, "walk-depth")
