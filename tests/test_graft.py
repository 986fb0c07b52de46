"""Grafts: a duration-only link goes, and every other checkpoint reads and goes on as before."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

import tiny_graph
from fix_threads import Kept, at, snapshot
from savermark.errors import ContractError, UsageError
from savermark.history.cached import with_cache
from savermark.history.image import CheckpointRow, ThreadImage, WriteRow
from savermark.retention.duration import is_duration_only, persist_run_durations
from savermark.retention.graft import (
    NULL_TASK,
    GraftRefused,
    apply_graft,
    graft_of,
    plan_graft,
    prove_graft,
)
from savermark.retention.grafting import agraft, graft
from savermark.retention.records import Graft

if TYPE_CHECKING:
    from collections.abc import Sequence


class Played:
    """A thread of the tiny graph with duration copies in between."""

    def __init__(self, kept: Kept) -> None:
        self.kept, self.thread = kept, kept.hand().thread
        self.graph = tiny_graph.build(kept.saver)
        self.at = tiny_graph.config(self.thread)
        self.runs = 0

    def say(self, word: str, name: str | None = None, **how: Any) -> Played:
        self.graph.invoke({"said": [word]}, at(self.thread, name) if name else self.at, **how)
        return self

    def copy(self) -> str:
        self.runs += 1
        assert persist_run_durations(self.kept.saver, self.thread, {f"r{self.runs}": 1})
        return self.head

    @property
    def head(self) -> str:
        found = self.kept.saver.get_tuple(self.at)
        assert found is not None
        return str(found.checkpoint["id"])

    def states(self) -> dict[str, Any]:
        """Every root checkpoint by its explicit id."""
        rows = self.kept.rows.image(self.thread).checkpoints
        found = {}
        for row in rows:
            seen = self.graph.get_state(at(self.thread, row.checkpoint_id))
            found[row.checkpoint_id] = (seen.values, seen.next)
        return found

    def graft(self, link: str, **options: Any) -> Graft:
        return graft(self.kept.saver, self.thread, link, **options)

    def check(self, link: str, before: dict[str, Any], made: Graft, handling: str) -> None:
        """All but the link read as before, nothing of it is left, and the next turn is right."""
        assert made.handling == handling and made.link_id == link
        del before[link]
        assert self.states() == before
        image = self.kept.rows.image(self.thread)
        assert {row.parent_id for row in image.checkpoints} <= {None, *before}
        assert all(write.checkpoint_id in before for write in image.writes)
        said = list(before[self.head][0]["said"])
        self.say("next")
        assert self.graph.get_state(self.at).values["said"][: len(said) + 1] == [*said, "next"]


@pytest.fixture
def played(kept: Kept) -> Played:
    return Played(kept)


# --- scenario F -----------------------------------------------------------------------------------


def test_a_link_without_writes_is_joined(played: Played) -> None:
    link = played.say("q0").copy()
    before = played.say("q1").states()
    blobs = played.kept.rows.image(played.thread).blobs
    made = played.graft(link)
    assert played.kept.rows.image(played.thread).blobs == blobs  # shared with the parent
    played.check(link, before, made, "reparent")


def test_stacked_links_go_one_by_one(played: Played) -> None:
    links = [played.say("q0").copy(), played.copy(), played.copy()]
    before = played.say("q1").states()
    for link in (links[1], links[2], links[0]):
        made = played.graft(link, graph=played.graph)
        assert made.handling == "reparent"
        del before[link]
        assert played.states() == before


def owning(played: Played, how: str) -> str:
    """A link that owns delta writes."""
    link = played.say("q0").copy()
    if how == "update":
        played.graph.update_state(played.at, {"said": ["u"]}, as_node="count")
    elif how == "command":
        played.graph.invoke(Command(update={"said": ["u"]}, goto="answer"), played.at)
    else:
        played.say("u", durability="exit")
    image = played.kept.rows.image(played.thread)
    assert any(write.channel == "said" for write in image.own_writes["", link])
    return link


@pytest.mark.parametrize("how", ["update", "exit"])
def test_writes_move_to_a_parent_that_nobody_else_has(played: Played, how: str) -> None:
    link = owning(played, how)
    before = played.states()
    assert before[played.head][0]["said"][:3] == ["q0", "answer 1 to q0", "u"]
    played.check(link, before, played.graft(link, graph=played.graph), "move")


def test_the_writes_of_a_command_are_not_moved(played: Played) -> None:
    """Whoever resumes at the parent would apply them anew."""
    link = owning(played, "command")
    before = played.states()
    with pytest.raises(GraftRefused, match="give the graph"):
        played.graft(link)
    assert played.states() == before
    played.check(link, before, played.graft(link, graph=played.graph), "snapshot")


@pytest.mark.parametrize("how", ["update", "exit", "command"])
def test_a_parent_with_other_children_keeps_their_past(played: Played, how: str) -> None:
    link = owning(played, how)
    parent = played.kept.rows.image(played.thread).row("", link).parent_id  # type: ignore[union-attr]
    head = played.head
    played.say("alt", parent)
    before = played.states()
    assert before[head][0]["said"][2] == "u"
    with pytest.raises(GraftRefused, match="give the graph"):
        played.graft(link)
    assert played.states() == before
    made = played.graft(link, graph=played.graph)
    played.check(link, before, made, "snapshot")
    child = played.kept.rows.image(played.thread).row("", made.children[0])
    assert child is not None and "said" in child.snapshots and "said" not in child.counted


def test_a_child_that_owns_a_commands_writes_gets_its_value_without_them(played: Played) -> None:
    """A state applies them even for an explicit id; stored, they would count twice."""
    link = owning(played, "exit")
    parent = played.kept.rows.image(played.thread).row("", link).parent_id  # type: ignore[union-attr]
    child = played.head
    played.graph.invoke(Command(update={"said": ["c"]}, goto="answer"), played.at)
    played.say("alt", parent)
    before = played.states()
    assert before[child][0]["said"][-1] == "c"
    made = played.graft(link, graph=played.graph)
    assert played.kept.saver.get_tuple(at(played.thread, child)).checkpoint["channel_values"][  # type: ignore[union-attr]
        "said"
    ] == snapshot("q0", "answer 1 to q0", "u", "answer 3 to u")
    played.check(link, before, made, "snapshot")


def test_moving_beside_other_children_would_be_seen(played: Played) -> None:
    """The proof can fail: the siblings would replay what is not theirs."""
    link = owning(played, "update")
    parent = played.kept.rows.image(played.thread).row("", link).parent_id  # type: ignore[union-attr]
    played.say("alt", parent)
    before = played.states()
    made = plan_graft(played.kept.rows.image(played.thread), ("", link))
    for handling in ("move", "reparent"):
        wrong = replace(made, handling=handling)
        with (
            pytest.raises(ContractError, match="would read 'said' differently"),
            played.kept.rows.transaction(played.thread) as txn,
        ):
            image = txn.image()
            apply_graft(txn, wrong)
            prove_graft(image, txn.image(), wrong)
        assert played.states() == before


def test_the_async_twin_does_the_same(kept: Kept) -> None:
    played = Played(kept)
    link = owning(played, "exit")
    parent = kept.rows.image(played.thread).row("", link).parent_id  # type: ignore[union-attr]
    played.say("alt", parent)
    before = played.states()

    async def cut(saver: Any) -> Graft:
        graph = tiny_graph.build(saver)
        with pytest.raises(GraftRefused, match="give the graph"):
            await agraft(saver, played.thread, link)
        return await agraft(saver, played.thread, link, graph=graph)

    async def opened() -> Graft:
        async with kept.store.asaver() as saver:
            return await cut(saver)

    made = asyncio.run(cut(kept.saver) if kept.name == "memory" else opened())
    played.check(link, before, made, "snapshot")


STEP = st.sampled_from(["say", "exit", "copy", "copy", "update", "command", "branch", "old"])


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, min_size=2, max_size=7), seed=st.integers(0, 99))
@example(steps=["copy", "exit", "command", "branch", "branch"], seed=32)
def test_any_link_of_any_thread(kept: Kept, steps: list[str], seed: int) -> None:
    """Turns, copies, updates, commands and branches from anywhere; every link that may go goes."""
    played, dice = Played(kept), random.Random(seed)
    played.say("q")
    for number, step in enumerate(steps):
        names = [row.checkpoint_id for row in kept.rows.image(played.thread).checkpoints]
        chosen = at(played.thread, dice.choice(names)) if step == "old" else played.at
        if step == "copy":
            played.copy()
        elif step in ("update", "old"):
            played.graph.update_state(chosen, {"said": [f"u{number}"]}, as_node="count")
        elif step == "command":
            played.graph.invoke(Command(update={"said": ["c"]}, goto="answer"), played.at)
        else:
            name = dice.choice(names) if step == "branch" else None
            played.say(f"q{number}", name, durability="exit" if step == "exit" else "sync")
    before = played.states()
    image = kept.rows.image(played.thread)
    for row in image.checkpoints:
        if not is_duration_only(image, row):
            continue
        now = kept.rows.image(played.thread)
        current = now.row("", row.checkpoint_id)
        assert current is not None
        if isinstance(graft_of(now, current), Graft):
            graft(kept.saver, played.thread, row.checkpoint_id, graph=played.graph)
            del before[row.checkpoint_id]
        else:
            with pytest.raises(GraftRefused):
                graft(kept.saver, played.thread, row.checkpoint_id, graph=played.graph)
        assert played.states() == before


# --- refusals -------------------------------------------------------------------------------------

STAMPS = {"source": "update", "run_durations": {"r": 1}}
DELTA = {"counters_since_delta_snapshot": {"x": [1, 1]}}
PARENT = CheckpointRow("", "p", "a", {"x": "1"}, metadata=DELTA)
LINK = CheckpointRow("", "q", "p", {"x": "1"}, metadata={**STAMPS, **DELTA})
CHILD = CheckpointRow("", "s", "q", {"x": "2"}, metadata=DELTA)
ROOT = CheckpointRow("", "a", None, {"x": "0"}, frozenset("x"))
RUN = (ROOT, PARENT, LINK, CHILD)


def write(name: str, channel: str = "x", task: str = "t", idx: int = 0) -> WriteRow:
    return WriteRow("", name, task, idx, channel, "", 1)


def why(rows: Sequence[CheckpointRow], *writes: WriteRow, protect: Any = ()) -> Any:
    image = ThreadImage("t", tuple(rows), writes)
    found = graft_of(image, image.row("", "q") or LINK, protect)
    return found.handling if isinstance(found, Graft) else found


def test_the_plain_case_is_not_refused() -> None:
    assert why(RUN) == "reparent"
    assert why(RUN, write("q")) == "move"
    assert why(RUN, write("q"), write("p", "__error__", idx=-1)) == "snapshot"
    assert why((*RUN, replace(CHILD, checkpoint_id="u", parent_id="p")), write("q")) == "snapshot"
    assert why((*RUN[:3], replace(CHILD, stored=frozenset("x"))), write("q")) == "reparent"


@pytest.mark.parametrize(
    ("rows", "writes", "reason"),
    [
        ((ROOT, LINK, CHILD), (), "parent is not stored"),
        ((ROOT, replace(PARENT, unreadable="pickle"), LINK, CHILD), (), "cannot be read"),
        ((ROOT, PARENT, LINK, replace(CHILD, unreadable="json+aes")), (), "cannot be read"),
        ((ROOT, PARENT, replace(LINK, metadata=DELTA), CHILD), (), "not a duration-only"),
        (
            (
                ROOT,
                PARENT,
                replace(
                    LINK, versions={"x": "9"}, metadata={"writes": {"runtime_run_duration": {}}}
                ),
                CHILD,
            ),
            (),
            "versions differ",
        ),
        ((ROOT, PARENT, replace(LINK, stored=frozenset("x")), CHILD), (), "stores values"),
        ((ROOT, PARENT, LINK, replace(CHILD, parent_id="p")), (), "no children"),
        (
            (*RUN, CheckpointRow("sub:1", "z", None, {}, metadata={"parents": {"": "q"}})),
            (),
            "'sub:1' was called from it",
        ),
        ((PARENT, LINK, CHILD), (), "chain is damaged.*names parent a"),
        ((replace(ROOT, parent_id="p"), PARENT, LINK, CHILD), (), "chain is damaged.*own ancestor"),
        (RUN, (write("p"),), r"parent owns writes \(x\)"),
        (RUN, (write("p", "unheard-of"),), r"parent owns writes \(unheard-of\)"),
        (RUN, (write("q", "__interrupt__", idx=-3),), "pending write"),
        (RUN, (write("q", "__error__", idx=-1), write("q", "x", "other")), "pending write"),
        (RUN, (write("q", "branch:to:a", NULL_TASK),), r"pending write \(branch:to:a\)"),
        (
            (ROOT, PARENT, LINK, replace(CHILD, v=3)),
            (write("q", "__pregel_tasks"),),
            "pending sends",
        ),
        (
            (ROOT, PARENT, LINK, replace(CHILD, versions={}), replace(CHILD, checkpoint_id="u")),
            (write("q"), write("p", "__error__", idx=-1)),
            "child s can hold no value of 'x'",
        ),
        (
            (*RUN, replace(CHILD, checkpoint_id="u", parent_id="s")),
            (write("q"), write("p", "__error__", idx=-1), write("s")),
            "a copy of checkpoint s shows other values",
        ),
    ],
)
def test_every_refusal_says_why(
    rows: tuple[CheckpointRow, ...], writes: tuple[WriteRow, ...], reason: str
) -> None:
    found = why(rows, *writes)
    assert re.search(reason, found), found
    assert "\n" not in found


def test_protected_links_heads_and_absent_ones_stay() -> None:
    assert why(RUN, protect=["q"]) == why(RUN, protect=[{"": "q"}]) == "it is protected"
    late = (ROOT, PARENT, LINK, replace(CHILD, checkpoint_id="b"))  # its clock was behind
    assert why(late) == "it is the head of its namespace"
    with pytest.raises(GraftRefused, match="'t', checkpoint gone: not grafted, it is not stored"):
        plan_graft(ThreadImage("t", RUN), ("", "gone"))
    with pytest.raises(UsageError, match="list of ids"):
        why(RUN, protect="q")


def test_finished_work_does_not_hold_a_link() -> None:
    """Interrupted, answered and gone on: what control writes are left have done their duty."""
    answered = (
        write("q", "__interrupt__", "ask", -3),
        write("q", "__resume__", NULL_TASK, -4),
        write("q", "__resume__", "ask", -4),
        write("q", "x", "ask", 1),
    )
    assert why(RUN, *answered) == "snapshot"
    assert "pending" in why(RUN, *answered[:-1])


def test_scenario_g_a_copy_of_a_failed_parent_is_not_a_link_to_cut(kept: Kept) -> None:
    """One task finished, its sibling failed, the copy took the finished work for its past."""
    hand = kept.hand().put("c1", None, {"x": snapshot("s")}).put("c2", "c1", moved="x", counts="x")
    hand.write("c2", ("x", ["done"]), task="ok").write("c2", ("__error__", "E"), task="bad")
    hand.put("c3", "c2", metadata=STAMPS, counts="x").put("c4", "c3", moved="x", counts="x")
    before = kept.rows.image(hand.thread)
    with pytest.raises(GraftRefused, match="in its past"):
        graft(kept.saver, hand.thread, "c3")
    assert kept.rows.image(hand.thread) == before


# --- caches, changes, values ----------------------------------------------------------------------


class Lifecycle:
    def __init__(self, kept: Kept, fail: bool) -> None:
        self.kept, self.fail, self.seen = kept, fail, list[str]()

    def invalidate(self, thread_id: str) -> None:
        self.seen.append(thread_id)
        if self.fail:
            raise OSError("the cache server is away")


def test_caches_are_forgotten_first_or_nothing_is_done(played: Played) -> None:
    link = played.say("q0").copy()
    before = played.say("q1").states()
    broken = Lifecycle(played.kept, fail=True)
    with pytest.raises(GraftRefused, match="the cache server is away"):
        played.graft(link, lifecycle=broken)
    assert played.states() == before and broken.seen == [played.thread]
    working = Lifecycle(played.kept, fail=False)
    made = played.graft(link, lifecycle=working)
    assert working.seen == [played.thread]
    played.check(link, before, made, "reparent")


def test_a_caching_saver_forgets_by_itself(played: Played) -> None:
    link = owning(played, "update")
    played.say("alt", played.kept.rows.image(played.thread).row("", link).parent_id)  # type: ignore[union-attr]
    cached = with_cache(played.kept.saver)
    graph = tiny_graph.build(cached)
    plain, played.graph = played.graph, graph
    before = played.states()
    assert cached.cache.knows(played.thread)
    made = graft(cached, played.thread, link, graph=graph)
    played.check(link, before, made, "snapshot")
    played.graph = plain
    assert played.graph.get_state(played.at).values == graph.get_state(played.at).values


def test_a_thread_that_changed_meanwhile_is_left(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    from savermark.retention import grafting

    link = played.say("q0").copy()
    played.say("q1")
    planned = grafting.plan_graft

    def late(*args: Any) -> Graft:
        monkeypatch.setattr(grafting, "plan_graft", planned)
        made = planned(*args)
        played.say("from the link", link)  # a run starts from it between plan and transaction
        return made

    monkeypatch.setattr(grafting, "plan_graft", late)
    with pytest.raises(GraftRefused, match="changed meanwhile"):
        played.graft(link)
    assert link in played.states()
    assert len(played.graft(link).children) == 2


def scatter(state: list[Any] | None, writes: Sequence[Any]) -> list[Any]:
    """A reducer that makes something up."""
    return [*(state or []), *((word, random.random()) for write in writes for word in write)]


def test_a_reducer_that_makes_things_up_is_refused_where_its_value_is_needed(kept: Kept) -> None:
    class State(TypedDict):
        said: Annotated[list[Any], DeltaChannel(scatter, snapshot_frequency=99)]

    builder = StateGraph(State)
    builder.add_node("a", lambda state: {"said": ["a"]})
    builder.add_edge(START, "a")
    builder.add_edge("a", END)
    graph = builder.compile(checkpointer=kept.saver)
    thread = kept.hand().thread
    graph.invoke({"said": ["q"]}, at(thread))
    persist_run_durations(kept.saver, thread, {"r": 1})
    found = kept.saver.get_tuple(at(thread))
    assert found is not None and found.parent_config is not None
    graph.invoke(Command(update={"said": ["u"]}, goto="a"), at(thread))
    before = kept.rows.image(thread)
    with pytest.raises(GraftRefused, match="'said': two readings of checkpoint"):
        graft(kept.saver, thread, found.checkpoint["id"], graph=graph)
    assert kept.rows.image(thread) == before
