"""Arguments and options that the verbs of `savermark db` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from savermark.errors import UsageError

if TYPE_CHECKING:
    from datetime import timedelta

    from savermark.database.base import Database

database_argument = click.argument("uri", metavar="DATABASE")
thread_option = click.option(
    "--thread", "threads", multiple=True, metavar="ID", help="Only this thread (repeatable)."
)


class Age(click.ParamType[Any]):
    """An age such as 90s, 15m, 12h, 30d or 8w."""

    name = "age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """The age as a time span."""
        from savermark.retention.policy import parse_age

        try:
            return parse_age(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


grace_option = click.option(
    "--grace",
    type=Age(),
    default="1h",
    show_default=True,
    metavar="AGE",
    help="Rows without a checkpoint younger than this may belong to one not committed yet.",
)


def check_threads(database: Database, threads: tuple[str, ...]) -> list[str] | None:
    """The threads named, None for all. Raises `UsageError` for one that the database lacks."""
    if not threads:
        return None
    named = list(dict.fromkeys(threads))
    with database.reading() as reading:
        held = {row.thread_id for row in reading.storage(named)}
    if missing := [thread for thread in named if thread not in held]:
        raise UsageError(
            f"no thread {', '.join(map(repr, missing))} in {database.facts.address}: "
            "savermark db inspect lists the largest"
        )
    return named
