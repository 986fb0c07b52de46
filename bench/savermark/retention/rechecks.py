"""The six checks of a thread after a policy ran: two readings of it compared, nothing else asked.

(a) latest resume, (b) resume of every kept id, (c) branches from older turns, (d) orphan rows,
(e) values, (f) pending writes and interrupts. A checkpoint that stays only to support others is
never taken for one that can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from savermark.history.lineage import LineageError, keep_ids
from savermark.retention.branching import BranchError, LineageIntegrity
from savermark.retention.findings import Check, Findings
from savermark.retention.keep import callers
from savermark.retention.leftovers import GRACE, is_call, leftovers
from savermark.retention.promises import ThreadReading
from savermark.retention.scope import Scope
from savermark.units import amount

if TYPE_CHECKING:
    from savermark.history.lineage import CheckpointKey
    from savermark.retention.reading import Reading


def thread_checks(
    before: ThreadReading,
    after: ThreadReading,
    scope: Scope,
    *,
    now: datetime,
    grace: timedelta = GRACE,
) -> Iterator[Check]:
    """The six checks of one thread; of one that the plan deletes whole, the two that apply."""
    thread = before.image.thread_id
    if not scope.whole:
        yield _latest(before, after, scope).check(thread, "latest")
    yield _resume(before, after, scope).check(thread, "resume")
    if not scope.whole:
        yield _branch(before, after, scope).check(thread, "branch")
    yield _orphans(before, after, scope, now, grace).check(thread, "orphans")
    if not scope.whole:
        yield _values(before, after, scope).check(thread, "values")
        yield _pending(before, after, scope).check(thread, "pending")


def _latest(before: ThreadReading, after: ThreadReading, scope: Scope) -> Findings:
    found = Findings()
    old, new = before.latest, after.latest
    if old is None:
        found.notes.append("the thread was empty" if new is None else "the thread is new")
    elif new is None:
        found.add("failed", "nothing is left to resume")
    elif ("", new.checkpoint_id) not in before.keys:
        _moved_on(old, new, scope, found)
    else:
        _same_state(old, new, "the newest state", found)
        if not old.error and old.writes != new.writes:
            found.add("failed", "the newest state has other pending writes")
        elif ("", new.checkpoint_id) in scope.support:
            found.add("failed", f"the newest, {new.checkpoint_id}, is kept only as support")
        found.notes.append(f"at {new.checkpoint_id}")
    return found


def _moved_on(old: Reading, new: Reading, scope: Scope, found: Findings) -> None:
    """A checkpoint that came after the first reading: a live run's, or one that the policy put."""
    if new.error:
        # One that cannot be read at all (a serializer that is not ours) has no id to name.
        where = f", {new.checkpoint_id}," if new.checkpoint_id else ""
        what = f"the newest state{where} cannot be read"
        if old.error and not new.checkpoint_id:
            found.add("unproven", f"{what}, as before: {new.error}")
        else:
            found.add("failed", f"{what}: {new.error}")
    elif ("", new.checkpoint_id) in scope.targets and scope.told:
        found.notes.append(f"a run moved on to {new.checkpoint_id} meanwhile")
    elif old.error:
        _unread(old, "the newest state", found)
    elif problem := old.lost_in(new):
        found.add("unproven", f"{new.checkpoint_id} came meanwhile: {problem[1]}")
    else:
        found.notes.append(f"at {new.checkpoint_id}, with the same values")


def _unread(old: Reading, what: str, found: Findings) -> None:
    """Nothing to compare with: no loss is shown, and none is ruled out."""
    found.add("unproven", f"{what} could not be read before: {old.error}")


def _same_state(old: Reading, new: Reading, what: str, found: Findings) -> None:
    """Whether a resume starts from the same values and runs the same tasks."""
    if old.error:
        _unread(old, what, found)
    elif new.error:
        found.add("failed", f"{what} cannot be read: {new.error}")
    elif problem := old.lost_in(new):
        found.add(problem[0], f"{what}: {problem[1]}")
    elif old.frontier != new.frontier or old.upcoming != new.upcoming:
        found.add("failed", f"{what} would run other tasks")
    elif not old.shows(new):
        found.add("failed", f"{what} reads back different through the graph")


