"""The cache of delta histories: the same answers, fewer walks, and nothing stale."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

import tiny_graph
from fix_threads import Kept, at, snapshot
from savermark.errors import UsageError
from savermark.history.cache import Entry, HistoryCache
from savermark.history.cached import CachedHistory, with_cache
from savermark.history.walks import with_walk
from savermark.recording import Recorder, RecordingSaver
from savermark.retention.admission import clean_admission
from savermark.retention.lifecycle import NO_CACHE, lifecycle_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def counted(saver: Any) -> Iterator[list[str]]:
    """Notes the calls of the saver's own walk and of `get_tuple`."""
    seen: list[str] = []
    kind = next(k for k in type(saver).__mro__ if not issubclass(k, CachedHistory))
    names = ("get_delta_channel_history", "get_tuple")
    own = {name: kind.__dict__.get(name) for name in names}

    def noting(name: str, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            return method(*args, **kwargs)

        return call

    for name, method in own.items():
        setattr(kind, name, noting(name, method))
    try:
        yield seen
    finally:
        for name, method in own.items():
            setattr(kind, name, method)


def long(kept: Kept, length: int = 30, every: int = 10) -> str:
    """A line of checkpoints with a snapshot now and then and a write on each."""
    hand = kept.hand()
    for number in range(length):
        name, parent = f"c{number:03}", f"c{number - 1:03}" if number else None
        values = {"x": snapshot(f"s{number}")} if number % every == 0 else {}
        hand.put(name, parent, values, moved="x", counts="" if values else "x")
        hand.write(name, ("x", [number]), ("y", number), task=f"t{number}")
    return hand.thread


def ask(saver: Any, thread: str, name: str | None, channels: Any = ("x",)) -> Any:
    return saver.get_delta_channel_history(config=at(thread, name), channels=channels)


# --- the same answers -----------------------------------------------------------------------------


def test_every_checkpoint_reads_as_without_a_cache(kept: Kept) -> None:
    thread = long(kept)
    cached = with_cache(kept.saver)
    names = [row.checkpoint_id for row in kept.rows.image(thread).checkpoints]
    for order in (names, names[::-1], names):
        for name in order:
            assert ask(cached, thread, name) == ask(kept.saver, thread, name), name
            assert ask(cached, thread, name, ["x", "y", "z"]) == ask(
                kept.saver, thread, name, ["x", "y", "z"]
            )
    assert ask(cached, thread, None) == ask(kept.saver, thread, None)
    assert ask(cached, thread, names[5], []) == {}


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_reads_of_random_threads(kept: Kept, data: st.DataObject) -> None:
    """Forks, plain and None seeds, several channels; reads in any order."""
    hand, names = kept.hand(), list[str]()
    for number in range(data.draw(st.integers(1, 14))):
        parent = data.draw(st.sampled_from(names)) if names else None
        name = f"c{number:02}"
        kind = data.draw(st.sampled_from(["", "", "snapshot", "plain", "none"]))
        value = {"snapshot": snapshot(name), "plain": [name], "none": None}.get(kind)
        hand.put(name, parent, {"x": value} if kind else {}, moved="xy", counts="y")
        for task in range(data.draw(st.integers(0, 2))):
            hand.write(name, ("x", [task]), ("y", [name]), task=f"t{task}")
        names.append(name)
    cached = with_cache(kept.saver, HistoryCache(entries=data.draw(st.integers(1, 30))))
    for name in data.draw(st.lists(st.sampled_from(names), max_size=20)):
        channels = data.draw(st.sampled_from([["x"], ["y"], ["x", "y"], ["y", "none"]]))
        assert ask(cached, hand.thread, name, channels) == ask(
            kept.saver, hand.thread, name, channels
        )


def test_a_graph_on_a_caching_saver(kept: Kept) -> None:
    cached = with_cache(kept.saver)
    thread = kept.hand().thread
    words = [f"q{turn}" for turn in range(6)]
    for build in (cached, kept.saver, cached):
        graph = tiny_graph.build(build)
        for word in words[:2]:
            graph.invoke({"said": [word]}, tiny_graph.config(thread))
    expected = tiny_graph.expected(words[:2] * 3)
    states = [
        tiny_graph.build(saver).get_state(tiny_graph.config(thread)).values
        for saver in (cached, kept.saver, cached)
    ]
    assert states == [expected] * 3
    assert [s.values for s in tiny_graph.build(cached).get_state_history(at(thread))] == [
        s.values for s in tiny_graph.build(kept.saver).get_state_history(at(thread))
    ]
    assert cached.cache.hits > 0


def test_what_is_read_may_be_changed_by_its_reader(kept: Kept) -> None:
    thread = long(kept, 5)
    cached = with_cache(kept.saver)
    for _ in range(3):
        found = ask(cached, thread, "c004")["x"]
        assert found == ask(kept.saver, thread, "c004")["x"]
        found["writes"][0][2].append("spoilt")
        found["seed"].value.append("spoilt")


def test_the_async_twin_gives_the_same(kept: Kept) -> None:
    thread = long(kept, 25)
    names = [f"c{number:03}" for number in (3, 4, 20, 24, 4, 3, 11)]
    wanted = [ask(kept.saver, thread, name) for name in names]

    async def read(saver: Any) -> list[Any]:
        cached = with_cache(saver)
        found = [
            await cached.aget_delta_channel_history(config=at(thread, name), channels=["x"])
            for name in names
        ]
        assert (cached.cache.hits, cached.cache.extended, cached.cache.misses) == (2, 3, 2)
        return found

    async def opened() -> list[Any]:
        async with kept.store.asaver() as saver:
            return await read(saver)

    found = asyncio.run(read(kept.saver) if kept.name == "memory" else opened())
    assert found == wanted


# --- fewer walks ----------------------------------------------------------------------------------


def test_a_warm_ancestor_is_extended_and_a_far_one_is_not(kept: Kept) -> None:
    thread = long(kept, 60, every=50)
    cached = with_cache(kept.saver)
    with counted(cached) as seen:
        ask(cached, thread, "c020")
        walked = seen.copy()
        assert walked[0] == "get_delta_channel_history" and cached.cache.misses == 1
        seen.clear()
        ask(cached, thread, "c020")
        assert seen == [] and cached.cache.hits == 1
        ask(cached, thread, "c023")  # itself, and its parents down to the warm one
        assert seen == ["get_tuple"] * 4 and cached.cache.extended == 1
        seen.clear()
        ask(cached, thread, "c040")  # nothing warm within reach
        assert seen[:9] == ["get_tuple"] * 9 and "get_delta_channel_history" in seen
        seen.clear()
        ask(cached, thread, "c052")  # a seed within reach
        assert seen == ["get_tuple"] * 3
    assert (cached.cache.hits, cached.cache.extended, cached.cache.misses) == (1, 2, 2)


def test_the_latest_and_the_unknown_are_not_cached(kept: Kept) -> None:
    thread = long(kept, 5)
    cached = with_cache(kept.saver)
    ask(cached, thread, None)
    assert len(cached.cache) == 0
    ask(cached, thread, "c002")
    assert len(cached.cache) == 1 and cached.cache.bytes > 0


def test_an_absent_checkpoint_is_not_remembered_as_empty(kept: Kept) -> None:
    thread = long(kept, 5)
    cached = with_cache(kept.saver)
    assert ask(cached, thread, "c005") == {"x": {"writes": []}}
    ask(cached, thread, "c003")
    assert ask(cached, thread, "c005") == {"x": {"writes": []}}
    kept.saver.put(
        at(thread, "c004"),
        {**kept.saver.get_tuple(at(thread, "c004")).checkpoint, "id": "c005"},  # type: ignore[union-attr,typeddict-item]
        {},
        {},
    )
    assert ask(cached, thread, "c005") == ask(kept.saver, thread, "c005")


# --- bounds ---------------------------------------------------------------------------------------


def entry(size: int) -> Entry:
    return Entry((("t", ("msgpack", b"x" * size)),))


def test_the_least_recently_used_goes_first() -> None:
    cache = HistoryCache(entries=2)
    for name in "ab":
        cache.add(("t", "", name, "x"), entry(1), cache.epoch())
    assert cache.get(("t", "", "a", "x")) is not None
    cache.add(("u", "", "c", "x"), entry(1), cache.epoch())
    assert len(cache) == 2
    assert cache.get(("t", "", "b", "x")) is None and cache.get(("t", "", "a", "x"))
    cache.invalidate("t")
    assert len(cache) == 1 and not cache.knows("t") and cache.knows("u")
    cache.clear()
    assert len(cache) == cache.bytes == 0


def test_bytes_are_bounded() -> None:
    cache = HistoryCache(max_bytes=10_000)
    for number in range(20):
        cache.add(("t", "", str(number), "x"), entry(2000), cache.epoch())
        assert cache.bytes <= 10_000
    assert len(cache) == 4
    cache.add(("t", "", "big", "x"), entry(20_000), cache.epoch())
    assert cache.get(("t", "", "big", "x")) is None and len(cache) == 4
    for bound in ({"entries": 0}, {"max_bytes": 0}):
        with pytest.raises(UsageError, match="1 or more"):
            HistoryCache(**bound)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 400)), max_size=60))
