"""`db prune`: the plan it shows, what it does, what it proves, and how it is stopped."""

from __future__ import annotations

import importlib
import itertools
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import db_help
import tiny_graph
from db_help import OLD, SPOIL, Caller, counts, line, read, rows_of, sqlite_file
from fix_databases import Left, identity
from fix_threads import Hand, snapshot
from savermark.database.fleet import Check, Pace, carry_out
from savermark.database.opening import open_database
from savermark.database.tally import Tally
from savermark.database.tasks import PolicyTask
from savermark.errors import ContractError
from savermark.graphs import build_graph
from savermark.graphs.play import play
from savermark.retention.plan import terms_of
from savermark.retention.policy import parse_policy
from savermark.retention.settle import Job
from savermark.script import write_script
from savermark.spec import fixed, load_workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from savermark.history.image import ThreadImage
    from savermark.history.rows import RowAccess
    from savermark.retention.promises import ThreadReading
    from savermark.retention.records import Applied
    from savermark.retention.verify import Verification

KEEP = ("--policy", "keep-latest")


def prepare(left: Left) -> Left:
    """Tables, where nothing was put yet."""
    if left.name == "postgres":
        left.saver.setup()  # type: ignore[attr-defined]
    return left


def test_the_plan_is_what_is_done_then(left: Left, db: Caller) -> None:
    names = {thread: line(left, thread) for thread in ("a", "b", "c")}
    before, rows = rows_of(left), counts(left)
    plan = db.json("prune", left.uri, *KEEP, "--dry-run")
    assert (plan.code, rows_of(left)) == (0, before)
    heads = {thread: read(left, thread, names[thread][-1]) for thread in names}
    done = db.json("prune", left.uri, *KEEP, "--yes")
    assert done.code == 0
    for part in ("tables", "threads", "refused"):
        assert plan.document[part] == done.document[part]
    gone = {each["table"]: each["rows"] for each in done.document["tables"]}
    assert gone == {table: rows[table] - left_ for table, left_ in counts(left).items()}
    assert gone["checkpoints"] == 3 * 4
    assert (plan.document["done"], plan.document["verification"]) == (False, None)
    assert done.document["verification"]["ok"] is True
    assert done.document["verification"]["threads"] == 3
    for thread, found in heads.items():
        assert read(left, thread, names[thread][-1]) == found
    again = db.json("prune", left.uri, *KEEP, "--yes")
    assert (again.code, again.document["totals"]["changed"], again.document["tables"][0]["rows"]) \
        == (0, 0, 0)  # fmt: skip


def test_without_yes_the_plan_is_shown_and_nothing_done(left: Left, db: Caller) -> None:
    line(left, "a")
    before = rows_of(left)
    said = db("prune", left.uri, *KEEP)
    assert (said.code, rows_of(left)) == (2, before)
    assert "1 would change" in said.out
    assert "--yes" in said.complaint
    both = db("prune", left.uri, *KEEP, "--yes", "--dry-run")
    assert (both.code, both.out, rows_of(left)) == (2, "", before)


