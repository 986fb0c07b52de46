"""The gate: exact where it can be, fair to noise, and every planted regression is caught."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import planted_savers as plants
from fix_clock import ManualClock
from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.baseline import Baseline, Entry, gate_code, load_baseline, save_baseline
from savermark.baseline.check import comparison, probes_of
from savermark.baseline.judge import RATIO_THRESHOLD, judge_ratios
from savermark.baseline.measure import entry as entry_of
from savermark.cli import run
from savermark.compare import Kind, Verdict, to_markdown
from savermark.errors import ResultError
from savermark.probe import Ask, Pairs, Probe, probe_store
from savermark.spec import (
    ConversationSpec,
    MeasureSpec,
    MessagesSpec,
    StateSpec,
    WorkloadSpec,
    fixed,
)
from savermark.trial import Case

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
SPEC = WorkloadSpec(
    name="talk",
    conversation=ConversationSpec(threads=2, turns=fixed(6)),
    state=StateSpec(messages=MessagesSpec(kind="delta", snapshot_frequency=50)),
    measure=MeasureSpec(reads=1, cold=False, timeout_s=120),
)
ASK = Ask(walks=("own", "base"))
GROUPS = "savermark.history.walks.registry"


@pytest.fixture
def probe(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Probe]:
    """Probes a backend whose saver class is replaced by `planted`, on a store of its own."""
    made = iter(range(100))

    def probed(
        name: str, planted: Any = None, spec: WorkloadSpec = SPEC, ask: Ask = ASK, **options: Any
    ) -> Probe:
        dsn = request.getfixturevalue("postgres_dsn") if name == "postgres" else None
        backend = get_backend(name)
        if planted is not None:
            module = {"sqlite": "sqlite.SqliteSaver", "postgres": "postgres.PostgresSaver"}
            monkeypatch.setattr(
                f"savermark.backends.{module.get(name, 'memory.InMemorySaver')}", planted
            )
        store = backend.create(Location(tmp_path, f"gate-{tmp_path.name}-{next(made)}", dsn))
        try:
            return probe_store(Case("talk", "", spec, name), store, ask, **options)
        finally:
            store.destroy()
            monkeypatch.undo()

    return probed


def _judged(before: Probe, now: Probe, case: Case | None = None) -> Any:
    entry = entry_of(case or Case("talk", "", SPEC, "sqlite"), [before])
    return comparison(Baseline(ASK, (entry,), "2026-01-01"), [(entry, [now])])


def _worse(compared: Any) -> set[str]:
    return {row.metric for row in compared.rows if row.verdict is Verdict.WORSE}


@pytest.mark.parametrize("api", ["sync", "async"])
@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres"])
def test_an_unchanged_saver_is_the_same_to_the_digit(
    backend: str, api: str, probe: Callable[..., Probe]
) -> None:
    spec = replace(SPEC, run=replace(SPEC.run, api=api))
    before, now = probe(backend, spec=spec), probe(backend, spec=spec)
    assert before.cause == ""
    assert before.counts["walk own"]["values"] > 0
    assert before.storage["checkpoints rows"] > 0
    compared = _judged(before, now, Case("talk", "", spec, backend))
    assert {row.verdict for row in compared.rows} == {Verdict.SAME}
    assert gate_code(compared) == 0


@pytest.mark.parametrize(
    ("backend", "planted"), [("sqlite", plants.SqliteOneMore), ("postgres", plants.PostgresOneMore)]
)
def test_a_walk_with_one_more_statement_is_caught(
    backend: str, planted: Any, probe: Callable[..., Probe]
) -> None:
    before, now = probe(backend), probe(backend, planted)
    compared = _judged(before, now)
    assert "walk own: statements" in _worse(compared)
    assert now.counts["walk own"]["statements"] == before.counts["walk own"]["statements"] + 1
    assert not any(metric.startswith("walk base") for metric in _worse(compared))
    assert gate_code(compared) == 3


@pytest.mark.parametrize(
    ("backend", "planted", "more"),
    [
        ("postgres", plants.PostgresOneMoreBlob, 1),
        ("memory", plants.MemoryOneMoreBlob, SPEC.conversation.threads),
    ],
)
def test_one_more_blob_is_caught(
    backend: str, planted: Any, more: int, probe: Callable[..., Probe]
) -> None:
    before, now = probe(backend), probe(backend, planted)
    compared = _judged(before, now)
    assert {"stored blobs rows", "stored blobs bytes"} <= _worse(compared)
    assert now.storage["blobs rows"] == before.storage["blobs rows"] + more
    assert gate_code(compared) == 3


def test_a_saver_that_lost_its_walk_is_caught(probe: Callable[..., Probe]) -> None:
    compared = _judged(probe("sqlite"), probe("sqlite", plants.NoWalk))
    assert "walk own: statements" in _worse(compared)


def test_what_became_cheaper_asks_for_a_new_baseline(probe: Callable[..., Probe]) -> None:
    compared = _judged(probe("sqlite", plants.SqliteOneMore), probe("sqlite"))
    assert compared.verdict is Verdict.BETTER
    assert gate_code(compared) == 0
    assert any("savermark baseline save" in note for note in compared.notes)


@pytest.mark.parametrize(("slower", "code"), [(1.0, 0), (1.3, 3), (0.7, 0)])
def test_a_walk_that_became_slower_is_caught_on_any_machine(
    slower: float, code: int, probe: Callable[..., Probe], manual_clock: ManualClock
) -> None:
    """Both probes on a clock of their own speed: only the ratio to the base walk counts."""

    def timed(factor: float, machine: float) -> Probe:
        kind = type("Timed", (plants.Timed,), {
            "clock": manual_clock,
            "walk_ns": int(40_000 * factor * machine),
            "step_ns": int(1_000 * machine),
        })  # fmt: skip
        return probe("memory", kind, ask=replace(ASK, rounds=12), clock=manual_clock)

    before, now = timed(1.0, 1.0), timed(slower, 3.7)
    assert before.pairs is not None
    ratios = tuple(before.pairs.ratios)
    entry = replace(entry_of(Case("talk", "", SPEC, "memory"), [before]), ratios=ratios)
    compared = comparison(Baseline(ASK, (entry,), "2026-01-01"), [(entry, [now])])
    (row,) = [row for row in compared.rows if row.kind is Kind.RATIO]
    assert row.ratio == pytest.approx(slower, rel=0.01)
    assert gate_code(compared) == code


def _pairs(ratios: Any) -> Pairs:
    return Pairs("own", "base", tuple(int(1e6 * ratio) for ratio in ratios), (10**6,) * len(ratios))


def _noisy(middle: float, n: int, seed: int) -> list[float]:
    """Ratios as a busy machine gives them: 10 % around the middle, and a tail of long ones."""
    rng = np.random.default_rng(seed)
    return list(middle * rng.lognormal(0, 0.1, n) * np.where(rng.random(n) < 0.1, 1.5, 1))


def _entry(ratios: list[float]) -> Entry:
    return Entry(Case("talk", "", SPEC, "sqlite"), Probe("talk@sqlite", SPEC_PRINT), tuple(ratios))


SPEC_PRINT = Case("talk", "", SPEC, "sqlite").fingerprint


def test_noise_is_not_called_a_regression_and_thirty_per_cent_is() -> None:
    alarms = missed = 0
    for seed in range(100):
        entry = _entry(_noisy(0.1, 120, seed))

        def taken(case: Case, middle: float, seeds: Any) -> Probe:
            pairs = _pairs(_noisy(middle, 60, next(seeds)))
            return Probe(case.case_id, case.fingerprint, pairs=pairs)

        for middle in (0.1, 0.13):
            seeds = iter(range(1_000 + 10 * seed, 1_010 + 10 * seed))
            probes = probes_of(entry, lambda case, m=middle, s=seeds: taken(case, m, s))
            verdict = judge_ratios("talk@sqlite", entry, probes).verdict
            alarms += middle == 0.1 and verdict is Verdict.WORSE
            missed += middle == 0.13 and verdict is not Verdict.WORSE
    assert alarms == 0
    assert missed <= 2  # of 100


def test_one_unlucky_process_is_not_enough() -> None:
    entry = _entry(_noisy(0.1, 120, 1))
    unlucky, good = _pairs(_noisy(0.2, 60, 2)), _pairs(_noisy(0.1, 60, 3))
    seen = iter([unlucky, good])
    probes = probes_of(entry, lambda case: Probe(case.case_id, case.fingerprint, pairs=next(seen)))
    assert len(probes) == 2
    row = judge_ratios("talk@sqlite", entry, probes)
    assert row.verdict is Verdict.UNRESOLVED


def test_no_timed_call_looks_a_walk_up(
    probe: Callable[..., Probe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That reads every installed package's entry points: five times as long as a short walk."""
    looked = list[bool]()

    async def timed(calls: Any, ask: Ask, clock: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(f"{GROUPS}.entry_points", lambda **_: looked.append(True) or ())
            for name in (ask.tested, ask.reference):
                await calls[f"walk {name}"]()

    monkeypatch.setattr("savermark.probe.run.timed_pairs", timed)
    found = probe("sqlite", ask=Ask(tested="onepass", rounds=1))
    assert not found.cause and not looked


def test_few_pairs_say_so() -> None:
    entry = _entry([0.1] * 3)
    now = Probe("talk@sqlite", SPEC_PRINT, pairs=_pairs([0.2] * 3))
    row = judge_ratios("talk@sqlite", entry, [now])
    assert (row.verdict, row.ratio) == (Verdict.UNRESOLVED, None)
    assert "n too small" in row.detail


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"meter_version": 99}, "another meter"),
        ({"fingerprint": "0" * 16}, "another spec"),
        ({"engine": {"sqlite": "3.99"}}, "another engine: sqlite"),
        ({"packages": {"langgraph": "9"}}, "another runtime: langgraph"),
    ],
)
def test_what_must_not_be_compared_says_why(change: dict[str, Any], why: str) -> None:
    before = Probe("talk@sqlite", SPEC_PRINT, {"get_tuple": {"rows": 1}})
    compared = _judged(before, replace(before, **change))
    assert [row.verdict for row in compared.rows] == [Verdict.NOT_COMPARABLE]
    assert why in compared.rows[0].detail
    assert gate_code(compared) == 4


