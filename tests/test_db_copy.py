"""`db copy`: whole threads, their latest state and their last turns, on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tiny_graph
from db_help import counts, line, read, rows_of
from fix_databases import Left

if TYPE_CHECKING:
    from db_help import Caller

WORDS = tuple("abcdefgh")


def renamed(rows: dict[str, list[Any]], thread: str) -> dict[str, list[Any]]:
    return {table: [(thread, *row[1:]) for row in found] for table, found in rows.items()}


def played(left: Left, thread: str = "a") -> Any:
    graph = tiny_graph.build(left.saver)
    for word in WORDS:
        graph.invoke({"said": [word]}, tiny_graph.config(thread))
    return graph


def test_a_whole_thread(left: Left, db: Caller) -> None:
    names = line(left, "a")
    before = rows_of(left, "a")
    plan = db.json("copy", left.uri, "--thread", "a", "--to", "b", "--dry-run")
    assert (plan.code, plan.document["done"]) == (0, False)
    assert rows_of(left, "b") == renamed(before, "b") | {table: [] for table in before}
    done = db.json("copy", left.uri, "--thread", "a", "--to", "b", "--yes")
    assert (done.code, done.document["done"]) == (0, True)
    assert done.document["tables"] == plan.document["tables"]
    assert {each["table"]: each["rows"] for each in done.document["tables"]} == {
        table: held // 2 for table, held in counts(left).items()
    }
    assert rows_of(left, "a") == before
    assert rows_of(left, "b") == renamed(before, "b")
    assert all(read(left, "b", name) == read(left, "a", name) for name in names)


@pytest.mark.parametrize("part", [("--latest",), ("--last", "1")])
def test_a_part_reads_back_and_goes_on(left: Left, db: Caller, part: tuple[str, ...]) -> None:
    graph = played(left)
    state = graph.get_state(tiny_graph.config("a"))
    said = db.json("copy", left.uri, "--thread", "a", "--to", "b", *part, "--yes")
    assert said.code == 0
    held = {name: len(rows_of(left, name)["checkpoints"]) for name in ("a", "b")}
    assert 0 < held["b"] < held["a"]
    assert said.document["tables"][0] == {
        "table": "checkpoints",
        "rows": held["b"],
        "logical_bytes": said.document["tables"][0]["logical_bytes"],
    }
    copied = graph.get_state(tiny_graph.config("b"))
    assert (copied.values, copied.next) == (state.values, state.next)
    graph.invoke({"said": ["more"]}, tiny_graph.config("b"))
    assert graph.get_state(tiny_graph.config("b")).values == tiny_graph.expected([*WORDS, "more"])
    assert graph.get_state(tiny_graph.config("a")) == state


def test_a_folded_copy_is_one_checkpoint(left: Left, db: Caller) -> None:
    graph = played(left)
    folded = ("--latest", "--graph", "db_help:graph")
    said = db.json("copy", left.uri, "--thread", "a", "--to", "b", *folded, "--yes")
    assert (said.code, said.document["folded"]) == (0, ["said"])
    assert len(rows_of(left, "b")["checkpoints"]) == 1
    assert graph.get_state(tiny_graph.config("b")).values == tiny_graph.expected(WORDS)
    table = db("copy", left.uri, "--thread", "a", "--to", "c", *folded, "--yes")
    assert "values stored on the copy: said" in table.out


def test_tables_of_the_first_savers(left: Left, db: Caller) -> None:
    line(left, "a")
    left.sql("ALTER TABLE writes DROP COLUMN task_path")
    before = rows_of(left, "a")
    assert db("copy", left.uri, "--thread", "a", "--to", "b", "--yes").code == 0
    assert rows_of(left, "b") == renamed(before, "b")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--thread", "nobody", "--to", "b"), "no thread 'nobody'"),
        (("--thread", "a", "--to", "used"), "holds rows already"),
        (("--thread", "a", "--to", "a"), "copied to itself"),
        (("--thread", "a", "--to", ""), "empty id"),
        (("--thread", "a", "--to", "b", "--latest", "--last", "1"), "not both"),
        (("--thread", "a", "--to", "b", "--last", "0"), "must be 1 or more"),
        (("--thread", "a", "--to", "b", "--graph", "db_help:graph"), "only the latest state"),
        (("--thread", "a", "--to", "b", "--protect", "c-17"), "no checkpoint 'c-17'"),
        (("--thread", "orphan", "--to", "b"), "holds no checkpoints"),
        (("--thread", "a"), "Missing option '--to'"),
    ],
)
def test_a_wrong_copy_is_one_line(
    left: Left, db: Caller, arguments: tuple[str, ...], words: str
) -> None:
    for thread in ("a", "used", "orphan"):
        line(left, thread, length=2)
    left.sql("DELETE FROM checkpoints WHERE thread_id = 'orphan'")
    before = rows_of(left)
    for mode in ("--dry-run", "--yes"):
        said = db("copy", left.uri, *arguments, mode)
        assert (said.code, said.out) == (2, "")
        assert words in said.complaint
    assert rows_of(left) == before


def test_a_part_of_a_broken_thread_is_refused(left: Left, db: Caller) -> None:
    names = line(left, "a", seeds=(0,))
    left.sql("DELETE FROM checkpoints WHERE checkpoint_id = ?", names[4])
    before = rows_of(left)
    said = db("copy", left.uri, "--thread", "a", "--to", "b", "--latest", "--yes")
    assert (said.code, rows_of(left)) == (3, before)
    assert names[4] in said.complaint
    assert db("copy", left.uri, "--thread", "a", "--to", "b", "--yes").code == 0
