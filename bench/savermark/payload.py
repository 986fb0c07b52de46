"""Seeded payloads of an exact length with a stated compressibility, and seeded sizes.

Everything here is a pure function of the spec and a key, the same in every process: generators are
seeded with text, never with `hash()`, and nothing touches the global random state.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, chain, zip_longest
from math import exp
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from savermark.spec import Dist, PayloadSpec

Key = str | int
Unit = tuple[list[str], list[str]]  # fixed parts, and the words between them

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
#: Random bytes -> noise inside other text, or the `random` kind's printable characters.
_AS_TEXT = (
    bytes(ord(_ALPHABET[byte % 64]) for byte in range(256)),
    bytes(32 + byte % 95 for byte in range(256)),
)
_STAMP_CHARS = 8  # 40 bits: two payloads of one case are never the same by accident
_CORPUS_CHARS = 512 * 1024  # windows into it overlap rarely, and it takes some 100 ms to write

_VOCABULARY = (
    "the of to and in that is for on with as by it from at are this be was not or which have an "
    "order account report invoice customer region delivery schedule window review request answer "
    "quarter budget ticket service update version sample measure backup storage record branch "
    "network latency server cluster region queue worker message thread memory policy retention "
    "summary detail value change result number system process market product supplier contract "
    "monday tuesday morning evening before after during between because however therefore also "
    "small large early later common recent average total open closed pending ready missing"
)
_WORDS = _VOCABULARY.split()
_FIELDS = ("id", "name", "status", "owner", "region", "created", "amount", "note", "path", "tags")
_NAMES = ("item", "order", "cache", "worker", "result", "client", "config", "record", "batch")

_RECENT = 6  # how far back a repeated unit is taken from
_NOISE_LEAST = 4  # characters of noise in one place

#: Kind -> (share of the bytes that zlib removes, the knob of `_write` that leads to it), measured
#: over 16 KiB. Constants, not a search at run time: another zlib must not give other payloads.
_KNOBS: dict[str, tuple[tuple[float, float], ...]] = {
    "text": (
        *((0.271, 0.9), (0.317, 0.8), (0.365, 0.7), (0.412, 0.6), (0.460, 0.5), (0.507, 0.4)),
        *((0.554, 0.3), (0.600, 0.2), (0.645, 0.1), (0.704, 0.0), (0.747, -0.2), (0.794, -0.4)),
        *((0.844, -0.6), (0.896, -0.8), (0.928, -0.9)),
    ),
    "json": (
        *((0.290, 0.9), (0.346, 0.8), (0.405, 0.7), (0.465, 0.6), (0.527, 0.5), (0.589, 0.4)),
        *((0.653, 0.3), (0.702, 0.2), (0.746, 0.1), (0.805, 0.0), (0.828, -0.2), (0.856, -0.4)),
        *((0.886, -0.6), (0.921, -0.8)),
    ),
    "code": (
        *((0.292, 0.9), (0.354, 0.8), (0.416, 0.7), (0.479, 0.6), (0.544, 0.5), (0.609, 0.4)),
        *((0.675, 0.3), (0.743, 0.2), (0.820, 0.1), (0.850, 0.05), (0.890, 0.0), (0.905, -0.3)),
    ),
}


def spread(dist: Dist, count: int, *key: Key) -> list[int]:
    """`count` sizes that follow `dist` as evenly as so few can, in a seeded order.

    A fleet of twenty threads then has its few huge ones, whatever the seed.
    """
    if dist.dist != "lognormal":
        return [draw(dist, index + 1, *key) for index in range(count)]
    sizes = [_quantile(dist, (index + 0.5) / count) for index in range(count)]
    _generator("spread", *key).shuffle(sizes)
    return sizes


def draw(dist: Dist, ordinal: int, *key: Key) -> int:
    """One size from `dist`; `ordinal` counts from 1 and decides which of a mixture is large."""
    if dist.dist == "fixed":
        return dist.value
    if dist.dist == "mixture":
        return dist.large if ordinal % dist.every == 0 else dist.small
    return _quantile(dist, _generator("draw", ordinal, *key).random())


def mean(dist: Dist) -> float:
    """The mean size, before `min` and `max` cut a lognormal's tails."""
    if dist.dist == "fixed":
        return float(dist.value)
    if dist.dist == "mixture":
        return dist.small + (dist.large - dist.small) / dist.every
    size = max(dist.median * exp(dist.sigma**2 / 2), dist.min)
    return min(size, dist.max) if dist.max else size


def _quantile(dist: Dist, share: float) -> int:
    share = min(max(share, 1e-9), 1 - 1e-9)
    size = round(dist.median * exp(dist.sigma * NormalDist().inv_cdf(share)))
    size = max(size, dist.min)
    return min(size, dist.max) if dist.max else size