def _resume(before: ThreadReading, after: ThreadReading, scope: Scope) -> Findings:
    """Every promised id is stored, is no mere support, has its chain and runs the same tasks.

    What it loads of persistent subgraphs is part of that: their newest checkpoint of lower id.
    """
    found = Findings()
    promised = sorted((scope.targets | scope.protected) & before.keys)
    for key in promised:
        old, new = before.readings.get(key), after.readings.get(key)
        name = f"checkpoint {key[1]}"
        if key not in after.keys:
            found.add("failed", f"{name}{' (protected)' * (key in scope.protected)} is gone")
        elif key in scope.protected and key not in scope.targets:
            found.add("failed", f"{name} is protected and kept only as support")
        elif old is not None and new is not None:
            if old.error:
                _unread(old, name, found)
            elif new.error:
                found.add("failed", f"{name} cannot be read: {new.error}")
            elif old.frontier != new.frontier or old.upcoming != new.upcoming:
                found.add("failed", f"{name} would run other tasks")
            _same_chain(before, after, key, found)
        if key[0] == "":
            _same_replay(before, after, key[1], scope, found)
    found.notes.append(amount(len(promised), "checkpoint"))
    return found


def _same_chain(
    before: ThreadReading, after: ThreadReading, key: CheckpointKey, found: Findings
) -> None:
    try:
        keep_ids(after.image, *key)
    except LineageError as error:
        try:
            keep_ids(before.image, *key)
        except LineageError:
            return  # it was broken before
        found.add("failed", f"checkpoint {key[1]} lost what it is rebuilt from: {error}")


def _same_replay(
    before: ThreadReading, after: ThreadReading, root: str, scope: Scope, found: Findings
) -> None:
    for space in before.image.spaces:
        if space == "" or is_call(space):
            continue
        old, new = _loaded(before, space, root), _loaded(after, space, root)
        if old is None:
            continue
        what = f"a replay from {root} would load another state of subgraph {space!r}"
        if new is None or new != old:
            found.add("failed", what)
            continue
        was, now = before.readings.get((space, old)), after.readings.get((space, old))
        if was is None or now is None:
            continue
        if was.error:
            _unread(was, f"subgraph {space!r} at {old}", found)
        elif problem := was.lost_in(now):
            found.add(problem[0], f"{what}: {problem[1]}")


def _loaded(reading: ThreadReading, space: str, root: str) -> str | None:
    """The checkpoint of a persistent subgraph that a replay of a root checkpoint loads."""
    rows = reading.image.spaces.get(space, {})
    return max((one for one in rows if one < root), default=None)


def _branch(before: ThreadReading, after: ThreadReading, scope: Scope) -> Findings:
    """Each message finds the place it found before, where that place is promised.

    Where it is not, the walk must end at an honest root or find a place: never in a broken link.
    """
    found = Findings()
    kept = 0
    for message, old in before.points.items():
        new = after.points.get(message)
        if isinstance(old, BranchError):
            continue
        if ("", old) in scope.readable:
            kept += 1
            if new != old:
                why = new if new is not None else "the head has no such message"
                found.add("failed", f"a branch before message {message!r}: {why}")
        elif isinstance(new, LineageIntegrity):
            found.add("failed", f"a branch before message {message!r}: {new}")
    if not before.points and before.latest is not None and before.latest.error:
        _unread(before.latest, "the newest state, where its messages stand,", found)
    found.notes.append(f"{kept} of {len(before.points)} messages promised, all found")
    return found


