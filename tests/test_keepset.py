"""Keep-sets on real stores: through the public methods, set-based, and from an image, all equal.

`T<n>` is the trap of that number: a small thread with its right answer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import operator
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.channels import EphemeralValue
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from fix_threads import Hand, Kept, at, clone, delete_others, history, snapshot
from savermark.errors import UsageError
from savermark.graphs import build_graph
from savermark.graphs.play import play
from savermark.history.keepset import akeep_set, keep_set
from savermark.history.lineage import Channels, KeepSet, LineageError, keep_ids
from savermark.recording import Recorder, RecordingSaver
from savermark.script import state_digest, write_script
from savermark.spec import load_workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.history.image import ThreadImage

CHUNKS = (10_000, 1, 2, 3)


def keep(
    kept: Kept,
    thread: str,
    name: str | None = None,
    channels: Channels = "auto",
    space: str = "",
    image: ThreadImage | None = None,
) -> KeepSet | LineageError:
    """The keep-set in every form there is, or its refusal; all forms must agree."""
    head = name or max(r.checkpoint_id for r in kept.rows.image(thread).checkpoints)
    forms: list[Any] = [
        lambda: keep_set(kept.saver, at(thread, name, space), channels),
        lambda: keep_ids(image or kept.rows.image(thread), space, head, channels),
        *(
            lambda chunk=chunk: kept.rows.keep_set(thread, space, name, channels, chunk=chunk)
            for chunk in CHUNKS
        ),
    ]
    found = [attempt(form) for form in forms]
    said = [(set(one), one.targets) if isinstance(one, KeepSet) else str(one) for one in found]
    assert all(one == said[0] for one in said), dict(
        zip(("public", "image", *CHUNKS), said, strict=True)
    )
    return found[0]


def attempt(form: Any) -> KeepSet | LineageError:
    try:
        result: KeepSet = form()
    except LineageError as error:
        return error
    return result


def values(found: Any, channel: str = "a") -> tuple[list[Any], Any]:
    """The writes of a history and its seed, `...` without one."""
    seed = found[channel].get("seed", ...)
    return [write[2] for write in found[channel]["writes"]], getattr(seed, "value", seed)


# --- traps --------------------------------------------------------------------------------------


def line(kept: Kept) -> Hand:
    """T1: c1{S[s], w:a} <- c2{w:b} <- c3, with something older than the seed."""
    hand = kept.hand().put("c0").write("c0", ("a", ["old"]))
    hand.put("c1", "c0", {"a": snapshot("s")}).write("c1", ("a", ["a"]))
    hand.put("c2", "c1", moved="a", counts="a").write("c2", ("a", ["b"]))
    return hand.put("c3", "c2", moved="a", counts="a")


def test_a_config_without_a_thread_is_told(kept: Kept) -> None:
    with pytest.raises(UsageError, match="must name a thread_id"):
        keep_set(kept.saver, {"configurable": {}})


def test_t1_the_seed_is_the_last_that_stays(kept: Kept) -> None:
    hand = line(kept)
    assert keep(kept, hand.thread) == {"c1", "c2", "c3"}
    assert keep(kept, hand.thread, "c2") == {"c1", "c2"}
    assert keep(kept, hand.thread, "c1") == {"c1"}
    assert keep(kept, hand.thread, "c3", []) == {"c3"}
    assert keep(kept, hand.thread, "zz") == set()
    assert keep(kept, "nobody", "c1") == set()
    delete_others(kept, hand.thread, {"c1", "c2", "c3"})
    assert values(history(kept, hand.thread, "c3", ["a"])) == ([["a"], ["b"]], ["s"])


def test_t2_the_heads_own_writes_change_nothing(kept: Kept) -> None:
    hand = line(kept).write("c3", ("a", ["p"]))
    assert keep(kept, hand.thread) == {"c1", "c2", "c3"}
    assert values(history(kept, hand.thread, "c3", ["a"])) == ([["a"], ["b"]], ["s"])


def test_t3_a_missing_parent_is_no_root(kept: Kept) -> None:
    hand = line(kept)
    delete_others(kept, hand.thread, {"c2", "c3"})
    assert values(history(kept, hand.thread, "c3", ["a"])) == ([["b"]], ...)  # no error there
    found = keep(kept, hand.thread)
    assert isinstance(found, LineageError)
    assert (found.checkpoint_id, found.missing) == ("c2", "c1")
    assert keep(kept, hand.thread, "c3", []) == {"c3"}


def test_t5_a_stored_none_ends_the_walk_by_the_backends_rule(kept: Kept) -> None:
    hand = kept.hand().put("c0").put("c1", "c0", {"a": 7}).write("c1", ("a", 1))
    hand.put("c2", "c1", {"a": None}).write("c2", ("a", 2)).put("c3", "c2", moved="a")
    walked = kept.saver.get_delta_channel_history(config=at(hand.thread, "c3"), channels=["a"])
    past = values(walked) == ([1, 2], 7)
    assert past or values(walked) == ([2], None)
    assert past == (kept.name == "postgres")
    assert keep(kept, hand.thread) == ({"c1", "c2", "c3"} if past else {"c2", "c3"})
    assert keep(kept, hand.thread, "c2") == {"c2"}  # a read of it finds the None


def test_t6_the_union_over_channels(kept: Kept) -> None:
    hand = kept.hand().put("c01").put("c02", "c01", {"b": snapshot()}, counts="ab")
    for number in range(3, 13):
        held = {"a": snapshot("x")} if number == 10 else {}
        hand.put(f"c{number:02}", f"c{number - 1:02}", held, moved="ab", counts="ab")
    names = [f"c{number:02}" for number in range(1, 13)]
    assert keep(kept, hand.thread) == set(names[1:])
    assert keep(kept, hand.thread, "c12", ["a"]) == set(names[9:])
    found = keep(kept, hand.thread, "c12", ["a", "b"])
    assert isinstance(found, KeepSet) and found.support == set(names[1:11])


def test_t8_parents_count_and_not_the_order_of_ids(kept: Kept) -> None:
    hand = kept.hand().put("c9", None, {"a": snapshot("s")}).write("c9", ("a", 9))
    hand.put("c3", "c9", moved="a").write("c3", ("a", 3)).put("c5", "c3", moved="a")
    hand.put("c1", "c5", moved="a")  # and a head that is not the newest
    assert keep(kept, hand.thread, "c5") == {"c9", "c3", "c5"}
    assert keep(kept, hand.thread, "c1") == {"c9", "c3", "c5", "c1"}
    assert values(history(kept, hand.thread, "c5", ["a"])) == ([9, 3], ["s"])


def test_t9_a_circle_ends_in_an_error(kept: Kept) -> None:
    hand = line(kept)
    with kept.rows.transaction(hand.thread) as txn:
        assert txn.reparent("", "c1", "c2") == 1  # on Postgres `put` would not (T10)
    assert keep(kept, hand.thread, "c3", ["a"]) == {"c1", "c2", "c3"}  # the seed is inside
    lost = kept.hand().put("c1").put("c2", "c1", moved="a").put("c3", "c2", moved="a")
    with kept.rows.transaction(lost.thread) as txn:
        txn.reparent("", "c1", "c2")
    found = keep(kept, lost.thread)
    assert isinstance(found, LineageError) and found.missing is None


def test_t10_only_row_access_moves_a_parent_everywhere(kept: Kept) -> None:
    hand = line(kept)
    hand.put("c2", "c0", moved="a", counts="a")
    moved = kept.rows.image(hand.thread).row("", "c2")
    assert moved is not None and moved.parent_id == ("c1" if kept.name == "postgres" else "c0")
    with kept.rows.transaction(hand.thread) as txn:
        txn.reparent("", "c2", "c0")
    assert keep(kept, hand.thread) == {"c0", "c2", "c3"}


def test_t11_a_channel_that_was_never_written_is_not_sought(kept: Kept) -> None:
    hand = line(kept)
    assert keep(kept, hand.thread, "c3", ["never"]) == {"c3"}
    assert keep(kept, hand.thread, "c3", ["a", "never"]) == {"c1", "c2", "c3"}


def test_t12_the_head_alone_is_not_enough(kept: Kept) -> None:
    """What keep-latest by recency does: the proof that the check for sufficiency can fail."""
    hand = line(kept)
    delete_others(kept, hand.thread, {"c3"})
    assert values(history(kept, hand.thread, "c3", ["a"])) == ([], ...)
    assert isinstance(keep(kept, hand.thread), LineageError)


def test_t13_every_kept_tip_has_its_own_chain(kept: Kept) -> None:
    hand = kept.hand().put("c1", None, {"a": snapshot("s")}).write("c1", ("a", 1))
    hand.put("c2", "c1", moved="a").put("c3", "c2", moved="a")
    hand.put("c4", "c2", {"a": snapshot("t")}).put("c5", "c4", moved="a")
    assert keep(kept, hand.thread) == {"c4", "c5"}
    assert keep(kept, hand.thread, "c3") == {"c1", "c2", "c3"}


def test_t16_a_plain_value_is_a_seed(kept: Kept) -> None:
    """A thread of a full list that went on as delta; on memory and Postgres its last full value
    also stands at the checkpoint after it, which has the same version.
    """
    hand = kept.hand().put("c1", None, {"a": ["x"]})
    hand.put("c2", "c1", {"a": ["x", "y"]}).write("c2", ("a", ["z"]))
    hand.put("c3", "c2", counts="a").write("c3", ("a", ["q"])).put(
        "c4", "c3", moved="a", counts="a"
    )
    seed = {"c2", "c3", "c4"} if kept.name == "sqlite" else {"c3", "c4"}
    assert keep(kept, hand.thread) == seed
    for plain in (5, "text", True, 1.5):
        hand = kept.hand().put("c1", None, {"a": plain}).put("c2", "c1", {"a": plain})
        hand.put("c3", "c2", moved="a").put("c4", "c3", moved="a")
        assert keep(kept, hand.thread) == {"c2", "c3", "c4"}


def test_t17_a_chain_longer_than_a_statement_takes_parameters(kept: Kept) -> None:
    count = 33_000
    hand = kept.hand().put("c000000", moved="a", counts="a")
    fill(kept, hand.thread, count)
    found = kept.rows.keep_set(hand.thread, chunk=40_000)
    assert len(found) == count and found.targets == {f"c{count - 1:06}"}
    assert kept.rows.keep_set(hand.thread, chunk=10_000) == found
    with kept.rows.transaction(hand.thread) as txn:
        keys = [("", name) for name in found.support]
        txn.delete_writes_of(keys)
        assert txn.delete_checkpoints(keys, chunk=7_000) == count - 1


def fill(kept: Kept, thread: str, count: int) -> None:
    """Copies of the root, each under the one before."""
    names = [f"c{number:06}" for number in range(count)]
    if kept.name == "memory":
        space = kept.saver.storage[thread][""]  # type: ignore[attr-defined]
        checkpoint, metadata, _ = space[names[0]]
        space.update(zip(names[1:], ((checkpoint, metadata, up) for up in names), strict=False))
    elif kept.name == "sqlite":
        kept.saver.conn.executemany(  # type: ignore[attr-defined]
            "INSERT INTO checkpoints SELECT thread_id, checkpoint_ns, ?, ?, type, checkpoint, "
            "metadata FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' "
            "AND checkpoint_id = ?",
            [(name, up, thread, names[0]) for up, name in itertools.pairwise(names)],
        )
        kept.saver.conn.commit()  # type: ignore[attr-defined]
    else:
        kept.saver.conn.execute(  # type: ignore[attr-defined]
            "INSERT INTO checkpoints SELECT thread_id, checkpoint_ns, 'c' || lpad(n::text, 6, '0'),"
            " 'c' || lpad((n - 1)::text, 6, '0'), type, checkpoint, metadata "
            "FROM checkpoints, generate_series(1, %s) AS n WHERE thread_id = %s",
            (count - 1, thread),
        )


# --- what the traps do not say ------------------------------------------------------------------


def test_idle_checkpoints_share_what_their_version_holds(kept: Kept) -> None:
    hand = kept.hand().put("c1", None, {"a": snapshot("s")}, counts="b")
    hand.put("c2", "c1", counts="a").put("c3", "c2", counts="a").put(
        "c4", "c3", moved="a", counts="a"
    )
    shared = kept.name != "sqlite"
    assert keep(kept, hand.thread, "c3") == ({"c3"} if shared else {"c1", "c2", "c3"})
    assert keep(kept, hand.thread) == ({"c3", "c4"} if shared else {"c1", "c2", "c3", "c4"})


def test_doubtful_channels_on_real_rows(kept: Kept) -> None:
    """A graph that counts b wrote the head; n is another graph's, e holds nothing."""
    hand = kept.hand().put("c1", None, {"n": snapshot("s"), "b": 1}, moved="e")
    hand.put("c2", "c1", {"b": 1}, moved="ne", counts="b").put("c3", "c2", {"b": 1}, counts="b")
    assert keep(kept, hand.thread) == {"c1", "c2", "c3"}
    other = kept.hand().put("c1", None, {"n": ["plain"], "b": 1}, moved="e", counts="b")
    other.put("c2", "c1", {"b": 1}, moved="ne", counts="b").put("c3", "c2", {"b": 1}, counts="b")
    assert keep(kept, other.thread) == {"c3"}
    silent = kept.hand().put("c1", moved="e").put("c2", "c1").put("c3", "c2")
    assert keep(kept, silent.thread) == {"c1", "c2", "c3"}


