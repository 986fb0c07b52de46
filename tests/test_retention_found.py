"""What the model test found, each as its smallest case."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import tiny_graph
from fix_threads import Hand, Kept, at, snapshot
from retention_by_hand import NOW, aged
from retention_oracle import made_at, reading
from retention_world import Act, World, play
from savermark.retention.apply import apply, apply_thread
from savermark.retention.damage import damages
from savermark.retention.fold import reducer_fold
from savermark.retention.policy import parse_policy
from savermark.retention.verify import snapshot_promises, verify_retention

fold_of = partial(reducer_fold, dict.fromkeys("ab", tiny_graph.extend))


def run(kept: Kept, thread: str, policy: str, **more: Any) -> Any:
    more = {"now": NOW, "fold": fold_of(kept.saver), **more}
    return apply_thread(kept.rows, thread, parse_policy(policy), **more)


def test_two_roots_of_one_past_are_no_damage(kept: Kept) -> None:
    """Both name the version of a value that neither moved; the next job must not refuse them."""
    hand = kept.hand().put("c1", None, {"k": [1], "a": snapshot("s")}, counts="a")
    for name, parent in (("c2", "c1"), ("c3", "c2"), ("c4", "c3")):
        hand.put(name, parent, moved="a", counts="a").write(parent, ("a", [name]))
    for policy in ("compact", "compact", "keep-latest"):
        applied = run(kept, hand.thread, policy, protect=["c2"])
        assert not applied.refused
    image = kept.rows.image(hand.thread)
    assert [row.checkpoint_id for row in image.checkpoints] == ["c2", "c4"]
    assert list(damages(image)) == []
    assert reading(kept.saver, hand.thread, ("", "c4"), "a")[0][0]["a"] == ["s", "c2", "c3", "c4"]


def test_a_compact_thread_is_compact(kept: Kept) -> None:
    """A channel that never held anything is not folded over and over."""
    hand = kept.hand().put("c1", None, {"k": [1]}, moved="abe", counts="ab")
    hand.put("c2", "c1", {"k": [2]}, moved="a", counts="ab").write("c1", ("a", ["w"]))
    fold = reducer_fold(dict.fromkeys("abe", tiny_graph.extend), kept.saver)
    assert not run(kept, hand.thread, "compact", fold=fold).refused
    assert run(kept, hand.thread, "compact", fold=fold).plan.empty


def test_a_copy_of_parked_work_is_not_folded_onto_its_parent(kept: Kept) -> None:
    """The copy shares the root's version and also reads what the root owns."""
    hand = kept.hand().put(aged(9), None, {"a": snapshot("s")}, moved="b")
    hand.write(aged(9), ("b", ["parked"]), task="t-b")
    held = kept.saver.get_tuple(at(hand.thread))
    assert held is not None
    stamps = {"source": "update", "run_durations": {"r": 1}, "writes": {"runtime_run_duration": {}}}
    kept.saver.put(held.config, {**held.checkpoint, "id": aged(5)}, stamps, {})  # type: ignore[typeddict-item, arg-type]
    keys = [("", aged(9)), ("", aged(5))]
    before = [reading(kept.saver, hand.thread, key, "ab") for key in keys]
    run(kept, hand.thread, "compact")
    assert [reading(kept.saver, hand.thread, key, "ab") for key in keys] == before


def test_what_is_young_of_a_call_keeps_its_caller(kept: Kept) -> None:
    """The checkpoint that called is a little older, and without it nobody finds the call."""
    hand = kept.hand().put(aged(61), None, {"k": [1]})
    hand.put(aged(10), aged(61), {"k": [2]})
    call = Hand(kept.saver, hand.thread, "s:t1")
    call.put(aged(59), None, {"k": [3]}, metadata={"parents": {"": aged(61)}})
    applied = run(kept, hand.thread, "older-than=1h")
    assert applied.plan.kept[""].targets == {aged(61), aged(10)}
    assert made_at(aged(61)) == NOW - timedelta(minutes=61)


def test_a_finished_call_within_a_waiting_one_may_go(kept: Kept) -> None:
    """A resume starts from the waiting call's newest checkpoint, which took the result in."""
    world, thread = World("nested", (3, 7, 2), kept.saver), kept.hand().thread
    play(kept, world, thread, [Act("say"), Act("ask")])
    assert world.graph.get_state(at(thread)).interrupts
    proof = snapshot_promises(kept.saver, [thread], graph=world.graph)
    applied = apply_thread(kept.rows, thread, parse_policy("keep-latest"))
    assert {space.count("|") for space in applied.plan.kept} == {0}
    verdict = verify_retention(proof, kept.saver, plans=[applied])
    assert verdict.ok, verdict.as_text()


def test_a_thread_of_calls_alone(kept: Kept) -> None:
    """Without a root namespace a call's caller is unknown, so that it stays."""
    hand = kept.hand(space="s:t1").put(aged(9), None, {"k": [1]}, metadata={"parents": {}})
    hand.put(aged(5), aged(9), {"k": [2]}, metadata={"parents": {"": aged(20)}})
    (applied,) = apply(kept.rows, parse_policy("keep-latest"), threads=[hand.thread], now=NOW)
    assert not applied.refused and applied.plan.kept["s:t1"].targets == {aged(5)}
