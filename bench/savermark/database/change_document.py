"""What the verbs of `savermark db` that change a database did, or would do, as plain documents.

The keys are documented in docs/database.md; a change that removes or renames one moves the number
in `schema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from savermark.database.document import database_fields
from savermark.storage import TABLES

if TYPE_CHECKING:
    from datetime import datetime

    from savermark.database.base import Compaction, Facts
    from savermark.database.tally import Tally, ThreadCut
    from savermark.database.tasks import RunsTask
    from savermark.retention.copy import Copied
    from savermark.storage import FootprintRow

PRUNE_SCHEMA = "savermark.db-prune/1"
RUNS_SCHEMA = "savermark.db-delete-runs/1"
COPY_SCHEMA = "savermark.db-copy/1"
COMPACT_SCHEMA = "savermark.db-compact/1"
_S = 1_000_000_000


def prune_document(
    facts: Facts,
    at: datetime,
    tally: Tally,
    *,
    policy: str,
    threads: Sequence[str] | None,
    protect: Sequence[str],
    done: bool,
) -> dict[str, Any]:
    """The plan of a policy, or what it did."""
    head = {"policy": policy, "only_threads": threads and list(threads), "protect": list(protect)}
    return _changed(PRUNE_SCHEMA, facts, at, tally, head, done)


def runs_document(
    facts: Facts, at: datetime, tally: Tally, task: RunsTask, *, done: bool
) -> dict[str, Any]:
    """What deleting runs would take, or took."""
    head = {
        "runs": sorted(task.names),
        "addressable": task.addressable,
        "protect": sorted(task.protect),
        "checkpoints": {
            "matched": task.matched,
            "kept_for_others": task.needed,
            "deleted": tally.tables["checkpoints"].rows,
            "cut_off": task.cut,
        },
    }
    return _changed(RUNS_SCHEMA, facts, at, tally, head, done)


def copy_document(facts: Facts, at: datetime, copied: Copied) -> dict[str, Any]:
    """What was copied, or would be."""
    return {
        "schema": COPY_SCHEMA,
        "at": at.isoformat(timespec="seconds"),
        "database": database_fields(facts),
        "done": not copied.dry_run,
        "thread": copied.source,
        "to": copied.target,
        "what": copied.what,
        "folded": list(copied.folded),
        "tables": [
            {
                "table": table,
                "rows": copied.rows.get(table, 0),
                "logical_bytes": copied.logical_bytes.get(table, 0),
            }
            for table in TABLES
        ],
    }


def compact_document(
    facts: Facts,
    at: datetime,
    plan: Compaction,
    before: Sequence[FootprintRow],
    after: Sequence[FootprintRow] | None,
    remarks: Sequence[str] = (),
    seconds: float | None = None,
) -> dict[str, Any]:
    """What giving space back would do, or did; `after` is None where nothing was done."""
    return {
        "schema": COMPACT_SCHEMA,
        "at": at.isoformat(timespec="seconds"),
        "database": database_fields(facts),
        "done": after is not None,
        "plan": asdict(plan) | {"statements": list(plan.statements)},
        "seconds": seconds,
        "remarks": list(remarks),
        "footprint": _footprints(before, after),
    }


def _changed(
    schema: str, facts: Facts, at: datetime, tally: Tally, head: dict[str, Any], done: bool
) -> dict[str, Any]:
    return {
        "schema": schema,
        "at": at.isoformat(timespec="seconds"),
        "database": database_fields(facts),
        "done": done,
        **head,
        "stopped": tally.stopped or None,
        "totals": _totals(tally, done),
        "tables": [{"table": table, **asdict(tally.tables[table])} for table in TABLES],
        "threads": [_thread(cut) for cut in tally.threads()],
        "refused": [{"thread_id": name, "reason": reason} for name, reason in tally.refused],
        "verification": _verification(tally) if done else None,
    }


def _totals(tally: Tally, done: bool) -> dict[str, Any]:
    return {
        "threads": tally.seen,
        "changed": tally.changed,
        "unchanged": tally.seen - tally.changed - len(tally.refused),
        "refused": len(tally.refused),
        "rows": tally.rows,
        "logical_bytes": tally.logical_bytes,
        "plan_s": round(tally.plan_ns / _S, 6),
        "apply_s": round(tally.apply_ns / _S, 6) if done else None,
        "verify_s": round(tally.verify_ns / _S, 6) if done else None,
        "rows_per_s": round(tally.rows * _S / tally.apply_ns) if tally.apply_ns else None,
    }


def _thread(cut: ThreadCut) -> dict[str, Any]:
    row: dict[str, Any] = {
        "thread_id": cut.thread_id,
        "whole": cut.whole,
        "rows": cut.rows,
        "logical_bytes": cut.logical_bytes,
    }
    for table in TABLES:
        row[f"{table}_rows"] = cut.tables[table].rows
        row[f"{table}_logical_bytes"] = cut.tables[table].logical_bytes
    row |= {"addressable": cut.kept, "support": cut.support}
    return row | {"folded": cut.folded, "grafted": cut.grafted}


def _verification(tally: Tally) -> dict[str, Any]:
    return {
        "ok": tally.proven,
        "verdict": tally.verdict,
        "threads": tally.verified,
        "failed_threads": tally.failed_threads,
        "unproven_threads": tally.unproven_threads,
        "checks": tally.checks,
        "failures": [asdict(check) for check in tally.failures],
    }


def _footprints(
    before: Sequence[FootprintRow], after: Sequence[FootprintRow] | None
) -> list[dict[str, Any]]:
    """One row a part; parts that are known only before or after have null for the other."""
    first = {(row.component, row.table): row.bytes for row in before}
    second = {(row.component, row.table): row.bytes for row in after or ()}
    return [
        {
            "component": component,
            "table": table,
            "bytes_before": first.get((component, table)),
            "bytes_after": second.get((component, table)),
        }
        for component, table in dict.fromkeys([*first, *second])
    ]
