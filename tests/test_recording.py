"""Recording: what is timed, what is forwarded, what a capability check sees."""

from __future__ import annotations

import asyncio
import copy
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph

from fix_clock import DELAYS, DelayedSaver, ManualClock
from savermark.recording import OPS, Recorder, RecordingSaver, merged_busy_ns, overrides

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def put_one(saver: BaseCheckpointSaver[Any], **configurable: Any) -> Any:
    config = {"configurable": {**CONFIG["configurable"], **configurable}}
    return saver.put(config, empty_checkpoint(), {"source": "loop", "step": 0}, {})


def recorded(clock: ManualClock) -> tuple[RecordingSaver, Recorder]:
    recorder = Recorder(clock)
    recorder.begin_thread()
    return RecordingSaver(DelayedSaver(clock), recorder), recorder


def durations(recorder: Recorder, op: str) -> list[int]:
    return [end - start for start, end in recorder.spans(op)]


# --- busy time ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_busy_time_is_the_size_of_the_union(calls: list[tuple[int, int]]) -> None:
    intervals = [(start, start + length) for start, length in calls]
    covered = {moment for start, end in intervals for moment in range(start, end)}
    assert merged_busy_ns(intervals) == len(covered)


def test_overlapping_async_calls_count_once(manual_clock: ManualClock) -> None:
    gate = asyncio.Event()

    class Waits(InMemorySaver):
        async def aput(self, *args: Any) -> Any:
            await gate.wait()
            return self.put(*args)

    recorder = Recorder(manual_clock)
    saver = RecordingSaver(Waits(), recorder)

    async def both() -> None:
        args = (CONFIG, empty_checkpoint(), {}, {})
        with recorder.turn(1):
            first = asyncio.create_task(saver.aput(*args))
            await asyncio.sleep(0)
            manual_clock.advance(100)
            second = asyncio.create_task(saver.aput(*args))
            await asyncio.sleep(0)
            manual_clock.advance(50)
            gate.set()
            await asyncio.gather(first, second)

    asyncio.run(both())
    assert sorted(durations(recorder, "put")) == [50, 150]
    assert recorder.busy_ns() == 150


# --- what a call costs, from outside --------------------------------------------------------------


@pytest.mark.parametrize("api", ["sync", "async"])
def test_each_call_is_one_sample_of_its_length(manual_clock: ManualClock, api: str) -> None:
    saver, recorder = recorded(manual_clock)

    def call(method: str, *args: Any, **options: Any) -> Any:
        if api == "sync":
            return getattr(saver, method)(*args, **options)
        return asyncio.run(getattr(saver, f"a{method}")(*args, **options))

    stored = call("put", CONFIG, empty_checkpoint(), {}, {})
    call("put_writes", stored, [("a", 1)], "task", "path")
    assert call("get_tuple", CONFIG).pending_writes == [("task", "a", 1)]
    assert call("get_delta_channel_history", config=stored, channels=["a"]) == {"a": {"writes": []}}
    call("delete_thread", "t")
    seen = {op: durations(recorder, op) for op in OPS.values() if recorder.spans(op)}
    assert seen == {
        "put": [DELAYS["put"]],
        "put_writes": [DELAYS["put_writes"]],
        "get_tuple": [DELAYS["get_tuple"]],
        "walk": [DELAYS["walk"]],
        "delete_thread": [DELAYS["delete"]],
    }


@pytest.mark.parametrize("taken", [1, 3])
def test_a_list_takes_what_its_iteration_takes(manual_clock: ManualClock, taken: int) -> None:
    saver, recorder = recorded(manual_clock)
    for _ in range(3):
        put_one(saver)
    rows = saver.list(CONFIG)
    for _ in range(taken):
        next(rows)
        manual_clock.advance(10_000)  # what the reader does between two rows is not the saver's
    assert list(rows) if taken < 3 else not list(rows)
    rows.close()  # type: ignore[attr-defined]
    assert durations(recorder, "list") == [3 * DELAYS["list"]]


def test_a_list_that_is_left_early_is_recorded(manual_clock: ManualClock) -> None:
    saver, recorder = recorded(manual_clock)
    put_one(saver), put_one(saver)
    for _ in saver.list(CONFIG, limit=2):
        break
    assert durations(recorder, "list") == [DELAYS["list"]]


def test_an_async_list_takes_what_its_iteration_takes(manual_clock: ManualClock) -> None:
    saver, recorder = recorded(manual_clock)
    put_one(saver), put_one(saver)

    async def read() -> int:
        return len([row async for row in saver.alist(CONFIG, limit=5)])

    assert asyncio.run(read()) == 2
    assert durations(recorder, "list") == [2 * DELAYS["list"]]


def test_a_call_that_raises_leaves_no_sample(manual_clock: ManualClock) -> None:
    class Fails(InMemorySaver):
        def put(self, *args: Any) -> Any:
            raise OSError("disk")

    recorder = Recorder(manual_clock)
    with pytest.raises(OSError, match="disk"):
        put_one(RecordingSaver(Fails(), recorder))
    assert recorder.spans("put") == []


# --- depth ----------------------------------------------------------------------------------------


def test_depth_counts_the_checkpoints_of_the_playing_thread(manual_clock: ManualClock) -> None:
    saver, recorder = recorded(manual_clock)
    for thread, puts in (("a", 3), ("b", 2)):
        recorder.begin_thread()
        for number in range(puts):
            with recorder.turn(number + 1):
                manual_clock.advance(1)
                put_one(saver, thread_id=thread)
            manual_clock.advance(1)
        assert recorder.depth() == puts
    depths = {sample.op: sample.depth for sample in recorder.samples()}
    assert depths == {"put": (0, 1, 2, 0, 1), "turn": (0, 1, 2, 0, 1)}


