"""`db doctor`: each unsafe form on both engines, what real threads show, and the exit codes."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from fix_databases import Left, identity
from fix_threads import Hand, Kept, snapshot
from savermark.cli import run
from savermark.database.base import Space
from savermark.database.doctor import Finding, diagnose
from savermark.database.links import head_of
from savermark.database.opening import open_database
from savermark.graphs import build_graph
from savermark.graphs.play import play
from savermark.history.image import BlobRow, CheckpointRow, ThreadImage
from savermark.history.rows import row_access
from savermark.retention.apply import apply
from savermark.retention.damage import damages
from savermark.retention.policy import parse_policy
from savermark.script import write_script
from savermark.spec import load_workload

if TYPE_CHECKING:
    from collections.abc import Sequence

IDS = [identity(number) for number in range(8)]


def found(left: Left, **options: Any) -> list[Finding]:
    with open_database(left.uri) as database:
        return list(diagnose(database, **options))


def kinds(left: Left, **options: Any) -> list[tuple[str, str, str]]:
    return [(each.kind, each.thread_id, each.checkpoint_id) for each in found(left, **options)]


def line(hand: Hand, names: Sequence[str], seed: int = 0) -> Hand:
    """A delta thread with its snapshot on one checkpoint, as the runtime writes it."""
    parent = None
    for place, name in enumerate(names):
        if place == seed:
            hand.put(name, parent, {"log": snapshot("a")})
        else:
            hand.put(name, parent, moved=("log",), counts=("log",))
        hand.write(name, ("log", [name]))
        parent = name
    return hand


def test_sound_threads_have_no_findings(left: Left) -> None:
    for number in range(3):
        line(left.hand(f"thread {number}"), IDS, seed=number)
    assert found(left) == found(left, everything=True, values=True) == []


def test_a_broken_chain(left: Left) -> None:
    line(left.hand("a"), IDS)
    line(left.hand("b"), IDS)
    left.sql("DELETE FROM checkpoints WHERE thread_id = 'a' AND checkpoint_id = ?", IDS[3])
    first, *rest = found(left)
    assert (first.kind, first.severity, first.checkpoint_id) == ("broken-chain", "broken", IDS[4])
    assert "log" in first.breaks
    assert IDS[3] in first.what
    assert [each.severity for each in rest] == ["notice"] * len(rest)


def test_a_cycle(left: Left) -> None:
    line(left.hand("a"), IDS[:4])
    left.sql("UPDATE checkpoints SET parent_checkpoint_id = ? WHERE checkpoint_id = ?",
             IDS[2], IDS[0])  # fmt: skip
    assert kinds(left) == [("cycle", "a", IDS[2])]


def test_a_parent_whose_id_sorts_above(left: Left) -> None:
    """T8."""
    hand = left.hand("a").put(IDS[6], None, {"log": snapshot(1)}).write(IDS[6], ("log", [9]))
    hand.put(IDS[2], IDS[6], moved=("log",), counts=("log",)).write(IDS[2], ("log", [3]))
    hand.put(IDS[4], IDS[2], moved=("log",), counts=("log",))
    assert kinds(left) == [("parent-above-child", "a", IDS[2])]


def test_a_base_whose_writes_several_children_replay(left: Left) -> None:
    """R8: an older runtime's fork without a snapshot; with one the fork is sound."""
    for thread, seeds in (("old", {}), ("new", {"log": snapshot("b")})):
        hand = line(left.hand(thread), IDS[:3])
        hand.put(IDS[5], IDS[1], seeds, moved=("log",), counts=() if seeds else ("log",))
    assert kinds(left) == [("shared-base", "old", IDS[1])]


def test_a_copy_beside_its_original_is_sound(left: Left) -> None:
    """R9: `__copy__` hangs under the base's parent with the base's versions."""
    hand = line(left.hand("a"), IDS[:3])
    hand.versions[IDS[1]] = hand.versions[IDS[2]]
    hand.put(IDS[5], IDS[1], counts=("log",), metadata={"source": "fork"})
    assert found(left) == []


def test_a_snapshot_that_lost_its_blob(left: Left) -> None:
    for thread in ("a", "b"):
        line(left.hand(thread), IDS, seed=2)
    left.hand("flags").put(IDS[0], None, {"flag": True}).put(IDS[1], IDS[0], {"flag": True})
    if left.name == "sqlite":
        pytest.skip("SQLite keeps the snapshot inside the checkpoint")
    left.sql("DELETE FROM blobs WHERE thread_id = 'b'")
    assert kinds(left) == [("missing-snapshot", "b", IDS[2])]