def test_a_channel_of_any_name_and_size(kept: Kept) -> None:
    names = ["x" * 40, "ä", "with space", "channel_versions", "channel_values", "a'b\"c"]
    for name in names:
        hand = kept.hand().put("c1", None, {name: snapshot("s"), "note": f"about {name}"})
        hand.put("c2", "c1", {"note": f"about {name}"}, moved=[name], counts=[name])
        hand.put("c3", "c2", {"big": ["y" * 70_000, name]}, moved=[name], counts=[name])
        assert keep(kept, hand.thread) == {"c1", "c2", "c3"}, name
        assert keep(kept, hand.thread, "c3", [name, "other"]) == {"c1", "c2", "c3"}


def test_forks_inside_the_range_do_not_lead_astray(kept: Kept) -> None:
    hand = kept.hand().put("c01", None, {"a": snapshot("s")})
    for number in range(2, 12):
        hand.put(f"c{number:02}", f"c{max(1, number - 2):02}", moved="a", counts="a")
    hand.put("c12", "c10", {"a": snapshot("t")}).put("c13", "c09", moved="a", counts="a")
    assert keep(kept, hand.thread) == {"c01", "c03", "c05", "c07", "c09", "c13"}
    assert keep(kept, hand.thread, "c10") == {"c01", "c02", "c04", "c06", "c08", "c10"}
    assert keep(kept, hand.thread, "c12") == {"c12"}