def test_the_plan_needs_no_right_to_write(left: Left, db: Caller) -> None:
    """On Postgres a session that may not write, on SQLite a file that nobody can lock for it."""
    line(left, "a")
    if left.name == "postgres":
        options = f"{conninfo_to_dict(left.uri).get('options') or ''}"
        options += " -c default_transaction_read_only=on"
        uri = make_conninfo(left.uri, options=options)
        assert db("prune", uri, *KEEP, "--dry-run").code == 0
        said = db("prune", uri, *KEEP, "--yes")
        assert said.code == 1
        assert "server that takes writes" in said.complaint
        return
    with sqlite3.connect(left.uri, isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert db("prune", left.uri, *KEEP, "--dry-run").code == 0
    writer.close()


def test_bytes_are_those_of_the_rows_that_go(left: Left, db: Caller) -> None:
    line(left, "a")
    line(left, "b", length=3, seeds=())
    plan = db.json("prune", left.uri, "--policy", "delete", "--dry-run").document
    held = db.json("inspect", left.uri).document
    for mine, theirs in zip(plan["tables"], held["tables"], strict=True):
        same = ("table", "rows") if left.name == "postgres" else ("table", "rows", "logical_bytes")
        assert [mine[key] for key in same] == [theirs[key] for key in same]
    first, second = plan["threads"]
    assert (first["thread_id"], second["thread_id"]) == ("a", "b")
    assert first["whole"] is True
    assert first["rows"] + second["rows"] == plan["totals"]["rows"]


def test_a_thread_that_is_refused_is_named_and_the_rest_goes_on(left: Left, db: Caller) -> None:
    broken = line(left, "broken", seeds=(0,))
    line(left, "sound")
    left.sql("DELETE FROM checkpoints WHERE checkpoint_id = ?", broken[5])
    spoiled = rows_of(left, "broken")
    for mode in ("--dry-run", "--yes"):
        said = db.json("prune", left.uri, *KEEP, mode)
        (refused,) = said.document["refused"]
        assert (said.code, refused["thread_id"]) == (3, "broken")
        assert broken[5] in refused["reason"]
        assert said.document["totals"]["changed"] == 1
    assert rows_of(left, "broken") == spoiled
    assert len(rows_of(left, "sound")["checkpoints"]) == 4
    for fmt in ("table", "md"):
        assert broken[5] in db("prune", left.uri, *KEEP, "--dry-run", "--format", fmt).out
    listed = db("prune", left.uri, *KEEP, "--dry-run", "--format", "csv")
    assert broken[5] in listed.err
    assert listed.out.splitlines()[0].startswith("thread_id,")


def test_protected_checkpoints_stay_with_what_they_need(left: Left, db: Caller) -> None:
    names = line(left, "a", seeds=(1, 5))
    line(left, "b")
    whole = read(left, "a", names[3])
    protect = ("--protect", names[3])
    said = db.json("prune", left.uri, *KEEP, *protect, "--yes")
    assert (said.code, said.document["protect"]) == (0, [names[3]])
    assert read(left, "a", names[3]) == whole
    assert read(left, "a", names[0])[0] is None
    for wrong in (("--protect", "c-17"), ("--thread", "b", *protect)):
        before = rows_of(left)
        said = db("prune", left.uri, "--policy", "delete", "--yes", *wrong)
        assert (said.code, rows_of(left)) == (2, before)
        assert wrong[-1] in said.complaint
    refused = db.json("prune", left.uri, "--policy", "delete", *protect, "--yes")
    assert (refused.code, refused.document["refused"][0]["thread_id"]) == (3, "a")


def test_threads_are_chosen(left: Left, db: Caller) -> None:
    for thread in ("a", "b", "c"):
        line(left, thread)
    said = db.json("prune", left.uri, *KEEP, "--thread", "c", "--thread", "a", "--yes")
    assert (said.code, said.document["only_threads"]) == (0, ["c", "a"])
    assert [len(rows_of(left, name)["checkpoints"]) for name in ("a", "b", "c")] == [4, 8, 4]
    said = db("prune", left.uri, *KEEP, "--thread", "d", "--yes")
    assert said.code == 2
    assert "'d'" in said.complaint


def test_it_goes_on_where_max_threads_stopped_it(left: Left, db: Caller) -> None:
    for number in range(5):
        line(left, f"t{number}")
    changed = []
    for _ in range(4):
        said = db.json("prune", left.uri, *KEEP, "--yes", "--max-threads", "2", "--batch", "3")
        changed.append((said.document["totals"]["changed"], said.document["stopped"]))
    assert changed == [(2, "max-threads"), (2, "max-threads"), (1, None), (0, None)]
    assert counts(left)["checkpoints"] == 5 * 4
    plan = db.json("prune", left.uri, "--policy", "delete", "--dry-run", "--max-threads", "2")
    assert plan.document["totals"]["changed"] == 2


def test_only_the_largest_threads_are_listed(left: Left, db: Caller) -> None:
    for number in range(4):
        line(left, f"t{number}", length=6 + number, seeds=(5 + number,))
    top = db.json("prune", left.uri, *KEEP, "--dry-run", "--top", "2").document
    assert [each["thread_id"] for each in top["threads"]] == ["t3", "t2"]
    assert top["totals"]["changed"] == 4
    every = db.json("prune", left.uri, *KEEP, "--dry-run", "--top", "0").document
    assert len(every["threads"]) == 4


@pytest.mark.parametrize("workload", ["human-in-the-loop", "branching", "durations", "deep-agent"])
def test_real_threads_read_back_through_their_graph(left: Left, db: Caller, workload: str) -> None:
    last = load_workload(workload)[-1].spec  # the variant with delta channels
    spec = replace(last, conversation=replace(last.conversation, turns=fixed(4), threads=2))
    graph = build_graph(spec, left.saver)
    tips: list[Any] = []
    for thread in write_script(spec):
        if thread.source is None:
            played = play(graph, left.saver, thread, spec, lambda number: nullcontext())
            tips += played.tips.values()
    before = [graph.get_state(tip, subgraphs=True) for tip in tips]
    protect = [option for tip in tips for option in protected(graph.get_state(tip).config)]
    for policy in ("duration-leaves", "keep-turns=2", "keep-latest"):
        said = db.json("prune", left.uri, "--policy", policy, *protect, "--grace", "0s", "--yes")
        assert said.document["verification"]["failures"] == []
        assert said.code == 0
        assert [graph.get_state(tip, subgraphs=True) for tip in tips] == before
    assert db("doctor", left.uri).code == 0


def protected(config: Any) -> tuple[str, str]:
    return "--protect", config["configurable"]["checkpoint_id"]


def test_a_loss_is_found_and_ends_the_job(left: Left, db: Caller) -> None:
    """Somebody's trigger takes rows that must stay: the first batch tells, the rest is spared."""
    for thread in ("a", "b", "c"):
        line(left, thread)
    for statement in SPOIL[left.name]:
        left.sql(statement)
    spared = rows_of(left, "c")
    said = db("prune", left.uri, *KEEP, "--yes", "--batch", "2", "--format", "json", "-q")
    assert said.code == 3
    assert "VERIFICATION FAILED: 2 threads" in said.complaint
    found = said.document
    assert found["stopped"] == "verification"
    assert found["verification"]["failed_threads"] == 2
    assert {each["thread_id"] for each in found["verification"]["failures"]} == {"a", "b"}
    assert rows_of(left, "c") == spared
    told = db("prune", left.uri, *KEEP, "--yes", "--batch", "2")
    assert "FAILED" in told.out
    assert rows_of(left, "c") != spared  # `a` and `b` were done before


SEALED = {
    "sqlite": "UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id = 'b'",
    "postgres": "UPDATE checkpoint_blobs SET type = 'msgpack+aes' WHERE thread_id = 'b'",
}


def sealed(left: Left) -> None:
    """Three threads, of which the serializer that is at hand cannot read the second."""
    for thread in ("a", "b", "c"):
        names = line(left, thread)
        Hand(left.saver, thread).put(identity(98), names[-1], {"n": [1]})
    left.sql(SEALED[left.name])


def test_a_newest_state_that_cannot_be_read_is_refused_beforehand(left: Left, db: Caller) -> None:
    sealed(left)
    before = rows_of(left, "b")
    said = db("prune", left.uri, *KEEP, "--yes", "--format", "json", "-q")
    assert said.code == 3
    (refused,) = said.document["refused"]
    assert refused["thread_id"] == "b"
    assert "\n" not in refused["reason"]
    assert rows_of(left, "b") == before
    assert {each["thread_id"] for each in said.document["threads"]} == {"a", "c"}
    found = said.document["verification"]
    assert (found["ok"], found["threads"]) == (True, 2)
    if left.name == "postgres":  # there only the values are sealed, and the plan needs none
        assert "msgpack+aes" in refused["reason"]
        assert "--graph module:name" in refused["reason"]


@pytest.mark.parametrize("policy", ["delete", "idle-threads=0s"])
def test_a_thread_that_cannot_be_read_is_deleted_whole(left: Left, db: Caller, policy: str) -> None:
    sealed(left)
    said = db("prune", left.uri, "--policy", policy, "--grace", "0s", "--yes")
    assert said.code == 0
    assert counts(left)["checkpoints"] == 0


@dataclass(frozen=True)
class Meanwhile:
    """A policy, and what happens right after each thread was changed."""

    inner: PolicyTask
    then: Any

    def images(self, rows: RowAccess, batch: int) -> Any:
        return self.inner.images(rows, batch)

    def foresee(self, image: ThreadImage) -> Applied:
        return self.inner.foresee(image)

    def unprovable(self, planned: Applied, before: ThreadReading) -> str:
        return self.inner.unprovable(planned, before)

    def settle(self, rows: RowAccess, image: ThreadImage) -> Applied:
        done = self.inner.settle(rows, image)
        self.then(rows, image.thread_id)
        return done

    def judge(self, rows: RowAccess, found: Verification, touched: Any) -> Verification:
        return self.inner.judge(rows, found, touched)


def carried(left: Left, then: Any, policy: str = "keep-latest") -> Tally:
    tally = Tally()
    job = Job(terms_of(parse_policy(policy)))
    with open_database(left.uri, write=True) as database, database.reader() as reader:
        task = Meanwhile(PolicyTask(job), then)
        try:
            carry_out(database.rows, task, tally, Pace(), Check(reader))
        except ContractError:
            assert tally.failed_threads
    return tally


def test_a_run_that_writes_meanwhile_is_no_loss(left: Left) -> None:
    names = line(left, "a")
    line(left, "b")

    def work(rows: RowAccess, thread: str) -> None:
        if thread == "a":
            hand = Hand(left.saver, "a")
            hand.write(names[-1], ("log", ["of a live run"]), task="live")
            hand.put(identity(99), names[-1], moved=("log",), counts=("log",))

    tally = carried(left, work)
    assert (tally.verified, tally.failed_threads, tally.unproven_threads) == (2, 0, 0)
    assert len(rows_of(left, "a")["checkpoints"]) == 5


def test_a_thread_made_anew_meanwhile_is_no_loss(left: Left) -> None:
    line(left, "a")
    tally = carried(left, lambda rows, thread: line(left, "a", length=2, seeds=()), "delete")
    assert (tally.verified, tally.failed_threads, tally.unproven_threads) == (1, 0, 0)


def test_a_loss_beside_a_run_is_not_taken_for_its_work(left: Left) -> None:
    names = line(left, "a")

    def work(rows: RowAccess, thread: str) -> None:
        with rows.transaction(thread) as txn:
            txn.delete_writes_of([("", names[-2])])
        Hand(left.saver, "a").write(names[-1], ("log", ["of a live run"]), task="live")

    tally = carried(left, work)
    assert (tally.verified, tally.failed_threads, tally.unproven_threads) == (1, 0, 1)
    assert not tally.proven


def test_what_was_done_before_the_engine_failed_is_reported(left: Left, db: Caller) -> None:
    for thread in ("a", "b"):
        line(left, thread)
    fail = {
        "sqlite": "CREATE TRIGGER stop BEFORE DELETE ON checkpoints WHEN old.thread_id = 'b' "
        "BEGIN SELECT RAISE(ABORT, 'the disk is on fire'); END",
        "postgres": "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF old.thread_id = 'b' THEN RAISE 'the disk is on fire'; END IF; RETURN old; END $$",
    }
    left.sql(fail[left.name])
    if left.name == "postgres":
        left.sql("CREATE TRIGGER stop BEFORE DELETE ON checkpoints FOR EACH ROW "
                 "EXECUTE FUNCTION stop()")  # fmt: skip
    spared = rows_of(left, "b")
    said = db.json("prune", left.uri, *KEEP, "--yes")
    assert said.code == 1
    assert "on fire" in said.complaint
    assert said.document["stopped"] == "error"
    assert [each["thread_id"] for each in said.document["threads"]] == ["a"]
    assert said.document["verification"]["threads"] == 1
    assert rows_of(left, "b") == spared


def test_it_stops_when_told_and_goes_on_later(left: Left, db: Caller) -> None:
    for number in range(6):
        line(left, f"t{number}")
    command = [
        sys.executable, "-m", "savermark", "db", "prune", left.uri, *KEEP, "--yes",
        "--batch", "2", "--sleep", "60", "--format", "json",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        assert "2 threads looked at" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=50)
    assert child.returncode == 130
    assert "run the same command again" in err
    assert "Traceback" not in err
    (stopped,) = [line for line in err.splitlines() if line.startswith("savermark: ")]
    assert "2 of them changed" in stopped
    assert '"stopped": "interrupted"' in out
    kept = [len(rows_of(left, f"t{number}")["checkpoints"]) for number in range(6)]
    assert kept == [4, 4, 8, 8, 8, 8]
    again = db.json("prune", left.uri, *KEEP, "--yes").document
    assert (again["totals"]["changed"], counts(left)["checkpoints"]) == (4, 24)


def test_a_second_interrupt_undoes_the_thread_it_is_at(left: Left, db: Caller) -> None:
    """Two interrupts inside the transaction: nothing of that thread is changed."""
    from savermark.cli.db_changes import Work
    from savermark.errors import Interrupted

    line(left, "a")
    line(left, "b")
    before = rows_of(left, "b")

    def twice(rows: RowAccess, thread: str) -> None:
        if thread == "a":
            with rows.transaction("b") as txn:
                txn.delete_all()
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1_000):
                    txn.image()

    tally, reported = Tally(), []
    task = Meanwhile(PolicyTask(Job(terms_of(parse_policy("keep-latest")))), twice)
    handler = signal.getsignal(signal.SIGINT)
    with open_database(left.uri, write=True) as database:
        work = Work(database, tally, Pace(), lambda: reported.append(tally.stopped), quiet=True)
        with pytest.raises(Interrupted, match="run the same command again"):
            work.do(lambda reader: task)
    assert reported == ["interrupted"]
    assert rows_of(left, "b") == before
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("policy", ["keep-latest", "compact", "snapshot"])
def test_encrypted_threads_are_read_with_the_graphs_serializer(
    left: Left, db: Caller, policy: str
) -> None:
    with left.store.saver(db_help.SECRET) as saver:
        graph = tiny_graph.build(saver)
        for word in "uvwxyz":
            graph.invoke({"said": [word]}, tiny_graph.config("a"))
        before = graph.get_state(tiny_graph.config("a")).values
    prune = ("prune", left.uri, "--policy", policy, "--yes")
    said = db(*prune)
    assert said.code in ((2,) if policy != "keep-latest" else (3,))
    said = db.json(*prune, "--graph", "db_help:secret_graph")
    assert (said.code, said.document["verification"]["ok"]) == (0, True)
    assert said.document["totals"]["changed"] == 1
    with left.store.saver(db_help.SECRET) as saver:
        assert tiny_graph.build(saver).get_state(tiny_graph.config("a")).values == before


