"""What the tests of `savermark db` share: a verb called, and a database's rows as they are."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

import tiny_graph
from fix_databases import Left, identity
from fix_threads import snapshot
from savermark.cli import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

OLD = 7_200.0  # seconds, beyond the usual grace
TABLES = {"sqlite": ("checkpoints", "writes"), "postgres": ("checkpoints", "writes", "blobs")}


# A trigger of somebody's that takes the writes of a thread when a checkpoint goes.
SPOIL = {
    "sqlite": (
        "CREATE TRIGGER spoil AFTER DELETE ON checkpoints BEGIN "
        "DELETE FROM writes WHERE thread_id = old.thread_id; END",
    ),
    "postgres": (
        "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "DELETE FROM checkpoint_writes AS w WHERE w.thread_id = old.thread_id; "
        "RETURN NULL; END $$",
        "CREATE TRIGGER spoil AFTER DELETE ON checkpoints FOR EACH ROW EXECUTE FUNCTION spoil()",
    ),
}


@dataclass(frozen=True)
class Said:
    """What a call printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line that says what is wrong."""
        lines = [line for line in self.err.splitlines() if line.startswith("savermark: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0]


@dataclass(frozen=True)
class Caller:
    """Calls a verb of `savermark db`."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, verb: str, *arguments: str) -> Said:
        self.capsys.readouterr()
        code = run(["db", verb, *arguments])
        return Said(code, *self.capsys.readouterr())

    def json(self, verb: str, *arguments: str) -> Said:
        """The same with `--format json`."""
        return self(verb, *arguments, "--format", "json", "-q")


def graph() -> Any:
    """The small graph, for `--graph db_help:graph`."""
    return tiny_graph.build(None)


class Cipher:
    """Hides bytes from whoever lacks it."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "mirror", bytes(byte ^ 0x5A for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "mirror"
        return bytes(byte ^ 0x5A for byte in ciphertext)


SECRET = EncryptedSerializer(Cipher())


def secret_graph() -> Any:
    """The small graph with a serializer of its own."""
    return tiny_graph.build(InMemorySaver(serde=SECRET))


def rows_of(left: Left, thread: str | None = None) -> dict[str, list[Any]]:
    """Every row as it is stored, of all threads or of one."""
    where, given = ("", ()) if thread is None else (" WHERE thread_id = ?", (thread,))
    return {
        table: sorted(left.sql(f"SELECT * FROM {table}{where}", *given), key=repr)
        for table in TABLES[left.name]
    }


def counts(left: Left) -> dict[str, int]:
    """Rows by table."""
    return {"blobs": 0} | {table: len(rows) for table, rows in rows_of(left).items()}


def line(left: Left, thread: str, length: int = 8, seeds: Sequence[int] = (4,)) -> list[str]:
    """A delta thread in one line, older than the grace; `seeds` are where snapshots stand."""
    hand, parent = left.hand(thread), None
    names = [identity(step, OLD) for step in range(length)]
    for step, name in enumerate(names):
        if step in seeds:
            hand.put(name, parent, {"log": snapshot("seed")}, metadata=_run(step))
        else:
            hand.put(
                name, parent, {"n": [step]}, moved=("log",), counts=("log",), metadata=_run(step)
            )
        hand.write(name, ("log", [f"{thread} {step}"]), ("n", step))
        parent = name
    return names


def sqlite_file(path: Path) -> Left:
    """A SQLite file without a WAL that holds the thread `a`."""
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    left = Left("sqlite", str(path), None, saver)  # type: ignore[arg-type]
    line(left, "a")
    connection.execute("PRAGMA journal_mode = delete").fetchall()
    return left


def _run(step: int) -> dict[str, str]:
    return {"run_id": f"run-{step // 2}"}


def read(left: Left, thread: str, name: str) -> Any:
    """What a delta channel reads back as."""
    config: Any = {
        "configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": name}
    }
    found = left.saver.get_tuple(config)
    if found and "log" in found.checkpoint["channel_values"]:
        return found.checkpoint, found.pending_writes, None  # nobody asks its ancestors
    history = left.saver.get_delta_channel_history(config=config, channels=["log"])["log"]
    return found and found.checkpoint, found and found.pending_writes, history