def test_another_version_of_the_saver_is_what_the_gate_is_for() -> None:
    before = Probe("talk@sqlite", SPEC_PRINT, {"get_tuple": {"rows": 1}})
    before = replace(before, packages={"langgraph-checkpoint-sqlite": "3.1.1"})
    now = replace(before, packages={"langgraph-checkpoint-sqlite": "3.1.2"})
    compared = _judged(before, now)
    assert gate_code(compared) == 0
    assert [item.what for item in compared.differences] == ["packages.langgraph-checkpoint-sqlite"]


def test_a_case_that_fails_now_is_a_regression() -> None:
    before = Probe("talk@sqlite", SPEC_PRINT, {"get_tuple": {"rows": 1}})
    compared = _judged(before, Probe("talk@sqlite", SPEC_PRINT, cause="KeyError: 'x'"))
    assert compared.broken == ("talk@sqlite",)
    assert gate_code(compared) == 3
    assert "KeyError" in to_markdown(compared)


def test_counts_that_two_probes_disagree_on_are_left_out() -> None:
    one = Probe("talk@sqlite", SPEC_PRINT, {"list": {"rows": 1, "bytes": 7}}, {"writes bytes": 5})
    other = replace(one, counts={"list": {"rows": 1, "bytes": 8}}, storage={"writes bytes": 6})
    entry = entry_of(Case("talk", "", SPEC, "sqlite"), [one, other])
    assert entry.probe.counts == {"list": {"rows": 1}}
    assert entry.unsteady == ("list: bytes", "stored writes bytes")
    compared = comparison(Baseline(ASK, (entry,), "x"), [(entry, [other])])
    assert [row.metric for row in compared.rows] == ["list: rows"]
    assert any("not steady" in note for note in compared.notes)


