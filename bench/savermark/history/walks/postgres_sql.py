"""The statements of the one-pass walk in Postgres.

`line` is the usual thread in one statement: from the target down the primary key, as long as each
checkpoint names the next lower one as its parent, to the first that stores a value. What it proves
on the way is that the range holds the chain and nothing else, so that the writes are one range of
their key, too. `runs` goes on where the chain leaves that line, one such run after the other;
`links` walks single links, for threads so full of forks that runs are a few checkpoints long.

How the planner is kept to the primary keys, whatever it knows or believes of the tables:

- What is asked for stands in a CTE that it cannot look into, so that the plan for any value is the
  plan for each, and the server keeps it (a plan costs ten times what a short walk does).
- A LIMIT it cannot foresee makes it read in order and stop early: without one it sorts a thread.
- `OFFSET 0` keeps a probe for a blob from becoming a hash of the whole table of blobs.
"""

from __future__ import annotations

from functools import cache

FEW = 16  # blobs of a channel up to which their versions are compared, and not probed for
_TURNS = 1_000  # runs of one statement at most
# Runs are followed while they are this long on average, or the first few: a run costs about as
# much as eight links.
_SHORT, _FIRST = 8, 4
_DENSE = 4  # a chain is read as one range of writes when it is a quarter of its range or more
_SMALL = 65_536  # bytes of a table that a scan might seem cheaper for than an index

_SORTED = 'task_path COLLATE "C", task_id COLLATE "C", idx'


def _at(row: str, asked: str) -> str:
    return f"{row}.thread_id = {asked}.thread AND {row}.checkpoint_ns = {asked}.space"


def _probe(asked: str, version: str) -> str:
    return (
        f"EXISTS (SELECT 1 FROM checkpoint_blobs AS b WHERE {_at('b', asked)} "
        f"AND b.channel = {asked}.channel AND b.version = {version} "
        "AND b.type <> 'empty' OFFSET 0)"
    )


def _versions(asked: str) -> str:
    """The versions of a channel's first blobs, one more than `FEW`."""
    return (
        f"ARRAY(SELECT b.version FROM checkpoint_blobs AS b WHERE {_at('b', asked)} "
        f"AND b.channel = {asked}.channel AND b.type <> 'empty' "
        f"ORDER BY b.version LIMIT {FEW + 1})"
    )


def _seed(run: str) -> str:
    return (
        f"LEFT JOIN LATERAL (SELECT b.type, b.blob FROM checkpoint_blobs AS b "
        f"WHERE {_at('b', run)} AND b.channel = {run}.channel AND b.version = {run}.version "
        "AND b.type <> 'empty' LIMIT 1) AS seed"
    )


def _told(run: str, more: str = "NULL") -> str:
    """What Python must know of a run; `null` in JSON is a value, no value is `false` before it."""
    return (
        f"jsonb_build_array({run}.bottom, {run}.parent, {run}.number, "
        f"{run}.inline IS NOT NULL, {run}.inline, {more})::text"
    )


def _down(asked: str, start: str, stop: str) -> str:
    """The first checkpoint from `start` down that ends the run, with its place in it."""
    return f"""
SELECT line.* FROM (
    SELECT c.*, lead(c.bottom) OVER down AS below, row_number() OVER down AS number
    FROM (
        SELECT c.checkpoint_id AS bottom, nullif(c.parent_checkpoint_id, '') AS parent,
            CASE WHEN cardinality({asked}.few) > 0
                THEN c.checkpoint -> 'channel_versions' ->> {asked}.channel END AS version,
            c.checkpoint -> 'channel_values' -> {asked}.channel AS inline
        FROM checkpoints AS c WHERE {_at("c", asked)} AND c.checkpoint_id <= {start}
        ORDER BY c.checkpoint_id DESC LIMIT {asked}.most
    ) AS c
    WINDOW down AS (ORDER BY c.bottom DESC)
) AS line
WHERE line.below IS NULL OR line.parent IS DISTINCT FROM line.below
    OR (line.number = 1 AND line.bottom <> {start}) OR {stop}
ORDER BY line.bottom DESC LIMIT 1
"""


def _writes(below: str, paths: bool) -> str:
    """The writes of a run's range, by checkpoint and key, or in the order of their paths.

    The order of the key costs nothing, and is that of the paths where a checkpoint has the writes
    of one task only.
    """
    return f"""
SELECT w.checkpoint_id, w.task_id, w.type, w.blob FROM checkpoint_writes AS w
WHERE {_at("w", "run")} AND w.checkpoint_id >= run.bottom AND w.checkpoint_id {below}
    AND w.channel = run.channel
ORDER BY w.checkpoint_id, {_SORTED if paths else "w.task_id, w.idx"}
"""