def test_compact_needs_the_graph_and_folds_through_it(left: Left, db: Caller) -> None:
    graph = tiny_graph.build(left.saver)
    for thread in ("a", "b"):
        for word in ("x", "y", "z"):
            graph.invoke({"said": [word]}, tiny_graph.config(thread))
    states = {name: graph.get_state(tiny_graph.config(name)).values for name in ("a", "b")}
    before = rows_of(left)
    compact = ("prune", left.uri, "--policy", "compact", "--grace", "0s")
    said = db(*compact, "--yes")
    assert (said.code, rows_of(left)) == (2, before)
    assert "--graph module:name" in said.complaint
    assert db(*compact, "--dry-run").code == 0
    for wrong, words in (
        ("tiny_graph", "not of the form"),
        ("tiny_graph:nothing", "unknown name"),
        ("no_such_module:graph", "cannot be imported"),
        ("tiny_graph:extend", "cannot be built"),
    ):
        said = db(*compact, "--yes", "--graph", wrong)
        assert said.code in (1, 2)
        assert words in said.complaint
    assert rows_of(left) == before
    said = db.json(*compact, "--yes", "--graph", "db_help:graph")
    assert (said.code, said.document["verification"]["ok"]) == (0, True)
    assert all(each["folded"] == 1 for each in said.document["threads"])
    assert counts(left)["checkpoints"] == 2
    assert {n: graph.get_state(tiny_graph.config(n)).values for n in ("a", "b")} == states
    graph.invoke({"said": ["more"]}, tiny_graph.config("a"))
    assert graph.get_state(tiny_graph.config("a")).values["said"][:-2] == states["a"]["said"]


