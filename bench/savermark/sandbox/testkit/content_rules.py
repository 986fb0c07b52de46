"""Rules of what a checkpoint may hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from savermark.sandbox.errors import SandboxCheckpointInvalidEntryError
from savermark.sandbox.records import DirectoryEntry, SymlinkEntry
from savermark.sandbox.testkit.harness import (
    Bench,
    RuleBook,
    SkipRuleError,
    artifact,
    artifact_blob,
    checkpoint,
    expect_equal,
    file,
    file_blob,
    plain,
)

RULES = RuleBook("content")


async def _refuses(bench: Bench, tries: dict[str, dict[str, Any]]) -> None:
    writer = await bench.writer()
    await bench.chain(writer, ["root"])
    for why, fields in tries.items():
        await bench.refused(
            bench.add(checkpoint("x", parent="root", **fields), writer),
            SandboxCheckpointInvalidEntryError,
            why,
        )
    await bench.add(checkpoint("x", parent="root"), writer)


@RULES.rule()
async def times_are_finite_numbers(bench: Bench) -> None:
    """Created_at must be a finite number."""
    bad = (math.nan, math.inf, -math.inf, None, "5", True)
    await _refuses(bench, {f"created_at {value!r}": {"created_at": value} for value in bad})


@RULES.rule()
async def paths_stay_in_the_workspace(bench: Bench) -> None:
    """A path is relative and normal, with forward slashes and without NUL."""
    bad: tuple[Any, ...] = (
        "", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", "a\\b", "a\0b",
        "C:", "C:/a", None, 5,
    )  # fmt: skip
    tries: dict[str, dict[str, Any]] = {}
    for path in bad:
        tries[f"file at {path!a}"] = {"files": [replace(file("a"), path=path)]}
        tries[f"dir at {path!a}"] = {"files": [DirectoryEntry(path)]}
    await _refuses(bench, tries)


@RULES.rule()
async def paths_form_a_tree(bench: Bench) -> None:
    """Paths are unique, and no entry is below a file, in whatever order they come."""
    await _refuses(
        bench,
        {
            "a file twice": {"files": [file("a"), file("a")]},
            "a directory twice": {"files": [DirectoryEntry("a"), DirectoryEntry("a")]},
            "a file and a directory": {"files": [file("a"), DirectoryEntry("a")]},
            "below a file": {"files": [file("a"), file("a/b")]},
            "below a file that comes later": {"files": [file("a/b"), file("a")]},
            "below a deep file": {"files": [file("a/b/c"), file("a/b/c/d")]},
            "far below a file": {"files": [DirectoryEntry("a/b/c"), file("a")]},
        },
    )


@RULES.rule()
async def good_trees_are_kept(bench: Bench) -> None:
    """Implicit and explicit directories, case and normalisation are all kept as given."""
    files = [
        file("a/b/c"), DirectoryEntry("a"), file("A"), DirectoryEntry("a.d/x"), file("ab"),
        file("é"), file("e\u0301"), file(".x"), file("..y"), file("a b"), file("'"),
    ]  # fmt: skip
    await bench.add(checkpoint("x", files=files), await bench.writer())
    expect_equal(list((await bench.store.get("x")).files), files, "files")


@dataclass(frozen=True)
class _Unknown:
    path: str
    kind: ClassVar[str] = "device"


@RULES.rule()
async def unknown_entries_are_refused(bench: Bench) -> None:
    """Files is a list of entries of the known kinds."""
    odd: tuple[Any, ...] = (None, "files", {}, [None], ["a"], [_Unknown("a")], [artifact("1")])
    await _refuses(bench, {f"files {value!r}": {"files": value} for value in odd})


SIZES: tuple[Any, ...] = (-1, 1.5, 1.0, math.nan, 2**53, True, None, "1")


@RULES.rule()
async def file_sizes_are_safe_integers(bench: Bench) -> None:
    """A file's size is an integer from 0 to 2**53 - 1."""
    tries = {f"size {size!r}": {"files": [replace(file("a"), size=size)]} for size in SIZES}
    await _refuses(bench, tries)


@RULES.rule()
async def file_keys_are_content_addresses(bench: Bench) -> None:
    """A file's blob key is its prefix and 64 lowercase hex digits."""
    good = file_blob("x")
    bad: tuple[Any, ...] = (
        "", None, good[:-1], good + "0", good.upper(), good[:-1] + "g", good + "\n",
        "x" + good, artifact_blob("x"), good.replace("sha256", "sha512"),
    )  # fmt: skip
    tries = {f"key {key!a}": {"files": [replace(file("a"), blob_key=key)]} for key in bad}
    await _refuses(bench, tries)


@RULES.rule()
async def artifacts_are_checked(bench: Bench) -> None:
    """An artifact has an id, a name, a MIME type, a size, a key and a finite time."""
    bad: dict[str, tuple[Any, ...]] = {
        "artifact_id": ("", None, "\ud800"),
        "name": ("", None),
        "mime_type": ("", None),
        "size": SIZES,
        "created_at": (math.nan, math.inf, None, "1"),
        "blob_key": ("", None, file_blob("x"), artifact_blob("x")[:-1]),
    }
    tries: dict[str, dict[str, Any]] = {"artifacts none": {"artifacts": None}}
    tries["no artifact"] = {"artifacts": [file("a")]}
    for name, values in bad.items():
        for value in values:
            item = replace(artifact("1"), **{name: value})
            tries[f"{name} {value!a}"] = {"artifacts": [item]}
    await _refuses(bench, tries)


@RULES.rule()
async def symlinks_keep_their_target(bench: Bench) -> None:
    """A store that takes symlinks keeps their targets, needs one, and counts no blob."""
    writer = await bench.writer()
    given = checkpoint("x", files=[SymlinkEntry("l", "../é"), file("a")], artifacts=[])
    try:
        await bench.add(given, writer)
    except Exception as error:
        if getattr(error, "code", None) == SandboxCheckpointInvalidEntryError.code:
            raise SkipRuleError("the store takes no symlinks") from error
        raise
    expect_equal(plain(await bench.store.get("x")), plain(given), "get")
    expect_equal(list((await bench.references()).values()), [1], "reference counts")
    for why, entry in (
        ("no target", [SymlinkEntry("m", "")]),
        ("an entry below a symlink", [SymlinkEntry("m", "n"), file("m/x")]),
    ):
        await bench.refused(
            bench.add(checkpoint("y", parent="x", files=entry), writer),
            SandboxCheckpointInvalidEntryError,
            why,
        )
