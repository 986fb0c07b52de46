"""Held against the script: what the stores give back, what they count, what they lost."""

from __future__ import annotations

import shutil
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING

from savermark.records import Phase
from savermark.sandbox.records import ARTIFACTS_PREFIX, FILES_PREFIX, FileEntry
from savermark.sandbox.restore import restore_workspace
from savermark.sandbox_trial.script import Content, Link, digest, message, root_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from savermark.sandbox.blobs import BlobInfo
    from savermark.sandbox.records import SandboxCheckpoint
    from savermark.sandbox_trial.ground import Ground
    from savermark.sandbox_trial.script import State, ThreadScript


def expected(ground: Ground, *, pruned: bool) -> dict[str, dict[str, State]]:
    """Thread -> checkpoint id -> what it must hold, before or after retention."""
    found: dict[str, dict[str, State]] = {}
    for thread in ground.threads:
        held = _held(thread)
        if pruned and thread.thread_id in ground.pruned:
            held = held[-ground.spec.retention.keep :]
        found[thread.thread_id] = dict(held)
    return found


def _held(thread: ThreadScript) -> list[tuple[str, State]]:
    """The chain as stored, oldest first: a fork's root holds what its source held."""
    chain = [(step.checkpoint_id, step.state) for step in thread.chain]
    if thread.source is not None:
        chain.insert(0, (root_id(thread.thread_id), thread.source[1].state))
    return chain


def keys_of(ground: Ground, state: State) -> set[str]:
    """The blob keys of a state."""
    files = {item for item in state.tree.values() if isinstance(item, Content)}
    names = {f"{FILES_PREFIX}sha256/{digest(ground.spec, c, ground.hashes)}" for c in files}
    products = {product.content for product in state.products}
    return names | {
        f"{ARTIFACTS_PREFIX}sha256/{digest(ground.spec, c, ground.hashes)}" for c in products
    }


async def check_all(ground: Ground, phase: Phase) -> None:
    """Chains, contents, counts and blobs, all against the script."""
    wanted = expected(ground, pruned=phase is not Phase.LOADED)
    await _check_chains(ground, phase, wanted)
    await _check_restores(ground, phase, wanted)
    await _check_counts(ground, phase, wanted)


async def _check_chains(
    ground: Ground, phase: Phase, wanted: Mapping[str, Mapping[str, State]]
) -> None:
    """Every thread holds its checkpoints and no other, each with its conversation."""
    broken, tested = [], 0
    for thread_id, states in wanted.items():
        found = await ground.store.list(thread_id)
        tested += len(states)
        head = await ground.store.get_head(thread_id)
        if [item.id for item in found] != list(states) or head != list(states)[-1]:
            broken.append(f"{thread_id} holds {len(found)} checkpoints and head {head}")
            continue
        broken += [
            f"{item.id}: {wrong}"
            for item in found
            if (wrong := _difference(ground, item, states[item.id]))
        ]
    ground.check(phase, "chains", tested, broken)


def _difference(ground: Ground, found: SandboxCheckpoint, state: State) -> str:
    said = [message(ground.spec, thread, number) for thread, number in state.talk]
    if list(found.conversation) != said:
        return "another conversation"
    if [item.artifact_id for item in found.artifacts] != [p.artifact_id for p in state.products]:
        return "other artifacts"
    if {entry.path for entry in found.files if entry.kind != "dir"} != set(state.tree):
        return "other paths"
    keys = {entry.blob_key for entry in found.files if isinstance(entry, FileEntry)}
    keys |= {artifact.blob_key for artifact in found.artifacts}
    return "" if keys == keys_of(ground, state) else "other contents"


async def _check_restores(
    ground: Ground, phase: Phase, wanted: Mapping[str, Mapping[str, State]]
) -> None:
    """Every restored head, and the probe's oldest checkpoint, equal the script byte for byte."""
    broken, tested = [], 0
    for thread_id, states in wanted.items():
        names = list(states)
        chosen = names[-1:] if thread_id != ground.probe.thread_id else (names[0], names[-1])
        for name in dict.fromkeys(chosen):
            folder = ground.folder("checked")
            shutil.rmtree(folder, ignore_errors=True)
            await restore_workspace(ground.store, ground.blobs, name, folder)
            wrong = differing(ground, folder, states[name])
            broken += [f"{name}: {wrong}"] if wrong else []
            tested += 1
    shutil.rmtree(ground.folder("checked"), ignore_errors=True)
    ground.check(phase, "restored_workspaces", tested, broken)


def differing(ground: Ground, folder: Path, state: State) -> str:
    """The first path at which a folder is not the state's tree, or nothing."""
    seen = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }
    for path in sorted(seen.keys() | state.tree.keys()):
        item = state.tree.get(path)
        if item is None or path not in seen:
            return f"{path} is {'missing' if item else 'too much'}"
        link = seen[path].is_symlink()
        if isinstance(item, Link):
            same = link and seen[path].readlink().as_posix() == item.target
        else:
            hashed = sha256(seen[path].read_bytes()).hexdigest()
            same = not link and hashed == digest(ground.spec, item, ground.hashes)
        if not same:
            return f"{path} differs"
    return ""


async def _check_counts(
    ground: Ground, phase: Phase, wanted: Mapping[str, Mapping[str, State]]
) -> None:
    """Counts equal the script's, every counted blob is there and, after a sweep, no other."""
    counts: Counter[str] = Counter()
    for states in wanted.values():
        for state in states.values():
            counts.update(keys_of(ground, state))
    found = {item.key: item.count async for item in ground.store.list_blob_references()}
    broken = [
        f"{key[:40]} is counted {found.get(key, 0)}, used by {counts[key]}"
        for key in sorted(counts.keys() | found.keys())
        if found.get(key, 0) != counts[key]
    ]
    ground.check(phase, "counts", len(counts), broken)
    blobs = {info.key: info.size for info in await list_blobs(ground)}
    missing = [f"{key[:40]} is missing" for key in sorted(counts.keys() - blobs.keys())]
    ground.check(phase, "named_blobs_exist", len(counts), missing)
    if phase is not Phase.LOADED:
        rest = [f"{key[:40]} is used by nobody" for key in sorted(blobs.keys() - counts.keys())]
        ground.check(phase, "unused_blobs_are_gone", len(blobs), rest)


async def list_blobs(ground: Ground) -> list[BlobInfo]:
    """Every blob under the two prefixes."""
    return [
        info
        for prefix in (FILES_PREFIX, ARTIFACTS_PREFIX)
        async for info in ground.blobs.list(prefix)
    ]


async def thread_digests(ground: Ground) -> dict[str, str]:
    """SHA-256 over all that the store tells of each thread that retention leaves alone."""
    found = {}
    for thread in ground.threads:
        name = thread.thread_id
        told = (await ground.store.get_head(name), await ground.store.list(name))
        found[name] = sha256(repr(told).encode("utf-8", "surrogatepass")).hexdigest()
    return found
