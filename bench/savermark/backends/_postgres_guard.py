"""Removes what a run leaves on Postgres, also when its process is killed.

`postgres_server` runs this file as a script beside a benchmark run: it waits on a pipe that only
the run holds. When the pipe closes without a word, the run died, and the cleaning is done here.
So the module imports the standard library only, until there is something to clean.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

DONE = "done"
PREFIX = "savermark_"
DATA = "pg"
DROP = {
    "database": "DROP DATABASE IF EXISTS {} WITH (FORCE)",
    "schema": "DROP SCHEMA IF EXISTS {} CASCADE",
}
_STOP_SECONDS = 15.0  # an immediate shutdown takes well under a second; a busy disk may need more


def parse_marker(comment: str | None) -> dict[str, Any]:
    """What `comment` on a database or schema says about us; empty when it is not ours."""
    try:
        marker = json.loads(comment or "")
    except ValueError:
        return {}
    return marker if isinstance(marker, dict) and marker.get("savermark") else {}


def remove_server(folder: Path) -> None:
    """Stop the server whose data lies in `folder`, if it runs, and remove the folder."""
    data = folder / DATA
    pid = _postmaster(data)
    if pid is not None:
        # Immediate: the data is thrown away, so a shutdown checkpoint would be wasted time.
        os.kill(pid, signal.SIGQUIT)
        limit = time.monotonic() + _STOP_SECONDS
        while _postmaster(data) == pid and time.monotonic() < limit:
            time.sleep(0.02)
        if _postmaster(data) == pid:
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _postmaster(data: Path) -> int | None:
    """The process id of the server on `data`; None when that process is gone or another's."""
    import psutil

    try:
        pid = int((data / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        process = psutil.Process(pid)
        ours = process.status() != psutil.STATUS_ZOMBIE and str(data) in process.cmdline()
    except (OSError, ValueError, IndexError, psutil.Error):
        return None
    return pid if ours else None


def drop_run(dsn: str, run: str) -> list[str]:
    """Drop the databases and schemas whose comment carries this run's mark; return their names."""
    import psycopg
    from psycopg import sql

    dropped = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute(
            "SELECT 'database', datname, shobj_description(oid, 'pg_database') FROM pg_database"
            " UNION ALL"
            " SELECT 'schema', nspname, obj_description(oid, 'pg_namespace') FROM pg_namespace"
        ).fetchall()
        for kind, name, comment in found:
            if not name.startswith(PREFIX) or parse_marker(comment).get("run") != run:
                continue
            connection.execute(sql.SQL(DROP[kind]).format(sql.Identifier(name)))
            dropped.append(name)
    return dropped


def clean(task: dict[str, str]) -> None:
    """Do what a task describes: `{"folder": path}` or `{"dsn": server, "run": mark}`."""
    if "folder" in task:
        remove_server(Path(task["folder"]))
    else:
        drop_run(task["dsn"], task["run"])


def main() -> None:
    """Read the task, wait for the end of the run, and clean unless the run says it did."""
    task = json.loads(sys.stdin.readline())
    if sys.stdin.read().strip() != DONE:
        clean(task)


if __name__ == "__main__":
    main()
