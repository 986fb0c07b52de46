"""The keep-set of a checkpoint in Postgres.

The usual thread is one line whose ids ascend. `LINE` finds the nearest seed of each channel down
the primary key and gives ids and parents of what lies between: if each names the next as parent,
that is the chain. Where it is not (forks inside the range, a parent that sorts above its child or
is missing, a channel whose nature only ancestors can tell, an old format) `CHAIN` walks the parent
links by recursion instead.

Parameters stand inside `(SELECT ...)`, so that the plan for any value is the plan for each: the
server keeps it and plans no more. `LIMIT 1` and `OFFSET 0` make each lookup one search of the
primary key. Without them a planner without statistics reads a whole thread, or the whole table of
blobs, for every link.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from savermark.history.image import COUNTERS, COUNTERS_OF_OLD, CheckpointRow
from savermark.history.lineage import (
    RESERVED,
    TASKS,
    TRIGGER,
    Channels,
    KeepSet,
    answer,
    check_channels,
    missing_values,
    needs,
)

if TYPE_CHECKING:
    import psycopg

    from savermark.history.postgres import PostgresRows

_SPACE = "{0}thread_id = (SELECT %(thread)s::text) AND {0}checkpoint_ns = (SELECT %(space)s::text)"
_HERE = _SPACE.format("")


def _blob(channel: str, version: str) -> str:
    return (
        f"EXISTS (SELECT 1 FROM checkpoint_blobs AS b WHERE {_SPACE.format('b.')} "
        f"AND b.channel = {channel} AND b.version = {version} AND b.type <> 'empty' OFFSET 0)"
    )


def _inline(row: str, channel: str) -> str:
    """Whether a checkpoint values a channel itself: `->>` gives no text for a null."""
    return f"({row} -> 'channel_values' ->> {channel}) IS NOT NULL"


def _version(row: str, channel: str) -> str:
    return f"({row} -> 'channel_versions' ->> {channel})"


_COUNTED = (
    f"coalesce(metadata -> '{COUNTERS}', metadata -> '{COUNTERS_OF_OLD}', jsonb_build_object())"
)
_NEWEST = f"SELECT checkpoint_id FROM checkpoints WHERE {_HERE} ORDER BY checkpoint_id DESC LIMIT 1"

_FEW = 64  # blobs of a channel up to which all its versions are read into a hash, not probed for

LINE = f"""
WITH target AS MATERIALIZED (
    SELECT checkpoint_id AS id, checkpoint -> 'channel_versions' AS versions,
        coalesce(checkpoint -> 'channel_values', jsonb_build_object()) AS valued,
        {_COUNTED} AS counted,
        coalesce((checkpoint ->> 'v')::int, 1) >= 4 OR parent_checkpoint_id IS NULL AS whole
    FROM checkpoints
    WHERE {_HERE} AND checkpoint_id = coalesce((SELECT %(id)s::text), ({_NEWEST}))
), sought AS MATERIALIZED (
    SELECT v.key AS channel,
        (SELECT %(channels)s::text[]) IS NOT NULL OR target.counted ? v.key AS certain,
        (SELECT count(*) FROM (
            SELECT 1 FROM checkpoint_blobs AS b
            WHERE {_SPACE.format("b.")} AND b.channel = v.key LIMIT {_FEW + 1}
        ) AS kept) <= {_FEW} AS few
    FROM target CROSS JOIN LATERAL jsonb_each_text(target.versions) AS v
    WHERE NOT target.valued ? v.key
        AND CASE WHEN (SELECT %(channels)s::text[]) IS NOT NULL
            THEN v.key = ANY((SELECT %(channels)s::text[])::text[])
            ELSE target.counted ? v.key OR NOT (starts_with(v.key, '{TRIGGER}')
                OR v.key = ANY((SELECT %(reserved)s::text[])::text[])) END
        AND NOT {_blob("v.key", "v.value")}
), backed AS MATERIALIZED (
    SELECT b.channel, b.version FROM sought CROSS JOIN LATERAL (
        SELECT channel, version FROM checkpoint_blobs
        WHERE {_HERE} AND channel = sought.channel AND type <> 'empty' LIMIT {_FEW}
    ) AS b WHERE sought.few
), gate AS MATERIALIZED (
    SELECT whole AND NOT EXISTS (SELECT 1 FROM sought WHERE NOT certain) AS open FROM target
), seeds AS MATERIALIZED (
    SELECT (
        SELECT c.checkpoint_id FROM checkpoints AS c
        WHERE {_SPACE.format("c.")} AND c.checkpoint_id < (SELECT id FROM target)
            AND ({_inline("c.checkpoint", "sought.channel")} OR CASE WHEN sought.few
                THEN (sought.channel, {_version("c.checkpoint", "sought.channel")})
                    IN (SELECT channel, version FROM backed)
                ELSE {_blob("sought.channel", _version("c.checkpoint", "sought.channel"))} END)
        ORDER BY c.checkpoint_id DESC LIMIT 1
    ) AS id
    FROM sought WHERE (SELECT open FROM gate)
), low AS MATERIALIZED (
    SELECT CASE WHEN count(*) = 0 THEN (SELECT id FROM target)
        WHEN count(*) = count(id) THEN min(id) ELSE '' END AS id
    FROM seeds
)
SELECT (SELECT id FROM target), (SELECT open FROM gate), (SELECT id FROM low), count(*),
    string_agg(line.id, E'\\x01'), string_agg(line.parent, E'\\x01')
