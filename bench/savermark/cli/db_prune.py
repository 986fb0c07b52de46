"""`savermark db prune`: a retention policy on a database, as a plan or carried out and verified."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from savermark.cli.db_changes import Work, emit_changes, exit_code, summary
from savermark.cli.db_options import (
    check_mode,
    check_protected,
    check_threads,
    database_argument,
    dry_run_option,
    grace_option,
    graph_help,
    protect_option,
    serde_of,
    thread_option,
    top_option,
    unconfirmed,
    yes_option,
)
from savermark.cli.output import format_option, quiet_option, remark
from savermark.errors import UsageError

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.retention.policy import RetentionPolicy


@click.command(
    "prune",
    epilog="Example: savermark db prune checkpoints.sqlite --policy keep-turns=3 --dry-run",
)
@database_argument
@click.option(
    "--policy",
    "text",
    required=True,
    metavar="RULES",
    help="Rules with commas between them: savermark list policies names them.",
)
@thread_option
@protect_option
@click.option(
    "--graph",
    metavar="MODULE:NAME",
    help=f"{graph_help} `compact` and `snapshot` need it to fold values.",
)
@click.option("--max-threads", type=int, metavar="N", help="Stop after N threads were changed.")
@click.option(
    "--batch",
    type=int,
    default=64,
    show_default=True,
    metavar="N",
    help="Threads that are read, changed and verified at a time.",
)
@click.option(
    "--sleep",
    type=float,
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Rest after each batch that was changed.",
)
@grace_option
@top_option
@dry_run_option
@yes_option
@format_option
@quiet_option
def command(
    uri: str,
    text: str,
    threads: tuple[str, ...],
    protect: tuple[str, ...],
    graph: str | None,
    max_threads: int | None,
    batch: int,
    sleep: float,
    grace: timedelta,
    top: int,
    dry_run: bool,
    yes: bool,
    fmt: str,
    quiet: bool,
) -> int:
    """Delete what a policy does not keep, one transaction a thread, and prove the rest unharmed.

    Without --yes nothing is changed: the plan is shown, from a connection that cannot write. With
    --yes each batch of threads is read back before and after, and the job ends at the first
    difference. It can be interrupted and run again at any time. Exits 3 when a thread was refused
    (it is left untouched and named, the others go on) or a verification failed, 130 when
    interrupted.
    """
    from savermark.database.change_document import prune_document
    from savermark.database.fleet import Pace
    from savermark.database.opening import open_database
    from savermark.database.tally import Tally
    from savermark.database.tasks import PolicyTask
    from savermark.retention.fold import graph_fold
    from savermark.retention.plan import terms_of
    from savermark.retention.policy import parse_policy
    from savermark.retention.settle import Job

    check_mode(dry_run, yes)
    policy = parse_policy(text)
    loaded = _graph(policy, graph, dry_run=dry_run)
    now, tally, pace = datetime.now(UTC), Tally(top), Pace(batch, sleep, max_threads)
    serde = serde_of(loaded) if loaded is not None else None
    with open_database(uri, write=yes, serde=serde) as database:
        only = check_threads(database, threads)
        protected = check_protected(database, protect, only)
        terms = terms_of(policy, protect=protected, now=now, grace=grace)

        def report() -> None:
            document = prune_document(
                database.facts,
                now,
                tally,
                policy=str(policy),
                threads=only,
                protect=protected,
                done=yes,
            )
            emit_changes(document, summary(document, str(policy)), fmt, quiet=quiet)

        def task(reader: BaseCheckpointSaver[Any]) -> PolicyTask:
            fold = graph_fold(loaded, reader) if policy.folds else None
            return PolicyTask(Job(terms, fold=fold), only)

        work = Work(database, tally, pace, report, loaded, terms.protected, grace, quiet)
        _warn(policy, quiet=quiet)
        if yes:
            work.do(task)
        else:
            work.foresee(PolicyTask(Job(terms), only))
    if not (yes or dry_run):
        raise unconfirmed()
    return exit_code(tally)


def _warn(policy: RetentionPolicy, *, quiet: bool) -> None:
    """What a live run can meet, which no verification afterwards shows."""
    if policy.delta == "compact":
        remark(
            "compact wants that no run starts on these threads meanwhile: one that has read its "
            "checkpoint and not yet its history would start from less; beside runs use --policy "
            "snapshot first, and keep-latest when they have loaded (docs/reliability.md)",
            quiet=quiet,
        )
    if policy.duration_leaves or policy.leaf_siblings:
        remark(
            "leaf rules want that no run starts on these threads meanwhile (docs/reliability.md)",
            quiet=quiet,
        )


def _graph(policy: RetentionPolicy, reference: str | None, *, dry_run: bool) -> Any:
    """The graph that is named; `compact` cannot be carried out without one."""
    from savermark.retention.fold import load_graph

    if reference is not None:
        return load_graph(reference)
    if policy.folds and not dry_run:
        raise UsageError(
            f"{policy.delta} folds values through the graph that wrote the threads: give it with "
            "--graph module:name, or use keep-latest"
        )
    return None