def test_values_that_differ_under_one_version(left: Left) -> None:
    """Where a value lies inside the checkpoint nothing forbids it; asked for, it is found."""
    hand = left.hand("a").put(IDS[0], None, {"n": 1, "m": 1}).put(IDS[1], IDS[0], {"m": 2})
    version = hand.versions[IDS[0]]["n"]
    checkpoint: Any = {
        "v": 4, "ts": "", "id": IDS[2], "channel_values": {"n": 5}, "versions_seen": {},
        "channel_versions": hand.versions[IDS[1]], "updated_channels": None,
    }  # fmt: skip
    config: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": "", "checkpoint_id": IDS[1]}}
    left.saver.put(config, checkpoint, {}, {})
    assert found(left) == []
    (clash,) = found(left, values=True)
    assert (clash.kind, clash.severity, clash.checkpoint_id) == ("equal-versions", "broken", IDS[2])
    assert version in clash.what
    assert "'n'" in clash.what
    assert found(left, values=True, threads=["b"]) == []


def test_rows_that_cannot_be_read(left: Left) -> None:
    if left.name == "postgres":
        pytest.skip("the server keeps JSON, which it can always read")
    line(left.hand("tag"), IDS)
    line(left.hand("bytes"), IDS)
    left.sql("UPDATE checkpoints SET type = 'pickle' WHERE thread_id = 'tag' "
             "AND checkpoint_id = ?", IDS[3])  # fmt: skip
    left.sql("UPDATE checkpoints SET checkpoint = x'c1' WHERE thread_id = 'bytes' "
             "AND checkpoint_id = ?", IDS[3])  # fmt: skip
    assert kinds(left) == [("unreadable", "tag", IDS[3])]
    assert kinds(left, everything=True) == [
        ("unreadable", "bytes", IDS[3]),
        ("unreadable", "tag", IDS[3]),
    ]


def test_notices_stand_for_many_and_break_nothing(left: Left) -> None:
    """T23, T25, T41, T30, and ids that are easily taken for others."""
    for thread in ("7", "-12", " a", "b"):
        left.hand(thread).put(IDS[0], None, {"x": 1})
    left.hand("b").put("c1", None, {"x": 1})
    left.hand("b", "s:1").put(IDS[1], None, {"y": 1}, metadata={"parents": {"": IDS[7]}})
    left.saver.put_writes(
        {"configurable": {"thread_id": "b", "checkpoint_ns": "", "checkpoint_id": IDS[6]}},
        [("x", 1), ("x", 2)],
        "task",
    )
    notes = {each.kind: each for each in found(left)}
    assert {each.severity for each in notes.values()} == {"notice"}
    assert {kind: each.count for kind, each in notes.items()} == {
        "integer-id": 2,
        "blank-in-id": 1,
        "undated": 1,
        "dead-namespace": 1,
        "orphan-writes": 2,
    }
    assert notes["integer-id"].thread_id in ("7", "-12")
    assert "2 of them too young" in notes["orphan-writes"].what


def test_encrypted_threads_are_not_called_broken(left: Left) -> None:
    """T40: on Postgres the links and marks stay readable, on SQLite nothing is."""
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    with left.store.saver(serde) as saver:
        line(Hand(saver, "secret"), IDS)
    line(left.hand("open"), IDS)
    for everything in (False, True):
        told = [(each.kind, each.severity) for each in found(left, everything=everything)]
        assert told == ([("encrypted", "notice")] if left.name == "sqlite" else [])


def test_a_nul_in_a_thread_id(left: Left) -> None:
    """T38."""
    if left.name == "postgres":
        pytest.skip("the server takes none")
    left.hand("a\0b").put(IDS[0], None, {"x": 1})
    assert kinds(left) == [("nul-in-id", "a\0b", "")]
    assert kinds(left, threads=["a\0b"]) == [("nul-in-id", "a\0b", "")]


@pytest.mark.parametrize("workload", ["branching", "human-in-the-loop", "exit-durability",
                                      "durations", "fan-out"])  # fmt: skip
def test_real_threads_are_sound(left: Left, workload: str) -> None:
    """What the runtime writes today (forks, interrupts, exit mode, subgraphs) is never refused."""
    last = load_workload(workload)[-1].spec  # the variant with delta channels
    spec = replace(last, run=replace(last.run, api="sync"))
    graph = build_graph(spec, left.saver)
    script = next(thread for thread in write_script(spec) if thread.source is None)
    play(graph, left.saver, script, spec, lambda number: nullcontext())
    assert _broken(left) == []
    list(apply(row_access(left.saver), parse_policy("keep-turns=2,leaf-siblings")))
    assert _broken(left) == []


def _broken(left: Left) -> list[Finding]:
    findings = found(left, everything=True, values=True)
    return [each for each in findings if each.severity == "broken"]