def test_tables_of_the_first_savers_are_pruned_and_left_as_they_are(left: Left, db: Caller) -> None:
    """No column for task paths, and metadata that is text."""
    names = line(left, "a")
    first, second = identity(0, OLD), identity(1, OLD)
    old = left.hand("first").put(first, None, {"x": [1]}, v=1)
    old.put(second, first, {"x": [2]}, v=1).write(second, ("x", 3))
    head = read(left, "a", names[-1])
    if left.name == "sqlite":
        left.sql("UPDATE checkpoints SET metadata = CAST(metadata AS TEXT)")
    left.sql("ALTER TABLE writes DROP COLUMN task_path")
    columns = left.sql("SELECT * FROM writes")
    said = db.json("prune", left.uri, *KEEP, "--yes")
    assert (said.code, said.document["verification"]["ok"]) == (0, True), said.out
    assert said.document["database"]["task_path"] is False
    assert len(left.sql("SELECT * FROM writes")[0]) == len(columns[0])
    assert [len(rows_of(left, name)["checkpoints"]) for name in ("a", "first")] == [4, 1]
    left.sql("ALTER TABLE writes ADD COLUMN task_path TEXT NOT NULL DEFAULT ''")
    assert read(left, "a", names[-1])[2] == head[2]


def test_an_empty_database_has_nothing_to_prune(left: Left, db: Caller) -> None:
    prepare(left)
    for mode in ("--dry-run", "--yes"):
        said = db.json("prune", left.uri, "--policy", "delete", mode)
        assert (said.code, said.document["totals"]["threads"]) == (0, 0)