def test_the_count_of_bytes_is_right(steps: list[tuple[int, int, int]]) -> None:
    cache = HistoryCache(entries=5, max_bytes=2000)
    for thread, name, size in steps:
        if thread == 3:
            cache.invalidate(str(name % 3))
        else:
            cache.add((str(thread), "", str(name), "x"), entry(size), cache.epoch())
        held = [e for key in cache._held if (e := cache._held[key])]
        assert cache.bytes == sum(e.bytes for e in held) <= 2000 and len(held) <= 5
        assert {key[0] for key in cache._held} == set(cache._threads)


# --- nothing stale --------------------------------------------------------------------------------


def test_what_changes_an_ancestor_must_invalidate(kept: Kept) -> None:
    """The proof that the call matters: without it the cache goes on with what it had."""
    thread = long(kept, 8)
    cached = with_cache(kept.saver)
    before = ask(cached, thread, "c007")
    with kept.rows.transaction(thread) as txn:
        txn.delete_writes_of([("", "c003")])
    assert ask(cached, thread, "c007") == before != ask(kept.saver, thread, "c007")
    lifecycle_of(cached).invalidate(thread)
    assert ask(cached, thread, "c007") == ask(kept.saver, thread, "c007")


def test_deleting_the_thread_forgets_it_first(kept: Kept) -> None:
    thread, other = long(kept, 5), long(kept, 5)
    cached = with_cache(kept.saver)
    for each in (thread, other):
        ask(cached, each, "c004")
    cached.delete_thread(thread)
    assert not cached.cache.knows(thread) and cached.cache.knows(other)
    assert ask(cached, thread, "c004") == {"x": {"writes": []}}