FROM (
    SELECT checkpoint_id AS id, coalesce(parent_checkpoint_id, '') AS parent FROM checkpoints
    WHERE {_HERE} AND checkpoint_id <= (SELECT id FROM target)
        AND checkpoint_id >= (SELECT id FROM low) AND (SELECT open FROM gate)
    ORDER BY checkpoint_id DESC LIMIT (SELECT %(chunk)s::bigint) + 1
) AS line
"""

# What `CHAIN` cannot see of its first row: everything a record of the target holds.
TARGET = f"""
SELECT {{columns}}, ARRAY(
    SELECT v.key FROM jsonb_each_text(checkpoint -> 'channel_versions') AS v
    WHERE {_blob("v.key", "v.value")}
), parent_checkpoint_id IS NOT NULL AND EXISTS (
    SELECT 1 FROM checkpoints AS p WHERE {_SPACE.format("p.")}
        AND p.checkpoint_id = checkpoints.parent_checkpoint_id
) AND EXISTS (
    SELECT 1 FROM checkpoint_writes AS w WHERE {_SPACE.format("w.")}
        AND w.checkpoint_id = checkpoints.parent_checkpoint_id AND w.channel = '{TASKS}'
)
FROM checkpoints
WHERE {_HERE} AND checkpoint_id = coalesce((SELECT %(id)s::text), ({_NEWEST}))
"""

_STEP = f"""
SELECT checkpoint_id AS id, nullif(parent_checkpoint_id, '') AS parent, {_COUNTED} AS counted,
    ARRAY(
        SELECT s.channel FROM unnest({{sought}}) AS s (channel)
        WHERE NOT {_inline("checkpoint", "s.channel")}
            AND NOT {_blob("s.channel", _version("checkpoint", "s.channel"))}
    ) AS sought,
    ARRAY(
        SELECT s.channel FROM unnest((SELECT %(doubtful)s::text[])::text[]) AS s (channel)
        WHERE checkpoint -> 'channel_values' -> s.channel = 'true'
            AND {_blob("s.channel", _version("checkpoint", "s.channel"))}
    ) AS marked
