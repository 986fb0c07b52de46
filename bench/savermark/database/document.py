"""What `db inspect` and `db doctor` found, as plain documents: JSON, CSV and tables show them.

The keys are documented in docs/database.md; a change that removes or renames one moves the number
in `schema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from savermark.storage import TABLES

if TYPE_CHECKING:
    from datetime import datetime

    from savermark.database.base import Facts
    from savermark.database.doctor import Finding
    from savermark.database.inspect import Inspection, Loss, ThreadSize

INSPECT_SCHEMA = "savermark.db-inspect/1"
DOCTOR_SCHEMA = "savermark.db-doctor/1"
#: The lists in an inspection's document, in the order in which they are shown.
SECTIONS = (
    "tables",
    "footprint",
    "threads",
    "heads",
    "channels",
    "values",
    "ages",
    "days",
    "depths",
    "orphans",
)
Rows = list[dict[str, Any]]


def inspection_document(
    found: Inspection, *, threads: Sequence[str] | None = None
) -> dict[str, Any]:
    """The whole inspection; `threads` are those it was restricted to."""
    footprint = [asdict(row) for row in found.footprint]
    return {
        "schema": INSPECT_SCHEMA,
        "at": found.at.isoformat(timespec="seconds"),
        "database": database_fields(found.facts),
        "only_threads": None if threads is None else list(threads),
        "totals": _totals(found, footprint),
        "tables": _tables(found),
        "footprint": footprint,
        "threads": [_thread(thread) for thread in found.threads],
        "heads": [asdict(head) | {"delta": list(head.delta)} for head in found.heads],
        "channels": [
            {"table": table, "channel": channel, **asdict(size)}
            for (table, channel), size in found.channels.items()
        ],
        "values": [
            {"channel": channel, "rows": size.rows, "logical_bytes": size.logical_bytes}
            for channel, size in (found.values or {}).items()
        ],
        "ages": [
            {"age": age, **asdict(made), "idle_threads": found.idle[age]}
            for age, made in found.ages.items()
        ],
        "days": [{"day": day.isoformat(), **asdict(made)} for day, made in found.days.items()],
        "depths": [{"up_to": depth, "heads": count} for depth, count in found.depths.items()],
        "orphans": [_loss(loss) for loss in found.losses],
    }


def doctor_document(
    facts: Facts, at: datetime, findings: Sequence[Finding], *, threads: Sequence[str] | None = None
) -> dict[str, Any]:
    """Every finding, and whether anything is broken."""
    return {
        "schema": DOCTOR_SCHEMA,
        "at": at.isoformat(timespec="seconds"),
        "database": database_fields(facts),
        "only_threads": None if threads is None else list(threads),
        "broken": sum(finding.severity == "broken" for finding in findings),
        "notices": sum(finding.severity == "notice" for finding in findings),
        "findings": [asdict(finding) for finding in findings],
    }


def database_fields(facts: Facts) -> dict[str, Any]:
    """What was opened, as every document of `savermark db` tells it."""
    return {
        "address": facts.address,
        "engine": facts.engine,
        "saver": facts.saver,
        "task_path": facts.task_path,
    }


def _totals(found: Inspection, footprint: Rows) -> dict[str, Any]:
    size = found.total
    free = [row["bytes"] for row in footprint if row["component"] == "free"]
    whole = [row["bytes"] for row in footprint if row["component"] == "total"]
    return {
        "threads": found.thread_count,
        **asdict(size),
        "heads": found.head_count,
        "dead_namespaces": found.dead_namespaces,
        "dead_checkpoints": found.dead.checkpoints,
        "dead_stored_bytes": found.dead.stored_bytes,
        "footprint_bytes": sum(whole),
        # Unknown where the server has no pgstattuple.
        "free_bytes": sum(free) if free else None,
    }


def _tables(found: Inspection) -> Rows:
    rows = []
    for table in TABLES:
        live, dead = found.dead_rows.get(table, (None, None))
        rows.append(
            {
                "table": table,
                **asdict(found.tables[table]),
                "estimated_live_rows": live,
                "estimated_dead_rows": dead,
            }
        )
    return rows


def _thread(thread: ThreadSize) -> dict[str, Any]:
    row: dict[str, Any] = {
        "thread_id": thread.thread_id,
        "namespaces": thread.namespaces,
        **asdict(thread.total),
    }
    for table in TABLES:
        size = thread.tables.get(table)
        row[f"{table}_rows"] = size.rows if size else 0
        row[f"{table}_logical_bytes"] = size.logical_bytes if size else 0
    return row


def _loss(loss: Loss) -> dict[str, Any]:
    parts = {"old": loss.old, "young": loss.young, "undated": loss.undated}
    return {
        "table": loss.table,
        "rows": sum(size.rows for size in parts.values()),
        "logical_bytes": sum(size.logical_bytes for size in parts.values()),
        **{f"{name}_rows": size.rows for name, size in parts.items()},
        "threads": loss.threads,
        "example_thread": loss.example,
    }
