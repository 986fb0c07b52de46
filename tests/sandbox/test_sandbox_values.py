"""The pure parts of the sandbox store: text, validation, leases, and what a prune removes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from savermark.sandbox.codec import from_json, from_text, to_json, to_text
from savermark.sandbox.errors import (
    SandboxCheckpointError,
    SandboxCheckpointInvalidEntryError,
    SandboxCheckpointInvalidIdError,
    SandboxCheckpointWriterConflictError,
    SandboxCheckpointWriterLostError,
    SandboxRangeError,
)
from savermark.sandbox.lease import LeaseTimes, ThreadState, is_current, released, renewed, taken
from savermark.sandbox.records import (
    Artifact,
    DirectoryEntry,
    FileEntry,
    SandboxCheckpoint,
    SymlinkEntry,
    Writer,
)
from savermark.sandbox.rules import blob_keys, freeze, plan_keep_newest
from savermark.sandbox.validation import (
    check_artifacts,
    check_files,
    check_id,
    check_keep,
    check_path,
    check_time,
)

FILE_KEY = "sandbox-files/sha256/" + "0a" * 32
ARTIFACT_KEY = "sandbox-artifacts/sha256/" + "0b" * 32

any_text = st.text(st.characters(codec=None, categories=None, exclude_categories=()))
well_formed = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("\0\1\2\3d")))


@settings(deadline=None)
@given(any_text)
def test_text_comes_back_and_is_safe_to_store(value: str) -> None:
    stored = to_text(value)
    assert from_text(stored) == value
    assert "\0" not in stored
    stored.encode("utf-8")


@settings(deadline=None)
@given(well_formed, well_formed)
def test_stored_ids_sort_as_their_utf8_bytes(one: str, two: str) -> None:
    assert (one.encode() < two.encode()) == (to_text(one).encode() < to_text(two).encode())


@settings(deadline=None)
@given(st.recursive(any_text | st.integers() | st.booleans(), st.lists, max_leaves=5))
def test_json_is_ascii_and_comes_back(value: Any) -> None:
    text = to_json(value)
    assert text.isascii()
    assert "\0" not in text
    assert from_json(text) == value


@pytest.mark.parametrize("value", ["", None, 5, b"a", "\ud800", "a\udfff", ["a"]])
def test_bad_ids(value: Any) -> None:
    with pytest.raises(SandboxCheckpointInvalidIdError):
        check_id(value, "id")


@pytest.mark.parametrize("value", ["a", " ", "\0", "é", "😀", "a" * 10_000])
def test_good_ids(value: str) -> None:
    check_id(value, "id")


BAD_PATHS = ["", "/a", "a//b", "a/", ".", "..", "a/../b", "./a", "a\\b", "a\0", "C:", "c:/a", None]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_bad_paths(path: Any) -> None:
    with pytest.raises(SandboxCheckpointInvalidEntryError):
        check_path(path)


@pytest.mark.parametrize("path", ["a", "a/b", ".git", "...", "a b", "c:x", "é/😀", "..a", "cc:/a"])
def test_good_paths(path: str) -> None:
    check_path(path)


def file(path: str, **other: Any) -> FileEntry:
    return FileEntry(**{"path": path, "blob_key": FILE_KEY, "size": 1, **other})


BAD_FILES = {
    "none": None,
    "string": "ab",
    "dict": {},
    "not-an-entry": [{"path": "a", "kind": "file"}],
    "twice": [file("a"), file("a")],
    "file-and-dir": [file("a"), DirectoryEntry("a")],
    "below-file": [file("a"), file("a/b")],
    "below-file-before": [file("a/b/c"), file("a")],
    "below-symlink": [SymlinkEntry("a", "b"), DirectoryEntry("a/b")],
    "size-negative": [file("a", size=-1)],
    "size-float": [file("a", size=1.0)],
    "size-bool": [file("a", size=True)],
    "size-none": [file("a", size=None)],
    "size-too-large": [file("a", size=2**53)],
    "key-none": [file("a", blob_key=None)],
    "key-upper": [file("a", blob_key=FILE_KEY.upper())],
    "key-newline": [file("a", blob_key=FILE_KEY + "\n")],
    "key-of-artifact": [file("a", blob_key=ARTIFACT_KEY)],
    "symlink-empty": [SymlinkEntry("a", "")],
    "symlink-nul": [SymlinkEntry("a", "b\0")],
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(name: str) -> None:
    with pytest.raises(SandboxCheckpointInvalidEntryError):
        check_files(BAD_FILES[name])


def test_good_files() -> None:
    given = [file("a/b"), DirectoryEntry("a"), file("A"), SymlinkEntry("l", "a"), file("é")]
    assert check_files(given) == tuple(given)
    assert check_files([file("a", size=2**53 - 1)])
    with pytest.raises(SandboxCheckpointInvalidEntryError):
        check_files(given, symlinks=False)


BAD_ARTIFACTS: dict[str, dict[str, Any]] = {
    "id": {"artifact_id": ""},
    "id-surrogate": {"artifact_id": "\ud800"},
    "name": {"name": ""},
    "type": {"mime_type": ""},
    "size": {"size": -1},
    "key": {"blob_key": FILE_KEY},
    "time": {"created_at": math.nan},
    "time-none": {"created_at": None},
}


def artifact(**other: Any) -> Artifact:
    good: dict[str, Any] = {"artifact_id": "1", "name": "n", "mime_type": "t", "size": 0}
    return Artifact(**{**good, "blob_key": ARTIFACT_KEY, "created_at": 0, **other})


@pytest.mark.parametrize("name", BAD_ARTIFACTS)
def test_bad_artifacts(name: str) -> None:
    with pytest.raises(SandboxCheckpointInvalidEntryError):
        check_artifacts([artifact(**BAD_ARTIFACTS[name])])


def test_artifact_ids_may_repeat() -> None:
    assert len(check_artifacts([artifact(), artifact()])) == 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "1", None, 10**400])
def test_bad_times(value: Any) -> None:
    with pytest.raises(SandboxCheckpointInvalidEntryError):
        check_time(value, "t")


@pytest.mark.parametrize("keep", [0, -1, 1.0, True, "1", None, 2**53, math.inf])
def test_bad_keep(keep: Any) -> None:
    with pytest.raises(SandboxCheckpointInvalidEntryError):
        check_keep(keep)


def test_conversation_must_be_json() -> None:
    for bad in ("text", None, [object()], [b"x"]):
        checkpoint = SandboxCheckpoint("c", "t", 1.0, conversation=bad)  # type: ignore[arg-type]
        with pytest.raises(SandboxCheckpointInvalidEntryError):
            freeze(checkpoint, symlinks=True)


def test_blob_keys_are_distinct_and_sorted() -> None:
    checkpoint = SandboxCheckpoint(
        "c", "t", 1, files=[file("b"), file("a")], artifacts=[artifact(), artifact()]
    )
    assert blob_keys(freeze(checkpoint, symlinks=True)) == [ARTIFACT_KEY, FILE_KEY]


@pytest.mark.parametrize(
    ("duration", "renew"),
    [(0, 1), (-1, 1), (math.inf, 1), (math.nan, 1), (10, 10), (10, 11), (10, 0), (True, 0.5)],
)
def test_bad_lease_times(duration: float, renew: float) -> None:
    with pytest.raises(SandboxRangeError):
        LeaseTimes(duration, renew)


def test_lease_rules() -> None:
    times = LeaseTimes(100, 25)
    one = taken(ThreadState(fence=4), "one", 1000, times)
    writer = Writer("t", "one", one.fence)
    assert (one.fence, one.expires_at) == (5, 1100)
    with pytest.raises(SandboxCheckpointWriterConflictError):
        taken(one, "two", 1099.9, times)
    two = taken(one, "two", 1100, times)  # the boundary counts as expired
    assert two.fence == 6
    assert not is_current(two, writer, 1000)
    assert is_current(one, writer, 1099) and not is_current(one, writer, 1100)
    assert not is_current(one, Writer("t", "one", 4), 1000)
    assert not is_current(one, None, 1000)
    assert renewed(one, writer, 1099, times).expires_at == 1199
    with pytest.raises(SandboxCheckpointWriterLostError):
        renewed(one, writer, 1100, times)
    assert released(two, writer) is None
    free = released(one, writer)
    assert free is not None
    assert taken(free, "three", 1000, times).fence == 6


def test_keep_newest_follows_the_chain() -> None:
    parents = {"a": None, "b": "a", "c": "b", "off": "a"}
    assert plan_keep_newest("c", parents, 1) == ("a", "b")
    assert plan_keep_newest("c", parents, 3) == ()
    assert plan_keep_newest(None, parents, 1) == ()
    assert plan_keep_newest("c", {"c": "gone"}, 1) == ()
    assert plan_keep_newest("a", {"a": "b", "b": "a"}, 1) == ("b",)  # a damaged store


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = SandboxCheckpointError.__subclasses__()
    assert len({kind.code for kind in kinds}) == len(kinds) == 13
    assert all(kind.code.startswith("SANDBOX_SNAPSHOT_") for kind in kinds)