def _ids(below: str) -> str:
    """The checkpoints of a run: a write whose checkpoint is not stored is none of its."""
    return f"""(
SELECT json_agg(c.checkpoint_id)::text FROM checkpoints AS c
WHERE {_at("c", "run")} AND c.checkpoint_id >= run.bottom AND c.checkpoint_id {below}
)"""


_KEPT = f"""CASE WHEN cardinality({{0}}.few) <= {FEW} THEN {{1}}.version = ANY({{0}}.few)
    ELSE {{2}} END"""
_MANY = "FROM unnest((SELECT %(channels)s::text[])) WITH ORDINALITY AS s (channel, n)"
_NEWEST = (
    "(SELECT c.checkpoint_id FROM checkpoints AS c WHERE c.thread_id = (SELECT %(thread)s::text) "
    "AND c.checkpoint_ns = (SELECT %(space)s::text) ORDER BY c.checkpoint_id DESC LIMIT 1)"
)


# Which tables are large enough that no plan reads all of them. A plan made for a table of a few
# pages does, and the server keeps it when the table grows, until somebody analyzes it. So the
# walk asks now and then, and a statement has another text, and with that a plan of its own, for
# each answer.
_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
_GROWN = " + ".join(
    f"{2**at} * (pg_relation_size('{table}'::regclass) >= {_SMALL})::int"
    for at, table in enumerate(_TABLES)
)
ALL_GROWN = 2 ** len(_TABLES) - 1
NOT_ASKED = 8  # one digit like each answer, so that asking moves no count
ASKED = f"CASE WHEN (SELECT %(ask)s::bool) THEN {_GROWN} ELSE {NOT_ASKED} END"


@cache
def text(statement: str, grown: int) -> bytes:
    """A statement with a plan of its own for this answer."""
    return f"{statement} -- {grown}".encode()


@cache
def line(*, one: bool, newest: bool, paths: bool) -> str:
    """The statement for one channel or several, for a named target or the newest.

    Its rows are (channel's number, checkpoint id, task id, type, blob) for a write; and (minus the
    number, `_told`, `_ids`, type, blob) for what ended the run, which tells what has grown, too.
    `paths` is the order (see `_writes`).
    """
    target = _NEWEST if newest else "(SELECT %(id)s::text)"
    named = "%(channel)s::text AS channel, 1 AS n" if one else f"s.channel, s.n::int AS n {_MANY}"
    kept = _KEPT.format("asked", "line", _probe("asked", "line.version"))
    stop = f"(line.number > 1 AND (line.inline IS NOT NULL OR {kept}))"
    return f"""
WITH asked AS MATERIALIZED (
    SELECT asked.*, {_versions("asked")} AS few FROM (
        SELECT (SELECT %(thread)s::text) AS thread, (SELECT %(space)s::text) AS space,
            {target} AS id, 1000000000::bigint AS most, {named} OFFSET 0
    ) AS asked
), run AS MATERIALIZED (
    SELECT asked.*, line.* FROM asked
    CROSS JOIN LATERAL ({_down("asked", "asked.id", stop)}) AS line
    WHERE line.number > 1 OR line.bottom = asked.id
)
SELECT run.n, w.checkpoint_id, w.task_id, w.type, w.blob
FROM run CROSS JOIN LATERAL ({_writes("< run.id", paths)}) AS w
UNION ALL
SELECT -run.n, {_told("run", ASKED)}, {_ids("< run.id")}, seed.type, seed.blob
FROM run {_seed("run")} ON run.number > 1
"""


_STARTS = """(SELECT %(thread)s::text) AS thread, (SELECT %(space)s::text) AS space, s.channel,
    s.n::int AS n, 1000000000::bigint AS most, s.next
    FROM unnest((SELECT %(channels)s::text[]), (SELECT %(starts)s::text[]))
        WITH ORDINALITY AS s (channel, next, n) OFFSET 0"""


