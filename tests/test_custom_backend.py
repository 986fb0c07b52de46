"""Third-party savers by `package.module:factory`."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import asynccontextmanager, closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.errors import BackendError, SavermarkError, Unsupported, UsageError
from tiny_graph import adrive, drive, expected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

HERE = __name__
WORDS = ("one", "two")


# Factories as a third party writes them.
@contextmanager
def by_context(folder: Path) -> Iterator[SqliteSaver]:
    path = folder / "theirs.sqlite"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        yield SqliteSaver(connection)


@asynccontextmanager
async def by_async_context(folder: Path) -> AsyncIterator[AsyncSqliteSaver]:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "theirs.sqlite")) as saver:
        yield saver


async def by_coroutine() -> InMemorySaver:
    return InMemorySaver()


def with_serde(serde: Any = None) -> InMemorySaver:
    return InMemorySaver(serde=serde)


def takes_nothing() -> InMemorySaver:
    return InMemorySaver()


def wants_more(url: str, *, folder: Path) -> InMemorySaver:
    raise AssertionError


class NotSetUp(InMemorySaver):
    """Fails at the first read."""

    def get_tuple(self, config: Any) -> Any:
        raise RuntimeError('relation "checkpoints" does not exist')

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)


def not_set_up() -> NotSetUp:
    return NotSetUp()


def no_saver() -> dict[str, int]:
    return {}


@contextmanager
def context_of_no_saver() -> Iterator[str]:
    yield "nothing"


def broken() -> InMemorySaver:
    raise ConnectionError(
        "cannot reach postgresql://bob:hunter2@db/x password='s e c' or password=abc\nmore lines"
    )


class Half(BaseCheckpointSaver[int]):
    """Implements nothing."""


class Outer:
    inner = InMemorySaver


not_callable = 7


def open_store(name: str, tmp_path: Path) -> Any:
    return get_backend(f"{HERE}:{name}").create(Location(tmp_path, "x"))


@pytest.mark.parametrize("name", ["by_context", "with_serde", "takes_nothing", "Outer.inner"])
def test_sync(name: str, tmp_path: Path) -> None:
    store = open_store(name, tmp_path)
    drive(store, "t", WORDS[:1])
    assert drive(store, "t", WORDS[1:]) == expected(WORDS)


@pytest.mark.parametrize("name", ["by_async_context", "with_serde", "takes_nothing", "Outer.inner"])
def test_async(name: str, tmp_path: Path) -> None:
    store = open_store(name, tmp_path)
    adrive(store, "t", WORDS[:1])
    assert adrive(store, "t", WORDS[1:]) == expected(WORDS)


def test_coroutine(tmp_path: Path) -> None:
    assert adrive(open_store("by_coroutine", tmp_path), "t", WORDS) == expected(WORDS)


@pytest.mark.parametrize("name", ["by_async_context", "by_coroutine", "Half"])
def test_async_only_is_unsupported_in_sync(name: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="no sync methods: run it with api = async"):
        drive(open_store(name, tmp_path), "t", WORDS)


@pytest.mark.parametrize("name", ["by_context", "Half"])
def test_sync_only_is_unsupported_in_async(name: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="no async methods: run it with api = sync"):
        adrive(open_store(name, tmp_path), "t", WORDS)


def test_serializer_goes_in_or_is_unsupported(tmp_path: Path) -> None:
    serde = JsonPlusSerializer()
    with open_store("with_serde", tmp_path).saver(serde) as saver:
        assert saver.serde is serde
    with (
        pytest.raises(Unsupported, match="takes no `serde`"),
        open_store("takes_nothing", tmp_path).saver(serde),
    ):
        pass


@pytest.mark.parametrize(
    ("reference", "kind", "line"),
    [
        ("no_such_module_here:x", UsageError, "No module named 'no_such_module_here'"),
        ("no_such.module.here:x", UsageError, "No module named 'no_such'"),
        ("json.nothing.here:x", UsageError, "No module named 'json.nothing'"),
        (f"{HERE}:takes_nothin", UsageError, "did you mean 'takes_nothing'"),
        (f"{HERE}:not_callable", UsageError, "name a class or a function"),
        ("postgresql://host/db", UsageError, "package.module:factory"),
        (":x", UsageError, "package.module:factory"),
        ("x:", UsageError, "package.module:factory"),
        ("a:b:c", UsageError, "package.module:factory"),
    ],
)
def test_wrong_names_are_one_line(reference: str, kind: type[SavermarkError], line: str) -> None:
    with pytest.raises(kind) as caught:
        get_backend(reference)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("driver", [drive, adrive])
@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [
        ("wants_more", UsageError, "needs url: wrap it"),
        ("no_saver", BackendError, "gave an object of type dict, not a BaseCheckpointSaver"),
        ("context_of_no_saver", BackendError, "gave an object of type str, not a Base"),
        ("not_set_up", BackendError, "does not exist): if it needs its setup(), call that in the"),
        ("broken", BackendError, "ConnectionError: cannot reach postgresql://bob:***@db/x"),
    ],
)
def test_wrong_factories_are_one_line(
    name: str, kind: type[SavermarkError], line: str, driver: Any, tmp_path: Path
) -> None:
    with pytest.raises(kind) as caught:
        driver(open_store(name, tmp_path), "t", WORDS)
    text = str(caught.value)
    assert line in text
    assert "\n" not in text
    for secret in ("hunter2", "s e c", "abc"):
        assert secret not in text


def test_failing_import_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs_is_broken.py").write_text("raise ValueError('first line\\nsecond')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(BackendError) as caught:  # found at all: the working folder is looked in
        get_backend("theirs_is_broken:make")
    assert str(caught.value).endswith("cannot be imported: ValueError: first line")


def test_a_module_that_lacks_another_is_a_failing_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs_lacks_one.py").write_text("import theirs_lacks")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(BackendError, match="No module named 'theirs_lacks'"):
        get_backend("theirs_lacks_one:make")


def test_description_names_class_and_version(tmp_path: Path) -> None:
    store = open_store("by_context", tmp_path)
    drive(store, "t", WORDS)
    facts = store.describe()
    assert facts["saver"] == "langgraph.checkpoint.sqlite.SqliteSaver"
    assert "get_delta_channel_history" in facts["overrides"]
    assert "prune" not in facts["overrides"]
    assert str(tmp_path) not in str(facts)