FROM (
    SELECT * FROM checkpoints WHERE {_HERE} AND checkpoint_id = {{id}} LIMIT 1
) AS checkpoints
"""
# Goes up from a checkpoint until every channel is found, or `chunk` rows; a circle ends there too.
CHAIN = f"""
WITH RECURSIVE chain AS (
    SELECT step.*, 1 AS depth FROM (
        {_STEP.format(sought="(SELECT %(sought)s::text[])::text[]", id="(SELECT %(id)s::text)")}
    ) AS step
    UNION ALL
    SELECT step.*, chain.depth + 1 FROM chain CROSS JOIN LATERAL (
        {_STEP.format(sought="chain.sought", id="chain.parent")}
    ) AS step
    WHERE chain.depth < (SELECT %(chunk)s::bigint) AND cardinality(chain.sought) > 0
)
SELECT id, parent, counted, sought, marked FROM chain ORDER BY depth
"""


def keep_set(
    cursor: psycopg.Cursor[tuple[Any, ...]],
    rows: PostgresRows,
    where: tuple[str, str],
    checkpoint_id: str | None,
    channels: Channels,
    chunk: int,
) -> KeepSet:
    """The keep-set of one checkpoint of `where` (thread, namespace), the newest for None.

    No statement gives more than `chunk` rows or ids.
    """
    named = check_channels(channels)
    asked: dict[str, Any] = {"thread": where[0], "space": where[1], "id": checkpoint_id}
    asked |= {"chunk": chunk, "reserved": list(RESERVED)}
    asked["channels"] = None if named is None else list(named)
    target_id, *found = cursor.execute(LINE, asked, binary=True).fetchone() or (None,)
    if target_id is None:
        return KeepSet()
    ids = _line(*found, chunk=chunk)
    if ids is not None:
        return KeepSet(ids, {target_id})
    return _walked(cursor, rows, {**asked, "id": target_id}, channels)


def _line(
    sure: bool, low: str, count: int, ids: str | None, parents: str | None, *, chunk: int
) -> list[str] | None:
    """The ids that `LINE` gives, newest first, if each names the next one as its parent."""
    if not sure or not 0 < count <= chunk or ids is None or parents is None:
        return None
    line, above = ids.split("\x01"), parents.split("\x01")
    linked = len(line) == len(above) == count and above[:-1] == line[1:]
    # The last is the oldest seed, or else a root.
    return line if linked and (low or not above[-1]) else None


def _walked(
    cursor: psycopg.Cursor[tuple[Any, ...]],
    rows: PostgresRows,
    asked: dict[str, Any],
    channels: Channels,
) -> KeepSet:
    found = cursor.execute(TARGET.format(columns=rows.columns), asked, prepare=False).fetchone()
    if found is None:  # deleted between two statements
        return KeepSet()
    target = rows.checkpoint(found[:-2], found[-2])
    certain, doubtful = missing_values(target, channels)
    finder = _Chain(
        cursor, {**asked, "sought": [*certain, *doubtful], "doubtful": list(doubtful)}, target
    )
    walk = needs(asked["thread"], target, channels, sends=found[-1])
    return answer(walk, finder.find)


class _Chain:
    """Finds the checkpoints of a chain by id, given that each asked for is the last one's parent.

    One recursive query yields them in this order; when it has yielded its chunk, another goes on.
    """

    def __init__(
        self,
        cursor: psycopg.Cursor[tuple[Any, ...]],
        asked: dict[str, Any],
        target: CheckpointRow,
    ) -> None:
        self._cursor, self._asked, self._space = cursor, asked, target.checkpoint_ns
        self._rows: Iterator[tuple[Any, ...]] = iter(())

    def find(self, name: str) -> CheckpointRow | None:
        """The checkpoint of this id, None when it is not stored."""
        row = next(self._rows, None)
        if row is None:
            # A plan kept from when the table was small would read all of it for every link.
            self._cursor.execute(CHAIN, {**self._asked, "id": name}, prepare=False)
            self._rows = iter(self._cursor.fetchall())
            row = next(self._rows, None)
        if row is None:
            return None
        name, parent, counted, sought, marked = row
        stored = frozenset(self._asked["sought"]).difference(sought)
        self._asked["sought"] = sought
        return CheckpointRow(
            self._space,
            name,
            parent,
            {},
            stored,
            {COUNTERS: counted} if counted else {},
            snapshots=frozenset(marked),
        )
