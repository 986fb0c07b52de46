"""Stores with one fault each, to prove that every rule of the kit can fail.

`FAULTS` maps a rule to a function that makes a store with the fault that the rule is there for.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from savermark.sandbox import engine, lease, memory, rows, rules, sweep, validation
from savermark.sandbox.errors import SandboxCheckpointInvalidEntryError
from savermark.sandbox.memory import MemoryInstanceStore, MemorySandboxStore
from savermark.sandbox.records import (
    BlobReference,
    DeletedCheckpoints,
    FileEntry,
    SymlinkEntry,
)
from savermark.sandbox.testkit import StoreOptions

Patch = pytest.MonkeyPatch
Store = MemorySandboxStore
FAULTS: dict[str, Callable[[Patch, StoreOptions], Any]] = {}


def fault(*names: str) -> Callable[[Callable[[Patch, Store], Any]], Any]:
    """The function breaks a memory store (and what it is made of) for these rules."""

    def add(breaks: Callable[[Patch, Store], Any]) -> Any:
        def make(patch: Patch, options: StoreOptions) -> Any:
            store = MemorySandboxStore(clock=options.clock, lease=options.lease)
            return breaks(patch, store) or store

        for name in names:
            assert name not in FAULTS
            FAULTS[name] = make
        return breaks

    return add


def instance_fault(name: str) -> Callable[[type], type]:
    def add(kind: type) -> type:
        FAULTS[name] = lambda patch, options: kind()
        return kind

    return add


def on_insert(patch: Patch, store: Store, change: Callable[[Any], Any]) -> None:
    insert = store._ledger.insert

    async def changed(snapshot: Any) -> None:
        await insert(change(snapshot))

    patch.setattr(store._ledger, "insert", changed)


# --- reads ---------------------------------------------------------------------------------------


@fault("chain-unknown-thread-is-empty")
def _(patch: Patch, store: Store) -> None:
    async def list_(thread_id: str) -> Any:
        return (
            None if thread_id not in store._ledger.by_thread else await Store.list(store, thread_id)
        )

    patch.setattr(store, "list", list_)


@fault("chain-root-and-child-form-a-chain")
def _(patch: Patch, store: Store) -> None:
    async def append(checkpoint: Any, *, expected_head_id: Any, writer: Any) -> Any:
        await Store.append(store, checkpoint, expected_head_id=expected_head_id, writer=writer)
        return expected_head_id

    patch.setattr(store, "append", append)


@fault("chain-every-field-comes-back")
def _(patch: Patch, store: Store) -> None:
    on_insert(patch, store, lambda snapshot: replace(snapshot, label=None))


@fault("chain-conversation-is-opaque")
def _(patch: Patch, store: Store) -> None:
    def change(snapshot: Any) -> Any:
        sorted_keys = json.dumps(json.loads(snapshot.conversation), sort_keys=True)
        return replace(snapshot, conversation=sorted_keys)

    on_insert(patch, store, change)


@fault("chain-odd-ids-are-kept-apart")
def _(patch: Patch, store: Store) -> None:
    async def list_(thread_id: str) -> Any:
        threads = [t for t in store._ledger.by_thread if t.lower() == thread_id.lower()]
        return [item for thread in threads for item in await Store.list(store, thread)]

    patch.setattr(store, "list", list_)


@fault("chain-ids-may-hold-nul")
def _(patch: Patch, store: Store) -> None:
    async def get(checkpoint_id: str) -> Any:
        found = [key for key in store._ledger.snapshots if key.split("\0")[0] == checkpoint_id]
        return await Store.get(store, found[0] if found else checkpoint_id)

    patch.setattr(store, "get", get)


@fault("chain-threads-are-isolated")
def _(patch: Patch, store: Store) -> None:
    def set_head(thread_id: str, head_id: str | None) -> None:
        for thread, state in list(store._ledger.threads.items()):
            store._ledger.threads[thread] = replace(state, head_id=head_id)

    async def append(checkpoint: Any, *, expected_head_id: Any, writer: Any) -> Any:
        patch.setattr(
            store._ledger, "_set_head", lambda *a: type(store._ledger)._set_head(store._ledger, *a)
        )
        head = await Store.append(
            store, checkpoint, expected_head_id=expected_head_id, writer=writer
        )
        patch.setattr(store._ledger, "_set_head", set_head)
        return head

    patch.setattr(store, "append", append)


def sorted_by(patch: Patch, store: Store, key: Callable[[Any], Any]) -> None:
    async def list_(thread_id: str) -> Any:
        return sorted(await Store.list(store, thread_id), key=key)

    patch.setattr(store, "list", list_)


@fault("chain-list-sorts-by-time")
def _(patch: Patch, store: Store) -> None:
    sorted_by(patch, store, lambda item: str(item.created_at))


@fault("chain-list-breaks-ties-by-utf8-bytes")
def _(patch: Patch, store: Store) -> None:
    sorted_by(patch, store, lambda item: (item.created_at, item.id.encode("utf-16-be")))


@fault("chain-input-is-copied")
def _(patch: Patch, store: Store) -> None:
    given: dict[str, Any] = {}

    async def append(checkpoint: Any, **other: Any) -> Any:
        given[checkpoint.id] = checkpoint
        return await Store.append(store, checkpoint, **other)

    async def get(checkpoint_id: str) -> Any:
        return given.get(checkpoint_id)

    patch.setattr(store, "append", append)
    patch.setattr(store, "get", get)


@fault("chain-results-are-copies")
def _(patch: Patch, store: Store) -> None:
    cached: dict[str, Any] = {}

    async def get(checkpoint_id: str) -> Any:
        return cached.setdefault(checkpoint_id, await Store.get(store, checkpoint_id))

    patch.setattr(store, "get", get)


# --- writes --------------------------------------------------------------------------------------


def ordered(*steps: str, same_thread_ids: Any = None) -> Callable[..., None]:
    """`rules.check_append` with other steps, or in another order."""
    original = rules.check_append

    def check(snapshot: Any, expected: Any, writer: Any, facts: Any) -> None:
        passing = replace(
            facts,
            id_used=False,
            state=replace(facts.state, head_id=expected),
        )
        chained = replace(snapshot, parent_id=expected)
        sound = Lease(snapshot.thread_id, facts)
        for step in steps:
            if step == "writer":
                original(chained, expected, writer, passing)
            elif step == "id":
                original(
                    chained,
                    expected,
                    sound.writer,
                    replace(sound.facts(passing), id_used=facts.id_used),
                )
            elif step == "head":
                state = replace(sound.facts(passing).state, head_id=facts.state.head_id)
                original(
                    chained, expected, sound.writer, replace(sound.facts(passing), state=state)
                )
            else:
                original(snapshot, expected, sound.writer, sound.facts(passing))

    return check


class Lease:
    """A writer that any state with `facts` accepts, to try one step alone."""

    def __init__(self, thread_id: str, facts: Any) -> None:
        self.writer = lease_writer(thread_id)
        self._now = facts.now

    def facts(self, passing: Any) -> Any:
        state = replace(passing.state, owner_token="sound", fence=1, expires_at=math.inf)
        return replace(passing, state=state)


def lease_writer(thread_id: str) -> Any:
    from savermark.sandbox.records import Writer

    return Writer(thread_id, "sound", 1)


def steps(name: str, *order: str) -> None:
    @fault(name)
    def _(patch: Patch, store: Store) -> None:
        patch.setattr(rules, "check_append", ordered(*order))


steps("write-stale-head-is-refused", "writer", "id", "parent")
steps("write-parent-mismatch-is-refused", "writer", "id", "head")
steps("write-head-is-checked-before-parent", "writer", "id", "parent", "head")
steps("write-id-is-checked-before-head", "writer", "head", "id", "parent")
steps("write-writer-is-checked-before-id", "id", "writer", "head", "parent")


def used_when(patch: Patch, store: Store, used: Callable[[str, str], bool]) -> None:
    facts = store._ledger.facts

    async def changed(thread_id: str, checkpoint_id: Any = None, **other: Any) -> Any:
        found = await facts(thread_id, checkpoint_id, **other)
        return replace(found, id_used=checkpoint_id is not None and used(thread_id, checkpoint_id))

    patch.setattr(store._ledger, "facts", changed)


@fault("write-ids-are-unique-in-a-thread")
def _(patch: Patch, store: Store) -> None:
    threads = store._ledger.by_thread
    used_when(patch, store, lambda t, c: any(c in rows for o, rows in threads.items() if o != t))


@fault("write-ids-are-unique-over-all-threads")
def _(patch: Patch, store: Store) -> None:
    used_when(patch, store, lambda t, c: c in store._ledger.by_thread.get(t, {}))


@fault("write-content-is-checked-before-writer")
def _(patch: Patch, store: Store) -> None:
    async def append(checkpoint: Any, *, expected_head_id: Any, writer: Any) -> Any:
        facts = await store._ledger.facts(checkpoint.thread_id)
        lease.check_current(facts.state, writer, facts.now)
        return await Store.append(
            store, checkpoint, expected_head_id=expected_head_id, writer=writer
        )

    patch.setattr(store, "append", append)


@fault("write-ids-are-checked-before-content")
def _(patch: Patch, store: Store) -> None:
    async def append(checkpoint: Any, *, expected_head_id: Any, writer: Any) -> Any:
        rules.freeze(checkpoint, symlinks=True)
        return await Store.append(
            store, checkpoint, expected_head_id=expected_head_id, writer=writer
        )

    patch.setattr(store, "append", append)


@fault("write-bad-ids-are-refused-by-append")
def _(patch: Patch, store: Store) -> None:
    patch.setattr(rules, "check_append_ids", lambda *ids: None)


@fault("write-bad-ids-are-refused-elsewhere")
def _(patch: Patch, store: Store) -> None:
    patch.setattr(engine, "check_id", lambda *ids: None)


@fault("write-delete-head-moves-to-the-parent")
def _(patch: Patch, store: Store) -> None:
    async def stored_parent(checkpoint_id: str) -> None:
        return None

    patch.setattr(store._ledger, "stored_parent", stored_parent)


@fault("write-only-the-head-can-be-deleted")
def _(patch: Patch, store: Store) -> None:
    patch.setattr(rules, "check_is_head", lambda *ids: None)


def current_if(patch: Patch, accepts: Callable[[Any, Any, float], bool]) -> None:
    original = lease.is_current
    patch.setattr(lease, "is_current", lambda s, w, now: original(s, w, now) or accepts(s, w, now))


@fault("write-a-foreign-writer-is-refused")
def _(patch: Patch, store: Store) -> None:
    current_if(patch, lambda s, w, now: w is not None and s.fence == w.fence)


@fault("write-an-unleased-thread-refuses-writes")
def _(patch: Patch, store: Store) -> None:
    current_if(patch, lambda s, w, now: s.owner_token is None and s.fence == 0)


def torn(patch: Patch, store: Store, check: Callable[[Any, Any], Any]) -> None:
    """An append whose check and write are not one transaction."""

    async def append(checkpoint: Any, *, expected_head_id: Any, writer: Any) -> Any:
        snapshot = rules.freeze(checkpoint, symlinks=True)
        facts = await store._ledger.facts(snapshot.thread_id, snapshot.id)
        rules.check_append(snapshot, expected_head_id, writer, facts)
        await asyncio.sleep(0)
        await store._ledger.insert(snapshot)
        return snapshot.id

    patch.setattr(store, "append", append)


@fault("write-one-of-concurrent-appends-wins", "write-one-of-concurrent-ids-wins")
def _(patch: Patch, store: Store) -> None:
    torn(patch, store, lambda *a: None)


# --- content -------------------------------------------------------------------------------------


def weak(name: str, module: Any, attribute: str, value: Any) -> None:
    @fault(name)
    def _(patch: Patch, store: Store) -> None:
        patch.setattr(module, attribute, value)


def not_nan(value: Any, what: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or math.isnan(value):
        raise SandboxCheckpointInvalidEntryError(what)
    return float(value)


weak("content-times-are-finite-numbers", rules, "check_time", not_nan)


@fault("content-paths-stay-in-the-workspace")
def _(patch: Patch, store: Store) -> None:
    original = validation.check_path
    patch.setattr(
        validation, "check_path", lambda path: original(path) if path != "a/./b" else None
    )


weak("content-paths-form-a-tree", validation, "_ancestors", lambda path: [path[: path.find("/")]])


@fault("content-good-trees-are-kept")
def _(patch: Patch, store: Store) -> None:
    original = validation.check_files

    def check(files: Any, *, symlinks: bool) -> Any:
        found = original(files, symlinks=symlinks)
        if len({item.path.lower() for item in found}) < len(found):
            raise SandboxCheckpointInvalidEntryError("twice")
        return found

    patch.setattr(rules, "check_files", check)


@fault("content-unknown-entries-are-refused")
def _(patch: Patch, store: Store) -> None:
    original = validation._check_entry

    def check(entry: Any, symlinks: bool) -> None:
        if getattr(entry, "kind", None) != "device":
            original(entry, symlinks)

    patch.setattr(validation, "_check_entry", check)


@fault("content-file-sizes-are-safe-integers")
def _(patch: Patch, store: Store) -> None:
    patch.setattr(validation, "MAX_SAFE_INTEGER", 2**63)


@fault("content-file-keys-are-content-addresses")
def _(patch: Patch, store: Store) -> None:
    import re

    patch.setattr(validation, "_FILE_KEY", re.compile("sandbox-files/sha256/[0-9a-f]{64}\n?"))


@fault("content-artifacts-are-checked")
def _(patch: Patch, store: Store) -> None:
    original = validation._check_artifact
    patch.setattr(
        validation,
        "_check_artifact",
        lambda item: item if getattr(item, "mime_type", None) == "" else original(item),
    )


@fault("content-symlinks-keep-their-target")
def _(patch: Patch, store: Store) -> None:
    def change(snapshot: Any) -> Any:
        files = (
            replace(item, target="x") if isinstance(item, SymlinkEntry) else item
            for item in snapshot.files
        )
        return replace(snapshot, files=tuple(files))

    on_insert(patch, store, change)


# --- leases --------------------------------------------------------------------------------------


def taking(name: str, take: Callable[[Any, Any, Any, Any], Any]) -> None:
    @fault(name)
    def _(patch: Patch, store: Store) -> None:
        original = lease.taken
        patch.setattr(
            engine, "taken", lambda s, token, now, times: take(original, s, (token, now), times)
        )


taking(
    "lease-a-lease-has-its-times",
    lambda taken, s, at, times: replace(taken(s, *at, times), expires_at=at[1] + 1),
)
taking(
    "lease-an-active-lease-excludes-others",
    lambda taken, s, at, times: taken(replace(s, owner_token=None), *at, times),
)
taking(
    "lease-an-expired-lease-can-be-taken",
    lambda taken, s, at, times: taken(s, at[0], math.nextafter(at[1], 0), times),
)
taking(
    "lease-fences-rise-with-every-lease",
    lambda taken, s, at, times: replace(
        taken(s, *at, times), fence=1 if s.owner_token is None else s.fence + 1
    ),
)


@fault("lease-leases-of-threads-are-independent")
def _(patch: Patch, store: Store) -> None:
    async def release(writer: Any) -> None:
        for thread, state in list(store._ledger.threads.items()):
            store._ledger.threads[thread] = replace(state, owner_token=None)

    patch.setattr(store, "_release", release)


@fault("lease-fences-survive-an-emptied-thread")
def _(patch: Patch, store: Store) -> None:
    async def release(writer: Any) -> None:
        if not store._ledger.by_thread.get(writer.thread_id):
            store._ledger.threads.pop(writer.thread_id, None)

    patch.setattr(store, "_release", release)


@fault("lease-one-of-concurrent-acquires-wins")
def _(patch: Patch, store: Store) -> None:
    async def write(work: Any) -> Any:
        before = dict(store._ledger.threads)
        await asyncio.sleep(0)
        store._ledger.threads.update(before)
        for thread in set(store._ledger.threads) - set(before):
            del store._ledger.threads[thread]
        return await work(store._ledger)

    patch.setattr(store, "_write", write)


def renewing(name: str, renew: Callable[[Any, Any, float, Any], Any]) -> None:
    weak(name, engine, "renewed", renew)


renewing(
    "lease-renew-extends-from-now",
    lambda s, w, now, times: replace(s, expires_at=s.expires_at + times.duration_ms),
)
renewing(
    "lease-a-lost-lease-cannot-be-renewed",
    lambda s, w, now, times: lease.renewed(s, w, min(now, s.expires_at - 1), times),
)
weak("lease-release-frees-the-thread", engine, "released", lambda state, writer: None)
weak(
    "lease-a-stale-release-is-harmless",
    engine,
    "released",
    lambda state, writer: replace(state, owner_token=None),
)


@fault("lease-a-stale-holder-cannot-write")
def _(patch: Patch, store: Store) -> None:
    current_if(patch, lambda s, w, now: w is not None and s.owner_token == w.owner_token)


@fault("lease-a-write-needs-time-left")
def _(patch: Patch, store: Store) -> None:
    original = lease.is_current
    patch.setattr(lease, "is_current", lambda s, w, now: original(s, w, now + 5))


# --- blobs ---------------------------------------------------------------------------------------


def all_keys(snapshot: Any) -> list[str]:
    keys = [item.blob_key for item in snapshot.files if isinstance(item, FileEntry)]
    return sorted(keys + [item.blob_key for item in snapshot.artifacts])


weak("blobs-a-repeated-key-counts-once", memory, "blob_keys", all_keys)
weak(
    "blobs-no-blobs-no-references",
    memory,
    "blob_keys",
    lambda s: [getattr(item, "blob_key", "none") for item in s.files],
)


def listing(name: str, change: Callable[[list[BlobReference]], list[BlobReference]]) -> None:
    @fault(name)
    def _(patch: Patch, store: Store) -> None:
        async def references() -> Any:
            found = [item async for item in Store.list_blob_references(store)]
            for item in change(found):
                yield item

        patch.setattr(store, "list_blob_references", references)


listing(
    "blobs-shared-keys-are-counted-over-threads",
    lambda found: [replace(item, count=1) for item in found],
)
listing("blobs-references-sort-by-utf8-bytes", lambda found: found[:1000])
listing("sweep-used-blobs-stay", lambda found: found[1:])


@fault("blobs-delete-head-uncounts-distinct-keys")
def _(patch: Patch, store: Store) -> None:
    remove = store._ledger.remove

    async def changed(thread_id: str, ids: Any, head: Any) -> None:
        patch.setattr(memory, "blob_keys", all_keys)
        await remove(thread_id, ids, head)

    patch.setattr(store._ledger, "remove", changed)


@fault("blobs-a-refused-append-counts-nothing")
def _(patch: Patch, store: Store) -> None:
    async def append(checkpoint: Any, *, expected_head_id: Any, writer: Any) -> Any:
        store._ledger.references.update(all_keys(checkpoint))
        return await Store.append(
            store, checkpoint, expected_head_id=expected_head_id, writer=writer
        )

    patch.setattr(store, "append", append)


weak("sweep-young-blobs-stay", sweep, "is_old", lambda i, age, now: now - i.uploaded_at >= age)
weak("sweep-other-keys-stay", sweep, "PREFIXES", ("sandbox-",))
weak("sweep-the-limit-is-a-finite-number", sweep, "check_age", lambda age: None)


def uncounting(name: str) -> None:
    @fault(name)
    def _(patch: Patch, store: Store) -> None:
        remove = store._ledger.remove

        async def changed(thread_id: str, ids: Any, head: Any) -> None:
            kept = Counter(store._ledger.references)
            await remove(thread_id, ids, head)
            store._ledger.references = kept

        patch.setattr(store._ledger, "remove", changed)


uncounting("sweep-prune-then-sweep-frees-the-bytes")
uncounting("prune-counts-go-down")

# --- prune ---------------------------------------------------------------------------------------


def planning(name: str, plan: Callable[[Any, Any, int], Any]) -> None:
    weak(name, rules, "plan_keep_newest", plan)


_plan = rules.plan_keep_newest
planning("prune-the-newest-of-the-chain-stay", lambda h, p, keep: _plan(h, p, keep)[::-1])
planning("prune-nothing-to-remove", lambda h, p, keep: list(p)[-1:] if keep > 2 else ())
weak("prune-keep-is-a-safe-integer", engine, "check_keep", lambda keep: None)


@fault("prune-newest-follows-the-chain-not-the-clock")
def _(patch: Patch, store: Store) -> None:
    def plan(head: Any, parents: Any, keep: int) -> Any:
        rows = sorted((store._ledger.snapshots[key] for key in parents), key=lambda s: s.created_at)
        return tuple(row.id for row in rows[:-keep])

    patch.setattr(rules, "plan_keep_newest", plan)


@fault("prune-the-lease-is-needed")
def _(patch: Patch, store: Store) -> None:
    patch.setattr(engine, "check_current", lambda *a: None)


@fault("prune-bad-ids-are-refused")
def _(patch: Patch, store: Store) -> None:
    patch.setattr(engine, "check_id", lambda *ids: None)


def on_prune(name: str, change: Callable[[Store, list[str]], None]) -> None:
    @fault(name)
    def _(patch: Patch, store: Store) -> None:
        async def delete(thread_id: str, *, keep: int, writer: Any) -> DeletedCheckpoints:
            done = await Store.delete_checkpoints(store, thread_id, keep=keep, writer=writer)
            change(store, list(done.deleted))
            return done

        patch.setattr(store, "delete_checkpoints", delete)


def cut_parents(store: Store, gone: list[str]) -> None:
    for thread in store._ledger.by_thread.values():
        for key, row in thread.items():
            if row.parent_id in gone:
                thread[key] = store._ledger.snapshots[key] = replace(row, parent_id=None)


def drop_off_chain(store: Store, gone: list[str]) -> None:
    for thread, kept in store._ledger.by_thread.items():
        head = store._ledger.threads[thread].head_id
        chain = set(rules.head_chain(head, {key: row.parent_id for key, row in kept.items()}))
        for key in set(kept) - chain:
            del kept[key]


def uncount_everywhere(store: Store, gone: list[str]) -> None:
    for key in list(store._ledger.references):
        store._ledger.references[key] = 1


on_prune("prune-kept-checkpoints-do-not-change", cut_parents)
on_prune("prune-checkpoints-off-the-chain-stay", drop_off_chain)
on_prune("prune-other-threads-stay", uncount_everywhere)


@fault("prune-a-pruned-chain-goes-on")
def _(patch: Patch, store: Store) -> None:
    async def stored_parent(checkpoint_id: str) -> str | None:
        return store._ledger.snapshots[checkpoint_id].parent_id

    patch.setattr(store._ledger, "stored_parent", stored_parent)


# --- fork ----------------------------------------------------------------------------------------


def rooting(name: str, change: Callable[[Any, Any], Any]) -> None:
    original = rules.fork_root
    weak(
        name,
        rules,
        "fork_root",
        lambda source, request, at: change(source, original(source, request, at)),
    )


rooting(
    "fork-a-fork-copies-a-historical-checkpoint",
    lambda source, root: replace(root, label=source.label),
)


def on_fork(name: str, change: Callable[[Store, Any], None]) -> None:
    @fault(name)
    def _(patch: Patch, store: Store) -> None:
        async def fork(request: Any) -> Any:
            root = await Store.fork_from_checkpoint(store, request)
            change(store, request)
            return root

        patch.setattr(store, "fork_from_checkpoint", fork)


def move_source_head(store: Store, request: Any) -> None:
    store._ledger._set_head(request.source_thread_id, request.source_checkpoint_id)


def uncount_fork(store: Store, request: Any) -> None:
    root = store._ledger.snapshots[request.destination_checkpoint_id]
    store._ledger.references.subtract(rules.blob_keys(root))


on_fork("fork-the-source-is-untouched", move_source_head)
on_fork("fork-a-fork-goes-its-own-way", uncount_fork)


@fault("fork-bad-ids-are-refused")
def _(patch: Patch, store: Store) -> None:
    patch.setattr(rules, "check_id", lambda *ids: None)


weak("fork-times-are-finite-numbers", rules, "check_time", lambda value, what: value)


@fault("fork-a-thread-cannot-fork-into-itself")
def _(patch: Patch, store: Store) -> None:
    patch.setattr(rules, "check_fork_request", lambda request: request.created_at)


@fault("fork-a-missing-source-is-refused", "fork-a-source-of-another-thread-is-refused")
def _(patch: Patch, store: Store) -> None:
    async def fork(request: Any) -> Any:  # the writer first
        facts = await store._ledger.facts(request.destination_thread_id)
        lease.check_current(facts.state, request.writer, facts.now)
        return await Store.fork_from_checkpoint(store, request)

    patch.setattr(store, "fork_from_checkpoint", fork)


@fault("fork-the-destination-lease-is-needed")
def _(patch: Patch, store: Store) -> None:
    current_if(patch, lambda s, w, now: w is not None and s.fence == w.fence)


@fault("fork-a-used-thread-is-no-destination")
def _(patch: Patch, store: Store) -> None:
    original = rules.check_fork_destination

    def check(request: Any, facts: Any, occupied: bool) -> None:
        free = replace(facts, state=replace(facts.state, head_id=None))
        original(request, free, False)

    patch.setattr(rules, "check_fork_destination", check)


@fault("fork-a-used-id-is-no-destination")
def _(patch: Patch, store: Store) -> None:
    used_when(patch, store, lambda thread, checkpoint: False)


@fault("fork-the-transcript-is-the-checkpoints")
def _(patch: Patch, store: Store) -> None:
    save = store._ledger.save_record

    async def changed(thread_id: str, kind: str, record_id: str, value: str) -> None:
        current = store._ledger.records.get("source", {}).get(("transcript", ""), value)
        await save(thread_id, kind, record_id, current)

    patch.setattr(store._ledger, "save_record", changed)


@fault("fork-any-thread-record-makes-it-used")
def _(patch: Patch, store: Store) -> None:
    async def occupied(thread_id: str) -> bool:
        records = store._ledger.records.get(thread_id, {})
        return any(value != "[]" for value in records.values())

    patch.setattr(store._ledger, "occupied", occupied)


@fault("fork-one-of-concurrent-forks-wins")
def _(patch: Patch, store: Store) -> None:
    async def write(work: Any) -> Any:
        return await work(store._ledger)

    async def occupied(thread_id: str) -> bool:
        held = bool(store._ledger.by_thread.get(thread_id))
        await asyncio.sleep(0)
        return held

    patch.setattr(store, "_write", write)
    patch.setattr(store._ledger, "occupied", occupied)


@fault("fork-a-failed-fork-can-be-tried-again")
def _(patch: Patch, store: Store) -> None:
    async def fork(request: Any) -> Any:
        ledger = store._ledger
        taken = ledger.records.setdefault(request.destination_thread_id, {})
        if taken:
            raise rules.destination_not_empty(request)
        taken["transcript", ""] = "[]"
        ledger.records.pop("other", None)
        source = rules.check_fork_source(
            await ledger.snapshot(request.source_checkpoint_id), request
        )
        return source.thaw()

    patch.setattr(store, "fork_from_checkpoint", fork)


# --- instances -----------------------------------------------------------------------------------


@instance_fault("instances-a-missing-record-is-none")
class _Missing(MemoryInstanceStore):
    async def get(self, key: str) -> Any:
        return self._records[key]


@instance_fault("instances-every-field-comes-back")
class _Rounds(MemoryInstanceStore):
    async def get(self, key: str) -> Any:
        found = await super().get(key)
        return found and replace(found, updated_at=float(int(found.updated_at)))


@instance_fault("instances-absent-fields-stay-absent")
class _Empty(MemoryInstanceStore):
    async def get(self, key: str) -> Any:
        found = await super().get(key)
        return found and replace(found, latest_run_id=found.latest_run_id or "")


@instance_fault("instances-upsert-replaces-the-whole-record")
class _Merges(MemoryInstanceStore):
    async def upsert(self, record: Any) -> None:
        old = self._records.get(record.key, record)
        run = record.latest_run_id or old.latest_run_id
        self._records[record.key] = replace(rows.check_instance(record), latest_run_id=run)


@instance_fault("instances-records-are-independent")
class _Trims(MemoryInstanceStore):
    async def delete(self, key: str) -> None:
        for other in [item for item in self._records if item.strip() == key]:
            del self._records[other]


@instance_fault("instances-delete-of-a-missing-key-is-no-error")
class _Raises(MemoryInstanceStore):
    async def delete(self, key: str) -> None:
        del self._records[key]


@instance_fault("instances-concurrent-upserts-leave-one-whole-record")
class _Torn(MemoryInstanceStore):
    async def upsert(self, record: Any) -> None:
        old = self._records.get(record.key, record)
        self._records[record.key] = replace(record, updated_at=old.updated_at)
        await asyncio.sleep(0.001 * (10 - record.updated_at))
        whole = replace(self._records[record.key], updated_at=record.updated_at)
        self._records[record.key] = whole
