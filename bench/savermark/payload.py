"""Seeded payloads of an exact length with a stated compressibility, and seeded sizes.

Everything here is a pure function of the spec and a key, the same in every process: generators are
seeded with text, never with `hash()`, and nothing touches the global random state.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from functools import lru_cache
from hashlib import blake2b
from math import exp
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from savermark.spec import Dist, PayloadSpec

Key = str | int

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_PRINTABLE = "".join(chr(code) for code in range(32, 127))
_STAMP_CHARS = 8  # 40 bits: two payloads of one case are never the same by accident
_CORPUS_CHARS = 256 * 1024  # windows into it overlap rarely, and it takes some 50 ms to write

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

#: Kind -> (share of the bytes zlib removes, share of noise that leads to it), measured on 16 KiB.
#: Constants, not a search at run time: another zlib must not give other payloads.
_NOISE: dict[str, tuple[tuple[float, float], ...]] = {}


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
    return _write(kind, _noise_share(kind, compressibility), seed, _CORPUS_CHARS)


def _write(kind: str, noise: float, seed: int, size: int) -> tuple[str, tuple[int, ...]]:
    rng = _generator("corpus", kind, seed)
    if kind == "random":
        return "".join(rng.choices(_PRINTABLE, k=size)), tuple(range(0, size, 16))
    pieces: list[str] = []
    starts: list[int] = []
    length = 0
    due = 0.0
    for before, word, after in _pieces(kind, rng):
        due += (len(before) + len(word) + len(after)) * noise / (1 - noise)
        if due >= 4:
            count = min(int(due), 40)
            word = f"{word} {_noise(rng, count)}" if kind == "text" else _noise(rng, count)
            due -= count
        piece = f"{before}{word}{after}"
        if before or kind == "text":
            starts.append(length)
        pieces.append(piece)
        length += len(piece)
        if length >= size:
            return "".join(pieces)[:size], tuple(starts)
    raise AssertionError("pieces never end")


def _noise(rng: random.Random, count: int) -> str:
    return "".join(rng.choices(_ALPHABET, k=count))


def _pieces(kind: str, rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """(before, a slot that noise may take, after), for ever."""
    while True:
        if kind == "text":
            yield "", rng.choice(_WORDS), rng.choice((" ", " ", " ", " ", " ", ", ", ".\n"))
        elif kind == "json":
            yield '{"', rng.choice(_FIELDS), '": "'
            for name in rng.sample(_FIELDS, k=4):
                yield f'{rng.choice(_WORDS)}", "{name}": "', rng.choice(_WORDS), ""
            yield '"}, ', "", ""
        else:
            name = rng.choice(_NAMES)
            yield f"def read_{name}(", rng.choice(_NAMES), "):\n"
            yield f"    {name} = self.{rng.choice(_NAMES)}(", rng.choice(_NAMES), ")\n"
            yield f"    return {name}.", rng.choice(_NAMES), "\n\n"


def _noise_share(kind: str, compressibility: float) -> float:
    table = _NOISE.get(kind)
    if table is None:
        return 0.0
    points = [point[0] for point in table]
    at = min(max(bisect_right(points, compressibility), 1), len(points) - 1)
    (low, a), (high, b) = table[at - 1], table[at]
    share = a + (b - a) * (compressibility - low) / (high - low)
    return min(max(share, 0.0), 0.98)
