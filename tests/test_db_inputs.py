"""Every database and thread that a person can name wrongly: one clear line, and nothing changed."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from db_help import line, rows_of, sqlite_file
from fix_databases import Left
from savermark.cli import db_verb, run

if TYPE_CHECKING:
    from db_help import Caller

# Verb -> the rest of a call that would be right on a thread `a`.
CHANGES = {
    "prune": ("--policy", "keep-latest"),
    "delete-runs": ("--run", "run-1"),
    "copy": ("--thread", "a", "--to", "b"),
    "compact": (),
}
MODES = ("--dry-run", "--yes")


def calls() -> list[tuple[str, ...]]:
    return [(verb, *rest, mode) for verb, rest in CHANGES.items() for mode in MODES]


@pytest.mark.parametrize("call", calls(), ids=" ".join)
def test_what_is_no_database_of_a_saver(tmp_path: Path, db: Caller, call: tuple[str, ...]) -> None:
    verb, *rest = call
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("this is no database at all " * 40)
    (tmp_path / "empty.db").touch()
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE other (a)")
    connection.close()
    kinds = {path.name: path.read_bytes() for path in tmp_path.glob("*.db")}
    for name, code, words in (
        ("missing.db", 2, "does not exist"),
        ("folder", 2, "is a folder"),
        ("text.db", 1, "not a SQLite database"),
        ("empty.db", 1, "nothing was ever saved there"),
        ("other.db", 1, "no table checkpoints"),
    ):
        said = db(verb, str(tmp_path / name), *rest)
        assert (said.code, said.out) == (code, "")
        assert words in said.complaint
    for address, words in (("", "is empty"), ("mysql://x/y", "not known"), ("sqlite://x", "///")):
        said = db(verb, address, *rest)
        assert said.code == 2
        assert words in said.complaint
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.db")} == kinds


@pytest.mark.parametrize("verb", CHANGES)
def test_servers_that_do_not_let_one_in(postgres_dsn: str, db: Caller, verb: str) -> None:
    secret = "s3cret-of-mine"
    server = conninfo_to_dict(postgres_dsn)
    for wrong, words in (
        (f"postgresql://me:{secret}@127.0.0.1:1/none?connect_timeout=2", "Postgres:"),
        (make_conninfo(postgres_dsn, user="nobody-at-all", password=secret), "nobody-at-all"),
        (
            make_conninfo(postgres_dsn, dbname="no-such-database", password=secret),
            "no-such-database",
        ),
        (make_conninfo(postgres_dsn, dbname=server.get("dbname") or "postgres"), "no table"),
    ):
        said = db(verb, wrong, *CHANGES[verb], "--yes")
        assert (said.code, said.out) == (1, "")
        assert words in said.complaint
        assert secret not in said.err


@pytest.mark.parametrize("verb", CHANGES)
def test_a_file_that_others_write_to(
    tmp_path: Path, db: Caller, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from functools import partial

    # The patience is SQLite's own 5 s; what is tested is what comes after it.
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.05))
    left = sqlite_file(tmp_path / "a.db")
    before = rows_of(left)
    with sqlite3.connect(tmp_path / "a.db", isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        said = db(verb, left.uri, *CHANGES[verb], "--yes", "-q")
        assert (said.code, said.out) == (1, "")
        assert "locked by another process" in said.complaint
        assert db(verb, left.uri, *CHANGES[verb], "--dry-run").code == 0
        writer.execute("ROLLBACK")
    writer.close()
    assert rows_of(left) == before


AS_NOBODY = """
import os, sys
from savermark.cli import run
for call in sys.argv[1].split(";"):
    run(call.split(",") + ["--dry-run", "-q", "--format", "csv"])  # imports everything
import savermark.retention.verify
if os.geteuid() == 0:
    os.setuid(65534)
for call in sys.argv[1].split(";"):
    print("code", run(call.split(",") + ["--yes", "-q"]), file=sys.stderr)
"""


def test_a_file_that_may_not_be_written() -> None:
    with tempfile.TemporaryDirectory() as name:  # whose parents everyone may enter
        folder = Path(name)
        left = sqlite_file(folder / "a.db")
        left.saver.conn.close()  # type: ignore[attr-defined]
        (folder / "a.db").chmod(0o444)
        folder.chmod(0o555)
        try:
            whole = (folder / "a.db").read_bytes()
            every = ";".join(",".join(("db", verb, left.uri, *CHANGES[verb])) for verb in CHANGES)
            done = subprocess.run(
                [sys.executable, "-c", AS_NOBODY, every],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert (folder / "a.db").read_bytes() == whole
        finally:
            folder.chmod(stat.S_IRWXU)
    lines = done.stderr.splitlines()
    assert lines[1::2] == ["code 1"] * len(CHANGES), done.stderr
    assert all("is read-only: make file and folder writable" in each for each in lines[::2])


def test_a_role_that_may_only_read(left: Left, db: Caller) -> None:
    if left.name != "postgres":
        pytest.skip("SQLite has no roles")
    line(left, "a")
    role = f"reader_{os.getpid()}"
    left.sql(f"CREATE ROLE {role} LOGIN")
    try:
        for table in ("checkpoints", "checkpoint_writes", "checkpoint_blobs"):
            left.sql(f"GRANT SELECT ON {table} TO {role}")
        uri = make_conninfo(left.uri, options=f"{_options(left)} -c role={role}")
        before = rows_of(left)
        for verb, rest in CHANGES.items():
            assert db(verb, uri, *rest, "--dry-run").code == 0
            said = db(verb, uri, *rest, "--yes", "-q")
            assert (said.code, said.out) == (1, "")
            assert "as the tables' owner" in said.complaint
        assert rows_of(left) == before
    finally:
        left.sql(f"DROP OWNED BY {role}")
        left.sql(f"DROP ROLE {role}")


def _options(left: Left) -> str:
    return str(conninfo_to_dict(left.uri).get("options") or "")


def test_verbs_that_change_ask_for_yes_and_not_for_both(left: Left, db: Caller) -> None:
    line(left, "a")
    before = rows_of(left)
    for verb, rest in CHANGES.items():
        said = db(verb, left.uri, *rest)
        assert said.code == 2
        assert said.out
        assert "--yes" in said.complaint
        said = db(verb, left.uri, *rest, "--yes", "--dry-run")
        assert (said.code, said.out) == (2, "")
    assert rows_of(left) == before


def test_each_verb_prints_one_document_in_every_format(left: Left, db: Caller) -> None:
    line(left, "a")
    for verb, rest in CHANGES.items():
        for fmt in ("table", "json", "csv", "md"):
            said = db(verb, left.uri, *rest, "--dry-run", "--format", fmt)
            assert (said.code, bool(said.out.strip())) == (0, True)
            if fmt == "json":
                assert said.document["schema"] == f"savermark.db-{verb}/1"
                assert said.document["database"]["saver"]
                assert said.document["done"] is False


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in db_verb.VERBS)
    for verb in db_verb.VERBS:
        assert run(["db", verb, "--help"]) == 0
    assert run(["db", "prnue", "x"]) == 2
    assert "did you mean 'prune'" in capsys.readouterr().err


def test_policies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    from savermark.retention.policy import RULES

    assert run(["list", "policies", "--format", "csv"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [each.partition(",")[0] for each in listed[1:]] == list(RULES)
