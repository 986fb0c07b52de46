"""`keep-latest` over many threads at once, where statements over sets do what the plan would.

That holds of a thread that is usual through and through: each namespace one line of ids without a
version that comes back, nothing that hangs on no checkpoint, a newest checkpoint of today's format
that is no duration copy and of whose empty channels none is doubtful, subgraph calls that were over
before the newest root checkpoint, and no protected id. Of those the plan keeps the keep-set of each
lasting namespace's head, which is the newest part of its line, and nothing else. Every other thread
is left to `apply`, and so is one that another job holds or that changed under the statements.

On SQLite a checkpoint that goes is not opened: damaged bytes in it are noticed by the general way,
which then leaves the thread, and not here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savermark.errors import ContractError
from savermark.history.bulk import Cut, bulk_of
from savermark.history.lineage import KeepSet, missing_values
from savermark.history.rows import ThreadBusy
from savermark.retention.duration import has_shape
from savermark.retention.keep import is_call
from savermark.retention.policy import RetentionPolicy
from savermark.retention.records import Applied, ThreadPlan
from savermark.retention.turns import waits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from savermark.history.bulk import BulkRows, BulkTxn, Outline, Space
    from savermark.history.image import CheckpointRow
    from savermark.retention.keep import Terms

_POLICY = RetentionPolicy(keep_latest=True)


@dataclass(frozen=True, slots=True)
class SetPlan(ThreadPlan):
    """A plan whose deletions are not named one by one.

    `kept` and `detached` are those of the plan by rows. Of what goes `gone` counts the checkpoints;
    their writes and blobs go with them (`Applied.deleted` counts these too).
    """

    gone: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.gone


@dataclass(frozen=True, slots=True)
class Choice:
    """What a usual thread comes to: its plan, and the same as cuts."""

    plan: SetPlan
    cuts: tuple[Cut, ...]


def lane(rows: object, terms: Terms) -> BulkRows | None:
    """The store for many threads at a time, where it has that form and the policy is one for it."""
    return bulk_of(rows) if terms.policy == _POLICY else None


def apply_batch(
    bulk: BulkRows,
    threads: Sequence[str],
    terms: Terms,
    invalidate: Callable[[str], None],
) -> dict[str, Applied]:
    """Carry out `keep-latest` on those of the threads that are usual, in one transaction.

    The others are missing from the result and were not touched. `invalidate` is called for each
    thread before anything is deleted; one where it raises `ContractError` is left untouched.
    """
    try:
        with bulk.transaction(threads) as txn:
            return dict(_carry_out(txn, terms, invalidate))
    except ThreadBusy:
        return {}


def _carry_out(
    txn: BulkTxn, terms: Terms, invalidate: Callable[[str], None]
) -> Iterator[tuple[str, Applied]]:
    start = time.perf_counter_ns()
    chosen = _choices(txn, terms)
    planned = time.perf_counter_ns()
    refused = dict[str, str]()
    for thread, choice in chosen.items():
        if not choice.plan.empty:
            try:
                invalidate(thread)
            except ContractError as error:
                refused[thread] = str(error)
    cuts = [
        cut
        for thread, choice in chosen.items()
        if thread not in refused and not choice.plan.empty
        for cut in choice.cuts
    ]
    done = txn.clear(cuts) if cuts else {}
    share = max(len(chosen), 1)
    spent = (planned - start) // share, (time.perf_counter_ns() - planned) // share
    for thread, choice in chosen.items():
        plan = choice.plan
        if thread in refused:
            yield thread, Applied(thread, plan, refused=refused[thread], plan_ns=spent[0])
            continue
        yield (
            thread,
            Applied(thread, plan, done.get(thread, {}), plan_ns=spent[0], apply_ns=spent[1]),
        )


def _choices(txn: BulkTxn, terms: Terms) -> dict[str, Choice]:
    """What the usual ones among the threads come to."""
    usual = {each.thread_id: each for each in txn.outlines() if is_usual(each)}
    for thread in txn.holders(terms.protected) if terms.protected else ():
        usual.pop(thread, None)
    wanted = {
        (thread, space.checkpoint_ns): channels
        for thread, outline in usual.items()
        for space in outline.spaces.values()
        if not is_call(space.checkpoint_ns) and (channels := missing_values(space.head)[0])
    }
    longer = txn.keep_sets(wanted) if wanted else {}
    unread = {thread for thread, _ in wanted.keys() - longer.keys()}
    found = {
        thread: choose(outline, longer) for thread, outline in usual.items() if thread not in unread
    }
    doubted = [
        cut
        for thread, choice in found.items()
        for cut in choice.cuts
        if len(cut.kept) > 1
        or (cut.kept and _unbacked(usual[thread].spaces[cut.checkpoint_ns].head))
    ]
    for thread in txn.doubtful(doubted) if doubted else ():
        del found[thread]
    return found


def choose(outline: Outline, longer: Mapping[tuple[str, str], KeepSet]) -> Choice:
    """What `keep-latest` leaves of a usual thread without protected ids.

    `longer` are the keep-sets of the heads that need more than themselves.
    """
    thread = outline.thread_id
    kept, cuts = dict[str, KeepSet](), list[Cut]()
    for name, space in sorted(outline.spaces.items()):
        if is_call(name):
            cuts.append(Cut(thread, name))
            continue
        head = space.head.checkpoint_id
        kept[name] = longer.get((thread, name)) or KeepSet({head}, {head})
        cuts.append(Cut(thread, name, kept[name], detach=len(kept[name]) < space.rows))
    gone = sum(space.rows for space in outline.spaces.values()) - sum(map(len, kept.values()))
    loose = frozenset((cut.checkpoint_ns, min(cut.kept)) for cut in cuts if cut.detach)
    return Choice(SetPlan(thread, detached=loose, kept=kept, gone=gone), tuple(cuts))


def is_usual(outline: Outline) -> bool:
    """Whether what a thread comes to can be told from its outline."""
    if outline.strays or not outline.spaces:
        return False
    root = outline.spaces.get("")
    if root is not None and len(outline.spaces) > 1 and waits(outline.heads, root.head):
        return False  # what runs on from it loads states of its subgraphs
    return all(
        space.linear
        and space.head.v >= 4
        and not space.head.unreadable
        and not _is_duration_only(space)
        and (
            _is_over(space, outline)
            if is_call(space.checkpoint_ns)
            else not missing_values(space.head)[1]
        )
        for space in outline.spaces.values()
    )


def _is_duration_only(space: Space) -> bool:
    versions = space.head.versions
    return has_shape(space.head.metadata, versions, versions if space.repeats else None)


def _is_over(space: Space, outline: Outline) -> bool:
    """Whether every checkpoint of a call names a stored root checkpoint as caller that goes."""
    root = outline.spaces.get("")
    return (
        root is not None
        and bool(space.callers)
        and space.callers <= outline.roots
        and root.head.checkpoint_id not in space.callers
    )


def _unbacked(head: CheckpointRow) -> bool:
    return bool(head.markers - head.snapshots)
