"""The planner, on rows made by hand: what stays, what goes, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savermark.errors import UsageError
from savermark.history.lineage import BlobRow, CheckpointRow, ThreadImage, WriteRow
from savermark.retention.age import time_of
from savermark.retention.plan import checked_threads, plan_thread
from savermark.retention.policy import parse_policy
from savermark.retention.records import Fold, Graft, ThreadPlan

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NULL_TASK = "00000000-0000-0000-0000-000000000000"


def uid(minutes_ago: float, number: int = 0) -> str:
    """A time-ordered id of this age at `NOW`."""
    made = NOW - timedelta(minutes=minutes_ago)
    ticks = int((made - datetime(1582, 10, 15, tzinfo=UTC)).total_seconds() * 10**7) + number
    time = f"{ticks >> 28:08x}-{(ticks >> 12) & 0xFFFF:04x}-6{ticks & 0xFFF:03x}"
    return f"{time}-8000-000000000000"


def row(
    name: str,
    parent: str | None = None,
    versions: str = "",
    stored: str = "",
    *,
    counts: str = "",
    source: str = "loop",
    step: int | None = None,
    space: str = "",
    parents: dict[str, str] | None = None,
    **more: Any,
) -> CheckpointRow:
    """A checkpoint; channels are single letters, `a1` is channel a at version 1."""
    metadata: dict[str, Any] = {"source": source, "parents": parents or {}}
    if step is not None:
        metadata["step"] = step
    if counts:
        metadata["counters_since_delta_snapshot"] = {c: [1, 1] for c in counts}
    metadata |= more.pop("metadata", {})
    named = {part[0]: part[1:] or "1" for part in versions.split()}
    return CheckpointRow(space, name, parent, named, frozenset(stored), metadata, bytes=10, **more)


def write(name: str, channel: str = "a", idx: int = 0, *, task: str = "t", space: str = "") -> Any:
    return WriteRow(space, name, task, idx, channel, "~p", 5)


def image(*rows: CheckpointRow, writes: Any = (), blobs: Any = ()) -> ThreadImage:
    return ThreadImage("t", rows, tuple(writes), tuple(blobs))


def plan(found: ThreadImage, policy: str, **more: Any) -> ThreadPlan:
    return plan_thread(found, parse_policy(policy), now=NOW, **more)


def gone(found: ThreadPlan) -> set[str]:
    assert found.refused == ""
    return {key[1] for key in found.checkpoints}


def turn(number: int, parent: str | None, **more: Any) -> list[CheckpointRow]:
    """A run of one node: input, step, end; names such as `t1a`, `t1b`, `t1c`."""
    one, two, three = (f"t{number}{letter}" for letter in "abc")
    step = 3 * number - 4
    return [
        row(one, parent, source="input", step=step, stored="", nulls=frozenset(["__start__"])),
        row(two, one, step=step + 1, nulls=frozenset(["branch:to:n"])),
        row(three, two, step=step + 2),
    ]


def turns(count: int) -> list[CheckpointRow]:
    rows: list[CheckpointRow] = []
    for number in range(1, count + 1):
        rows += turn(number, rows[-1].checkpoint_id if rows else None)
    return rows


# --- keep-latest --------------------------------------------------------------------------------


def test_the_head_stays_with_what_it_is_rebuilt_from() -> None:
    rows = (
        row("c1", None, "a", "a"),
        row("c2", "c1", "a", "a", counts="a"),
        row("c3", "c2", "a", counts="a"),
        row("c4", "c3", "a", counts="a"),
    )
    found = plan(image(*rows, writes=[write("c1"), write("c2"), write("c4", "p")]), "keep-latest")
    assert gone(found) == {"c1"}
    assert found.detached == {("", "c2")}
    assert {key[1] for key in found.writes} == {"c1"}  # T1, T2: the seed's and the head's stay
    assert found.kept[""].targets == {"c4"} and found.kept[""].support == {"c2", "c3"}
    assert (found.freed["checkpoints"].rows, found.freed["checkpoints"].logical_bytes) == (1, 10)
    assert (found.freed["writes"].rows, found.freed["writes"].logical_bytes) == (1, 5)


def test_two_channels_keep_what_either_needs() -> None:
    """T6."""
    rows = [row("c01", None, "a b", "ab")]
    for n in range(2, 13):
        stored = {2: "b", 10: "a"}.get(n, "")
        rows.append(row(f"c{n:02}", f"c{n - 1:02}", "a b", stored, counts="ab"))
    assert gone(plan(image(*rows), "keep-latest")) == {"c01"}


def test_the_stub_of_exit_durability_stays() -> None:
    """T7."""
    rows = (
        row("c1", None, metadata={"source": None, "step": -2}),
        row("c2", "c1", "a", counts="a", step=4),
        row("c3", "c2", "a2", counts="a", step=10),
    )
    assert plan(image(*rows, writes=[write("c1"), write("c2")]), "keep-latest").empty


def test_a_tip_goes_as_a_whole_unless_it_is_protected() -> None:
    """T13, T26: never a tip without its seed."""
    rows = (
        row("c1", None, "a", "a", counts="a"),
        row("c2", "c1", "a", counts="a"),
        row("c3", "c2", "a", counts="a"),
        row("c4", "c2", "a2", "a", counts="a"),
        row("c5", "c4", "a2", counts="a"),
    )
    assert gone(plan(image(*rows), "keep-latest")) == {"c1", "c2", "c3"}
    kept = plan(image(*rows), "keep-latest", protect=["c3", "nobody"])
    assert kept.empty and kept.kept[""].targets == {"c3", "c5"}
    assert plan(image(*rows), "keep-latest", protect=[{"": "c3", "sub": "x"}]) == kept


def test_a_plain_thread_keeps_one_row_and_its_blobs() -> None:
    """T18: a blob lives while a survivor names it, whoever wrote it."""
    rows = (row("c1", None, "a1 b1", "ab"), row("c2", "c1", "a1 b2", "ab"))
    blobs = [BlobRow("", c, v, "msgpack", 7) for c, v in ("a1", "b1", "b2")]
    found = plan(image(*rows, blobs=blobs), "keep-latest")
    assert gone(found) == {"c1"} and found.blobs == {("", "b", "1")}
    assert found.freed["blobs"].logical_bytes == 7


def test_an_old_format_keeps_the_parent_of_its_pending_sends() -> None:
    rows = (row("c1"), row("c2", "c1"), row("c3", "c2", v=3))
    sends = write("c2", "__pregel_tasks")
    assert gone(plan(image(*rows, writes=[sends]), "keep-latest")) == {"c1"}
    assert gone(plan(image(*rows), "keep-latest")) == {"c1", "c2"}


def test_a_duration_copy_keeps_what_it_copies() -> None:
    stamps = {"run_durations": {"r": 1}, "writes": {"runtime_run_duration": {}}}
    rows = (row("c1"), row("c2", "c1"), row("c3", "c2", source="update", metadata=stamps))
    found = plan(image(*rows), "keep-latest")
    assert gone(found) == {"c1"} and found.kept[""].targets == {"c2", "c3"}
    both = plan(image(*rows), "keep-latest,duration-leaves")
    assert gone(both) == {"c1", "c3"} and both.kept[""].targets == {"c2"}


def test_links_in_a_row_are_joined_one_after_the_other() -> None:
    stamps = {"run_durations": {"r": 1}, "writes": {"runtime_run_duration": {}}}
    rows = [
        row("a1"),
        row("b2", "a1", source="update", metadata=stamps),
        row("c3", "b2", source="update", metadata=stamps),
        row("d4", "c3", source="input"),
        row("e5", "d4"),
    ]
    found = plan(image(*rows), "duration-leaves")
    assert found.grafts == (Graft("", "b2", "a1", ("c3",)), Graft("", "c3", "a1", ("d4",)))
    assert gone(found) == {"b2", "c3"} and found.detached == frozenset()
    kept = plan(image(*rows), "duration-leaves", protect=["b2"])
    assert kept.grafts == (Graft("", "c3", "b2", ("d4",)),) and gone(kept) == {"c3"}
    short = plan(image(*rows), "keep-latest,duration-leaves")
    assert gone(short) == {"a1", "b2", "c3", "d4"} and short.detached == {("", "e5")}


def test_nothing_and_nobody() -> None:
    assert plan(image(), "keep-latest").empty
    assert plan(image(row("c1")), "keep-latest").empty
    assert plan(image(), "delete").empty and not plan(image(), "delete").whole


# --- turns --------------------------------------------------------------------------------------


def test_the_last_turns_stay_with_the_checkpoint_before_them() -> None:
    found = plan(image(*turns(3)), "keep-turns=1")
    assert found.kept[""].targets == {"t2c", "t3a", "t3b", "t3c"}
    assert gone(plan(image(*turns(3)), "keep-turns=2")) == {"t1a", "t1b"}
    assert plan(image(*turns(3)), "keep-turns=3").empty
    assert plan(image(*turns(3)), "keep-turns=9").empty


def test_the_way_to_the_settled_checkpoint_stays() -> None:
    """A turn that was broken off is not where one branches from, nor is a duration copy."""
    stamps = {"run_durations": {"r": 1}, "writes": {"runtime_run_duration": {}}}
    rows = turns(2)[:5]  # the second turn never ended
    rows += [row("t3", "t2b", source="input", step=9), row("t4", "t3", step=10)]
    assert plan(image(*rows), "keep-turns=1").kept[""].targets == {"t1c", "t2a", "t2b", "t3", "t4"}
    rows = [*turns(1), row("t1d", "t1c", source="update", metadata=stamps)]
    rows += [row("t2a", "t1d", source="input"), row("t2b", "t2a")]
    assert plan(image(*rows), "keep-turns=1").kept[""].targets == {"t1c", "t1d", "t2a", "t2b"}


def test_an_update_belongs_to_the_turn_before_it() -> None:
    rows = turns(2)
    rows.append(row("t2d", "t2c", "x", "x", source="update"))
    assert gone(plan(image(*rows), "keep-turns=1")) == {"t1a", "t1b"}


def test_a_thread_of_updates_alone_has_a_turn_for_each() -> None:
    names = ["c1", "c2", "c3", "c4"]
    rows = [
        row(name, names[at - 1] if at else None, f"x{at}", "x", source="update")
        for at, name in enumerate(names)
    ]
    assert plan(image(*rows), "keep-turns=2").kept[""].targets == {"c2", "c3", "c4"}


def test_runs_without_an_input_are_told_by_their_traces() -> None:
    """Exit durability skips steps; a command leaves writes of no task; a resume is neither."""
    rows = [
        row("c1", None, metadata={"source": None, "step": -2}),
        row("c2", "c1", step=2),
        row("c3", "c2", step=6),
        row("c4", "c3", step=7),
    ]
    starts = plan(image(*rows), "keep-turns=1").kept[""].targets
    assert starts == {"c2", "c3", "c4"}  # c4 follows within one step: it goes with c3
    command = [write("c3", "x", task=NULL_TASK)]
    assert plan(image(*rows, writes=command), "keep-turns=1").kept[""].targets == {"c3", "c4"}
    resumed = [*command, write("c3", "__resume__", -4, task=NULL_TASK)]
    assert plan(image(*rows, writes=resumed), "keep-turns=1").kept[""].targets == starts
    asked = [write("c2", "__interrupt__", -3)]
    assert plan(image(*rows, writes=asked), "keep-turns=1").empty
    asked = [write("c3", "__interrupt__", -3)]
    rows[3] = row("c4", "c3", step=9)
    assert plan(image(*rows), "keep-turns=2").kept[""].targets == starts
    assert plan(image(*rows, writes=asked), "keep-turns=2").empty  # c4 answers: the same turn


def test_what_tells_no_turns_apart_is_kept() -> None:
    rows = [row("c1", source=""), row("c2", "c1"), row("c3", "c2"), row("c4", "c3")]
    assert plan(image(*rows), "keep-turns=1").empty
    rows = [row("c1", source="input", step="?"), row("c2", "c1", step="x")]  # type: ignore[arg-type]
    assert plan(image(*rows), "keep-turns=1").empty


def test_turns_of_a_thread_whose_beginning_is_gone() -> None:
    assert gone(plan(image(*turns(3)[2:]), "keep-turns=1")) == {"t1c", "t2a", "t2b"}
    assert plan(image(*turns(3)[4:]), "keep-turns=2").empty


# --- age ----------------------------------------------------------------------------------------


def test_age_comes_from_the_id_and_unknown_age_stays() -> None:
    """T30."""
    old, mid, young, head = uid(300), uid(200), uid(5), uid(1)
    rows = (row(old), row(mid, old), row(young, mid), row(head, young))
    assert gone(plan(image(*rows), "older-than=2h")) == {old, mid}
    assert gone(plan(image(*rows), "older-than=4h")) == {old}
    named = (row("c1"), row("c2", "c1"))
    assert plan(image(*named), "older-than=0s").empty
    later = image(row(uid(-60)), row(uid(-120), uid(-60)))  # clocks differ: not older than now
    assert plan(later, "older-than=0s").empty
    # A checkpoint goes only when every rule lets it go.
    both = plan(image(*rows), "keep-latest,older-than=2h")
    assert gone(both) == {old, mid} and gone(plan(image(*rows), "keep-latest")) == {old, mid, young}


@given(ticks=st.integers(139_000_000_000_000_000, 140_000_000_000_000_000))
def test_a_time_is_exact_to_the_microsecond(ticks: int) -> None:
    digits = f"{ticks:015x}"
    name = f"{digits[:8]}-{digits[8:12]}-6{digits[12:]}-8000-000000000000"
    made = time_of(name)
    assert made is not None
    since = made - datetime(1582, 10, 15, tzinfo=UTC)
    assert since // timedelta(microseconds=1) == ticks // 10


def test_the_edge_of_an_age() -> None:
    exact, head = uid(120), uid(1)
    assert plan(image(row(exact), row(head, exact)), "older-than=2h").empty


# --- namespaces ---------------------------------------------------------------------------------


def call(root: str, name: str, space: str = "", **more: Any) -> CheckpointRow:
    return row(name, space=space or f"s:task-{root}", parents={"": root}, **more)


def test_calls_go_with_the_checkpoint_that_called_them() -> None:
    """T25."""
    rows = turns(2)
    rows += [call("t1b", "u1"), call("t2b", "u2")]
    rows.append(row("v2", space="s:task-t2b|in:x", parents={"": "t2b", "s:task-t2b": "u2"}))
    found = plan(image(*rows), "keep-latest")
    assert gone(found) == {r.checkpoint_id for r in rows} - {"t2c"}
    assert set(found.kept) == {""}
    turn_kept = plan(image(*rows), "keep-turns=1")
    assert gone(turn_kept) == {"t1a", "t1b", "u1"}
    assert plan(image(*rows), "keep-latest", protect=["v2"]).kept.keys() >= {
        "",
        "s:task-t2b",
        "s:task-t2b|in:x",
    }


def test_a_call_that_waits_keeps_its_whole_keep_set() -> None:
    rows = [*turns(1)[:2]]
    rows += [
        call("t1b", "u1", versions="a", counts="a"),
        replace(call("t1b", "u2", versions="a", counts="a"), parent_id="u1"),
    ]
    asked = [
        write("t1b", "__interrupt__", -3),
        write("u2", "__interrupt__", -3, space="s:task-t1b"),
    ]
    found = plan(image(*rows, writes=asked), "keep-latest")
    assert gone(found) == {"t1a"} and found.writes == frozenset()
    assert set(found.kept["s:task-t1b"]) == {"u1", "u2"}


def test_kept_turns_keep_whole_calls_and_the_newest_state_their_heads() -> None:
    rows = turns(2)[:5]
    rows += [call("t2b", "u1"), replace(call("t2b", "u2"), parent_id="u1")]
    assert plan(image(*rows), "keep-turns=1").kept["s:task-t2b"].targets == {"u1", "u2"}
    assert plan(image(*rows), "keep-latest").kept["s:task-t2b"].targets == {"u2"}


def test_a_nested_call_goes_with_the_inner_checkpoint_that_made_it() -> None:
    rows = [*turns(1)[:2], call("t1b", "u1"), replace(call("t1b", "u2"), parent_id="u1")]
    inner = "s:task-t1b|in:"
    rows.append(row("v1", space=f"{inner}1", parents={"": "t1b", "s:task-t1b": "u1"}))
    rows.append(row("v2", space=f"{inner}2", parents={"": "t1b", "s:task-t1b": "u2"}))
    assert gone(plan(image(*rows), "keep-latest")) == {"t1a", "u1", "v1"}


def test_a_persistent_namespace_keeps_its_head_and_what_a_replay_loads() -> None:
    rows = turns(3)
    subs = [("t1b5", None), ("t2b5", "t1b5"), ("t3b5", "t2b5")]
    rows += [row(n, p, space="s", parents={"": n[:3]}) for n, p in subs]
    assert gone(plan(image(*rows), "keep-latest")) >= {"t1b5", "t2b5"}
    found = plan(image(*rows), "keep-turns=1")
    # A replay from the kept t2c, t3a and t3b loads t2b5.
    assert set(found.kept["s"]) == {"t2b5", "t3b5"} and found.detached >= {("s", "t2b5")}
    waiting = plan(image(*rows[:8], *rows[9:]), "keep-latest")  # the head is t3b and waits
    assert set(waiting.kept["s"]) == {"t2b5", "t3b5"}


def test_a_namespace_that_names_no_caller_stays() -> None:
    rows = [*turns(1), row("u1", space="s:1"), row("u2", "u1", space="s:1")]
    found = plan(image(*rows), "keep-latest")
    assert set(found.kept["s:1"]) == {"u2"}


def test_a_dead_call_goes_when_its_caller_is_long_missing() -> None:
    """T23, T24."""
    head = uid(500)
    for age, goes in ((300, True), (30, False)):
        rows = [row(head), call(uid(age), "u1")]
        assert (gone(plan(image(*rows), "keep-latest")) == {"u1"}) is goes
    assert plan(image(row(head), call("unknown", "u1")), "keep-latest").empty


# --- orphans ------------------------------------------------------------------------------------


def test_orphan_writes_go_after_the_grace() -> None:
    """T24."""
    head, old, young = uid(1), uid(90), uid(30)
    writes = [write(old), write(young), write("no-time"), write(head)]
    found = plan(image(row(head), writes=writes), "keep-latest")
    assert {key[1] for key in found.writes} == {old}
    longer = plan(image(row(head), writes=writes), "keep-latest", grace=timedelta(hours=2))
    assert longer.empty
    assert {key[1] for key in plan(image(row(head), writes=writes), "leaf-siblings").writes} == {
        old
    }


def test_orphan_blobs_go_only_from_a_quiet_thread() -> None:
    def blob(version: str, space: str = "") -> BlobRow:
        return BlobRow(space, "a", version, "msgpack", 7)

    blobs = [blob("3.5"), blob("2.25"), blob("4.1"), blob("odd"), blob("1", "gone:x")]
    quiet = plan(image(row(uid(90), None, "a3.5", "a"), blobs=blobs), "keep-latest")
    # 4.1 may be of a checkpoint that is about to be stored.
    assert quiet.blobs == {("", "a", "2.25"), ("gone:x", "a", "1")}
    assert quiet.freed["blobs"].rows == 2
    assert plan(image(row(uid(30), None, "a3.5", "a"), blobs=blobs), "keep-latest").empty
    assert plan(image(row("c1", None, "a3.5", "a"), blobs=blobs), "keep-latest").empty
    assert plan(image(blobs=blobs), "keep-latest").empty


# --- threads ------------------------------------------------------------------------------------


def test_threads_go_whole() -> None:
    rows = (row(uid(300)), row(uid(100), uid(300)))
    found = image(*rows, writes=[write(uid(300)), write("x" * 36)], blobs=[])
    whole = plan(found, "delete")
    assert whole.whole and whole.rows == 4 and not whole.kept
    assert plan(image(*rows), "idle-threads=1h").whole
    assert not plan(image(*rows), "idle-threads=2h").whole
    assert not plan(found, "idle-threads=1h").whole  # an id of unknown age may be young
    assert plan(image(row("c1")), "idle-threads=0s").empty
    assert plan(image(writes=[write(uid(300))]), "idle-threads=1h").whole


def test_thread_rules_alone_let_other_threads_be() -> None:
    damaged = image(row("c2", "c1", "a", counts="a"), writes=[write(uid(300))])
    found = plan(damaged, "idle-threads=1h")
    assert found.empty and not found.refused and found.kept[""].targets == {"c2"}


def test_a_protected_id_keeps_its_thread() -> None:
    rows = (row(uid(300)), row(uid(200), uid(300)))
    assert "protected" in plan(image(*rows), "delete", protect=[uid(300)]).refused
    found = plan(image(*rows), "idle-threads=1h,keep-latest", protect=[uid(300)])
    assert found.empty and not found.refused


def test_a_damaged_thread_may_go_whole() -> None:
    rows = (row("c1", "c2", "a"), row("c2", "c1", "a"))
    assert plan(image(*rows), "delete").whole
    assert plan(image(*rows), "keep-latest").refused


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((row("c2", "c1", "a", counts="a"), row("c3", "c2", "a", counts="a")), "not stored"),  # T3
        ((row("c1", "c2", "a"), row("c2", "c1", "a")), "own ancestor"),  # T9
        ((row("c9", None, "a", "a"), row("c3", "c9", "a"), row("c5", "c3", "a")), "above"),  # T8
        ((row("c1", unreadable="pickle"), row("c2", "c1")), "pickle"),
        ((row("c1", None, "a", markers=frozenset("a"), counts="a"),), "lost the stored value"),
    ],
)
@pytest.mark.parametrize(
    "policy", ["keep-latest", "keep-turns=1", "leaf-siblings", "compact", "snapshot"]
)
def test_an_unsafe_thread_is_refused(rows: Any, said: str, policy: str) -> None:
    found = plan(image(*rows), policy)
    assert said in found.refused and "\n" not in found.refused
    assert found.empty and not found.kept and found.rows == 0


def test_a_base_that_several_children_replay_is_refused_where_it_stays() -> None:
    rows = [
        row("c1", None, "a1", "a", counts="a"),
        row("c2", "c1", "a2", counts="a"),
        row("c3", "c1", "a3", counts="a"),
    ]
    found = image(*rows, writes=[write("c1")])
    assert "replay its writes" in plan(found, "keep-latest").refused
    snap = row("c4", "c3", "a4", "a", counts="a")
    assert gone(plan(image(*rows, snap, writes=[write("c1")]), "keep-latest")) == {"c1", "c2", "c3"}


def test_a_gap_that_nothing_is_rebuilt_across_is_left_alone() -> None:
    """T23: the gap is not our doing, and stays visible."""
    found = plan(image(row("c2", "c1", "a", "a"), row("c3", "c2", "a", "a")), "keep-turns=1")
    assert found.empty and not found.refused
    snap = image(row("c2", "c1", "a", counts="a"), row("c3", "c2", "a", "a", counts="a"))
    assert gone(plan(snap, "keep-latest")) == {"c2"}


@pytest.mark.parametrize(
    "shown",
    [
        row("c1", None, "a", "a", counts="a"),
        row("c1", None, "a", "a", snapshots=frozenset("a")),
        row("c1", None, "a"),
        row("c1", None, "a", metadata={"delta_writes_versioned": True}),
    ],
)
def test_refuse_leaves_delta_threads_by_name(shown: CheckpointRow) -> None:
    rows = (shown, row("c2", "c1", "a", "a"))
    found = plan(image(*rows), "refuse")
    assert "delta channels (a)" in found.refused
    plain = (row("c1", None, "a branch:to:n", "a"), row("c2", "c1", "a", "a"))
    plain = (replace(plain[0], versions={"a": "1", "branch:to:n": "1"}), plain[1])
    assert gone(plan(image(*plain), "refuse")) == {"c1"}


# --- compact ------------------------------------------------------------------------------------


def test_compact_folds_what_is_rebuilt_and_keeps_nothing_else() -> None:
    rows = (
        row("c1", None, "a b k", "abk", counts="ab"),
        row("c2", "c1", "a2 b k", "k", counts="ab"),
        row("c3", "c2", "a3 b3 k", "bk", counts="ab"),
    )
    found = plan(image(*rows), "compact", protect=["c2"])
    assert found.folds == (Fold("", "c2", ("a", "b")), Fold("", "c3", ("a",)))
    assert gone(found) == {"c1"} and found.detached == {("", "c2")}
    assert found.kept[""].support == frozenset()
    assert gone(plan(image(*rows), "compact")) == {"c1", "c2"}


def test_snapshot_folds_the_same_and_lets_everything_be() -> None:
    rows = (
        row("c1", None, "a b k", "abk", counts="ab"),
        row("c2", "c1", "a2 b k", "k", counts="ab"),
        row("c3", "c2", "a3 b3 k", "bk", counts="ab"),
    )
    for policy in ("", "keep-turns=2,"):
        found = plan(image(*rows), f"{policy}snapshot", protect=["c2"])
        assert found.folds == plan(image(*rows), f"{policy}compact", protect=["c2"]).folds
        assert not gone(found) and not found.rows and not found.detached
        assert found.kept[""].targets == {"c1", "c2", "c3"} and not found.empty


def test_compact_leaves_channels_alone_that_hold_nothing() -> None:
    rows = (row("c1", None, "a e", "a", counts="a"), row("c2", "c1", "a e", counts="a"))
    assert plan(image(*rows), "compact").folds == (Fold("", "c2", ("a",)),)
    silent = (row("c1", None, "e", "e"), row("c2", "c1", "e"))
    assert plan(image(*silent), "compact").folds == (Fold("", "c2", ("e",)),)
    never = (row("c1", None, "e"), row("c2", "c1", "e"))
    assert plan(image(*never), "compact").folds == (Fold("", "c2", ("e",)),)


# --- arguments ----------------------------------------------------------------------------------


def test_a_bare_text_is_no_list() -> None:
    """T29."""
    with pytest.raises(UsageError, match="not the text 'abc'"):
        checked_threads("abc")
    with pytest.raises(UsageError, match="not the text 'c1'"):
        plan(image(row("c1")), "keep-latest", protect="c1")
    assert checked_threads([]) == [] and checked_threads([7, "x"]) == ["7", "x"]


def test_now_needs_a_time_zone_and_the_grace_a_sign() -> None:
    policy = parse_policy("keep-latest")
    with pytest.raises(UsageError, match="time zone"):
        plan_thread(image(), policy, now=datetime(2026, 1, 1))
    with pytest.raises(UsageError, match="grace"):
        plan_thread(image(), policy, grace=timedelta(seconds=-1))
    assert plan_thread(image(), policy).empty