@cache
def runs(*, paths: bool) -> str:
    """The statement for further runs, from `starts` of `channels`.

    Its rows are (number, run's place, checkpoint id, task id, type, blob) for a write; and (minus
    the number, place, `_told`, `_ids`, type, blob) for what ended a run.
    """
    kept = _KEPT.format("run", "line", _probe("run", "line.version"))
    down = _down("run", "run.next", f"line.inline IS NOT NULL OR {kept}")
    return f"""
WITH RECURSIVE run AS (
    SELECT asked.*, 0 AS turn, 0::bigint AS covered, NULL::text AS top, NULL::text AS bottom,
        NULL::text AS parent, 0::bigint AS number, NULL::text AS version, NULL::jsonb AS inline,
        {_versions("asked")} AS few
    FROM (SELECT {_STARTS}) AS asked
    UNION ALL
    SELECT run.thread, run.space, run.channel, run.n, run.most,
        CASE WHEN step.inline IS NOT NULL OR step.kept THEN NULL ELSE step.parent END,
        run.turn + 1, run.covered + step.number, run.next, step.bottom, step.parent, step.number,
        step.version, step.inline, run.few
    FROM run CROSS JOIN LATERAL (
        SELECT line.*, {kept} AS kept FROM ({down}) AS line
        WHERE line.number > 1 OR line.bottom = run.next
    ) AS step
    WHERE run.next IS NOT NULL AND run.turn < {_TURNS}
        AND (run.turn < {_FIRST} OR run.covered >= {_SHORT} * run.turn)
)
SELECT run.n, run.turn, w.checkpoint_id, w.task_id, w.type, w.blob
FROM run CROSS JOIN LATERAL ({_writes("<= run.top", paths)}) AS w
UNION ALL
SELECT -run.n, run.turn, {_told("run")}, {_ids("<= run.top")}, seed.type, seed.blob
FROM run {_seed("run")} ON true
WHERE run.turn > 0
"""


# Rows: (number, checkpoint id, task path, task id, idx, type, blob) for a write, in no order;
# (minus number, '', ids from the start down, what is said of the last, 0, type, blob) at the end.
LINKS = f"""
WITH RECURSIVE chain AS (
    SELECT asked.*, 0 AS depth, NULL::text AS bottom, NULL::text AS parent, 0::bigint AS number,
        NULL::text AS version, NULL::jsonb AS inline, {_versions("asked")} AS few
    FROM (SELECT {_STARTS}) AS asked
    UNION ALL
    SELECT chain.thread, chain.space, chain.channel, chain.n, chain.most,
        CASE WHEN step.inline IS NOT NULL
            OR {_KEPT.format("chain", "step", _probe("chain", "step.version"))}
            THEN NULL ELSE step.parent END,
        chain.depth + 1, step.id, step.parent, chain.number + 1, step.version, step.inline,
        chain.few
    FROM chain CROSS JOIN LATERAL (
        SELECT c.checkpoint_id AS id, nullif(c.parent_checkpoint_id, '') AS parent,
            c.checkpoint -> 'channel_versions' ->> chain.channel AS version,
            c.checkpoint -> 'channel_values' -> chain.channel AS inline
        FROM checkpoints AS c WHERE {_at("c", "chain")} AND c.checkpoint_id = chain.next
        LIMIT 1
    ) AS step
    WHERE chain.next IS NOT NULL AND chain.depth < (SELECT %(chunk)s::int)
), bounds AS MATERIALIZED (
    SELECT (SELECT %(thread)s::text) AS thread, (SELECT %(space)s::text) AS space,
        min(bottom) AS low, max(bottom) AS high, {_DENSE} * count(*) AS most FROM chain
), range AS MATERIALIZED (
    SELECT bounds.*, (SELECT count(*) FROM (
        SELECT 1 FROM checkpoints AS c WHERE {_at("c", "bounds")}
            AND c.checkpoint_id >= bounds.low AND c.checkpoint_id <= bounds.high
        LIMIT bounds.most
    ) AS c) < bounds.most AS dense FROM bounds
)
SELECT named.n, w.checkpoint_id, w.task_path, w.task_id, w.idx, w.type, w.blob
FROM range CROSS JOIN LATERAL (
    SELECT w.* FROM checkpoint_writes AS w WHERE {_at("w", "range")} AND range.dense
        AND w.checkpoint_id >= range.low AND w.checkpoint_id <= range.high
        AND ((w.channel, w.checkpoint_id) IN (SELECT channel, bottom FROM chain)) IS TRUE
    OFFSET 0
) AS w CROSS JOIN LATERAL (
    SELECT s.n::int AS n FROM unnest((SELECT %(channels)s::text[]))
        WITH ORDINALITY AS s (channel, n) WHERE s.channel = w.channel
) AS named
UNION ALL
SELECT chain.n, w.checkpoint_id, w.task_path, w.task_id, w.idx, w.type, w.blob
FROM range CROSS JOIN chain CROSS JOIN LATERAL (
    SELECT w.* FROM checkpoint_writes AS w WHERE {_at("w", "chain")}
        AND w.checkpoint_id = chain.bottom AND w.channel = chain.channel
    OFFSET 0
) AS w WHERE NOT range.dense
UNION ALL
SELECT -chain.n, (SELECT jsonb_agg(c.bottom ORDER BY c.depth)::text FROM chain AS c
    WHERE c.n = chain.n AND c.depth > 0), '', {_told("chain")}, 0, seed.type, seed.blob
FROM (SELECT DISTINCT ON (n) * FROM chain ORDER BY n, depth DESC) AS chain {_seed("chain")} ON true
"""
