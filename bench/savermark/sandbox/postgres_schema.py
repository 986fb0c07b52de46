"""The tables and statements of the Postgres store.

Text is stored as `codec.to_text` gives it, compared byte by byte (collation C) whatever the
database's own collation. Rows of a checkpoint hang on its `seq`. `sandbox_checkpoint_ids`
remembers every id that was ever used.

Locks are taken in one order, so that no two writes wait for each other: the thread's row, the
checkpoint id, checkpoint rows, then the blob counts by key.
"""

from __future__ import annotations

VERSION = 1
SCHEMA_LOCK = 0x5A7E_B0C5  # any number, the same in every process

_TEXT = 'text COLLATE "C"'
TABLES = (
    "CREATE TABLE sandbox_schema (version integer NOT NULL)",
    f"""CREATE TABLE sandbox_checkpoint_threads (
        thread_id {_TEXT} PRIMARY KEY, head_id {_TEXT}, fence bigint NOT NULL,
        owner_token text, expires_at float8 NOT NULL) WITH (fillfactor = 70)""",
    f"CREATE TABLE sandbox_checkpoint_ids (checkpoint_id {_TEXT} PRIMARY KEY)",
    f"""CREATE TABLE sandbox_checkpoints (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        checkpoint_id {_TEXT} NOT NULL UNIQUE, thread_id {_TEXT} NOT NULL, parent_id {_TEXT},
        created_at float8 NOT NULL, reason text NOT NULL, label text, source_run_id text,
        conversation text NOT NULL)""",
    """CREATE INDEX sandbox_checkpoints_by_thread
        ON sandbox_checkpoints (thread_id, created_at, checkpoint_id)""",
    f"""CREATE TABLE sandbox_checkpoint_entries (
        seq bigint NOT NULL, ordinal integer NOT NULL, kind text NOT NULL, path text NOT NULL,
        blob_key {_TEXT}, size bigint, target text, PRIMARY KEY (seq, ordinal))""",
    f"""CREATE TABLE sandbox_checkpoint_artifacts (
        seq bigint NOT NULL, ordinal integer NOT NULL, artifact_id text NOT NULL,
        name text NOT NULL, mime_type text NOT NULL, size bigint NOT NULL,
        blob_key {_TEXT} NOT NULL, created_at float8 NOT NULL, PRIMARY KEY (seq, ordinal))""",
    f"""CREATE TABLE sandbox_checkpoint_blob_references (
        blob_key {_TEXT} PRIMARY KEY, uses bigint NOT NULL) WITH (fillfactor = 80)""",
    f"""CREATE TABLE sandbox_thread_records (
        thread_id {_TEXT} NOT NULL, kind text NOT NULL, record_id {_TEXT} NOT NULL,
        value text NOT NULL, PRIMARY KEY (thread_id, kind, record_id))""",
    f"""CREATE TABLE sandbox_instances (
        key {_TEXT} PRIMARY KEY, provider text NOT NULL, provider_sandbox_id text NOT NULL,
        latest_snapshot_id text, thread_id text NOT NULL, latest_run_id text,
        updated_at float8 NOT NULL)""",
    f"INSERT INTO sandbox_schema VALUES ({VERSION})",
)
HAS_TABLES = "SELECT to_regclass('sandbox_schema') IS NOT NULL"

CREATE_THREAD = """INSERT INTO sandbox_checkpoint_threads VALUES (%s, NULL, 0, NULL, 0.0)
    ON CONFLICT DO NOTHING"""
THREAD = """SELECT head_id, fence, owner_token, expires_at
    FROM sandbox_checkpoint_threads WHERE thread_id = %s FOR UPDATE"""
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8"
ID_USED = "SELECT 1 FROM sandbox_checkpoint_ids WHERE checkpoint_id = %s"
SAVE_LEASE = """UPDATE sandbox_checkpoint_threads
    SET fence = %s, owner_token = %s, expires_at = %s WHERE thread_id = %s"""
SET_HEAD = "UPDATE sandbox_checkpoint_threads SET head_id = %s WHERE thread_id = %s"

ADD_ID = "INSERT INTO sandbox_checkpoint_ids VALUES (%s)"
ADD_CHECKPOINT = """WITH added AS (
        INSERT INTO sandbox_checkpoints (checkpoint_id, thread_id, parent_id, created_at, reason,
            label, source_run_id, conversation)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s) RETURNING seq
    ), entries AS (
        INSERT INTO sandbox_checkpoint_entries
        SELECT added.seq, e.ordinal, e.kind, e.path, e.blob_key, e.size, e.target
        FROM added, unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[])
            WITH ORDINALITY AS e (kind, path, blob_key, size, target, ordinal)
    )
    INSERT INTO sandbox_checkpoint_artifacts
    SELECT added.seq, a.ordinal, a.artifact_id, a.name, a.mime_type, a.size, a.blob_key,
        a.created_at
    FROM added, unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::float8[])
        WITH ORDINALITY AS a (artifact_id, name, mime_type, size, blob_key, created_at, ordinal)"""
