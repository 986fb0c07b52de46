"""Rules of the chain: what reads give back, and in which order."""

from __future__ import annotations

from typing import Any

from savermark.sandbox.records import CheckpointReason, DirectoryEntry, SandboxCheckpoint
from savermark.sandbox.testkit.harness import (
    Bench,
    RuleBook,
    artifact,
    checkpoint,
    expect_equal,
    file,
    plain,
)

RULES = RuleBook("chain")


@RULES.rule()
async def unknown_thread_is_empty(bench: Bench) -> None:
    """An unknown thread has no checkpoints and no head, and an unknown id gives None."""
    expect_equal(list(await bench.store.list("nobody")), [], "list of an unknown thread")
    expect_equal(await bench.store.get_head("nobody"), None, "head of an unknown thread")
    expect_equal(await bench.store.get("nothing"), None, "get of an unknown id")
    expect_equal(await bench.references(), {}, "references of an empty store")


@RULES.rule()
async def root_and_child_form_a_chain(bench: Bench) -> None:
    """Append returns the new head, which get_head, get and list then show."""
    writer = await bench.writer()
    root, child = checkpoint("root"), checkpoint("child", parent="root", created_at=2_000.0)
    expect_equal(await bench.add(root, writer), "root", "append of the root")
    expect_equal(await bench.store.get_head("thread"), "root", "head after the root")
    expect_equal(await bench.add(child, writer), "child", "append of the child")
    expect_equal(await bench.store.get_head("thread"), "child", "head after the child")
    expect_equal(await bench.listed(), ["root", "child"], "list")
    for wanted in (root, child):
        expect_equal(plain(await bench.store.get(wanted.id)), plain(wanted), f"get {wanted.id}")


@RULES.rule()
async def every_field_comes_back(bench: Bench) -> None:
    """Get and list give back every field as it was stored."""
    wanted = checkpoint(
        "full",
        created_at=1_234.5,
        reason=CheckpointReason.NAMED,
        label="before the é 😀 change",
        source_run_id="run-1",
        files=[
            DirectoryEntry("src"),
            file("src/z.py", "1", 2**53 - 1),
            file("src/a b/é.py", "2", 0),
            file("Src", "3"),
            DirectoryEntry("empty"),
        ],
        artifacts=[artifact("1", "4", created_at=0.25), artifact("1", "5", name="é", size=0)],
        conversation=[{"role": "user", "content": ["x", None, True, 1, 2.5, {"k": []}]}, "😀"],
    )
    await bench.add(wanted, await bench.writer())
    expect_equal(plain(await bench.store.get("full")), plain(wanted), "get")
    expect_equal([plain(x) for x in await bench.store.list("thread")], [plain(wanted)], "list")


@RULES.rule()
async def conversation_is_opaque(bench: Bench) -> None:
    """The conversation may be any JSON, whatever its strings and shapes hold."""
    odd = ["", "\0", "\u2028", "'; --", '"\\', "\\u0000", {"": 0, "b": 1, "a": 2}, [[[]]], -0.5]
    await bench.add(checkpoint("odd", conversation=odd), await bench.writer())
    found = await bench.store.get("odd")
    expect_equal(list(found.conversation), odd, "conversation")
    expect_equal(list(found.conversation[6]), ["", "b", "a"], "the order of an object's keys")


@RULES.rule()
async def odd_ids_are_kept_apart(bench: Bench) -> None:
    """Ids that differ only by case, spaces, quotes or normalisation are different ids."""
    ids = ["a", "A", "a ", " a", "é", "e\u0301", "'", '"', "%", "_", "a/b", "\\", "x" * 500, "\n"]
    for item in ids:
        await bench.add(checkpoint(f"c{item}", f"t{item}"), await bench.writer(f"t{item}"))
    for item in ids:
        expect_equal(await bench.listed(f"t{item}"), [f"c{item}"], f"list of thread {item!r:.20}")
        expect_equal((await bench.store.get(f"c{item}")).id, f"c{item}", f"get {item!r:.20}")