def test_a_namespace_is_its_own_chain(kept: Kept) -> None:
    hand = line(kept)
    inner = kept.hand(hand.thread, "sub:1").put("c2", None, {"a": snapshot()})
    inner.put("c4", "c2", moved="a", counts="a")
    assert keep(kept, hand.thread, "c4", space="sub:1") == {"c2", "c4"}
    assert keep(kept, hand.thread, "c3") == {"c1", "c2", "c3"}
    assert kept.rows.keep_set(hand.thread, "sub:1") == {"c2", "c4"}


def test_old_checkpoints_keep_the_parent_with_their_pending_sends(kept: Kept) -> None:
    hand = kept.hand().put("c1", v=3).write("c1", ("__pregel_tasks", ["send"]))
    hand.put("c2", "c1", v=3).put("c3", "c2", v=3)
    assert keep(kept, hand.thread, "c2") == {"c1", "c2"}
    assert keep(kept, hand.thread, "c3") == {"c3"}
    new = kept.hand().put("c1").write("c1", ("__pregel_tasks", ["send"])).put("c2", "c1")
    assert keep(kept, new.thread) == {"c2"}


def test_an_integer_thread_id(kept: Kept) -> None:
    """T41: what is stored under the digits is found by the number."""
    hand = line(kept)
    number = 10**9 + hash(hand.thread) % 10**6
    kept.hand(str(number)).put("c1", None, {"a": snapshot("s")}).put("c2", "c1", moved="a")
    assert kept.rows.keep_set(number) == {"c1", "c2"}
    if kept.name != "memory":  # which keeps a number apart from its digits
        assert keep_set(kept.saver, at(number)) == {"c1", "c2"}


