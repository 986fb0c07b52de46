"""The checks of a trial: a number stands beside a promise that was tested."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from savermark.backends.base import Capability
from savermark.records import Phase
from savermark.script import (
    Tip,
    Turn,
    driven_threads,
    state_digest,
    thread_turns,
    write_script,
)
from savermark.spec import fixed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from langchain_core.runnables import RunnableConfig
    from langgraph.types import StateSnapshot

    from savermark.script import ThreadScript
    from savermark.storage import StorageRow
    from savermark.trial.ground import Ground

#: Clones whose state is read back, evenly spread; the rows of all others are compared in bulk.
READ_CLONES = 100


async def check_states(
    ground: Ground, phase: Phase, gone: Collection[str] = (), dropped: Collection[str] = ()
) -> None:
    """Every tip reads back as the script said: values, what is next, pending interrupts.

    `gone` threads were deleted; `dropped` names tips, as `thread/tip`, that a retention gave up.
    """
    if not ground.can(Capability.KEEPS, "state checks"):
        return
    heads: list[tuple[str, str | None]] = []
    others: list[tuple[str, str | None]] = []
    for thread in read_back(ground.threads):
        if thread.thread_id in gone:
            continue
        for name, expected in thread.tips.items():
            subject = f"{thread.thread_id}/{name}"
            if subject not in dropped:
                wrong = await _mismatch(ground, thread.thread_id, name, expected)
                (heads if name == "head" else others).append((subject, wrong))
    for check, seen in (("final_state", heads), ("tips", others)):
        if seen:
            broken = [f"{subject}: {wrong}" for subject, wrong in seen if wrong]
            ground.check(phase, check, len(seen), broken)


def read_back(threads: Sequence[ThreadScript]) -> list[ThreadScript]:
    clones = [thread for thread in threads if thread.source is not None]
    step = max(1, -(-len(clones) // READ_CLONES))
    return [thread for thread in threads if thread.source is None] + clones[::step]


async def _mismatch(ground: Ground, thread_id: str, name: str, expected: Tip) -> str | None:
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    if name != "head":  # the head is read as applications do: without naming a checkpoint
        known = ground.loaded.tips[thread_id].get(name)
        if known is None:
            return "the load left no checkpoint for it"
        config = known
    return difference(await read_tip(ground, config), expected)


async def read_tip(ground: Ground, config: RunnableConfig) -> Tip:
    """What a checkpoint reads back as."""
    found = await ground.driver.call(ground.graph, "get_state", config)
    return Tip(state_digest(found.values), tuple(found.next), len(found.interrupts))


def difference(seen: Tip, expected: Tip) -> str | None:
    """What of a tip is not as expected; None when all is. The order of `next` is no promise."""
    parts = []
    if seen.digest != expected.digest:
        parts.append(f"state {seen.digest[:12]}, expected {expected.digest[:12]}")
    if sorted(seen.next) != sorted(expected.next):
        parts.append(f"next {sorted(seen.next)}, expected {sorted(expected.next)}")
    if seen.interrupts != expected.interrupts:
        parts.append(f"{seen.interrupts} interrupts, expected {expected.interrupts}")
    return ", ".join(parts) or None


def check_sums(ground: Ground, phase: Phase, by_thread: Sequence[StorageRow]) -> None:
    """What the threads hold, asked for by name, adds up to what the whole store holds."""
    whole = Counter[tuple[str, str]]()
    for row in ground.store.storage():
        _add(whole, row)
    parts = Counter[tuple[str, str]]()
    for row in by_thread:
        _add(parts, row)
    keys = sorted(whole.keys() | parts.keys())
    broken = [
        f"{table} {what}: threads {parts[table, what]}, whole {whole[table, what]}"
        for table, what in keys
        if parts[table, what] != whole[table, what]
    ]
    ground.check(phase, "sums", len(keys), broken)


def _add(totals: Counter[tuple[str, str]], row: StorageRow) -> None:
    totals[row.table, "rows"] += row.rows
    totals[row.table, "logical_bytes"] += row.logical_bytes
    totals[row.table, "stored_bytes"] += row.stored_bytes or 0


def check_clone_rows(ground: Ground, digests: Mapping[str, str]) -> None:
    """Every clone has exactly its source's rows: a digest leaves the thread id out."""
    clones = [thread for thread in ground.threads if thread.source is not None]
    broken = [
        f"{thread.thread_id} differs from {thread.source}"
        for thread in clones
        if digests.get(thread.thread_id) != digests.get(str(thread.source))
    ]
    if clones:
        ground.check(Phase.LOADED, "clone_rows", len(clones), broken)


