"""`db delete-runs`: what runs stored, what others need of it, and what is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from db_help import SPOIL, counts, line, read, rows_of
from fix_databases import Left, identity

if TYPE_CHECKING:
    from db_help import Caller


def test_the_last_run_goes_and_the_rest_reads_as_before(left: Left, db: Caller) -> None:
    names = {thread: line(left, thread) for thread in ("a", "b")}
    kept = {thread: [read(left, thread, name) for name in names[thread][:5]] for thread in names}
    before, rows = rows_of(left), counts(left)
    plan = db.json("delete-runs", left.uri, "--run", "run-3", "--dry-run")
    assert (plan.code, rows_of(left)) == (0, before)
    done = db.json("delete-runs", left.uri, "--run", "run-3", "--yes")
    assert done.code == 0
    for part in ("checkpoints", "tables", "threads", "runs"):
        assert plan.document[part] == done.document[part]
    assert done.document["checkpoints"] == {
        "matched": 4, "kept_for_others": 0, "deleted": 4, "cut_off": 0,
    }  # fmt: skip
    gone = {each["table"]: each["rows"] for each in done.document["tables"]}
    assert gone == {table: rows[table] - held for table, held in counts(left).items()}
    assert done.document["verification"]["ok"] is True
    for thread in names:
        assert [read(left, thread, name) for name in names[thread][:5]] == kept[thread]
        assert read(left, thread, names[thread][6])[0] is None
    again = db.json("delete-runs", left.uri, "--run", "run-3", "--yes")
    assert (again.code, again.document["checkpoints"]["matched"]) == (0, 0)


def test_what_others_are_rebuilt_from_stays(left: Left, db: Caller) -> None:
    line(left, "a", seeds=(0,))
    before = rows_of(left)
    runs = ("--run", "run-0", "--run", "run-1")
    said = db.json("delete-runs", left.uri, *runs, "--yes")
    assert (said.code, rows_of(left)) == (0, before)
    assert said.document["checkpoints"]["matched"] == 4
    assert said.document["checkpoints"]["kept_for_others"] == 4
    line(left, "b")  # its head is rebuilt from the middle on
    heads = ("--addressable", "heads")
    said = db.json("delete-runs", left.uri, *runs, *heads, "--yes")
    assert (said.code, said.document["checkpoints"]["deleted"]) == (0, 4)
    assert (
        "kept for checkpoints of other runs" in db("delete-runs", left.uri, *runs, "--dry-run").out
    )


def test_protected_checkpoints_stay(left: Left, db: Caller) -> None:
    names = line(left, "a")
    protect = ("--protect", names[7])
    said = db.json("delete-runs", left.uri, "--run", "run-3", *protect, "--yes")
    assert (said.code, said.document["checkpoints"]["deleted"]) == (0, 0)
    said = db("delete-runs", left.uri, "--run", "run-3", "--protect", "c-17", "--yes")
    assert said.code == 2
    assert "c-17" in said.complaint


def test_no_match_says_why(left: Left, db: Caller) -> None:
    """T27."""
    line(left, "a")
    before = rows_of(left)
    for mode in ("--dry-run", "--yes"):
        said = db("delete-runs", left.uri, "--run", "run-17", mode)
        assert (said.code, rows_of(left)) == (0, before)
        assert said.out.startswith("0 matched: ")
        assert "a top-level run_id is not" in said.out
    said = db("delete-runs", left.uri, "--run", " ", "--yes")
    assert said.code == 2
    assert "--run is empty" in said.complaint
    assert "Missing option '--run'" in db("delete-runs", left.uri, "--yes").complaint


def test_a_thread_that_is_refused_is_named(left: Left, db: Caller) -> None:
    names = line(left, "broken", seeds=(0,))
    line(left, "sound")
    left.sql("DELETE FROM checkpoints WHERE checkpoint_id = ?", names[2])
    spoiled = rows_of(left, "broken")
    said = db.json("delete-runs", left.uri, "--run", "run-3", "--yes")
    (refused,) = said.document["refused"]
    assert (said.code, refused["thread_id"]) == (3, "broken")
    assert names[2] in refused["reason"]
    assert rows_of(left, "broken") == spoiled
    assert len(rows_of(left, "sound")["checkpoints"]) == 6


def test_what_a_run_left_in_subgraphs_goes_too(left: Left, db: Caller) -> None:
    told = {"run_id": "r"}
    left.hand("a").put(identity(0), None, {"x": 1}).put(identity(1), None, {"x": 2}, metadata=told)
    left.hand("a", space="sub:1").put(identity(2), None, {"y": 1}, metadata=told)
    said = db.json("delete-runs", left.uri, "--run", "r", "--yes").document
    assert said["checkpoints"]["deleted"] == 2
    assert len(rows_of(left)["checkpoints"]) == 1


def test_a_loss_is_found(left: Left, db: Caller) -> None:
    """Somebody's trigger takes writes of runs that stay."""
    line(left, "a")
    for statement in SPOIL[left.name]:
        left.sql(statement)
    said = db("delete-runs", left.uri, "--run", "run-3", "--yes", "--format", "json")
    assert said.code == 3
    assert "VERIFICATION FAILED" in said.complaint
    checks = {each["check"] for each in said.document["verification"]["failures"]}
    assert "resume" in checks