def test_orphans_of_others_go_after_the_grace(left: Left, db: Caller) -> None:
    names = line(left, "a")
    for name in names[:6]:
        left.sql("DELETE FROM checkpoints WHERE checkpoint_id = ?", name)
    left.sql("UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE checkpoint_id = ?", names[6])
    assert db.json("prune", left.uri, *KEEP, "--grace", "9h", "--dry-run").document["tables"][2] \
        ["rows"] == 0  # fmt: skip
    done = db.json("prune", left.uri, *KEEP, "--yes").document
    assert done["tables"][2] == {"table": "writes", "rows": 12, "logical_bytes": 0} | {
        "logical_bytes": done["tables"][2]["logical_bytes"]
    }
    assert done["verification"]["ok"] is True


@pytest.mark.parametrize("gone", ["oldest", "newest", "blobless"])
def test_what_careless_deletions_left_is_no_failure(left: Left, db: Caller, gone: str) -> None:
    """T23: a thread of full values of which somebody deleted checkpoint rows alone."""
    hand, parent, names = left.hand("a"), None, []
    for step in range(8):
        names.append(identity(step, OLD))
        hand.put(names[-1], parent, {"x": [step]}).write(names[-1], ("x", step))
        parent = names[-1]
    lost = {"oldest": names[:7], "newest": names[6:], "blobless": names[6:]}[gone]
    for name in lost:
        left.sql("DELETE FROM checkpoints WHERE checkpoint_id = ?", name)
    if gone == "blobless":
        left.sql("DELETE FROM writes WHERE checkpoint_id = ?", names[7])
    said = db.json("prune", left.uri, *KEEP, "--yes")
    assert said.document["verification"]["failures"] == []
    assert said.code == 0
    assert counts(left)["checkpoints"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "keep-lates"), "did you mean 'keep-latest'"),
        (("--policy", "keep-turns=0"), "must be 1 or more"),
        (("--policy", "keep-turns"), "write it as keep-turns=N"),
        (("--policy", "older-than=3"), "give a number and a unit"),
        (("--policy", ""), "a policy needs a rule"),
        ((), "Missing option '--policy'"),
        ((*KEEP, "--batch", "0"), "batch=0"),
        ((*KEEP, "--sleep", "-1"), "sleep=-1"),
        ((*KEEP, "--sleep", "nan"), "sleep=nan"),
        ((*KEEP, "--max-threads", "0"), "max-threads=0"),
        ((*KEEP, "--grace", "soon"), "give a number and a unit"),
        ((*KEEP, "--thread", "nobody"), "no thread 'nobody'"),
    ],
)
def test_a_wrong_option_is_one_line_and_changes_nothing(
    tmp_path: Path, db: Caller, arguments: tuple[str, ...], words: str
) -> None:
    left = sqlite_file(tmp_path / "a.db")
    before = rows_of(left)
    said = db("prune", left.uri, *arguments, "--yes")
    assert (said.code, said.out, rows_of(left)) == (2, "", before)
    assert words in said.complaint