def _generator(*key: Key) -> random.Random:
    return random.Random("\x1f".join(map(str, key)))


def payload(spec: PayloadSpec, size: int, *key: Key) -> str:
    """`size` ASCII characters for `key`: the same text for the same key, another for another."""
    if spec.kind == "repeat":
        return _cycle("the order is ready ", size)
    mark = blake2b("\x1f".join(map(str, (spec.seed, *key))).encode(), digest_size=16).digest()
    stamp = "".join(_ALPHABET[byte & 31] for byte in mark[:_STAMP_CHARS]).lower()
    corpus, starts = _corpus(spec.kind, spec.compressibility, spec.seed)
    return _window(f"{stamp} ", corpus, starts[int.from_bytes(mark, "big") % len(starts)], size)


def _cycle(text: str, size: int) -> str:
    return (text * (size // len(text) + 1))[:size]


def _window(stamp: str, corpus: str, start: int, size: int) -> str:
    head = stamp if size > 2 * len(stamp) else ""
    rest = size - len(head)
    body = corpus[start : start + rest]
    while len(body) < rest:
        body += corpus[: rest - len(body)]
    return head + body


@lru_cache(maxsize=8)
def _corpus(kind: str, compressibility: float, seed: int) -> tuple[str, tuple[int, ...]]:
    """Endless-looking text and the places where a payload may start."""
    return _write(kind, _knob(kind, compressibility), seed, _CORPUS_CHARS)


def _write(kind: str, knob: float, seed: int, size: int) -> tuple[str, tuple[int, ...]]:
    """Units (a sentence, a record, a function) until `size`, and where each starts.

    A knob above 0 is the share of noise in each unit, one below 0 the share of units that repeat
    one of the last few.
    """
    rng = _generator("corpus", kind, seed)
    noise = rng.randbytes(size).translate(_AS_TEXT[kind == "random"]).decode()
    if kind == "random":
        return noise, tuple(range(0, size, 16))
    echo = max(-knob, 0.0)
    units: list[str] = []
    fresh: list[str] = []
    written, due = 0, 0.0
    for unit in _units(kind, rng, max(knob, 0.0), noise):
        fresh = [*fresh[1 - _RECENT :], unit]
        units.append(unit)
        written += len(unit)
        due += len(unit) * echo / (1 - echo)
        while due > 0:
            units.append(again := rng.choice(fresh))
            written += len(again)
            due -= len(again)
        if written >= size:
            break
    return "".join(units), (0, *accumulate(map(len, units[:-1])))


def _units(kind: str, rng: random.Random, share: float, noise: str) -> Iterator[str]:
    """Fresh units for ever; `share` of their characters come from `noise`, in their slots."""
    used, due = 0, 0.0
    while True:
        parts, words = _UNITS[kind](rng)
        due += sum(map(len, parts)) * share / (1 - share)
        slots = min(len(words), int(due) // _NOISE_LEAST)
        for slot in range(slots):
            length = int(due) // (slots - slot)
            due -= length
            mixed = noise[used : used + length]
            words[slot] = f"{words[slot]} {mixed}" if kind == "text" else mixed
            used += length
        yield "".join(chain.from_iterable(zip_longest(parts, words, fillvalue="")))


def _sentence(rng: random.Random) -> Unit:
    words = rng.choices(_WORDS, k=10)
    first, second, third = " ".join(words[:3]), " ".join(words[4:6]), " ".join(words[7:9])
    return [f"{first} ", f" {second} ", f", {third} ", ".\n"], [words[3], words[6], words[9]]


def _record(rng: random.Random) -> Unit:
    first, second, third, fourth = rng.sample(_FIELDS, k=4)
    parts = [f'{{"{first}": "', f'", "{second}": "', f'", "{third}": "', f'", "{fourth}": "']
    return [*parts, '"},\n'], rng.choices(_WORDS, k=4)


def _function(rng: random.Random) -> Unit:
    name, *words = rng.choices(_NAMES, k=4)
    parts = [f"def read_{name}(", f'):\n    {name} = find("', f'")\n    return {name}.', "\n\n"]
    return parts, words


_UNITS: dict[str, Callable[[random.Random], Unit]] = {
    "text": _sentence,
    "json": _record,
    "code": _function,
}


def _knob(kind: str, compressibility: float) -> float:
    if kind not in _KNOBS:
        return 0.0
    table = _KNOBS[kind]
    shares = [share for share, _ in table]
    at = min(max(bisect_right(shares, compressibility), 1), len(table) - 1)
    (low, first), (high, last) = table[at - 1], table[at]
    return first + (last - first) * (compressibility - low) / (high - low)