def test_memory_finds_a_thread_kept_under_a_number() -> None:
    saver = InMemorySaver()
    Hand(saver, 7).put("c1", None, {"a": snapshot("s")}).put("c2", "c1", moved="a")  # type: ignore[arg-type]
    assert keep_set(saver, at(7)) == {"c1", "c2"}


def test_wrappers_and_unknown_channels(kept: Kept) -> None:
    hand = line(kept)
    wrapped = RecordingSaver(kept.saver, Recorder())
    assert keep_set(wrapped, at(hand.thread, "c3")) == {"c1", "c2", "c3"}
    for form in (keep_set, akeep_set):
        with pytest.raises(UsageError, match="list of names"):
            found = form(kept.saver, at(hand.thread), "messages")
            asyncio.run(found)  # type: ignore[arg-type]


def test_the_async_form_says_the_same(kept: Kept) -> None:
    hand = line(kept)
    broken = line(kept)
    delete_others(kept, broken.thread, {"c2", "c3"})

    async def ask() -> None:
        async with kept.store.asaver() as saver:
            assert await akeep_set(saver, at(hand.thread)) == {"c1", "c2", "c3"}
            assert await akeep_set(saver, at(hand.thread, "c3"), []) == {"c3"}
            assert await akeep_set(saver, at(hand.thread, "zz")) == set()
            with pytest.raises(LineageError):
                await akeep_set(saver, at(broken.thread))

    asyncio.run(ask())


