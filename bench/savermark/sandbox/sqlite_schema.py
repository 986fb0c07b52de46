"""The tables and statements of the SQLite store.

Text is stored as `codec.to_text` gives it; SQLite compares it byte by byte. Rows of a checkpoint
hang on its `seq`, a small integer. `sandbox_checkpoint_ids` remembers every id that was ever used.
"""

from __future__ import annotations

VERSION = 1

TABLES = (
    """CREATE TABLE IF NOT EXISTS sandbox_checkpoint_threads (
        thread_id TEXT PRIMARY KEY, head_id TEXT, fence INTEGER NOT NULL,
        owner_token TEXT, expires_at REAL NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS sandbox_checkpoint_ids (
        checkpoint_id TEXT PRIMARY KEY) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS sandbox_checkpoints (
        seq INTEGER PRIMARY KEY, checkpoint_id TEXT NOT NULL UNIQUE, thread_id TEXT NOT NULL,
        parent_id TEXT, created_at REAL NOT NULL, reason TEXT NOT NULL, label TEXT,
        source_run_id TEXT, conversation TEXT NOT NULL)""",
    """CREATE INDEX IF NOT EXISTS sandbox_checkpoints_by_thread
        ON sandbox_checkpoints (thread_id, created_at, checkpoint_id)""",
    """CREATE TABLE IF NOT EXISTS sandbox_checkpoint_entries (
        seq INTEGER NOT NULL, ordinal INTEGER NOT NULL, kind TEXT NOT NULL, path TEXT NOT NULL,
        blob_key TEXT, size INTEGER, target TEXT, PRIMARY KEY (seq, ordinal)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS sandbox_checkpoint_artifacts (
        seq INTEGER NOT NULL, ordinal INTEGER NOT NULL, artifact_id TEXT NOT NULL,
        name TEXT NOT NULL, mime_type TEXT NOT NULL, size INTEGER NOT NULL,
        blob_key TEXT NOT NULL, created_at REAL NOT NULL,
        PRIMARY KEY (seq, ordinal)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS sandbox_checkpoint_blob_references (
        blob_key TEXT PRIMARY KEY, uses INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS sandbox_thread_records (
        thread_id TEXT NOT NULL, kind TEXT NOT NULL, record_id TEXT NOT NULL,
        value TEXT NOT NULL, PRIMARY KEY (thread_id, kind, record_id)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS sandbox_instances (
        key TEXT PRIMARY KEY, provider TEXT NOT NULL, provider_sandbox_id TEXT NOT NULL,
        latest_snapshot_id TEXT, thread_id TEXT NOT NULL, latest_run_id TEXT,
        updated_at REAL NOT NULL) WITHOUT ROWID""",
)

CREATE_THREAD = """INSERT INTO sandbox_checkpoint_threads VALUES (?, NULL, 0, NULL, 0.0)
    ON CONFLICT DO NOTHING"""
THREAD = """SELECT head_id, fence, owner_token, expires_at
    FROM sandbox_checkpoint_threads WHERE thread_id = ?"""
ID_USED = "SELECT 1 FROM sandbox_checkpoint_ids WHERE checkpoint_id = ?"
SAVE_LEASE = """UPDATE sandbox_checkpoint_threads
    SET fence = ?, owner_token = ?, expires_at = ? WHERE thread_id = ?"""
SET_HEAD = "UPDATE sandbox_checkpoint_threads SET head_id = ? WHERE thread_id = ?"

