"""Which checkpoints of a thread stay addressable under the keep rules of a policy.

The keep rules and what each keeps:

- `keep-latest` (also `compact` and `refuse`): the head of every namespace that stays. A head that
  only records durations keeps the checkpoint it copies as well.
- `keep-turns=N`: in the root namespace the last N turns (`turns`).
- `older-than=AGE`: everything not known to be older.

Whatever the rules: protected ids stay, and with one the parent-graph checkpoints that its metadata
names, which a config needs to find it; likewise with what `older-than` keeps of a call, whose
caller is a little older. A checkpoint goes when no rule keeps it.

Namespaces below the root:

- of one call (`node:task`, at any depth): stays with the checkpoints that called it, which its
  metadata names as `parents`. Under `keep-latest` alone its head is what stays addressable, under
  the other rules all of it. A caller that is not stored may still be on its way: until its id is
  older than the grace the namespace stays. One that names no caller stays.
- persistent: its head, and for each addressable root checkpoint that could be replayed the newest
  checkpoint before it, which the replay would load.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from savermark.retention.age import age_of
from savermark.retention.duration import is_duration_only
from savermark.retention.turns import last_turns, waits

if TYPE_CHECKING:
    from savermark.history.lineage import CheckpointKey, CheckpointRow, ThreadImage
    from savermark.retention.policy import RetentionPolicy

GRACE = timedelta(hours=1)  # a run that still has something to store is not older than this


@dataclass(frozen=True, slots=True)
class Terms:
    """A policy at a moment: `now` has a time zone, `protected` are ids of any namespace."""

    policy: RetentionPolicy
    now: datetime
    protected: frozenset[str] = frozenset()
    grace: timedelta = GRACE

    def is_older(self, checkpoint_id: str, age: timedelta) -> bool:
        """Whether an id is known to be older; one that carries no time is not."""
        found = age_of(checkpoint_id, self.now)
        return found is not None and found > age


def addressable(image: ThreadImage, terms: Terms) -> dict[str, frozenset[str]]:
    """The ids that stay addressable, by namespace; a namespace without any goes as a whole.

    Without a keep rule that is every checkpoint.
    """
    if not terms.policy.keeps:
        return {space: frozenset(rows) for space, rows in image.spaces.items()}
    selected = _selected(image, terms)
    found: dict[str, frozenset[str]] = {}
    for space in sorted(image.spaces, key=lambda name: (name.count("|"), name)):
        rows = image.spaces[space]
        wanted = {name for name in rows if (space, name) in selected or name in terms.protected}
        wanted |= _young(rows, terms)
        if not is_call(space):
            wanted |= _lasting(image, rows)
            wanted |= _replayed(image, rows, found) if space else _turns(image, rows, terms)
        elif wanted or _called(rows, image, found, terms):
            whole = terms.policy.keep_turns is not None or terms.policy.older_than is not None
            wanted |= set(rows) if whole else _lasting(image, rows)
        if wanted:
            found[space] = frozenset(wanted)
    return found


def is_call(space: str) -> bool:
    """Whether a namespace belongs to one call of a subgraph: a part of it names a task."""
    return ":" in space


def callers(row: CheckpointRow) -> frozenset[CheckpointKey]:
    """The parent-graph checkpoints whose tasks launched the subgraph that stored `row`."""
    parents = row.metadata.get("parents")
    if not isinstance(parents, Mapping):
        return frozenset()
    return frozenset((str(space), str(name)) for space, name in parents.items())


def _selected(image: ThreadImage, terms: Terms) -> frozenset[CheckpointKey]:
    rows = {row.key: row for row in image.checkpoints if row.checkpoint_id in terms.protected}
    for space in filter(is_call, image.spaces if terms.policy.older_than is not None else ()):
        young = _young(image.spaces[space], terms)
        rows |= {(space, name): image.spaces[space][name] for name in young}
    return frozenset().union(*(callers(row) for row in rows.values()))


def _young(rows: Mapping[str, CheckpointRow], terms: Terms) -> set[str]:
    age = terms.policy.older_than
    return set() if age is None else {name for name in rows if not terms.is_older(name, age)}


def _lasting(image: ThreadImage, rows: Mapping[str, CheckpointRow]) -> set[str]:
    """The head, and below duration-only ones the newest checkpoint that is none."""
    row: CheckpointRow | None = rows[max(rows)]
    found = set[str]()
    while row is not None:
        found.add(row.checkpoint_id)
        if row.parent_id is None or not is_duration_only(image, row):
            break
        row = rows.get(row.parent_id)
    return found


def _turns(image: ThreadImage, rows: Mapping[str, CheckpointRow], terms: Terms) -> frozenset[str]:
    count = terms.policy.keep_turns
    return frozenset() if count is None else last_turns(image, "", max(rows), count)


def _replayed(
    image: ThreadImage, rows: Mapping[str, CheckpointRow], found: Mapping[str, frozenset[str]]
) -> set[str]:
    """What replays of the root's addressable checkpoints load of a persistent namespace."""
    names = sorted(rows)
    places = (bisect_left(names, root) for root in _replayable(image, found.get("", frozenset())))
    return {names[place - 1] for place in places if place}


def _replayable(image: ThreadImage, roots: frozenset[str]) -> Iterator[str]:
    """All but a head from which nothing runs: going on from there loads what is newest."""
    rows = image.spaces.get("", {})
    head = max(rows, default="")
    return (name for name in roots if name != head or waits(image, rows[name]))


def _called(
    rows: Mapping[str, CheckpointRow],
    image: ThreadImage,
    found: Mapping[str, frozenset[str]],
    terms: Terms,
) -> bool:
    """Whether a call's namespace stays: for its callers, or because nothing is known of them."""
    named = {calls for row in rows.values() if (calls := callers(row))}
    return not named or any(
        all(_stays(caller, image, found, terms) for caller in calls) for calls in named
    )


def _stays(
    caller: CheckpointKey,
    image: ThreadImage,
    found: Mapping[str, frozenset[str]],
    terms: Terms,
) -> bool:
    space, name = caller
    if image.row(space, name) is None:
        return not terms.is_older(name, terms.grace)
    return name in found.get(space, ())