def test_a_read_that_began_before_the_deletion_adds_nothing(kept: Kept) -> None:
    """The walk is under way when the thread is invalidated: its answer is of the past."""
    thread = long(kept, 5)
    cached = with_cache(kept.saver)
    inside, go_on = threading.Event(), threading.Event()
    load = cached.cache.epoch

    def slow() -> int:
        found = load()
        inside.set()
        go_on.wait(10)
        return found

    cached.cache.epoch = slow  # type: ignore[method-assign]
    reader = threading.Thread(target=ask, args=(cached, thread, "c004"))
    reader.start()
    assert inside.wait(10)
    cached.cache.invalidate(thread)
    go_on.set()
    reader.join(10)
    assert len(cached.cache) == 0


# --- lifecycles -----------------------------------------------------------------------------------


class Pruning(CachedHistory, InMemorySaver):
    """A saver with a prune of its own."""

    cache = HistoryCache()
    left: int | None = None

    def prune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        self.left = len(self.cache)


def test_a_savers_own_prune_clears_the_cache() -> None:
    saver = Pruning()
    saver.cache.add(("t", "", "a", "x"), entry(1), saver.cache.epoch())
    saver.prune(["t"])
    assert saver.left == 0


def test_a_caching_saver_is_able_to_do_what_the_saver_is() -> None:
    cached = with_cache(InMemorySaver())
    for name in ("prune", "delete_for_runs", "copy_thread", "aprune"):
        assert getattr(type(cached), name) is getattr(BaseCheckpointSaver, name)


def test_the_cache_of_a_walk_is_found_where_it_lies(kept: Kept) -> None:
    thread = long(kept, 8)
    walking = with_walk(kept.saver, "cached")
    cache = lifecycle_of(walking)
    assert isinstance(cache, HistoryCache)
    ask(walking, thread, "c007")
    assert cache.knows(thread)
    assert clean_admission(walking, thread).why and cache.knows(thread)
    lifecycle_of(RecordingSaver(walking, Recorder())).invalidate(thread)
    assert not cache.knows(thread)


def test_the_lifecycle_is_found_through_wrappers() -> None:
    plain = InMemorySaver()
    cached = with_cache(plain)
    wrapped = RecordingSaver(cached, Recorder())
    given_one = HistoryCache()
    assert lifecycle_of(plain) is NO_CACHE is lifecycle_of(RecordingSaver(plain, Recorder()))
    assert lifecycle_of(cached) is cached is lifecycle_of(wrapped)
    assert lifecycle_of(plain, given_one) is given_one
    NO_CACHE.invalidate("t")
    both = lifecycle_of(wrapped, given_one)
    for cache in (given_one, cached.cache):
        cache.add(("t", "", "a", "x"), entry(1), cache.epoch())
    both.invalidate("t")
    assert len(given_one) == len(cached.cache) == 0
    with pytest.raises(UsageError, match="inside the wrapper"):
        with_cache(wrapped)