@RULES.rule()
async def ids_may_hold_nul(bench: Bench) -> None:
    """NUL is well-formed Unicode, so an id may hold it."""
    await bench.add(checkpoint("c\0d", "t\0u"), await bench.writer("t\0u"))
    expect_equal(await bench.listed("t\0u"), ["c\0d"], "list")
    expect_equal(await bench.store.get("c"), None, "get of the part before the NUL")


@RULES.rule()
async def threads_are_isolated(bench: Bench) -> None:
    """A write to one thread shows in no other."""
    one, two = await bench.writer("one"), await bench.writer("two")
    await bench.chain(one, ["a1", "a2"])
    await bench.chain(two, ["b1"])
    expect_equal(await bench.listed("one"), ["a1", "a2"], "list of one")
    expect_equal(await bench.listed("two"), ["b1"], "list of two")
    await bench.store.delete_head("one", "a2", writer=one)
    expect_equal(await bench.store.get_head("one"), "a1", "head of one")
    expect_equal(await bench.store.get_head("two"), "b1", "head of two")
    expect_equal(await bench.listed("two"), ["b1"], "list of two after a delete in one")


@RULES.rule()
async def list_sorts_by_time(bench: Bench) -> None:
    """List sorts by created_at as a number, not along the chain."""
    writer = await bench.writer()
    parent: str | None = None
    for at in (100.0, 9.0, -1.0, 9.5, 1e15):
        parent = await bench.add(checkpoint(f"c{at}", parent=parent, created_at=at), writer)
    found = [item.created_at for item in await bench.store.list("thread")]
    expect_equal(found, [-1.0, 9.0, 9.5, 100.0, 1e15], "times in the order of list")


@RULES.rule()
async def list_breaks_ties_by_utf8_bytes(bench: Bench) -> None:
    """Checkpoints of one time are sorted by the UTF-8 bytes of their ids."""
    wanted = ["B", "a", "é", "\uff5e", "😀"]
    writer = await bench.writer()
    parent: str | None = None
    for item in ("😀", "a", "\uff5e", "B", "é"):
        parent = await bench.add(checkpoint(item, parent=parent, created_at=7.0), writer)
    expect_equal(await bench.listed(), wanted, "ids in the order of list")


@RULES.rule()
async def input_is_copied(bench: Bench) -> None:
    """A change to the caller's objects after append does not change the store."""
    files, artifacts = [file("a.txt")], [artifact("1")]
    conversation: list[Any] = [{"content": ["x"]}]
    given = checkpoint("c", files=files, artifacts=artifacts, conversation=conversation)
    await bench.add(given, await bench.writer())
    wanted = plain(
        checkpoint("c", files=[*files], artifacts=[*artifacts], conversation=[{"content": ["x"]}])
    )
    files.clear()
    artifacts.clear()
    conversation[0]["content"].append("y")
    conversation.append("z")
    expect_equal(plain(await bench.store.get("c")), wanted, "get after the input changed")


@RULES.rule()
async def results_are_copies(bench: Bench) -> None:
    """A change to what get or list returned does not change the store."""
    given = checkpoint("c", conversation=[{"content": ["x"]}])
    await bench.add(given, await bench.writer())
    for read in (bench.store.get("c"), bench.store.list("thread")):
        found = await read
        item: SandboxCheckpoint = found[0] if isinstance(found, (list, tuple)) else found
        item.conversation[0]["content"].append("y")
        for part in (item.files, item.artifacts, item.conversation, found):
            if isinstance(part, list):
                part.clear()
        expect_equal(plain(await bench.store.get("c")), plain(given), "get after a change")
        listed = [plain(entry) for entry in await bench.store.list("thread")]
        expect_equal(listed, [plain(given)], "list after a change")