def test_the_file_comes_back_and_is_never_written_over_something_else(tmp_path: Path) -> None:
    probe = Probe("talk@sqlite", SPEC_PRINT, {"list": {"rows": 1}}, {"writes rows": 2})
    entry = Entry(Case("talk", "", SPEC, "sqlite"), probe, (0.12345678, 1e-5), ("list: bytes",))
    path = save_baseline(tmp_path / "b.json", Baseline(ASK, (entry,), "2026-01-01"))
    back = load_baseline(path)
    assert back == Baseline(ASK, (replace(entry, ratios=(0.1235, 0.0)),), "2026-01-01")
    save_baseline(path, back)
    assert list(tmp_path.iterdir()) == [path]
    for content, words in (
        ("{}", "no baseline of savermark"),
        ("nonsense", "no baseline"),
        (json.dumps({"kind": "savermark-baseline", "schema_version": 9}), "schema version 9"),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ResultError, match=words):
            save_baseline(path, back)
        assert path.read_text(encoding="utf-8") == content


def test_the_verbs_on_a_saver_of_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Saved and checked in worker processes, as a pull request does; then one more statement."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    file, result = str(tmp_path / "b.json"), tmp_path / "out" / "check.json"
    sets = ("--set", "turns=4", "--set", "threads=1", "--set", "state.messages.kind=delta")
    saver = ("--saver", "planted_savers:planted")
    save = ["baseline", "save", "chat", *saver, *sets, "--file", file, "--rounds", "0", "-q"]
    assert run(save) == 0
    check = ["baseline", "check", "--file", file, "--format", "md", "-q"]
    assert run(check) == 0
    assert "**Verdict: same**" in capsys.readouterr().out
    monkeypatch.setenv(plants.PLANT, "1")
    assert run([*check, "--out", str(result)]) == 3
    out = capsys.readouterr().out
    assert "walk own: statements" in out
    assert json.loads(result.read_text(encoding="utf-8"))["verdict"] == "worse"


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["check", "--file", "nowhere.json"], 1, "savermark baseline save"),
        (["save", "chat", "-b", "sqlte"], 2, "did you mean 'sqlite'"),
        (["save", "chat", "--walk", "bse"], 2, "did you mean 'base'"),
        (["save", "chat", "--rounds", "-1"], 2, "rounds is -1"),
        (["check", "--threshold", "0.5"], 2, "ratio above 1"),
    ],
)
def test_mistakes_are_one_line(
    argv: list[str], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["baseline", *argv]) == code
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_threshold_catches_what_it_is_for() -> None:
    assert 1.1 < RATIO_THRESHOLD < 1.3