# --- random threads -----------------------------------------------------------------------------

CHANNELS = "abp"


def kinds(number: int) -> list[Any]:
    return [snapshot(number), [number], number, None]


@st.composite
def threads(draw: st.DrawFn) -> list[dict[str, Any]]:
    """What to put: forks, three channels, snapshots and plain seeds, None, shared versions."""
    counts = draw(st.sampled_from(["", "a", "ab", "abp"]))
    nodes = []
    for number in range(draw(st.integers(2, 10))):
        held: dict[str, Any] = {}
        for channel in CHANNELS:
            held |= draw(
                st.sampled_from([{}, {}, {}, *({channel: held} for held in kinds(number))])
            )
        nodes.append(
            {
                "parent": draw(st.integers(max(0, number - 3), number - 1)) if number else None,
                "values": held,
                "moved": draw(st.sampled_from(["", "a", "ab", "p"])),
                "counts": draw(st.sampled_from(["", counts, counts])),
                "writes": draw(st.lists(st.sampled_from(CHANNELS), max_size=2)),
            }
        )
    order = draw(st.one_of(st.just(list(range(10))), st.permutations(range(10))))
    for number, node in enumerate(nodes):
        node["name"] = f"c{order[number]}"
    return nodes


def build(kept: Kept, nodes: Sequence[dict[str, Any]]) -> Hand:
    hand = kept.hand()
    for node in nodes:
        parent = None if node["parent"] is None else nodes[node["parent"]]["name"]
        hand.put(node["name"], parent, node["values"], moved=node["moved"], counts=node["counts"])
        for number, channel in enumerate(node["writes"]):
            hand.write(node["name"], (channel, f"{node['name']}-{number}"), task=f"t{number}")
    return hand