def test_calls_between_turns_count_in_depths_alone(manual_clock: ManualClock) -> None:
    saver, recorder = recorded(manual_clock)
    put_one(saver)
    manual_clock.advance(1)
    with recorder.turn(1):
        put_one(saver)
    manual_clock.advance(1)
    saver.get_tuple(CONFIG)
    (put, turn) = recorder.samples()
    assert (put.op, put.depth, put.ns) == ("put", (1,), (DELAYS["put"],))
    assert (turn.op, turn.depth, turn.ns) == ("turn", (1,), (DELAYS["put"],))
    assert recorder.busy_ns() == recorder.wall_ns() == DELAYS["put"]


# --- behaves as the inner saver -------------------------------------------------------------------


def test_only_what_the_inner_saver_overrides_is_overridden() -> None:
    inner = InMemorySaver()
    saver = RecordingSaver(inner, Recorder())
    for name in OPS:
        for method in (name, f"a{name}"):
            assert overrides(saver, method) == overrides(inner, method), method
    with pytest.raises(NotImplementedError):
        saver.prune(["t"])


def test_other_attributes_come_from_the_inner_saver() -> None:
    inner = InMemorySaver()
    saver = RecordingSaver(inner, Recorder())
    assert saver.config_specs == inner.config_specs
    assert saver.serde is inner.serde
    assert saver.storage is inner.storage
    assert saver.get_next_version(None, None).startswith("0" * 31 + "1.")
    with pytest.raises(AttributeError):
        _ = saver.nothing_like_it


def test_a_saver_older_than_task_paths_is_not_given_one() -> None:
    class Old(InMemorySaver):
        def put_writes(self, config: Any, writes: Any, task_id: str) -> None:  # type: ignore[override]
            super().put_writes(config, writes, task_id)

    recorder = Recorder()
    saver = RecordingSaver(Old(), recorder)
    saver.put_writes(put_one(saver), [("a", 1)], "task")
    assert len(recorder.spans("put_writes")) == 1


@pytest.mark.parametrize("how", ["with_allowlist", "copy"])
def test_a_clone_counts_into_the_same_recorder(how: str) -> None:
    recorder = Recorder()
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    saver = RecordingSaver(InMemorySaver(serde=strict), recorder)
    before = saver.serde
    if how == "copy":  # what the base class does: a shallow copy that gets another serializer
        clone: Any = copy.copy(saver)
        clone.serde = copy.copy(before)
    else:
        clone = saver.with_allowlist([("some.module", "Name")])
    assert type(clone).__mro__[1] is RecordingSaver
    assert clone.serde is not before
    assert saver.serde is before
    put_one(clone)
    assert saver.get_tuple(CONFIG) is not None  # the clone shares the data
    assert len(recorder.spans("put")) == len(recorder.spans("get_tuple")) == 1


def test_calls_from_many_threads_are_all_kept() -> None:
    recorder = Recorder()
    saver = RecordingSaver(InMemorySaver(), recorder)

    def work(thread: int) -> None:
        for number in range(200):
            put_one(saver, thread_id=str(thread))
            if number % 50 == 0:
                recorder.spans("put")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    spans = recorder.spans("put")
    assert len(spans) == 1600
    assert all(start <= end for start, end in spans)


# --- under a real graph ---------------------------------------------------------------------------


def extended(items: list[str], batch: list[list[str]]) -> list[str]:
    return [*items, *chain.from_iterable(batch)]


class State(TypedDict):
    items: Annotated[list[str], DeltaChannel(extended)]


def graph_on(saver: BaseCheckpointSaver[Any]) -> Any:
    graph = StateGraph(State)
    graph.add_node("step", lambda state: {"items": [f"seen {len(state['items'])}"]})
    graph.add_edge(START, "step")
    graph.add_edge("step", END)
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_graph_leaves_the_same_on_a_recorded_saver(durability: str) -> None:
    values = []
    for wrap in (nullcontext, lambda inner: nullcontext(RecordingSaver(inner, Recorder()))):
        with wrap(InMemorySaver()) as saver:
            graph = graph_on(saver)
            for text in ("a", "b"):
                graph.invoke({"items": [text]}, CONFIG, durability=durability)
            values.append((graph.get_state(CONFIG).values, len(saver.storage["t"][""])))
    assert values[0] == values[1]
    assert values[0][0] == {"items": ["a", "seen 1", "b", "seen 3"]}


def test_reading_a_delta_channel_is_one_walk() -> None:
    """A wrapper without the saver's own walk would make one call for each ancestor."""
    recorder = Recorder()
    graph = graph_on(RecordingSaver(InMemorySaver(), recorder))
    for number in range(20):
        graph.invoke({"items": [str(number)]}, CONFIG)
    before = len(recorder.spans("get_tuple")), len(recorder.spans("walk"))
    assert len(graph.get_state(CONFIG).values["items"]) == 40
    after = len(recorder.spans("get_tuple")), len(recorder.spans("walk"))
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)


@pytest.fixture
def strict_msgpack(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from langgraph._internal import _serde

    monkeypatch.setattr(_serde, "STRICT_MSGPACK_ENABLED", True)
    return


def test_calls_are_counted_under_strict_msgpack(strict_msgpack: None) -> None:
    """There the runtime works on a clone of the saver, so counters on the wrapper would stay 0."""
    recorder = Recorder()
    graph = graph_on(RecordingSaver(InMemorySaver(), recorder))
    graph.invoke({"items": ["a"]}, CONFIG)
    assert len(recorder.spans("put")) == 3
    assert graph.checkpointer.recorder is recorder