def check_deletion(
    ground: Ground,
    before: Mapping[str, str],
    untouched: Collection[str],
    deleted: Collection[str],
    storage: Sequence[StorageRow],
) -> None:
    """Deleted threads hold nothing; the others' rows are, to the byte, what they were."""
    if deleted:
        rows = Counter[str]()
        for row in storage:
            rows[row.thread_id] += row.rows
        broken = [f"{name} has {rows[name]} rows" for name in sorted(deleted) if rows[name]]
        ground.check(Phase.RETAINED, "deleted_rows", len(deleted), broken)
    if untouched:
        now = ground.store.row_digests(sorted(untouched))
        broken = [
            f"{name} changed" for name in sorted(untouched) if now.get(name) != before.get(name)
        ]
        ground.check(Phase.RETAINED, "untouched_rows", len(untouched), broken)


async def check_gone(ground: Ground, deleted: Collection[str]) -> None:
    """Deleted threads read back empty: all that can be asked of a store whose rows are hidden."""
    broken = []
    for name in sorted(deleted):
        config: RunnableConfig = {"configurable": {"thread_id": name}}
        if await ground.driver.call(ground.saver, "get_tuple", config) is not None:
            broken.append(f"{name} has a checkpoint")
    if deleted:
        ground.check(Phase.RETAINED, "deleted_state", len(deleted), broken)


def history_gap(rows: Sequence[StateSnapshot], limit: int) -> str | None:
    """What is wrong with a thread's listed history; None for newest first, without a gap.

    A parent may be missing only where the limit cut the list off.
    """
    ids = [_checkpoint_id(row.config) for row in rows]
    if not ids:
        return "no checkpoint"
    if len(ids) > limit or any(older >= newer for newer, older in pairwise(ids)):
        return f"{len(ids)} checkpoints, not the {limit} newest in order"
    reach = ids[-1] if len(ids) == limit else ""
    parents = {_checkpoint_id(row.parent_config) for row in rows if row.parent_config}
    missing = sorted(parent for parent in parents - set(ids) if parent >= reach)
    return f"{len(missing)} of {len(ids)} parents missing" if missing else None


def _checkpoint_id(config: RunnableConfig) -> str:
    return str(config["configurable"]["checkpoint_id"])


async def check_continuation(ground: Ground, gone: Collection[str]) -> None:
    """One more turn leads a driven thread and its clone to the same, predicted state.

    It comes last: it adds to what was measured.
    """
    pair = next(
        (
            (thread.source, thread.thread_id)
            for thread in ground.threads
            if thread.source is not None and not {thread.source, thread.thread_id} & set(gone)
        ),
        None,
    )
    if pair is None or not ground.can(Capability.KEEPS, "continuing a clone"):
        return
    source = next(thread for thread in ground.threads if thread.thread_id == pair[0])
    longer = _one_turn_longer(ground, source)
    if longer is None:
        ground.unsupported("continuing a clone", "the next turn is not a plain one")
        return
    broken = []
    for thread_id in pair:
        played = replace(longer, thread_id=thread_id)
        await ground.driver.play(ground.graph, ground.saver, played, ground.spec, _unclocked)
        seen = await read_tip(ground, {"configurable": {"thread_id": thread_id}})
        wrong = difference(seen, longer.tips["head"])
        broken += [f"{thread_id}: {wrong}"] if wrong else []
    ground.check(Phase.COMPACTED, "clone_continues", len(pair), broken)


def _one_turn_longer(ground: Ground, thread: ThreadScript) -> ThreadScript | None:
    """What a driven thread would do next, with the tips it leads to."""
    spec = ground.spec
    index = next(i for i, known in enumerate(ground.threads) if known is thread)
    turns = thread_turns(spec)[index] + 1
    conversation = replace(spec.conversation, threads=driven_threads(spec), turns=fixed(turns))
    longer = write_script(replace(spec, conversation=conversation))[index]
    count = len(thread.events)
    rest = longer.events[count:]
    if longer.events[:count] != thread.events or not all(isinstance(e, Turn) for e in rest):
        return None
    return replace(longer, events=rest, tips={"head": longer.tips["head"]})


def _unclocked(number: int) -> AbstractContextManager[None]:
    from contextlib import nullcontext

    return nullcontext()