@pytest.mark.parametrize("run", range(2))
def test_random_threads_in_every_form(kept: Kept, run: int) -> None:
    """All forms agree on every checkpoint, and what they keep is enough and not too much."""

    @given(threads(), st.sampled_from(["auto", ["a", "b"], ["p"]]), st.data())
    @settings(max_examples=6, deadline=None, database=None)
    def check(nodes: list[dict[str, Any]], channels: Any, data: st.DataObject) -> None:
        hand = build(kept, nodes)
        image = kept.rows.image(hand.thread)
        for node in nodes:
            assert not isinstance(
                keep(kept, hand.thread, node["name"], channels, image=image), LineageError
            )
        name = data.draw(st.sampled_from([node["name"] for node in nodes]))
        found = kept.rows.keep_set(hand.thread, "", name, channels)
        target = image.row("", name)
        assert target is not None
        wanted = list(CHANNELS) if channels == "auto" else channels
        held = target.stored | target.nulls
        sought = [c for c in wanted if c in target.versions and c not in held]
        if channels == "auto" and any(row.counted for row in image.checkpoints):
            sought = [c for c in sought if c in target.counted]  # of the others nothing is certain
        sufficient(kept, hand.thread, name, found, sought)
        minimal(kept, hand.thread, name, found, channels)

    check()


def sufficient(kept: Kept, thread: str, name: str, found: KeepSet, channels: Sequence[str]) -> None:
    """With everything else deleted the base walk finds the same, and so does the saver's own."""
    before = history(kept, thread, name, channels)
    own = kept.saver.get_delta_channel_history
    copied = clone(kept, thread)
    delete_others(kept, copied, found)
    assert history(kept, copied, name, channels) == before
    ascending = all(
        row.parent_id is None or row.parent_id < row.checkpoint_id
        for row in kept.rows.image(thread).checkpoints
    )
    if kept.name != "postgres" or ascending:  # whose own walk goes by the order of ids (T8)
        asked = {"channels": channels}
        assert own(config=at(copied, name), **asked) == own(config=at(thread, name), **asked)
    assert kept.rows.keep_set(copied, "", name, list(channels)) <= found


def minimal(kept: Kept, thread: str, name: str, found: KeepSet, channels: Channels) -> None:
    """No kept checkpoint but the target could go: each is missed at once."""
    for gone in sorted(found - {name})[:3]:
        copied = clone(kept, thread)
        with kept.rows.transaction(copied) as txn:
            txn.delete_checkpoints([("", gone)])
        refused = attempt(lambda copied=copied: kept.rows.keep_set(copied, "", name, channels))
        assert isinstance(refused, LineageError) and refused.missing == gone


# --- threads of the real runtime ----------------------------------------------------------------


def extend(state: list[str] | None, writes: Sequence[list[str]]) -> list[str]:
    return [*(state or []), *(item for write in writes for item in write)]


class State(TypedDict):
    fast: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]
    slow: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=8)]
    never: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]
    log: Annotated[list[str], operator.add]
    jump: Annotated[str, EphemeralValue]
    note: str | None


