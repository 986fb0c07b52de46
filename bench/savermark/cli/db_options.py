"""Arguments and options that the verbs of `savermark db` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from savermark.errors import UsageError

if TYPE_CHECKING:
    from datetime import timedelta

    from langgraph.checkpoint.serde.base import SerializerProtocol

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


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only show what would be done; the connection cannot write."
)
yes_option = click.option("--yes", is_flag=True, help="Do it.")
protect_option = click.option(
    "--protect",
    multiple=True,
    metavar="CHECKPOINT_ID",
    help="This checkpoint stays, with all it needs (repeatable).",
)
graph_help = "The compiled graph that wrote the threads, or a function that returns it."
top_option = click.option(
    "--top",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="How many threads are listed; 0 lists all.",
)


def check_mode(dry_run: bool, yes: bool) -> None:
    """Raises `UsageError` for both at once."""
    if dry_run and yes:
        raise UsageError("--dry-run changes nothing and --yes does it: give one of them")


def unconfirmed() -> UsageError:
    """What a verb ends with that was told neither to do it nor only to show it."""
    return UsageError("nothing was changed: give --yes to do this, or --dry-run to only look")


def check_protected(
    database: Database, protect: tuple[str, ...], threads: list[str] | None
) -> list[str]:
    """The ids to protect. Raises `UsageError` for one that is not stored, which is a typo."""
    named = list(dict.fromkeys(protect))
    if not named:
        return []
    held = database.held(named, threads)
    if missing := [name for name in named if name not in held]:
        where = "these threads" if threads else database.facts.address
        raise UsageError(
            f"no checkpoint {', '.join(map(repr, missing))} in {where} to protect: give whole ids "
            "of theirs"
        )
    return named


def serde_of(graph: Any) -> SerializerProtocol | None:
    """What values are read by: the graph's own serializer, since its code is trusted already.

    Without a graph nothing but plain data is built, whatever a row names.
    """
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    if graph is None:
        return JsonPlusSerializer(allowed_msgpack_modules=None)
    return getattr(getattr(graph, "checkpointer", None), "serde", None)


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