ADD_ID = "INSERT INTO sandbox_checkpoint_ids VALUES (?)"
ADD_CHECKPOINT = """INSERT INTO sandbox_checkpoints (checkpoint_id, thread_id, parent_id,
    created_at, reason, label, source_run_id, conversation) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
ADD_ENTRY = "INSERT INTO sandbox_checkpoint_entries VALUES (?, ?, ?, ?, ?, ?, ?)"
ADD_ARTIFACT = "INSERT INTO sandbox_checkpoint_artifacts VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
ADD_REFERENCE = """INSERT INTO sandbox_checkpoint_blob_references VALUES (?, 1)
    ON CONFLICT (blob_key) DO UPDATE SET uses = uses + 1"""

_COLUMNS = """seq, checkpoint_id, thread_id, parent_id, created_at, reason, label,
    source_run_id, conversation"""
CHECKPOINT = f"SELECT {_COLUMNS} FROM sandbox_checkpoints WHERE checkpoint_id = ?"
CHECKPOINTS = f"""SELECT {_COLUMNS} FROM sandbox_checkpoints
    WHERE thread_id = ? ORDER BY created_at, checkpoint_id"""
_OF_THREAD = "SELECT seq FROM sandbox_checkpoints WHERE thread_id = ?"
_ENTRIES = "SELECT seq, kind, path, blob_key, size, target FROM sandbox_checkpoint_entries"
_ARTIFACTS = """SELECT seq, artifact_id, name, mime_type, size, blob_key, created_at
    FROM sandbox_checkpoint_artifacts"""
ENTRIES = f"{_ENTRIES} WHERE seq = ? ORDER BY ordinal"
ARTIFACTS = f"{_ARTIFACTS} WHERE seq = ? ORDER BY ordinal"
THREAD_ENTRIES = f"{_ENTRIES} WHERE seq IN ({_OF_THREAD}) ORDER BY seq, ordinal"
THREAD_ARTIFACTS = f"{_ARTIFACTS} WHERE seq IN ({_OF_THREAD}) ORDER BY seq, ordinal"
PARENTS = "SELECT checkpoint_id, parent_id FROM sandbox_checkpoints WHERE thread_id = ?"
STORED_PARENT = """SELECT p.checkpoint_id FROM sandbox_checkpoints c
    JOIN sandbox_checkpoints p ON p.checkpoint_id = c.parent_id WHERE c.checkpoint_id = ?"""
OCCUPIED = """SELECT EXISTS (SELECT 1 FROM sandbox_checkpoints WHERE thread_id = ?1)
    OR EXISTS (SELECT 1 FROM sandbox_thread_records WHERE thread_id = ?1)"""

# the parameter is a JSON list of ids
SEQS = """SELECT seq FROM sandbox_checkpoints
    WHERE checkpoint_id IN (SELECT value FROM json_each(?))"""
# ?1 is a JSON list of seq; the distinct pairs count a key once for each checkpoint
_GONE = """SELECT blob_key, COUNT(*) AS uses FROM (
        SELECT seq, blob_key FROM sandbox_checkpoint_entries
            WHERE blob_key IS NOT NULL AND seq IN (SELECT value FROM json_each(?1))
        UNION SELECT seq, blob_key FROM sandbox_checkpoint_artifacts
            WHERE seq IN (SELECT value FROM json_each(?1))) GROUP BY blob_key"""
UNCOUNT = f"""UPDATE sandbox_checkpoint_blob_references AS kept
    SET uses = kept.uses - gone.uses FROM ({_GONE}) AS gone WHERE kept.blob_key = gone.blob_key"""
FORGET = f"""DELETE FROM sandbox_checkpoint_blob_references
    WHERE uses <= 0 AND blob_key IN (SELECT blob_key FROM ({_GONE}))"""
DROP = tuple(
    f"DELETE FROM {table} WHERE seq IN (SELECT value FROM json_each(?1))"
    for table in (
        "sandbox_checkpoint_entries",
        "sandbox_checkpoint_artifacts",
        "sandbox_checkpoints",
    )
)

SAVE_RECORD = "INSERT OR REPLACE INTO sandbox_thread_records VALUES (?, ?, ?, ?)"
TRANSCRIPT = """SELECT value FROM sandbox_thread_records
    WHERE thread_id = ? AND kind = 'transcript' AND record_id = ''"""
REFERENCES = """SELECT blob_key, uses FROM sandbox_checkpoint_blob_references
    ORDER BY blob_key"""
HEAD = "SELECT head_id FROM sandbox_checkpoint_threads WHERE thread_id = ?"

SAVE_INSTANCE = "INSERT OR REPLACE INTO sandbox_instances VALUES (?, ?, ?, ?, ?, ?, ?)"
INSTANCE = """SELECT key, provider, provider_sandbox_id, latest_snapshot_id, thread_id,
    latest_run_id, updated_at FROM sandbox_instances WHERE key = ?"""
DROP_INSTANCE = "DELETE FROM sandbox_instances WHERE key = ?"
