"""Deleting runs: only their rows, never what another run is rebuilt from."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

import tiny_graph
from fix_threads import Kept, at, history, snapshot
from savermark.errors import UsageError
from savermark.history.lineage import keep_ids
from savermark.history.rows import ThreadBusy
from savermark.retention.runs import adelete_for_runs, delete_for_runs
from savermark.retention.runs_plan import plan_runs
from tiny_graph import extend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def _turns(kept: Kept, thread: str, runs: Sequence[str]) -> Any:
    graph = tiny_graph.build(kept.saver)
    for number, run in enumerate(runs):
        config = {**at(thread), "metadata": {"run_id": run}}
        graph.invoke({"said": [f"word {number}"]}, config)
    return graph


def _values(graph: Any, thread: str) -> dict[str, Any]:
    found = graph.get_state_history(at(thread))
    return {row.config["configurable"]["checkpoint_id"]: row.values for row in found}


def _runs(kept: Kept, thread: str) -> dict[str, Any]:
    rows = kept.rows.image(thread).checkpoints
    return {row.checkpoint_id: row.metadata.get("run_id") for row in rows}


def test_other_runs_read_back_as_before(kept: Kept) -> None:
    thread = kept.hand().thread
    graph = _turns(kept, thread, [f"{thread}-{turn}" for turn in range(8)])
    before, runs = _values(graph, thread), _runs(kept, thread)
    gone = [f"{thread}-0", f"{thread}-3", f"{thread}-7"]
    report = delete_for_runs(kept.saver, gone)
    after = _values(graph, thread)
    assert (report.matched, report.cut) == (12, 0)
    assert report.deleted == len(before) - len(after) >= 4
    assert report.needed == report.matched - report.deleted > 0
    for name, run in runs.items():
        if run not in gone:
            assert after[name] == before[name]
    assert delete_for_runs(kept.saver, gone).deleted == 0
    graph.invoke({"said": ["more"]}, at(thread))
    assert len(graph.get_state(at(thread)).values["said"]) == 16


def test_with_heads_only_the_tips_must_read_back(kept: Kept) -> None:
    thread = kept.hand().thread
    graph = _turns(kept, thread, [f"{thread}-{turn}" for turn in range(8)])
    values = graph.get_state(at(thread)).values
    before = _values(graph, thread)
    report = delete_for_runs(kept.saver, [f"{thread}-1"], addressable="heads")
    assert (report.matched, report.needed, report.deleted) == (4, 0, 4)
    assert graph.get_state(at(thread)).values == values
    after = _values(graph, thread)
    assert report.cut == sum(value != before[name] for name, value in after.items()) > 0
    assert f"{report.cut} older checkpoints" in str(report)
    graph.invoke({"said": ["more"]}, at(thread))
    assert len(graph.get_state(at(thread)).values["said"]) == 18


def test_the_newest_run_goes_whole(kept: Kept) -> None:
    thread = kept.hand().thread
    graph = _turns(kept, thread, [f"{thread}-a", f"{thread}-b"])
    states = list(_values(graph, thread).values())
    report = delete_for_runs(kept.saver, [f"{thread}-b"])
    assert (report.matched, report.needed, report.deleted) == (4, 0, 4)
    assert graph.get_state(at(thread)).values == states[4]
    image = kept.rows.image(thread)
    stored = {row.checkpoint_id for row in image.checkpoints}
    assert {row.checkpoint_id for row in image.writes} <= stored
    named = {(r.checkpoint_ns, *pair) for r in image.checkpoints for pair in r.versions.items()}
    assert {row.key for row in image.blobs} <= named


def test_nothing_matched_says_why(kept: Kept) -> None:
    thread = kept.hand().thread
    graph = tiny_graph.build(kept.saver)
    run = "5d3b0b2e-0000-4000-8000-000000000001"
    graph.invoke({"said": ["a"]}, {**at(thread), "run_id": run})
    report = delete_for_runs(kept.saver, [run])
    assert (report.matched, report.deleted) == (0, 0)
    assert "0 matched" in str(report)
    assert "top-level run_id is not" in str(report)


class _State(TypedDict):
    said: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=4)]


def _asking(saver: Any, inner: bool) -> Any:
    """`pre` and a slow-free sibling `aside`, beside a question, perhaps in a subgraph."""

    def ask(state: _State) -> dict[str, Any]:
        return {"said": [f"answered {interrupt('well?')}"]}

    def asker(checkpointer: Any) -> Any:
        graph = StateGraph(_State)
        graph.add_node("ask", ask)
        graph.add_edge(START, "ask")
        graph.add_edge("ask", END)
        return graph.compile(checkpointer=checkpointer)

    def outer(state: _State) -> dict[str, Any]:
        known = len(state["said"])
        return {"said": asker(None).invoke(state)["said"][known:]}

    graph = StateGraph(_State)
    graph.add_node("aside", lambda state: {"said": ["aside"]})
    graph.add_node("ask", outer if inner else ask)
    graph.add_edge(START, "aside")
    graph.add_edge(START, "ask")
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("inner", [False, True])
def test_deleting_a_resume_brings_the_interrupt_back(kept: Kept, inner: bool) -> None:
    thread = kept.hand().thread
    graph = _asking(kept.saver, inner)
    first = {**at(thread), "metadata": {"run_id": f"{thread}-1"}}
    second = {**at(thread), "metadata": {"run_id": f"{thread}-2"}}
    graph.invoke({"said": ["hello"]}, first)
    asked = graph.get_state(at(thread))
    answered = graph.invoke(Command(resume="yes"), second)
    report = delete_for_runs(kept.saver, [f"{thread}-2"])
    assert report.deleted > 0
    again = graph.get_state(at(thread))
    assert (again.values, again.next) == (asked.values, asked.next)
    assert [i.value for i in again.interrupts] == ["well?"]
    assert graph.invoke(Command(resume="yes"), second) == answered
    other = {**at(thread), "metadata": {"run_id": f"{thread}-3"}}
    assert graph.invoke({"said": ["then"]}, other) is not None


def test_a_protected_checkpoint_stays(kept: Kept) -> None:
    thread = kept.hand().thread
    runs = [f"{thread}-{turn}" for turn in range(5)]
    graph = _turns(kept, thread, runs)
    head = graph.get_state(at(thread))
    name = head.config["configurable"]["checkpoint_id"]
    report = delete_for_runs(kept.saver, runs, protect=[name])
    assert report.deleted > 0
    assert graph.get_state(at(thread)).values == head.values


def test_a_dry_run_changes_nothing_and_tells_the_same(kept: Kept) -> None:
    thread = kept.hand().thread
    _turns(kept, thread, [f"{thread}-{turn}" for turn in range(6)])
    before = kept.rows.image(thread)
    told = delete_for_runs(kept.saver, [f"{thread}-5"], dry_run=True)
    assert kept.rows.image(thread) == before
    done = delete_for_runs(kept.saver, [f"{thread}-5"])
    assert (told.matched, told.needed, told.deleted) == (done.matched, done.needed, done.deleted)
    assert told.rows == done.rows
    assert "would be deleted" in str(told)
    left = kept.rows.image(thread)
    assert before.rows - left.rows == sum(done.rows.values())


class _Cache:
    def __init__(self, kept: Kept, works: bool) -> None:
        self.kept, self.works, self.heard = kept, works, list[str]()

    def invalidate(self, thread_id: str) -> None:
        self.heard.append(thread_id)
        if not self.works:
            raise OSError("cache is away")


def test_the_cache_forgets_first_or_nothing_goes(kept: Kept) -> None:
    thread = kept.hand().thread
    _turns(kept, thread, [f"{thread}-a", f"{thread}-b"])
    before, cache = kept.rows.image(thread), _Cache(kept, works=False)
    report = delete_for_runs(kept.saver, [f"{thread}-b"], lifecycle=cache)
    assert cache.heard == [thread]
    assert kept.rows.image(thread) == before
    assert "cache is away" in report.refused[0].applied.refused
    assert report.deleted == 0
    assert delete_for_runs(kept.saver, [f"{thread}-b"], lifecycle=_Cache(kept, True)).deleted == 4


def test_a_damaged_thread_is_refused_and_the_others_go_on(kept: Kept) -> None:
    run, bad, good = kept.hand().thread, kept.hand(), kept.hand()
    bad.put("c2", "c1", {"x": 1}, metadata={"run_id": run})
    bad.put("c3", "c2", moved=["d"], counts=["d"])
    good.put("c1", values={"x": 1}, metadata={"run_id": run})
    report = delete_for_runs(kept.saver, [run])
    assert [part.applied.thread_id for part in report.refused] == [bad.thread]
    assert "c1, which is not stored" in report.refused[0].applied.refused
    assert kept.rows.image(good.thread).checkpoints == ()
    assert len(kept.rows.image(bad.thread).checkpoints) == 2


def test_an_unsafe_thread_is_refused_by_name(kept: Kept) -> None:
    run, hand = kept.hand().thread, kept.hand()
    hand.put("c9", values={"x": 1}, metadata={"run_id": run}).put("c3", "c9", {"x": 2})
    before = kept.rows.image(hand.thread)
    report = delete_for_runs(kept.saver, [run])
    assert "parent-above-child" in report.refused[0].applied.refused
    assert (report.matched, report.deleted) == (1, 0)
    assert "threads refused: 1" in str(report)
    assert kept.rows.image(hand.thread) == before


def test_finding_the_threads_is_one_statement(kept: Kept) -> None:
    if kept.name != "sqlite":
        pytest.skip("statements are traced on SQLite")
    run = kept.hand().thread
    for _ in range(20):
        kept.hand().put("c1", metadata={"run_id": run}).put("c2", "c1")
    seen: list[str] = []
    kept.saver.conn.set_trace_callback(seen.append)
    found = kept.rows.threads_of_runs([run])
    kept.saver.conn.set_trace_callback(None)
    assert len(found) == 20
    assert len(seen) == 1


def test_a_persistent_subgraph_keeps_what_a_replay_loads(kept: Kept) -> None:
    thread = kept.hand().thread
    run = {"run_id": f"{thread}-2"}
    root, child = kept.hand(thread), kept.hand(thread, "sub")
    root.put("c1", values={"x": 1}).put("c4", "c1", {"x": 2}, metadata=run)
    child.put("c2", values={"y": 1}, metadata=run).put("c3", "c2", {"y": 2}, metadata=run)
    root.put("c5", "c4", {"x": 3})
    delete_for_runs(kept.saver, [f"{thread}-2"])
    assert {row.key for row in kept.rows.image(thread).checkpoints} == {
        ("", "c1"),
        ("sub", "c3"),
        ("", "c5"),
    }


@pytest.mark.parametrize("wrong", ["a-run", ["a", ""]])
def test_wrong_run_ids(kept: Kept, wrong: Any) -> None:
    with pytest.raises(UsageError, match="run id"):
        delete_for_runs(kept.saver, wrong)


def test_no_runs_is_nothing_to_do(kept: Kept) -> None:
    assert delete_for_runs(kept.saver, []).matched == 0


def test_runs_are_found_by_text_and_by_number(kept: Kept) -> None:
    one, two, three = kept.hand(), kept.hand(), kept.hand()
    number = int(one.thread.rpartition("-")[2]) + 7_000_000
    one.put("c1", metadata={"run_id": number})
    two.put("c1", metadata={"run_id": str(number)}).put("c2", "c1", metadata={"run_id": "other"})
    three.put("c1", metadata={"run_id": f"{number}0"}).put("c2", "c1", metadata={"run_id": True})
    assert kept.rows.threads_of_runs([str(number)]) == sorted([one.thread, two.thread])
    assert kept.rows.threads_of_runs([]) == []
    assert delete_for_runs(kept.saver, [str(number)]).deleted == 2


def test_damaged_metadata_names_no_run(kept: Kept) -> None:
    if kept.name != "sqlite":
        pytest.skip("only SQLite keeps metadata as text")
    hand = kept.hand().put("c1").put("c2", "c1", metadata={"run_id": "damaged-run"})
    sql = "UPDATE checkpoints SET metadata = '{' WHERE thread_id = ? AND checkpoint_id = 'c1'"
    kept.saver.conn.execute(sql, (hand.thread,))
    kept.saver.conn.commit()
    assert kept.rows.threads_of_runs(["damaged-run"]) == [hand.thread]


def test_async_says_the_same(kept: Kept) -> None:
    thread = kept.hand().thread
    graph = _turns(kept, thread, [f"{thread}-{turn}" for turn in range(6)])
    told = delete_for_runs(kept.saver, [f"{thread}-1", f"{thread}-4"], dry_run=True)
    before = graph.get_state(at(thread)).values

    async def delete() -> Any:
        async with kept.store.asaver() as saver:
            return await adelete_for_runs(saver, [f"{thread}-1", f"{thread}-4"])

    done = asyncio.run(delete())
    assert (done.matched, done.deleted, done.rows) == (told.matched, told.deleted, told.rows)
    assert graph.get_state(at(thread)).values == before


_LINKS = st.lists(
    st.tuples(
        st.integers(0, 9),  # how many before it the parent lies
        st.booleans(),  # a snapshot of `a`
        st.sampled_from(["none", "b", "plain"]),  # what it stores for `b`
        st.lists(st.sampled_from("ab"), max_size=3),  # writes
        st.integers(0, 2),  # run
    ),
    min_size=1,
    max_size=12,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(links=_LINKS, gone=st.sets(st.integers(0, 2)), space=st.sampled_from(["", "sub", "n:1"]))
def test_random_threads_keep_what_other_runs_need(
    kept: Kept, links: list[Any], gone: set[int], space: str
) -> None:
    hand = kept.hand(space=space)
    for number, (back, seed, other, writes, run) in enumerate(links):
        parent = f"c{max(number - 1 - back, 0):02}" if number else None
        values = ({"a": snapshot(number)} if seed else {}) | (
            {"b": snapshot(number)} if other == "b" else {"p": number} if other == "plain" else {}
        )
        told = {"run_id": f"{hand.thread}-{run}"}
        hand.put(
            f"c{number:02}", parent, values, moved=["a", "b"], counts=["a", "b"], metadata=told
        )
        hand.write(f"c{number:02}", *[(channel, [number]) for channel in writes])
    left = [f"c{n:02}" for n, link in enumerate(links) if link[4] not in gone]

    def read(name: str) -> Any:
        found = kept.saver.get_tuple(at(hand.thread, name, space))
        assert found is not None
        absent = sorted({"a", "b"} - found.checkpoint["channel_values"].keys())
        walk = history(kept, hand.thread, name, absent, space)
        return found.checkpoint, found.metadata, walk

    before = {name: read(name) for name in left}
    stored_now = kept.rows.image(hand.thread)
    narrow = plan_runs(stored_now, [f"{hand.thread}-{run}" for run in gone], addressable="heads")
    lost = {name for _, name in narrow.plan.checkpoints}
    assert narrow.cut == sum(bool(keep_ids(stored_now, space, name) & lost) for name in left)
    report = delete_for_runs(kept.saver, [f"{hand.thread}-{run}" for run in gone])
    assert {name: read(name) for name in left} == before
    assert report.matched == len(links) - len(left) == report.needed + report.deleted
    image = kept.rows.image(hand.thread)
    stored = {row.checkpoint_id for row in image.checkpoints}
    assert all(row.parent_id in stored | {None} for row in image.checkpoints)
    assert {row.checkpoint_id for row in image.writes} <= stored
    again = delete_for_runs(kept.saver, [f"{hand.thread}-{run}" for run in gone])
    assert again.deleted == 0
    assert kept.rows.image(hand.thread).rows == image.rows


def test_a_thread_in_use_is_tried_again_and_then_left(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = kept.hand().thread
    hand = kept.hand().put("c1", metadata={"run_id": run})
    waits: list[float] = []
    monkeypatch.setattr("savermark.retention.runs.time.sleep", waits.append)

    @contextmanager
    def busy(thread_id: str) -> Iterator[Any]:
        raise ThreadBusy("someone else is at it")
        yield

    rows = kept.rows
    with monkeypatch.context() as patched:
        patched.setattr(type(rows), "transaction", lambda self, thread: busy(thread))
        report = delete_for_runs(kept.saver, [run])
    assert waits == sorted(waits)
    assert len(waits) == 3
    assert report.refused[0].applied.refused == "someone else is at it"
    assert (report.matched, report.deleted) == (1, 0)
    assert rows.image(hand.thread).rows > 0
    assert delete_for_runs(kept.saver, [run]).deleted == 1


def test_two_jobs_at_once_and_a_run_that_goes_on(kept: Kept) -> None:
    thread = kept.hand().thread
    graph = _turns(kept, thread, [f"{thread}-{turn}" for turn in range(7)])

    def delete() -> Any:
        with kept.store.saver() as saver:
            return delete_for_runs(saver, [f"{thread}-0", f"{thread}-1", f"{thread}-2"])

    def talk() -> None:
        with kept.store.saver() as saver:
            tiny_graph.build(saver).invoke({"said": ["meanwhile"]}, at(thread))

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(delete), pool.submit(delete), pool.submit(talk)]
        reports = [job.result() for job in jobs[:2]]
        jobs[2].result()
    assert sum(part.deleted for part in reports) <= 12
    said = graph.get_state(at(thread)).values["said"]
    assert (len(said), said[-2]) == (16, "meanwhile")
    assert all(not part.refused for part in reports)