def graph(saver: Any) -> Any:
    def speak(state: State) -> dict[str, Any]:
        count = len(state["fast"])
        told = {"slow": [f"s{count}"]} if count % 4 else {"jump": "on"}
        return {"fast": [f"f{count}"], "log": [f"l{count}"], "note": None, **told}

    built = StateGraph(State)
    built.add_node("speak", speak)
    built.add_edge(START, "speak")
    built.add_edge("speak", END)
    return built.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_real_threads_read_the_same_after_everything_else_is_gone(
    kept: Kept, durability: Any
) -> None:
    """Turns, an update, a branch and a copy (T7 with `exit`): each checkpoint by itself."""
    compiled, thread = graph(kept.saver), f"real-{durability}"
    for turn in range(4):
        compiled.invoke({"fast": [f"h{turn}"]}, at(thread), durability=durability)
    compiled.update_state(at(thread), {"slow": ["u"]})
    older = list(compiled.get_state_history(at(thread)))[3].config
    compiled.invoke({"fast": ["branch"]}, older, durability=durability)
    compiled.update_state(older, None, as_node="__copy__")
    image = kept.rows.image(thread)
    sizes = set()
    for row in image.checkpoints[:: 1 if durability == "exit" else 2]:
        name = row.checkpoint_id
        found = keep(kept, thread, name, image=image)
        assert isinstance(found, KeepSet)
        named = keep(kept, thread, name, ["fast", "slow", "never"], image=image)
        assert found == named  # the data alone tell which channels are deltas
        before = compiled.get_state(at(thread, name)).values
        copied = clone(kept, thread)
        delete_others(kept, copied, found)
        assert digest(compiled.get_state(at(copied, name)).values) == digest(before)
        sizes.add(len(found))
    assert len(sizes) > 2


WORKLOADS = {
    "branching": ("turns=6", "model_bytes=30"),
    "human-in-the-loop": ("turns=4", "model_bytes=30"),
    "durations": ("turns=4", "model_bytes=30"),
    "two-channels": ("turns=6", "model_bytes=30"),
    "fan-out": ("turns=2", "model_bytes=30"),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_played_workloads_read_the_same_from_their_keep_set(kept: Kept, name: str) -> None:
    """Forks, interrupts, duration copies and parallel writers, as the runtime stores them."""
    overrides = [f"conversation.{key}" for key in WORKLOADS[name]]
    overrides += ["conversation.threads=1", "state.messages.snapshot_frequency=4"]
    spec = load_workload(name, overrides)[-1].spec
    script = replace(write_script(spec)[0], thread_id=f"played-{name}")
    compiled = build_graph(spec, kept.saver)
    play(compiled, kept.saver, script, spec, lambda number: nullcontext())
    image = kept.rows.image(script.thread_id)
    rows = image.checkpoints
    assert len(rows) >= 8 and any(row.counted for row in rows)
    for row in [*rows[:: max(1, len(rows) // 5)], rows[-1]]:
        found = keep(kept, script.thread_id, row.checkpoint_id, image=image)
        assert isinstance(found, KeepSet)
        copied = clone(kept, script.thread_id)
        delete_others(kept, copied, found)
        states = [
            compiled.get_state(at(thread, row.checkpoint_id))
            for thread in (script.thread_id, copied)
        ]
        assert state_digest(states[0].values) == state_digest(states[1].values)
        assert (states[0].next, len(states[0].interrupts)) == (
            states[1].next,
            len(states[1].interrupts),
        )


def digest(state: Any) -> str:
    return json.dumps(state, sort_keys=True)


def test_subgraphs_have_keep_sets_of_their_own(kept: Kept) -> None:
    class Inner(TypedDict):
        fast: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=50)]

    inner = StateGraph(Inner)
    inner.add_node("one", lambda state: {"fast": ["i1"]})
    inner.add_node("two", lambda state: {"fast": ["i2"]})
    inner.add_edge(START, "one")
    inner.add_edge("one", "two")
    outer = StateGraph(Inner)
    outer.add_node("sub", inner.compile())
    outer.add_edge(START, "sub")
    compiled = outer.compile(checkpointer=kept.saver)
    compiled.invoke({"fast": ["h"]}, at("sub-thread"))
    image = kept.rows.image("sub-thread")
    spaces = [space for space in image.heads if space]
    assert spaces
    for space in spaces:
        head = image.heads[space].checkpoint_id
        found = keep(kept, "sub-thread", head, space=space, image=image)
        assert found == {row.checkpoint_id for row in image.spaces[space].values()}