ADD_REFERENCES = """INSERT INTO sandbox_checkpoint_blob_references AS kept
    SELECT blob_key, 1 FROM unnest(%s::text[]) WITH ORDINALITY AS k (blob_key, ordinal)
    ORDER BY ordinal
    ON CONFLICT (blob_key) DO UPDATE SET uses = kept.uses + 1"""

_CHECKPOINT = """SELECT checkpoint_id, thread_id, parent_id, created_at, reason, label,
    source_run_id, conversation,
    (SELECT json_agg(json_build_array(kind, path, blob_key, size, target) ORDER BY ordinal)
        FROM sandbox_checkpoint_entries e WHERE e.seq = c.seq),
    (SELECT json_agg(json_build_array(artifact_id, name, mime_type, size, blob_key, created_at)
        ORDER BY ordinal) FROM sandbox_checkpoint_artifacts a WHERE a.seq = c.seq)
    FROM sandbox_checkpoints c"""
CHECKPOINT = f"{_CHECKPOINT} WHERE checkpoint_id = %s"
HELD_CHECKPOINT = f"{CHECKPOINT} FOR KEY SHARE OF c"
CHECKPOINTS = f"{_CHECKPOINT} WHERE thread_id = %s ORDER BY created_at, checkpoint_id"
PARENTS = "SELECT checkpoint_id, parent_id FROM sandbox_checkpoints WHERE thread_id = %s"
STORED_PARENT = """SELECT p.checkpoint_id FROM sandbox_checkpoints c
    JOIN sandbox_checkpoints p ON p.checkpoint_id = c.parent_id WHERE c.checkpoint_id = %s"""
OCCUPIED = """SELECT EXISTS (SELECT 1 FROM sandbox_checkpoints WHERE thread_id = %(thread)s)
    OR EXISTS (SELECT 1 FROM sandbox_thread_records WHERE thread_id = %(thread)s)"""

DROP_CHECKPOINTS = """DELETE FROM sandbox_checkpoints WHERE checkpoint_id = ANY(%s::text[])
    RETURNING seq"""
# a key counts once for each checkpoint that goes
_GONE = """SELECT blob_key, count(*) AS uses FROM (
        SELECT seq, blob_key FROM sandbox_checkpoint_entries
            WHERE blob_key IS NOT NULL AND seq = ANY(%(gone)s::bigint[])
        UNION SELECT seq, blob_key FROM sandbox_checkpoint_artifacts
            WHERE seq = ANY(%(gone)s::bigint[])) AS pairs GROUP BY blob_key"""
UNCOUNT = (
    f"""SELECT 1 FROM sandbox_checkpoint_blob_references
        WHERE blob_key IN (SELECT blob_key FROM ({_GONE}) AS gone) ORDER BY blob_key FOR UPDATE""",
    f"""UPDATE sandbox_checkpoint_blob_references AS kept SET uses = kept.uses - gone.uses
        FROM ({_GONE}) AS gone WHERE kept.blob_key = gone.blob_key""",
    f"""DELETE FROM sandbox_checkpoint_blob_references
        WHERE uses <= 0 AND blob_key IN (SELECT blob_key FROM ({_GONE}) AS gone)""",
    "DELETE FROM sandbox_checkpoint_entries WHERE seq = ANY(%(gone)s::bigint[])",
    "DELETE FROM sandbox_checkpoint_artifacts WHERE seq = ANY(%(gone)s::bigint[])",
)

SAVE_RECORD = """INSERT INTO sandbox_thread_records VALUES (%s, %s, %s, %s)
    ON CONFLICT (thread_id, kind, record_id) DO UPDATE SET value = excluded.value"""
TRANSCRIPT = """SELECT value FROM sandbox_thread_records
    WHERE thread_id = %s AND kind = 'transcript' AND record_id = ''"""
REFERENCES = """SELECT blob_key, uses FROM sandbox_checkpoint_blob_references
    ORDER BY blob_key"""
HEAD = "SELECT head_id FROM sandbox_checkpoint_threads WHERE thread_id = %s"

SAVE_INSTANCE = """INSERT INTO sandbox_instances VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (key) DO UPDATE SET provider = excluded.provider,
        provider_sandbox_id = excluded.provider_sandbox_id,
        latest_snapshot_id = excluded.latest_snapshot_id, thread_id = excluded.thread_id,
        latest_run_id = excluded.latest_run_id, updated_at = excluded.updated_at"""
INSTANCE = """SELECT key, provider, provider_sandbox_id, latest_snapshot_id, thread_id,
    latest_run_id, updated_at FROM sandbox_instances WHERE key = %s"""
DROP_INSTANCE = "DELETE FROM sandbox_instances WHERE key = %s"