NUMBERS = itertools.count()
POLICIES = ("keep-latest", "keep-turns=1", "older-than=0s", "delete", "leaf-siblings",
            "keep-latest,idle-threads=1h", "keep-turns=2,duration-leaves,leaf-siblings",
            "refuse")  # fmt: skip
names_and_parents = st.lists(st.integers(0, 2), min_size=1, max_size=9)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    shapes=st.lists(names_and_parents, min_size=1, max_size=5),
    policy=st.sampled_from(POLICIES),
    pieces=st.integers(1, 3),
    batch=st.integers(1, 4),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_in_pieces_is_as_in_one_go(
    tmp_path_factory: pytest.TempPathFactory,
    shapes: list[list[int]],
    policy: str,
    pieces: int,
    batch: int,
    seed: int,
) -> None:
    """Random threads with forks: any batches and any number of goes leave the same rows, and each
    head that stays reads as before."""
    folder = tmp_path_factory.mktemp("pieces")
    lefts = [_random(folder / "one.db", shapes, seed)]
    shutil.copy(folder / "one.db", folder / "many.db")
    lefts.append(replace(lefts[0], uri=str(folder / "many.db")))
    heads = {
        (row[0], row[1]): read(lefts[0], *row)
        for row in lefts[0].sql("SELECT thread_id, max(checkpoint_id) FROM checkpoints GROUP BY 1")
    }
    one = _pruned(lefts[0], policy, Pace())
    goes = [_pruned(lefts[1], policy, Pace(batch, max_threads=pieces)) for _ in range(6)]
    assert one.proven
    assert all(each.proven for each in goes)
    assert rows_of(lefts[0]) == rows_of(lefts[1])
    assert sum(each.rows for each in goes) == one.rows
    assert sum(each.changed for each in goes) == one.changed
    assert max(each.changed for each in goes) <= pieces
    for (thread, name), before in heads.items():
        if "delete" not in policy and "idle" not in policy:
            assert read(lefts[0], thread, name)[1:] == before[1:]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    shape=names_and_parents,
    policy=st.sampled_from(POLICIES),
    lost=st.lists(st.tuples(st.sampled_from(["checkpoints", "writes", "blobs"]),
                            st.integers(0, 20)), max_size=5),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_whatever_was_lost_before_is_refused_or_passes(
    left: Left, shape: list[int], policy: str, lost: list[tuple[str, int]], seed: int
) -> None:
    """Rows that somebody deleted, anywhere: no thread is changed and then found wanting."""
    thread = f"t{next(NUMBERS)}"
    _thread(left, thread, shape, random.Random(seed))
    for table, place in lost:
        if table == "blobs" and left.name == "sqlite":
            continue
        keys = {
            "checkpoints": ("checkpoint_id",),
            "writes": ("checkpoint_id", "task_id", "idx"),
            "blobs": ("channel", "version"),
        }[table]
        found = left.sql(
            f"SELECT {', '.join(keys)} FROM {table} WHERE thread_id = ? ORDER BY {', '.join(keys)}",
            thread,
        )
        if found:
            where = " AND ".join(f"{key} = ?" for key in ("thread_id", *keys))
            left.sql(f"DELETE FROM {table} WHERE {where}", thread, *found[place % len(found)])
    before = rows_of(left, thread)
    tally = _pruned(left, policy, Pace(), [thread])
    assert tally.failures == []
    if tally.refused:
        assert rows_of(left, thread) == before
    again = _pruned(left, policy, Pace(), [thread])
    assert (again.changed, len(again.refused)) == (0, len(tally.refused))