def test_branches_that_counted_their_versions_alike(kept: Kept) -> None:
    """A stored value that two branches moved to: one of them reads the other's."""
    hand = kept.hand()
    hand.put(IDS[0], None, {"x": [0]})
    for name in (IDS[1], IDS[2]):
        config: Any = {
            "configurable": {
                "thread_id": hand.thread, "checkpoint_ns": "", "checkpoint_id": IDS[0]
            }
        }  # fmt: skip
        versions = {**hand.versions[IDS[0]], "x": "2.0"}
        checkpoint: Any = {
            "v": 4, "ts": "", "id": name, "channel_values": {"x": [name]}, "versions_seen": {},
            "channel_versions": versions, "updated_channels": None,
        }  # fmt: skip
        kept.saver.put(config, checkpoint, {"source": "loop"}, {"x": "2.0"})
    image = kept.rows.image(hand.thread)
    told = [(damage.kind, damage.checkpoint_id) for damage in damages(image)]
    assert told == ([("equal-versions", IDS[1])] if image.blobs else [])


def test_a_version_whose_blob_is_gone_from_the_memory_saver() -> None:
    rows = (CheckpointRow("", "c1", None, {"a": "1", "b": "1"}),)
    whole = (BlobRow("", "a", "1", "empty", 0), BlobRow("", "b", "1", "msgpack", 3))
    assert list(damages(ThreadImage("t", rows, (), whole))) == []
    (damage,) = damages(ThreadImage("t", rows, (), whole[:1]))
    assert (damage.kind, damage.checkpoint_id) == ("missing-snapshot", "c1")
    assert "stored value of b" in str(damage)


def test_exit_codes_and_documents(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    line(left.hand("a"), IDS)
    line(left.hand("7"), IDS)
    assert run(["db", "doctor", left.uri]) == 0
    assert "0 broken, 1 notices" in capsys.readouterr().err
    left.sql("DELETE FROM checkpoints WHERE thread_id = 'a' AND checkpoint_id = ?", IDS[3])
    assert run(["db", "doctor", left.uri, "--format", "json", "-q"]) == 3
    out, err = capsys.readouterr()
    assert err == ""
    document = json.loads(out)
    assert (document["schema"], document["broken"]) == ("savermark.db-doctor/1", 1)
    assert document["findings"][0]["kind"] == "broken-chain"
    assert document["findings"][0]["fix"]
    assert run(["db", "doctor", left.uri, "--thread", "7", "-q"]) == 0
    for fmt in ("table", "csv", "md"):
        capsys.readouterr()
        assert run(["db", "doctor", left.uri, "--format", fmt, "-q"]) == 3
        assert "broken-chain" in capsys.readouterr().out
    assert run(["db", "doctor", left.uri, "--thread", "none"]) == 2


def test_what_the_saver_itself_pruned_is_sound(left: Left) -> None:
    if left.name == "sqlite":
        pytest.skip("SqliteSaver does not prune")
    hand, parent = left.hand("a"), None
    for place, name in enumerate(IDS):
        hand.put(name, parent, {"x": [place]}).write(name, ("x", [place]))
        parent = name
    left.saver.prune(["a"], strategy="keep_latest")
    assert left.sql("SELECT count(*) FROM checkpoints") == [(1,)]
    assert found(left, everything=True, values=True) == []


NAMES = [f"c{number}" for number in range(7)]
LINKS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([None, "gone", *NAMES]), min_size=1)


@given(LINKS)
def test_links_are_judged_as_a_walk_finds_them_and_no_suspect_is_missed(
    links: dict[str, str | None],
) -> None:
    rows = tuple(CheckpointRow("", name, parent, {}) for name, parent in links.items())
    told = list(damages(ThreadImage("t", rows)))
    circles = {frozenset(_circle(name, links)) for name in links} - {frozenset()}
    inside = frozenset().union(*circles)
    broken = {name for name, parent in links.items() if parent and parent not in links}
    above = {
        name
        for name, parent in links.items()
        if parent in links and parent > name and name not in inside
    }
    found = {kind: {each.checkpoint_id for each in told if each.kind == kind} for kind in KINDS}
    assert found == {
        "broken-chain": broken,
        "parent-above-child": above,
        "cycle": {max(circle) for circle in circles},
    }
    space = Space("t", "", max(links), {name: (parent, 0) for name, parent in links.items()})
    head = head_of(space)
    assert head.sound or told or head.tips > 1 or head.roots > 1
    assert not (told and head.sound)
    assert head.circle == bool(inside.intersection(_ancestors(max(links), links)))


KINDS = ("broken-chain", "parent-above-child", "cycle")


def _ancestors(name: str, links: dict[str, str | None]) -> list[str]:
    """A checkpoint and its stored ancestors, each once."""
    seen: list[str] = []
    at: str | None = name
    while at in links and at not in seen:
        seen.append(at)
        at = links[at]
    return seen


def _circle(name: str, links: dict[str, str | None]) -> list[str]:
    """The circle that a checkpoint lies on, if any."""
    line = _ancestors(name, links)
    return line if links[line[-1]] == name else []
