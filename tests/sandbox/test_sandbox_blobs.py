"""Blob stores, captures, restores and the sweep, on memory, a folder and a real S3 API."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from savermark.errors import BackendError
from savermark.sandbox import errors
from savermark.sandbox.blobs import BlobStore, MemoryBlobStore, artifact_key, file_key
from savermark.sandbox.capture import (
    ArtifactSource,
    CaptureNotes,
    CaptureOptions,
    capture_workspace,
)
from savermark.sandbox.folder_blobs import FolderBlobStore
from savermark.sandbox.lease import LeaseTimes
from savermark.sandbox.memory import MemorySandboxStore
from savermark.sandbox.object_blobs import open_s3_blobs
from savermark.sandbox.protocols import keep_newest
from savermark.sandbox.records import (
    DirectoryEntry,
    FileEntry,
    SandboxCheckpoint,
    SymlinkEntry,
)
from savermark.sandbox.restore import restore_workspace
from savermark.sandbox.sweep import sweep_sandbox_blobs
from savermark.sandbox.workspace import leaving_links, read_file

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:moto")


@pytest.fixture(params=["memory", "folder", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "memory":
        return MemoryBlobStore()
    if request.param == "folder":
        return FolderBlobStore(tmp_path / "blobs")
    endpoint = request.getfixturevalue("s3_endpoint")
    bucket = request.getfixturevalue("s3_bucket")
    return open_s3_blobs(bucket, endpoint=endpoint, access_key_id="a", secret_access_key="b")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def keys(blobs: BlobStore, prefix: str) -> list[str]:
    return [info.key async for info in blobs.list(prefix)]


def test_blobs_come_back(blobs: BlobStore) -> None:
    async def work() -> None:
        assert isinstance(blobs, BlobStore)
        for data in (b"", b"x", os.urandom(70_000)):
            key = file_key(data)
            assert await blobs.get(key) is None
            assert await blobs.head(key) is None
            await blobs.put(key, data)
            assert await blobs.get(key) == data
            info = await blobs.head(key)
            assert info is not None
            assert (info.key, info.size) == (key, len(data))
            assert info.uploaded_at > 1.5e12
            await blobs.put(key, data)
        await blobs.put("a/key", b"first")
        await blobs.put("a/key", b"second")
        assert await blobs.get("a/key") == b"second"
        await blobs.delete("a/key")
        await blobs.delete("a/key")
        assert await blobs.get("a/key") is None
        assert await blobs.get("a") is None

    run(work())


def test_blobs_are_listed_by_prefix(blobs: BlobStore) -> None:
    async def work() -> None:
        names = ["a/x", "a/b/y", "a-b", "b/x", "ab/x"]
        assert await keys(blobs, "a/") == []
        for name in names:
            await blobs.put(name, b"1")
        assert await keys(blobs, "") == sorted(names)
        assert await keys(blobs, "a/") == ["a/b/y", "a/x"]
        assert await keys(blobs, "a") == ["a-b", "a/b/y", "a/x", "ab/x"]
        assert await keys(blobs, "c") == []

    run(work())


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a\0", "a\\b", "."])
def test_keys_cannot_leave(blobs: BlobStore, key: str) -> None:
    with pytest.raises(errors.SandboxRangeError):
        run(blobs.put(key, b"x"))


def test_s3_lists_all_pages(s3_endpoint: str, s3_bucket: str) -> None:
    blobs = open_s3_blobs(
        s3_bucket, endpoint=s3_endpoint, access_key_id="a", secret_access_key="b", prefix="in/here"
    )

    async def work() -> None:
        names = [f"p/{at:04}" for at in range(1_050)]
        for at in range(0, len(names), 50):
            await asyncio.gather(*(blobs.put(name, b"") for name in names[at : at + 50]))
        assert await keys(blobs, "p/") == names

    run(work())


def test_s3_refusal_is_one_line_without_the_secret(s3_endpoint: str) -> None:
    blobs = open_s3_blobs(
        "no-such-bucket", endpoint=s3_endpoint, access_key_id="a", secret_access_key="s3cr3t"
    )
    with pytest.raises(errors.SandboxBlobError) as caught:
        run(blobs.put("a/b", b"x"))
    assert "\n" not in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_folder_forgets_abandoned_uploads_and_says_what_is_wrong(tmp_path: Path) -> None:
    FolderBlobStore(tmp_path)
    old, new = tmp_path / ".incoming" / "old", tmp_path / ".incoming" / "new"
    old.write_bytes(b"1")
    new.write_bytes(b"2")
    os.utime(old, (1, 1))
    blobs = FolderBlobStore(tmp_path)
    assert not old.exists() and new.exists()
    assert run(keys(blobs, "")) == []
    with pytest.raises(errors.SandboxRangeError):
        run(blobs.get(".incoming/new"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BackendError):
        FolderBlobStore(tmp_path / "file")


# --- capture and restore -------------------------------------------------------------------------


def tree(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = os.fsencode(path.relative_to(root)).decode("latin-1")
        if path.is_symlink():
            found[name] = os.readlink(path)  # noqa: PTH115
        else:
            found[name] = None if path.is_dir() else path.read_bytes()
    return found


def make_workspace(root: Path) -> None:
    (root / "src" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "src" / "main.py").write_bytes(b"print()\r\n")
    (root / "src" / "deep" / "data.bin").write_bytes(bytes(range(256)) * 300)
    (root / "zero").write_bytes(b"")
    (root / "copy").write_bytes(b"print()\r\n")
    (root / "é 😀").write_bytes(b"name")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_bytes(b"no utf-8")
    (root / "link").symlink_to("src/./deep/")
    (root / "src" / "up").symlink_to("../copy")
    (root / "dangling").symlink_to("nowhere")
    (root / "loop").symlink_to("loop")


def test_capture_and_restore_byte_for_byte(blobs: BlobStore, tmp_path: Path) -> None:
    root, back = tmp_path / "work", tmp_path / "back"
    make_workspace(root)
    store = MemorySandboxStore()
    notes = CaptureNotes(
        artifacts=[ArtifactSource("1", "r.txt", "text/plain", b"report")],
        conversation=[{"role": "user"}],
        label="first",
    )

    async def work() -> None:
        one = await capture_workspace(store, blobs, "t", root, notes)
        assert (one.uploaded, one.reused) == (6, 1)  # "copy" has the bytes of main.py
        assert one.checkpoint.label == "first"
        stored = await store.get(one.checkpoint.id)
        assert stored is not None
        assert await blobs.get(stored.artifacts[0].blob_key) == b"report"
        assert stored.artifacts[0].blob_key == artifact_key(b"report")
        await restore_workspace(store, blobs, one.checkpoint.id, back)
        assert tree(back) == tree(root)
        (root / "zero").write_bytes(b"more")
        (root / "copy").unlink()
        two = await capture_workspace(store, blobs, "t", root)
        assert (two.uploaded, two.uploaded_bytes) == (1, 4)
        assert two.checkpoint.parent_checkpoint_id == one.checkpoint.id
        await restore_workspace(store, blobs, two.checkpoint.id, back, replace=True)
        assert tree(back) == tree(root)
        writer = await store.acquire_writer("t")  # both captures gave the lease back
        await writer.release()
        assert sorted(path.name for path in tmp_path.iterdir()) in (
            ["back", "work"], ["back", "blobs", "work"],
        )  # fmt: skip

    run(work())


def test_head_blobs_are_not_asked_for() -> None:
    asked: list[str] = []

    class Counting(MemoryBlobStore):
        async def head(self, key: str) -> Any:
            asked.append(key)
            return await super().head(key)

    async def work(root: Path) -> None:
        store, blobs = MemorySandboxStore(), Counting()
        (root / "a").write_bytes(b"a")
        await capture_workspace(store, blobs, "t", root)
        (root / "b").write_bytes(b"b")
        asked.clear()
        await capture_workspace(store, blobs, "t", root)
        assert asked == [file_key(b"b")]

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        run(work(Path(folder)))


def test_capture_holds_and_renews_the_lease(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    now = [0.0]
    store = MemorySandboxStore(clock=lambda: now[0], lease=LeaseTimes(400, 20))

    class Slow(MemoryBlobStore):
        async def put(self, key: str, data: bytes) -> None:
            for _ in range(5):  # longer than a lease, all in all
                now[0] += 300.0
                while store._ledger.threads["t"].expires_at < now[0] + 400.0:
                    await asyncio.sleep(0.005)
            with pytest.raises(errors.SandboxCheckpointWriterConflictError):
                await store.acquire_writer("t")
            await super().put(key, data)

    done = run(capture_workspace(store, Slow(), "t", tmp_path))
    assert run(store.get_head("t")) == done.checkpoint.id
    run(store.acquire_writer("t"))


def test_a_lost_lease_stops_the_capture(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    now = [0.0]
    store = MemorySandboxStore(clock=lambda: now[0], lease=LeaseTimes(100, 20))

    class Stuck(MemoryBlobStore):
        async def put(self, key: str, data: bytes) -> None:
            now[0] += 1_000
            await asyncio.sleep(60)

    with pytest.raises(errors.SandboxCheckpointWriterLostError):
        run(capture_workspace(store, Stuck(), "t", tmp_path))
    assert run(store.get_head("t")) is None


def test_a_cancelled_capture_frees_the_lease(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())

    class Stuck(MemoryBlobStore):
        async def put(self, key: str, data: bytes) -> None:
            await asyncio.sleep(60)

    async def work() -> None:
        store = MemorySandboxStore()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(capture_workspace(store, Stuck(), "t", tmp_path), 0.1)
        await store.acquire_writer("t")
        assert len(asyncio.all_tasks()) == 1

    run(work())


def test_a_failed_capture_frees_the_lease(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")

    class Full(MemoryBlobStore):
        async def put(self, key: str, data: bytes) -> None:
            raise errors.SandboxBlobError("full")

    store = MemorySandboxStore()
    for _ in range(2):
        with pytest.raises(errors.SandboxBlobError):
            run(capture_workspace(store, Full(), "t", tmp_path))
    with pytest.raises(errors.SandboxWorkspaceError):
        run(capture_workspace(store, Full(), "t", tmp_path / "missing"))


def test_capture_of_what_cannot_be_an_entry(tmp_path: Path) -> None:
    store, blobs = MemorySandboxStore(), MemoryBlobStore()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(tmp_path)  # a socket's path may not be long
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
    (tmp_path / "out").symlink_to("../..")
    with pytest.raises(errors.SandboxWorkspaceError, match="out"):
        run(capture_workspace(store, blobs, "t", tmp_path))
    options = CaptureOptions(skip_outside_links=True)
    done = run(capture_workspace(store, blobs, "t", tmp_path, options=options))
    assert done.skipped == ("out", "pipe", "socket")
    assert list(done.checkpoint.files) == []
    (tmp_path / "back\\slash").write_bytes(b"")
    with pytest.raises(errors.SandboxCheckpointInvalidEntryError):
        run(capture_workspace(store, blobs, "t", tmp_path, options=options))
    ignoring = CaptureOptions(skip_outside_links=True, ignore=lambda path: "\\" in path)
    run(capture_workspace(store, blobs, "t", tmp_path, options=ignoring))


def test_capture_never_reads_through_a_link(tmp_path: Path) -> None:
    """Not even when a folder becomes a link to the host after it was scanned."""
    root, host = tmp_path / "work", tmp_path / "host"
    root.mkdir()
    host.mkdir()
    (host / "secret").write_bytes(b"secret")
    (root / "d").symlink_to(host)
    (root / "f").symlink_to(host / "secret")
    for path in ("d/secret", "f"):
        with pytest.raises(errors.SandboxWorkspaceError):
            read_file(root, path)
    (tmp_path / "root").symlink_to(host)
    assert read_file(tmp_path / "root", "secret") == b"secret"  # the root may be a link
    os.mkfifo(host / "pipe")
    with pytest.raises(errors.SandboxWorkspaceError):
        read_file(host, "pipe")


def appended(files: list[Any], blobs: MemoryBlobStore) -> tuple[MemorySandboxStore, str]:
    """A store whose checkpoint holds these entries, whatever they are."""
    store = MemorySandboxStore()

    async def work() -> None:
        writer = await store.acquire_writer("t")
        for entry in files:
            if isinstance(entry, FileEntry):
                await blobs.put(entry.blob_key, b"x")
        checkpoint = SandboxCheckpoint("c", "t", 1.0, files=files)
        await store.append(checkpoint, expected_head_id=None, writer=writer)

    run(work())
    return store, "c"


X = file_key(b"x")
ESCAPES: dict[str, list[Any]] = {
    "absolute": [SymlinkEntry("l", "/etc")],
    "parent": [SymlinkEntry("l", "..")],
    "parent-of-a-folder": [SymlinkEntry("d/l", "../../x")],
    "through-a-link": [
        SymlinkEntry("p/q/r/up", "../../.."), SymlinkEntry("l", "p/q/r/up/../.."),
    ],
    "through-a-deep-link": [SymlinkEntry("a", "b/../b"), SymlinkEntry("l", "a/../.."),],
    "through-an-absolute-link": [SymlinkEntry("a", "/"), SymlinkEntry("l", "a/x")],
}  # fmt: skip


@pytest.mark.parametrize("name", ESCAPES)
def test_restore_refuses_links_that_leave(name: str, tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    store, checkpoint = appended([FileEntry("f", X, 1), *ESCAPES[name]], blobs)
    back = tmp_path / "back"
    with pytest.raises(errors.SandboxWorkspaceError):
        run(restore_workspace(store, blobs, checkpoint, back))
    assert list(tmp_path.iterdir()) == []


STAYS: list[list[SymlinkEntry]] = [
    [SymlinkEntry("l", "a")],
    [SymlinkEntry("l", "l")],
    [SymlinkEntry("l", "m"), SymlinkEntry("m", "l")],
    [SymlinkEntry("d/l", "..")],
    [SymlinkEntry("d/l", "../e/./../f")],
    [SymlinkEntry("p/q/up", "../.."), SymlinkEntry("l", "p/q/up/x")],
    [SymlinkEntry("l", "x/y/../../z")],
]


@pytest.mark.parametrize("links", STAYS)
def test_links_that_stay(links: list[SymlinkEntry]) -> None:
    assert leaving_links(links) == []


NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TARGETS = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=6).map(
    "/".join
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.dictionaries(PATHS, TARGETS, max_size=6), st.sets(PATHS, max_size=4))
def test_links_go_where_the_kernel_goes(
    tmp_path: Path, links: dict[str, str], folders: set[str]
) -> None:
    """What we say of a link agrees with where the system resolves it to."""
    above = tmp_path / hashlib.sha256(repr((links, folders)).encode()).hexdigest()[:16]
    root = above / "1" / "2" / "3" / "4" / "5" / "6" / "root"
    root.mkdir(parents=True, exist_ok=True)
    made = []
    for folder in sorted(folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path, target in sorted(links.items(), key=lambda item: (-item[0].count("/"), item)):
        place = root / path
        if os.path.lexists(place) or any(up.is_symlink() for up in place.parents):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
        made.append(SymlinkEntry(path, target))
    leaving = leaving_links(made)
    for link in made:
        try:
            found = (root / link.path).resolve(strict=True)
        except (OSError, RuntimeError):
            continue  # leads nowhere
        inside = found == root.resolve() or root.resolve() in found.parents
        assert inside or link.path in leaving


def test_restore_checks_every_blob(tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    store, checkpoint = appended([FileEntry("f", X, 1)], blobs)
    back = tmp_path / "back"
    back.mkdir()
    for damage in (b"y", b"", b"xx"):
        run(blobs.put(X, damage))
        with pytest.raises(errors.SandboxBlobError, match="damaged"):
            run(restore_workspace(store, blobs, checkpoint, back))
    run(blobs.delete(X))
    with pytest.raises(errors.SandboxBlobError, match="missing"):
        run(restore_workspace(store, blobs, checkpoint, back))
    assert [path.name for path in tmp_path.iterdir()] == ["back"]
    assert list(back.iterdir()) == []
    with pytest.raises(errors.SandboxCheckpointNotFoundError):
        run(restore_workspace(store, blobs, "missing", back))


def test_restore_does_not_trust_the_store(tmp_path: Path) -> None:
    class Evil(MemorySandboxStore):
        async def get(self, checkpoint_id: str) -> SandboxCheckpoint:
            return SandboxCheckpoint("c", "t", 1.0, files=[FileEntry("../evil", X, 1)])

    with pytest.raises(errors.SandboxCheckpointInvalidEntryError):
        run(restore_workspace(Evil(), MemoryBlobStore(), "c", tmp_path / "back"))
    assert list(tmp_path.iterdir()) == []


def test_restore_spares_what_is_in_the_way(tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    store, checkpoint = appended([FileEntry("f", X, 1), DirectoryEntry("d")], blobs)
    back = tmp_path / "back"
    back.mkdir()
    (back / "mine").write_bytes(b"mine")
    with pytest.raises(errors.SandboxWorkspaceError, match="not empty"):
        run(restore_workspace(store, blobs, checkpoint, back))
    assert tree(back) == {"mine": b"mine"}
    with pytest.raises(errors.SandboxWorkspaceError, match="no folder"):
        run(restore_workspace(store, blobs, checkpoint, back / "mine"))
    run(restore_workspace(store, blobs, checkpoint, back, replace=True))
    assert tree(back) == {"d": None, "f": b"x"}
    (tmp_path / "link").symlink_to("back")
    run(restore_workspace(store, blobs, checkpoint, tmp_path / "link", replace=True))
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "link"]


# --- sweep ---------------------------------------------------------------------------------------


def test_prune_and_sweep_keep_what_is_used(blobs: BlobStore, tmp_path: Path) -> None:
    root, back = tmp_path / "work", tmp_path / "back"
    root.mkdir()
    store = MemorySandboxStore()

    async def work() -> None:
        await blobs.put("sandbox-files-2/x", b"other")
        for at in range(4):
            (root / "same").write_bytes(b"same")
            (root / "new").write_bytes(f"{at}".encode())
            await capture_workspace(store, blobs, "t", root)
        assert len(await keys(blobs, "sandbox-files/")) == 5
        later = lambda: 4e12  # noqa: E731 - a clock far ahead makes every blob old
        assert await sweep_sandbox_blobs(
            checkpoints=store, blobs=blobs, older_than_ms=0, clock=later
        ) == []  # fmt: skip
        await keep_newest(store, "t", 1)
        gone = await sweep_sandbox_blobs(
            checkpoints=store, blobs=blobs, older_than_ms=0, clock=later
        )
        assert gone == sorted(file_key(f"{at}".encode()) for at in range(3))
        assert await keys(blobs, "sandbox-files/") == sorted([file_key(b"same"), file_key(b"3")])
        assert await keys(blobs, "sandbox-files-2/") == ["sandbox-files-2/x"]
        head = await store.get_head("t")
        assert head is not None
        await restore_workspace(store, blobs, head, back)
        assert tree(back) == tree(root)

    run(work())


def test_a_blob_uploaded_anew_since_the_listing_stays() -> None:
    now = [1_000.0]
    blobs = MemoryBlobStore(clock=lambda: now[0])
    store = MemorySandboxStore()

    class Late(MemorySandboxStore):
        async def list_blob_references(self) -> Any:
            await blobs.put(X, b"x")  # a capture refreshes it while the sweep runs
            async for item in store.list_blob_references():
                yield item

    async def work() -> list[str]:
        await blobs.put(X, b"x")
        now[0] = 5_000.0
        return await sweep_sandbox_blobs(
            checkpoints=Late(), blobs=blobs, older_than_ms=100, clock=lambda: now[0]
        )

    assert run(work()) == []
    assert run(blobs.get(X)) == b"x"


def test_captures_that_refresh_lose_nothing_to_a_sweep(tmp_path: Path) -> None:
    """Captures and prunes beside sweeps without end, on a clock that uploads move on.

    A capture takes 240 ms of it at most, so a limit of 900 keeps the rule: more than the refresh
    and a capture together.
    """
    root = tmp_path / "work"
    root.mkdir()
    now = [0.0]
    choices = random.Random(7)

    def clock() -> float:
        return now[0]

    class Slow(MemoryBlobStore):
        async def head(self, key: str) -> Any:
            await asyncio.sleep(0)
            return await super().head(key)

        async def put(self, key: str, data: bytes) -> None:
            now[0] += 80.0
            await asyncio.sleep(0)
            await super().put(key, data)

    blobs = Slow(clock=clock)
    store = MemorySandboxStore(lease=LeaseTimes(1e9, 1e8))
    options = CaptureOptions(clock=clock, refresh_after_ms=300.0)

    async def captures() -> None:
        for _ in range(60):
            for name in "abc":
                (root / name).write_bytes(choices.choice([b"1", b"2", b"3", b"4", b"5", b"6"]))
            now[0] += 50.0
            await capture_workspace(store, blobs, "t", root, options=options)
            await keep_newest(store, "t", 1)

    async def sweep() -> list[str]:
        gone = await sweep_sandbox_blobs(
            checkpoints=store, blobs=blobs, older_than_ms=900.0, clock=clock
        )
        async for reference in store.list_blob_references():
            assert await blobs.get(reference.key) is not None
        return gone

    async def work() -> list[str]:
        capturing = asyncio.ensure_future(captures())
        gone: list[str] = []
        while not capturing.done():
            await asyncio.sleep(0)
            gone += await sweep()
        await capturing
        now[0] += 10_000.0
        return gone + await sweep()

    assert run(work()) != []