def _random(path: Path, shapes: list[list[int]], seed: int) -> Left:
    chance = random.Random(seed)
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA synchronous = off")
    saver = SqliteSaver(connection)
    left = Left("sqlite", str(path), None, saver)  # type: ignore[arg-type]
    for number, shape in enumerate(shapes):
        _thread(left, f"t{number}", shape, chance)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return left


def _thread(left: Left, thread: str, shape: list[int], chance: random.Random) -> None:
    hand, names = left.hand(thread), list[str]()
    for step, back in enumerate(shape):
        name = f"1efc0000-0000-6000-8000-{step:012x}"
        parent = names[-1 - back] if back < len(names) else None
        seeded = parent is None or chance.random() < 0.3 or back > 0
        values: dict[str, Any] = {"log": snapshot(step)} if seeded else {"n": [step]}
        hand.put(name, parent, values, moved=("log",), counts=() if seeded else ("log",))
        for task in range(chance.randrange(3)):
            hand.write(name, ("log", [f"{step}.{task}"]), task=f"task {task}")
        names.append(name)


def _pruned(left: Left, policy: str, pace: Pace, threads: Sequence[str] | None = None) -> Tally:
    tally = Tally()
    with open_database(left.uri, write=True) as database, database.reader() as reader:
        task = PolicyTask(Job(terms_of(parse_policy(policy))), threads)
        carry_out(database.rows, task, tally, pace, Check(reader))
    return tally


