"""Counts: right against what is known to happen, and the same to the digit in fresh processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import counted_walks
from fix_threads import STORES, Kept, at, snapshot
from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.meter import FIELDS, Counts, acount, count, metered
from savermark.meter.pages import requests_between
from savermark.meter.postgres import read_trace
from savermark.meter.values import Tally, counting_serde

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEPTH = 12


def _thread(kept: Kept) -> str:
    """A chain of `DEPTH` checkpoints under a snapshot, one write each."""
    hand = kept.hand()
    hand.put("c00", None, {"log": snapshot("s")}, counts=["log"])
    for number in range(DEPTH):
        hand.write(f"c{number:02}", ("log", [f"é{number}"]))
        hand.put(f"c{number + 1:02}", f"c{number:02}", moved=["log"], counts=["log"])
    return hand.thread


def _base(kept: Kept, thread: str) -> Callable[[], Any]:
    walk = BaseCheckpointSaver.get_delta_channel_history
    config = at(thread, f"c{DEPTH:02}")
    return lambda: walk(kept.saver, config=config, channels=["log"])


def test_what_the_base_walk_asks_for(kept: Kept) -> None:
    """The target and each ancestor: one `get_tuple`, which is two statements on SQLite."""
    counts = count(kept.saver, _base(kept, _thread(kept)))
    asked = DEPTH + 1
    expected = {
        "memory": (None, None, None),
        "sqlite": (2 * asked, 0, asked + DEPTH),
        "postgres": (asked, asked, asked),
    }
    assert (counts.statements, counts.round_trips, counts.rows) == expected[kept.name]
    assert counts.values is not None and counts.values >= DEPTH
    assert counts.value_bytes is not None and counts.value_bytes > counts.values
    known = {
        "memory": {"values", "value_bytes"},
        "sqlite": set(FIELDS),
        "postgres": set(FIELDS) - {"vm_steps"},
    }
    assert set(counts.known()) == known[kept.name]
    assert all(value > 0 for name, value in counts.known().items() if name != "round_trips")


def test_nothing_done_costs_nothing(kept: Kept) -> None:
    with metered(kept.saver) as meter:
        pass
    assert set(meter.counts.known().values()) == {0}


def test_a_block_leaves_the_saver_as_it_was(kept: Kept) -> None:
    call, serde = _base(kept, _thread(kept)), kept.saver.serde
    factory = getattr(getattr(kept.saver, "conn", None), "row_factory", None)
    before = call()
    with pytest.raises(ZeroDivisionError), kept.store.cost(kept.saver):
        raise ZeroDivisionError
    assert kept.saver.serde is serde
    assert getattr(getattr(kept.saver, "conn", None), "row_factory", None) is factory
    assert call() == before
    with metered(kept.saver) as one, metered(kept.saver) as two:
        assert call() == before
    assert one.counts.values == two.counts.values


def test_bytes_are_those_of_the_values(kept: Kept) -> None:
    """A value of 5,000 bytes more is 5,000 bytes more fetched and deserialized."""
    found = []
    for size in (10_000, 15_000):
        hand = kept.hand().put("c1", None, {"log": snapshot("s")}, counts=["log"])
        hand.write("c1", ("log", ["x" * size])).put("c2", "c1", moved=["log"], counts=["log"])
        walk = kept.saver.get_delta_channel_history
        config = at(hand.thread, "c2")
        found.append(count(kept.saver, lambda w=walk, c=config: w(config=c, channels=["log"])))
    small, large = found
    assert large.value_bytes - small.value_bytes == 5_000  # type: ignore[operator]
    if kept.name != "memory":
        # A thread's number in its id may have one digit more.
        assert abs(large.bytes - small.bytes - 5_000) <= 8  # type: ignore[operator]


def test_another_threads_rows_do_not_count(kept: Kept) -> None:
    # In SQLite a scan that ends at the end of the table takes one step less.
    kept.hand("~ sorts last").put("c00").write("c00", ("log", ["x"]))
    thread = _thread(kept)
    before = count(kept.saver, _base(kept, thread))
    for _ in range(3):
        _thread(kept)
    after = count(kept.saver, _base(kept, thread))
    # An index of one more level or a page that was split is seen in the blocks, rightly.
    assert replace(after, blocks=None) == replace(before, blocks=None)


@pytest.mark.parametrize("name", STORES)
def test_both_apis_count_alike(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    dsn = request.getfixturevalue("postgres_dsn") if name == "postgres" else None
    store = get_backend(name).create(Location(tmp_path, f"apis-{tmp_path.name}", dsn))
    try:
        with store.saver() as saver:
            counted_walks.build(saver)
            sync = count(saver, lambda: counted_walks.native(saver))
        assert asyncio.run(_acounted(store)) == sync
    finally:
        store.destroy()


async def _acounted(store: Any) -> Counts:
    async with store.asaver() as saver:
        return await acount(saver, lambda: counted_walks.anative(saver))


@pytest.mark.parametrize("name", STORES)
def test_counts_repeat_to_the_digit_in_fresh_processes(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Three processes, each with a fresh store: every count that is made is the same."""
    dsn = request.getfixturevalue("postgres_dsn") if name == "postgres" else None
    seen = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = {"name": name, "folder": str(folder), "store": f"fresh-{tmp_path.name}-{number}"}
        done = subprocess.run(
            [sys.executable, counted_walks.__file__],
            input=json.dumps({**job, "dsn": dsn}),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONHASHSEED": str(number)},
        )
        assert done.returncode == 0, done.stderr
        seen.append(json.loads(done.stdout))
    assert seen[0] == seen[1] == seen[2]
    assert set(seen[0]) >= {"base", "native", "onepass", "cached", "get_tuple"}
    assert Counts.from_json(seen[0]["base"]).values


