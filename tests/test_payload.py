"""Payloads: exact length, stated compressibility, the same in every process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import zlib
from dataclasses import replace
from statistics import mean as average
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from savermark.payload import draw, mean, payload, spread
from savermark.spec import Dist, PayloadSpec, fixed
from savermark.spec.limits import COMPRESSIBILITY

KINDS = ("text", "json", "code", "random", "repeat")


def removed(text: str) -> float:
    """The share of the bytes that zlib removes."""
    return 1 - len(zlib.compress(text.encode(), 6)) / len(text)


@settings(deadline=None)  # the first use of a kind writes its corpus
@given(
    kind=st.sampled_from(KINDS),
    size=st.one_of(st.integers(0, 200), st.integers(0, 700_000)),
    key=st.text(max_size=5),
)
def test_length_is_exact_and_ascii(kind: str, size: int, key: str) -> None:
    text = payload(PayloadSpec(kind=kind), size, key)  # type: ignore[arg-type]
    assert len(text) == size
    assert text.isascii()
    assert "\0" not in text


@pytest.mark.parametrize("kind", sorted(COMPRESSIBILITY))
@pytest.mark.parametrize("stated", [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
def test_stated_compressibility(kind: str, stated: float) -> None:
    spec = PayloadSpec(kind=kind, compressibility=stated, seed=11)  # type: ignore[arg-type]
    for size, tolerance in ((4_096, 0.08), (16_384, 0.03), (65_536, 0.05)):
        seen = average(removed(payload(spec, size, "key", number)) for number in range(8))
        assert abs(seen - stated) < tolerance, (size, seen)


def test_the_ends_of_the_scale() -> None:
    assert removed(payload(PayloadSpec(kind="random"), 16_384, "a")) < 0.2
    assert removed(payload(PayloadSpec(kind="repeat"), 16_384, "a")) > 0.98


def test_messages_of_one_conversation_repeat_little_of_each_other() -> None:
    """A channel stored whole compresses hardly better than its messages do one by one."""
    spec = PayloadSpec(compressibility=0.4)
    whole = "".join(payload(spec, 4_000, "message", number) for number in range(16))
    assert removed(whole) - 0.4 < 0.1


def test_keys_and_seeds_decide() -> None:
    spec = PayloadSpec()
    texts = {payload(spec, 400, "thread", number) for number in range(5_000)}
    assert len(texts) == 5_000
    assert payload(spec, 400, "a", 1) == payload(spec, 400, "a", 1)
    assert payload(spec, 400, "a", 1) != payload(replace(spec, seed=2), 400, "a", 1)


def test_the_same_in_another_process() -> None:
    code = (
        "import json\n"
        "from savermark.payload import payload, spread, draw\n"
        "from savermark.spec import Dist, PayloadSpec\n"
        "many = Dist('lognormal', median=20, sigma=1.2)\n"
        f"texts = [payload(PayloadSpec(kind=kind), 300, 'x', 7) for kind in {KINDS!r}]\n"
        "print(json.dumps([texts, spread(many, 30, 3), [draw(many, n, 3) for n in range(9)]]))\n"
    )
    many = Dist("lognormal", median=20, sigma=1.2)
    here = [
        [payload(PayloadSpec(kind=kind), 300, "x", 7) for kind in KINDS],  # type: ignore[arg-type]
        spread(many, 30, 3),
        [draw(many, n, 3) for n in range(9)],
    ]
    env = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert json.loads(done.stdout) == here


def test_the_global_generator_is_left_alone() -> None:
    before = random.getstate()
    payload(PayloadSpec(seed=99), 1_000, "y")
    spread(Dist("lognormal", median=20, sigma=1.2), 5, 1)
    assert random.getstate() == before


def test_mixture_is_large_every_so_often() -> None:
    dist = Dist("mixture", small=2_000, large=80_000, every=10)
    sizes = [draw(dist, ordinal, "any") for ordinal in range(1, 31)]
    assert [ordinal for ordinal, size in enumerate(sizes, 1) if size == 80_000] == [10, 20, 30]
    assert mean(dist) == average(sizes)


def test_lognormal_follows_its_median_and_limits() -> None:
    dist = Dist("lognormal", median=20, sigma=1.2, min=2, max=300)
    draws = [draw(dist, ordinal, 5) for ordinal in range(1, 3_001)]
    assert 18 <= median(draws) <= 22
    assert min(draws) >= 2
    assert max(draws) == 300
    assert average(draws) == pytest.approx(mean(dist), rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_a_small_fleet_has_its_huge_threads(seed: int) -> None:
    dist = Dist("lognormal", median=20, sigma=1.2, min=1, max=400)
    sizes = spread(dist, 20, seed)
    assert max(sizes) > 150
    assert median(sizes) == pytest.approx(20, abs=2)
    assert sorted(sizes) == sorted(spread(dist, 20, seed + 1))


def test_fixed() -> None:
    assert spread(fixed(7), 3, 1) == [7, 7, 7]
    assert draw(fixed(0), 1) == 0
    assert mean(fixed(4)) == 4.0
