"""The one-pass walk in Postgres over a window of the newest checkpoints, judged in Python.

The statements of `postgres_sql` find out how far a chain goes, which takes the server about as long
as to read it. A window is read at once; how large it must be the last walk tells. Where that was
wrong, those statements are asked next.
"""

from __future__ import annotations

import json
from collections import deque
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from savermark.history.walks import postgres_sql as sql
from savermark.history.walks.postgres_plans import Query

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from langgraph.checkpoint.base import DeltaChannelHistory

    from savermark.history.walks.found import Where, Write
    from savermark.history.walks.postgres_plans import Loads, Plans

_THREAD, _SPACE = "(SELECT %(thread)s::text)", "(SELECT %(space)s::text)"
_CHANNEL = "(SELECT %(channel)s::text)"
_HERE = f"thread_id = {_THREAD} AND checkpoint_ns = {_SPACE}"
_STORED = f"{_HERE} AND channel = {_CHANNEL} AND type <> 'empty'"
FEW = 16  # checkpoints up to which the planner may know how many
_BETWEEN = "\x01"  # stands neither in ids nor in JSON


@cache
def statement(*, newest: bool, seeds: bool, few: int | None) -> str:
    """The statement for one channel whose chain lies within a window of the newest checkpoints.

    Its rows, the first of which comes first: (checkpoints newest first, each with its parent and
    its inline value, what has grown, whether the channel has any stored value, None); with `seeds`
    (checkpoint id, None, type, blob) for the newest below the target that has one; (checkpoint id,
    task id, type, blob) for a write, in no order.
    """
    target = "(SELECT max(id) FROM near)" if newest else "(SELECT %(id)s::text)"
    start = "" if newest else f"AND checkpoint_id <= {target}"
    # Of a limit that it does not know the planner thinks the best, and keeps to the key.
    limit = few or "(SELECT %(most)s::bigint)"
    version = f"checkpoint -> 'channel_versions' ->> {_CHANNEL} AS version," if seeds else ""
    stored = f"EXISTS (SELECT 1 FROM checkpoint_blobs WHERE {_STORED} OFFSET 0)"
    seed = f"""
UNION ALL (
    SELECT near.id, NULL, seed.type, seed.blob FROM near CROSS JOIN LATERAL (
        SELECT type, blob FROM checkpoint_blobs WHERE {_STORED} AND version = near.version OFFSET 0
    ) AS seed WHERE near.id < {target} LIMIT 1
)"""
    return f"""
WITH near AS MATERIALIZED (
    SELECT checkpoint_id AS id, parent_checkpoint_id AS parent, {version}
        checkpoint -> 'channel_values' -> {_CHANNEL} AS inline
    FROM checkpoints WHERE {_HERE} {start}
    ORDER BY checkpoint_id DESC LIMIT {limit}
), told AS MATERIALIZED (
    SELECT min(near.id) AS low, string_agg(near.id || E'\\x01' || coalesce(near.parent, '')
        || E'\\x01' || coalesce(near.inline::text, ''), E'\\x01') AS line FROM near
)
SELECT told.line, ({sql.ASKED})::text,
    {"NULL" if seeds else f"({stored})::text"}, NULL::bytea FROM told {seed if seeds else ""}
UNION ALL
SELECT checkpoint_id, task_id, type, blob FROM checkpoint_writes
WHERE {_HERE} AND checkpoint_id < {target} AND checkpoint_id >= (SELECT told.low FROM told)
    AND channel = {_CHANNEL}
"""


def windowed(
    where: Where, asked: dict[str, Any], loads: Loads, plans: Plans, window: int
) -> Generator[Query, Iterable[tuple[Any, ...]], DeltaChannelHistory | None]:
    """A channel whose chain lies in a window of checkpoints; None where it does not."""
    (channel,) = where.channels
    seeds = channel in plans.seeded
    asked |= {"channel": channel, "id": where.id, "most": window, "ask": plans.ask()}
    text = statement(newest=where.id is None, seeds=seeds, few=window if window <= FEW else None)
    rows = iter((yield Query(sql.text(text, plans.grown), asked, stream=channel in plans.long)))
    found = _found(rows, where, loads, plans, seeds)
    deque(rows, maxlen=0)  # an answer left half read would be cancelled, over a second connection
    return found


def _found(
    rows: Iterator[tuple[Any, ...]], where: Where, loads: Loads, plans: Plans, seeds: bool
) -> DeltaChannelHistory | None:
    """`windowed` from the answer; `seeds` as it was asked, since others change the plans, too."""
    (channel,) = where.channels
    near, grown, stored, _ = next(rows)
    plans.told(int(grown))
    if stored == "true":
        plans.seeded.add(channel)
        return None
    first = next(rows, None) if seeds else None
    seed = first if first and first[1] is None else None
    line = _followed(near, where.id, seed[0] if seed else None)
    if line is None:
        plans.missed(channel)
        return None
    ids, inline, covered = line
    held: dict[str, Write | None] = dict.fromkeys(reversed(ids))
    for name, task, tag, blob in chain([first] if first and not seed else [], rows):
        if name in held:
            if held[name]:  # their order matters, and is not told
                plans.windows[channel] = 0
                return None
            held[name] = (task, channel, loads((tag, blob)))
    found: Any = {"writes": [write for write in held.values() if write]}
    if seed and ids and ids[-1] == seed[0]:
        found["seed"] = loads(seed[2:])
    elif inline:
        found["seed"] = json.loads(inline)
    plans.covers(channel, covered, root="seed" not in found)
    return found  # type: ignore[no-any-return]


def _followed(
    near: str | None, target: str | None, seed: str | None
) -> tuple[list[str], str, int] | None:
    """The chain in a window of checkpoints, latest first, the inline value at its end, its reach.

    None unless the window has all of it, each below its child; `seed` is the latest checkpoint in
    the window with a stored value.
    """
    told = near.split(_BETWEEN) if near else []
    if len(told) < 3 or len(told) % 3 or told[0] != (target or told[0]):
        return None
    names, parents, inlines = told[::3], told[1::3], told[2::3]
    if parents[:-1] == names[1:] and not seed and not any(inlines[1:]):  # a line, as a rule
        return None if parents[-1] else (names[1:], "", len(names))
    ids: list[str] = []
    want = parents[0]
    for at, name in enumerate(names[1:], 1):
        if name == want:
            ids.append(name)
            if inlines[at] or name == seed:
                return ids, inlines[at], at + 1
            want = parents[at]
        elif name == seed:  # of another branch: what lies below it is not told
            return None
    return None if want else (ids, "", len(names))