@dataclass
class _Foreign:
    number: int


def test_a_counting_serializer_refuses_what_its_original_refuses() -> None:
    tally, strict = Tally(), JsonPlusSerializer(allowed_msgpack_modules=None)
    counting = counting_serde(strict, tally)
    assert isinstance(counting, JsonPlusSerializer) and type(counting) is not JsonPlusSerializer
    foreign = JsonPlusSerializer().dumps_typed(_Foreign(7))
    refused = strict.loads_typed(foreign)
    assert counting.loads_typed(foreign) == refused and not isinstance(refused, _Foreign)
    allowed = counting.with_msgpack_allowlist([("some.module", "Kind")])
    for serde in (counting, allowed):
        assert serde.loads_typed(serde.dumps_typed([1, 2])) == [1, 2]
    assert tally.values == 3  # a clone with another allowlist counts, too
    assert counting.dumps_typed({"a": 1}) == strict.dumps_typed({"a": 1})


def test_a_serializer_that_cannot_be_subclassed_is_left_alone() -> None:
    class Fixed:
        __slots__ = ("a",)

        def __copy__(self) -> Any:
            return 7

    assert counting_serde(Fixed(), Tally()) is None  # type: ignore[arg-type]


def test_a_saver_without_a_connection_counts_values_only() -> None:
    saver = InMemorySaver()
    with metered(saver) as meter:
        saver.serde.loads_typed(saver.serde.dumps_typed("x"))
    assert meter.counts.known() == {"values": 1, "value_bytes": 2}


def test_a_traces_statement_may_hold_line_breaks() -> None:
    trace = b"\n".join(
        [
            b'F\t80\tParse\t "a" "SELECT 1',
            b"  -- B\t9\tDataRow",
            b' FROM t" 0',
            b"F\t20\tBind\t ...",
            b'F\t9\tExecute\t "" 0',
            b"F\t4\tSync",
            b"B\t11\tDataRow\t 1 1 'x'",
            b"B\t14\tDataRow\t 1 4 'wxyz'",
            b'B\t13\tCommandComplete\t "SELECT 2"',
            b"B\t5\tReadyForQuery\t I",
        ]
    )
    counts = read_trace(trace.splitlines(keepends=True))
    assert counts == Counts(statements=1, round_trips=1, rows=2, bytes=25)


def test_pages_survive_the_wrap_of_their_counter() -> None:
    assert requests_between(2**32 - 10, 5) == 15
    assert requests_between(None, 5) is None


def test_counts_as_json() -> None:
    counts = Counts(statements=3, round_trips=0, values=None)
    assert Counts.from_json(counts.to_json()) == counts
    assert Counts(values=1).over(Counts(rows=2, values=7)) == Counts(rows=2, values=1)