def _orphans(
    before: ThreadReading, after: ThreadReading, scope: Scope, now: datetime, grace: timedelta
) -> Findings:
    found = Findings()
    if not after.tables:
        found.add("unsupported", "the tables of this saver are not known")
    elif scope.whole:
        if after.image.rows:
            found.add("failed", f"{after.image.rows} rows of a deleted thread are left")
        found.notes.append("the thread is gone")
    else:
        kept = scope.readable | scope.support if scope.told else frozenset()
        for table, rows in leftovers(before.image, after.image, now, grace, kept).items():
            if rows.made:
                left = amount(rows.made, "row")
                found.add("failed", f"{table}: {left} that nothing refers to any more")
            if rows.left and not scope.refused:
                found.add("failed", f"{table}: {rows.left} orphans of before are still there")
            told = f" ({rows.waiting} that may still be claimed)" * bool(rows.waiting)
            told += f" ({rows.left} of before, left alone)" * bool(rows.left)
            told += f" ({rows.kept} whose parent was gone before)" * bool(rows.kept)
            found.notes.append(f"{table}: 0{told}")
    return found


def _values(before: ThreadReading, after: ThreadReading, scope: Scope) -> Findings:
    found = Findings()
    promised = sorted(scope.readable & before.readings.keys())
    count = 0
    for key in promised:
        old, new = before.readings[key], after.readings.get(key)
        if new is None:
            continue  # a missing id is what (b) reports
        where = f"checkpoint {key[1]}" + f" of {key[0]!r}" * bool(key[0])
        if old.error:
            _unread(old, where, found)
            continue
        count += 1
        if new.error:
            found.add("failed", f"{where} cannot be read: {new.error}")
        elif problem := old.lost_in(new):
            found.add(problem[0], f"{where}: {problem[1]}")
        elif not old.shows(new):
            found.add("failed", f"{where} reads back different through the graph")
    channels = {name for key in promised for name in before.readings[key].values}
    note = f"{amount(count, 'checkpoint')}, {amount(len(channels), 'channel')}"
    unread = len(scope.targets & before.keys - before.readings.keys())
    note += f"; {unread} were not read before" * bool(unread)
    support = len(scope.support & after.keys)
    found.notes.append(note + f"; {support} more stay as support" * bool(support))
    return found


def _pending(before: ThreadReading, after: ThreadReading, scope: Scope) -> Findings:
    found = Findings()
    rows = questions = 0
    for key in sorted(scope.readable & before.readings.keys()):
        old, new = before.readings[key], after.readings.get(key)
        if new is None or old.error or new.error:
            continue  # what (b) and (e) report
        link = scope.moved.get(key)
        moved = before.readings[link].writes if link and link in before.readings else ()
        rows += len(old.writes)
        questions += old.interrupted
        if new.writes != (*old.writes, *moved):
            found.add("failed", f"checkpoint {key[1]}: {_count(old, new)}")
        elif old.interrupts != new.interrupts:
            found.add("failed", f"checkpoint {key[1]} has other interrupts")
        if old.interrupted and key[0] == "":
            _subgraphs(before, after, key[1], found)
    waiting = f"{amount(questions, 'checkpoint')} with a question to answer"
    found.notes.append(f"{amount(rows, 'pending write')}, {waiting}")
    return found


def _count(old: Reading, new: Reading) -> str:
    if len(old.writes) == len(new.writes):
        return "other pending writes"
    return f"{len(new.writes)} of {len(old.writes)} pending writes"


def _subgraphs(before: ThreadReading, after: ThreadReading, root: str, found: Findings) -> None:
    """What an interrupted subgraph resumes from: the head of each namespace that was called.

    Not of one within another that has moved on since: its work is taken in.
    """
    for space in sorted(before.calls.get(root, ())):
        head = before.heads[space]
        row = before.image.row(space, head)
        if row and any(above and before.heads.get(above) != one for above, one in callers(row)):
            continue
        old, new = before.readings.get((space, head)), after.readings.get((space, head))
        if new is None:
            found.add("failed", f"the subgraph {space!r} would start again: its state is gone")
        elif old is not None:
            what = f"the subgraph {space!r} that waits for an answer"
            _same_state(old, new, what, found)
            if not old.error and old.writes != new.writes:
                found.add("failed", f"{what}: {_count(old, new)}")
