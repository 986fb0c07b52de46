"""`savermark db`: databases that exist, looked at, diagnosed and maintained."""

from __future__ import annotations

from importlib import import_module

import click

from savermark.errors import unknown

# Verb -> its one-line help; each is imported when asked for, from `db_<verb>`.
VERBS = {
    "inspect": "What a database holds: threads, channels, ages, growth, orphans, free space.",
    "doctor": "What is broken in a database, what it breaks and what to do.",
    "prune": "Delete what a retention policy does not keep, and prove the rest unharmed.",
    "delete-runs": "Delete what runs stored, and nothing that others are rebuilt from.",
    "copy": "Copy a thread under another id: whole, its latest state, or its last turns.",
    "compact": "Give back the space that deleted rows left, after saying what that locks.",
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = import_module(f"savermark.cli.db_{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        command.short_help = VERBS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(unknown("verb", args[0], VERBS), ctx)
        return super().resolve_command(ctx, args)


@click.group("db", cls=_Verbs, epilog="Example: savermark db inspect checkpoints.sqlite")
def command() -> None:
    """Look after databases that LangGraph's savers wrote: SQLite files and Postgres.

    A database is named by its path, sqlite:///PATH, or a Postgres connection string (put the
    password into PGPASSWORD or ~/.pgpass). See docs/database.md.
    """
