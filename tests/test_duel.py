"""Two processes that take turns: paired times of two builds, and no process that waits for ever."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from savermark.baseline import Measured, check_baseline, gate_code, measure
from savermark.compare import Kind, Verdict
from savermark.compare.turns import TURNS_THRESHOLD, judge_turns
from savermark.installs import Install
from savermark.probe import Ask, Pairs
from savermark.profiles import make_cases
from savermark.runner.duel import duel

SETS = ("conversation.turns=3", "conversation.threads=1")
DELTA = (*SETS, "state.messages.kind=delta")


@pytest.mark.parametrize("backend", ["sqlite", "memory"])
def test_both_sides_time_their_walk_in_turn(backend: str, tmp_path: Path) -> None:
    (case,) = make_cases("chat", (backend,), DELTA)
    python = Path(sys.executable)
    (a, b), pairs = duel(case, Ask(), tmp_path, None, (python, None), rounds=7)
    assert (a.cause, b.cause) == ("", "")
    assert a.counts == b.counts
    assert a.storage == b.storage
    assert pairs is not None
    assert len(pairs.tested_ns) == len(pairs.reference_ns) == 7
    assert min(*pairs.tested_ns, *pairs.reference_ns) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_case_without_a_walk_has_no_pairs(tmp_path: Path) -> None:
    (case,) = make_cases("chat", ("memory",), (*SETS, "state.messages.kind=full"))
    (a, b), pairs = duel(case, Ask(), tmp_path, None, (None, None), rounds=3)
    assert pairs is None
    assert a.counts == b.counts != {}


@pytest.mark.parametrize("dies", [0, 1])
def test_a_side_that_dies_ends_the_other(dies: int, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nread line\necho sorry >&2\nexit 3\n", encoding="utf-8")
    broken.chmod(0o755)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (case,) = make_cases("chat", ("memory",), DELTA)
    pythons = (broken, None) if dies == 0 else (None, broken)
    before = threading.active_count()
    probes, pairs = duel(case, Ask(), scratch, None, pythons, rounds=3)
    assert pairs is None
    assert "sorry" in probes[dies].cause
    assert probes[1 - dies].cause == ""
    assert list(scratch.iterdir()) == []
    assert threading.active_count() <= before + 1  # the reader of a worker's output may linger


def _pairs(middle: float, seed: int, n: int = 60) -> Pairs:
    rng = np.random.default_rng(seed)
    reference = 1e6 * rng.lognormal(0, 0.3, n)  # the machine: both feel it
    tested = reference * middle * rng.lognormal(0, 0.08, n)
    return Pairs("own", "own", tuple(map(int, tested)), tuple(map(int, reference)))


def test_verdicts_hold_on_noise_that_both_feel() -> None:
    alarms = missed = 0
    for seed in range(200):
        alarms += judge_turns("c", [_pairs(1, seed)]).verdict is Verdict.WORSE
        missed += judge_turns("c", [_pairs(1.3, seed)] * 2).verdict is not Verdict.WORSE
    assert alarms == 0
    assert missed == 0
    row = judge_turns("c", [_pairs(1 / 1.3, 1)])
    assert (row.verdict, row.kind, row.a) == (Verdict.BETTER, Kind.RATIO, 1.0)
    assert row.ratio == pytest.approx(1 / 1.3, rel=0.05)
    assert judge_turns("c", [_pairs(1, 1)]).verdict is Verdict.SAME


def test_duels_have_to_agree_and_few_pairs_say_so() -> None:
    row = judge_turns("c", [_pairs(1.5, 1), _pairs(1.0, 2)])
    assert row.verdict is Verdict.UNRESOLVED
    row = judge_turns("c", [_pairs(1.5, 1, n=4)])
    assert (row.verdict, row.ratio) == (Verdict.UNRESOLVED, None)
    assert "n too small" in row.detail
    equal = Pairs("own", "own", (7,) * 9, (7,) * 9)
    assert judge_turns("c", [equal]).verdict is Verdict.SAME
    assert judge_turns("c", [replace(equal, tested_ns=(14,) * 9)]).verdict is Verdict.WORSE


def test_a_gate_against_another_build() -> None:
    """Against itself: counts to the digit, and times by turns in place of the saved ratios."""
    (case,) = make_cases("chat", ("sqlite",), DELTA)
    saved = measure(Measured(Ask(rounds=0)), [case])
    same = Install("installed", Path(sys.executable), "a-saver", "1.0")
    found = check_baseline(saved, Measured(replace(saved.ask, rounds=0)), against=same)
    (row,) = [row for row in found.rows if row.kind is Kind.RATIO]
    assert row.metric == "time of walk own, in turn"
    assert row.n_a in (60, 120, 180)
    assert {row.verdict for row in found.rows if row.kind is not Kind.RATIO} == {Verdict.SAME}
    assert gate_code(found) == 0
    assert found.notes[0] == "Times are judged against a-saver 1.0, in turn with it."


def test_the_threshold_is_that_of_a_baseline() -> None:
    assert 1.1 < TURNS_THRESHOLD < 1.3
