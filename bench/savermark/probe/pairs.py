"""Two walks timed in turn, so that what happens on the machine happens to both."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from savermark.meter import WARMUP
from savermark.probe.model import Ask, Pairs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    Call = Callable[[], Awaitable[Any]]

BLOCK_NS = 2_000_000  # the least length of a timed block: what a clock and a loop cost is nothing
FEWEST_WARM = 4  # calls, once warm, that tell how long one takes
MOST_CALLS = 200


async def timed_pairs(
    calls: Mapping[str, Call], ask: Ask, clock: Callable[[], int]
) -> Pairs | None:
    """The two walks in turn; the order within a pair alternates, the collector waits outside.

    The quicker one is called as often as the slower one takes long. On a busy machine what runs
    for longer is interrupted more often, so that blocks of unlike length cannot be compared: the
    ratio of two walks moved threefold under load, and by some per cent with blocks of one length.
    """
    walks = [calls.get(f"walk {name}") for name in (ask.tested, ask.reference)]
    tested, reference = walks
    if not ask.rounds or tested is None or reference is None:
        return None
    often = await _often((tested, reference), clock)
    times: tuple[list[int], list[int]] = ([], [])
    with quiet():
        for number in range(ask.rounds):
            for side in ((0, 1), (1, 0))[number % 2]:
                call, repeat = (tested, reference)[side], range(often[side])
                start = clock()
                for _ in repeat:
                    await call()
                times[side].append((clock() - start) // often[side])
            gc.collect(0)
    return Pairs(ask.tested, ask.reference, tuple(times[0]), tuple(times[1]), often)


async def _often(calls: tuple[Call, Call], clock: Callable[[], int]) -> tuple[int, int]:
    """How often each is called in a block, from its quickest call of a few; warms them up, too."""
    return calls_of(await quickest_ns(calls[0], clock), await quickest_ns(calls[1], clock))


async def quickest_ns(call: Call, clock: Callable[[], int]) -> int:
    """The quickest of a few calls once it is warm; at least 1."""
    seen = []
    for _ in range(WARMUP + FEWEST_WARM):
        start = clock()
        await call()
        seen.append(clock() - start)
    return max(1, min(seen[WARMUP:]))


def calls_of(tested_ns: int, reference_ns: int) -> tuple[int, int]:
    """How often each of two is called, so that their blocks last about as long."""
    length = max(tested_ns, reference_ns, BLOCK_NS)
    tested, reference = (
        min(MOST_CALLS, max(1, round(length / ns))) for ns in (tested_ns, reference_ns)
    )
    return tested, reference


@contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection inside the block but what it asks for."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
