"""Recounts a store from its rows, in one snapshot, by SQL that shares nothing with the store's."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

Fetch = Callable[[str], list[tuple[Any, ...]]]


def sqlite_problems(path: Path, blob_folder: Path | None = None) -> list[str]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        found = problems(lambda query: connection.execute(query).fetchall(), blob_folder)
        checked = connection.execute("PRAGMA integrity_check").fetchone()
        return found if checked == ("ok",) else [*found, str(checked)]


def postgres_problems(dsn: str, schema: str, blob_folder: Path | None = None) -> list[str]:
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        path = sql.SQL("SET search_path TO {}").format(sql.Identifier(schema))
        connection.execute(path)
        return problems(lambda query: connection.execute(query).fetchall(), blob_folder)


def problems(fetch: Fetch, blob_folder: Path | None = None) -> list[str]:
    """What is wrong: empty for a sound store."""
    checkpoints = fetch("SELECT seq, checkpoint_id, thread_id, parent_id FROM sandbox_checkpoints")
    entries = fetch("SELECT seq, blob_key FROM sandbox_checkpoint_entries")
    artifacts = fetch("SELECT seq, blob_key FROM sandbox_checkpoint_artifacts")
    counted = dict(fetch("SELECT blob_key, uses FROM sandbox_checkpoint_blob_references"))
    threads = fetch("SELECT thread_id, head_id, fence FROM sandbox_checkpoint_threads")
    ids = {row[0] for row in fetch("SELECT checkpoint_id FROM sandbox_checkpoint_ids")}
    found: list[str] = []
    pairs = {(seq, key) for seq, key in [*entries, *artifacts] if key is not None}
    wanted = Counter(key for _, key in pairs)
    if dict(wanted) != counted:
        found.append(f"counts {counted} are not the recount {dict(wanted)}"[:500])
    orphans = {seq for seq, _ in [*entries, *artifacts]} - {row[0] for row in checkpoints}
    if orphans:
        found.append(f"rows of no checkpoint: {sorted(orphans)[:5]}")
    if not {row[1] for row in checkpoints} <= ids:
        found.append("a stored id is not remembered")
    found += _chains(checkpoints, threads)
    if blob_folder is not None:
        missing = [key for key in counted if not (blob_folder / key).is_file()]
        found += [f"missing blob {key}" for key in missing[:5]]
    return found


def _chains(checkpoints: list[Any], threads: list[Any]) -> list[str]:
    found = []
    by_thread: dict[str, dict[str, str | None]] = {thread: {} for thread, _, _ in threads}
    for _, key, thread, parent in checkpoints:
        by_thread.setdefault(thread, {})[key] = parent
    heads = {thread: head for thread, head, _ in threads}
    for thread, parents in by_thread.items():
        at, chain = heads.get(thread), []
        while at is not None and at in parents and at not in chain:
            chain.append(at)
            at = parents[at]
        if set(chain) != set(parents):
            found.append(f"thread {thread}: {len(chain)} in the chain of {len(parents)} stored")
        if heads.get(thread) is not None and not chain:
            found.append(f"thread {thread}: the head is not stored")
    return found