def test_what_verifies_cannot_write(left: Left) -> None:
    names = line(left, "a")
    before = rows_of(left)
    with open_database(left.uri, write=True) as database, database.reader() as reader:
        config: Any = {
            "configurable": {"thread_id": "a", "checkpoint_ns": "", "checkpoint_id": names[-1]}
        }
        assert reader.get_tuple(config) is not None
        with pytest.raises((sqlite3.OperationalError, psycopg.errors.ReadOnlySqlTransaction)):
            reader.put_writes(config, [("log", ["x"])], "task")
    assert rows_of(left) == before


@pytest.mark.parametrize("trusted", [False, True])
def test_no_class_that_a_row_names_is_imported_without_a_graph(
    left: Left,
    db: Caller,
    trusted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "of_the_application.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Note:\n    text: str\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    note = importlib.import_module("of_the_application").Note
    hand = left.hand("a").put(identity(0, OLD), None, {"n": note("first")})
    sys.modules.pop("of_the_application")
    for step in (1, 2):
        hand.put(identity(step, OLD), None, {"n": note("later")})
    sys.modules.pop("of_the_application", None)
    graph = ("--graph", "db_help:graph") if trusted else ()
    said = db.json("prune", left.uri, *KEEP, *graph, "--yes")
    assert (said.code, said.document["verification"]["ok"]) == (0, True)
    assert said.document["totals"]["rows"] > 0
    assert ("of_the_application" in sys.modules) is trusted
    sys.modules.pop("of_the_application", None)


def test_memory_does_not_grow_with_the_threads(tmp_path: Path) -> None:
    """Four times the threads, in batches of the same size."""
    peaks: list[int] = []
    for count in (30, 30, 120):  # the first one warms up what is imported and cached
        left = _random(tmp_path / f"{len(peaks)}.db", [[0] * 8] * count, 0)
        tracemalloc.start()
        _pruned(left, "keep-latest", Pace(batch=8))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < peaks[1] * 1.6
