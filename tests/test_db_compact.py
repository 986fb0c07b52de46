"""`db compact`: what it says beforehand, and what the footprint is after it (T31, T32)."""

from __future__ import annotations

import os
import shutil
import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from db_help import line, rows_of
from fix_databases import Left, identity
from savermark.storage import TABLES

if TYPE_CHECKING:
    from db_help import Caller


def fill(left: Left) -> None:
    """Some megabytes, most of which are deleted again."""
    for number in range(8):
        hand, parent = left.hand(f"t{number}"), None
        for step in range(6):
            name = identity(step)
            hand.put(name, parent, {"x": [str(number) + str(step) * 60_000]})
            parent = name
    line(left, "kept")
    for table in TABLES if left.name == "postgres" else ("checkpoints", "writes"):
        left.sql(f"DELETE FROM {table} WHERE thread_id <> 'kept'")


def sizes(document: Any, when: str) -> dict[str, int]:
    whole = [row for row in document["footprint"] if row["table"] is None]
    return {row["component"]: row[f"bytes_{when}"] for row in whole}


def test_it_says_what_it_locks_and_does_nothing(left: Left, db: Caller) -> None:
    fill(left)
    before, size = (
        rows_of(left),
        sizes(db.json("compact", left.uri, "--dry-run").document, "before"),
    )
    for mode in (("--dry-run",), ()):
        for full in ((), ("--full",)):
            said = db("compact", left.uri, *mode, *full)
            assert said.code == (0 if mode else 2)
            locks = next(text for text in said.out.splitlines() if text.startswith("locks: "))
            assert ("ACCESS EXCLUSIVE" in locks) is (left.name == "postgres" and bool(full))
            assert "needs: " in said.out
            assert "VACUUM" in said.out
    assert rows_of(left) == before
    assert sizes(db.json("compact", left.uri, "--dry-run").document, "before") == size
    plan = db.json("compact", left.uri, "--dry-run").document
    assert (plan["done"], plan["seconds"], plan["remarks"]) == (False, None, [])
    assert all(row["bytes_after"] is None for row in plan["footprint"])


def test_the_space_comes_back(left: Left, db: Caller) -> None:
    """SQLite: on disk at once, since the WAL is cut too. Postgres: with --full."""
    fill(left)
    rows = rows_of(left)
    said = db("compact", left.uri, "--full", "--yes")
    assert said.code == 0
    assert "locks: " in said.err
    document = db.json("compact", left.uri, "--full", "--yes").document
    fill_again = sizes(document, "after")["total"]
    assert fill_again < 400_000
    assert document["done"] is True
    assert rows_of(left) == rows
    if left.name == "sqlite":
        after = sizes(document, "after")
        assert (after["wal"], after["free"]) == (0, 0)
        assert Path(left.uri).stat().st_size == after["file"]
    assert "done in" in said.out


def test_what_shrinks_is_shown(left: Left, db: Caller) -> None:
    fill(left)
    document = db.json("compact", left.uri, "--full", "--yes").document
    before, after = sizes(document, "before"), sizes(document, "after")
    assert before["total"] > after["total"] * (5 if left.name == "sqlite" else 1)


def test_a_plain_vacuum_of_postgres_keeps_the_tables_size(left: Left, db: Caller) -> None:
    """T32: the dead rows go, the space stays, and nobody is locked out meanwhile."""
    if left.name != "postgres":
        pytest.skip("SQLite has one way")
    fill(left)
    plan = db.json("compact", left.uri, "--dry-run").document["plan"]
    assert [line.split()[-1] for line in plan["statements"]] == [
        "checkpoints", "checkpoint_blobs", "checkpoint_writes",
    ]  # fmt: skip
    with psycopg.connect(left.uri) as other:
        other.execute("SELECT count(*) FROM checkpoints")  # holds ACCESS SHARE
        assert db.json("compact", left.uri, "--yes").code == 0
    dead = db.json("inspect", left.uri).document["tables"]
    assert all(not row["estimated_dead_rows"] for row in dead)


def test_full_does_not_wait_behind_a_reader_for_ever(
    left: Left, db: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for ACCESS EXCLUSIVE makes all that come after it wait."""
    if left.name != "postgres":
        pytest.skip("locks of Postgres")
    from savermark.database import postgres_upkeep

    monkeypatch.setattr(postgres_upkeep, "_WAIT", "100ms")
    line(left, "a")
    with psycopg.connect(left.uri) as other:
        other.execute("SELECT count(*) FROM checkpoints")
        said = db("compact", left.uri, "--full", "--yes", "-q")
        assert (said.code, said.out) == (1, "")
        assert "lock timeout" in said.complaint
    assert db("compact", left.uri, "--full", "--yes").code == 0


def test_a_reader_in_the_way_of_the_wal_is_told(
    left: Left, db: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T31: VACUUM shows on disk only after the next checkpoint of the WAL."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.05))
    if left.name != "sqlite":
        pytest.skip("Postgres has no such file")
    fill(left)
    reader = sqlite3.connect(left.uri, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM checkpoints").fetchall()
    said = db.json("compact", left.uri, "--yes")
    assert said.code == 0
    (remark,) = said.document["remarks"]
    assert "another connection still uses the WAL" in remark
    reader.close()
    assert db.json("compact", left.uri, "--yes").document["remarks"] == []


def test_too_little_disk_space_is_told_before(
    left: Left, db: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    if left.name != "sqlite":
        pytest.skip("the server's disk is not ours")
    line(left, "a")
    full = shutil.disk_usage("/")._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    before = rows_of(left)
    said = db("compact", left.uri, "--yes", "-q")
    assert (said.code, said.out, rows_of(left)) == (1, "", before)
    assert "100 B of disk space are free" in said.complaint


def test_a_table_that_the_server_skips_is_an_error(left: Left, db: Caller) -> None:
    """To one who may write but does not own the tables, VACUUM only gives a warning."""
    if left.name != "postgres":
        pytest.skip("SQLite has no roles")
    line(left, "a")
    role = f"writer_{os.getpid()}"
    left.sql(f"CREATE ROLE {role} LOGIN")
    try:
        for table in ("checkpoints", "checkpoint_writes", "checkpoint_blobs"):
            left.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}")
        options = f"{conninfo_to_dict(left.uri).get('options') or ''} -c role={role}"
        said = db("compact", make_conninfo(left.uri, options=options), "--yes", "-q")
        assert (said.code, said.out) == (1, "")
        assert "as the tables' owner" in said.complaint
    finally:
        left.sql(f"DROP OWNED BY {role}")
        left.sql(f"DROP ROLE {role}")
