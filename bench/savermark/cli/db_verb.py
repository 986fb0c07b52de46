"""`savermark db`: databases that exist, looked at, diagnosed and maintained."""

from __future__ import annotations

import click

from savermark.cli.groups import VerbGroup

# Verb -> its one-line help; each is imported when asked for, from `db_<verb>`.
VERBS = {
    "inspect": "What a database holds: threads, channels, ages, growth, orphans, free space.",
    "doctor": "What is broken in a database, what it breaks and what to do.",
    "prune": "Delete what a retention policy does not keep, and prove the rest unharmed.",
    "delete-runs": "Delete what runs stored, and nothing that others are rebuilt from.",
    "copy": "Copy a thread under another id: whole, its latest state, or its last turns.",
    "compact": "Give back the space that deleted rows left, after saying what that locks.",
}


@click.group(
    "db",
    cls=VerbGroup,
    verbs=VERBS,
    module="db_{}",
    epilog="Example: savermark db inspect checkpoints.sqlite",
)
def command() -> None:
    """Look after databases that LangGraph's savers wrote: SQLite files and Postgres.

    A database is named by its path, sqlite:///PATH, or a Postgres connection string (put the
    password into PGPASSWORD or ~/.pgpass). See docs/database.md.
    """
