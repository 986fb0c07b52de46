"""Where a store lives on a server: a database of our own, or, without CREATEDB, a schema.

Both carry a comment that says which run made them. What has no such comment is never dropped.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from savermark.backends._postgres_guard import DROP, PREFIX, parse_marker
from savermark.backends.postgres_server import may_create_database, redact, run_of
from savermark.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_NAME = 63  # bytes; the server cuts longer names off


@dataclass(frozen=True, slots=True)
class Place:
    """A database or schema of ours: `dsn` leads into it, `server_dsn` to the server beside it."""

    name: str
    kind: str  # "database" or "schema"
    server_dsn: str = field(repr=False)
    dsn: str = field(repr=False)
    marker: dict[str, Any] = field(default_factory=dict)


@contextmanager
def connected(dsn: str) -> Iterator[psycopg.Connection]:
    """A connection that commits each statement, with server errors told as `BackendError`."""
    with told(dsn), psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@contextmanager
def told(dsn: str) -> Iterator[None]:
    """Turn a server's error into a `BackendError` of one line without the password."""
    try:
        yield
    except psycopg.Error as error:
        line = f"Postgres: {redact(str(error), dsn)}"
        if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
            line += " (does the server run, and are host, port, user and database right?)"
        raise BackendError(line) from error


def place_name(name: str) -> str:
    """A database name from a store's name: `savermark_` and only what needs no quoting."""
    plain = re.sub(r"[^a-z0-9_]", "_", name.lower())
    if plain != name or len(PREFIX + plain) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        plain = f"{plain[: _LONGEST_NAME - len(PREFIX) - 9]}_{digest}"
    return PREFIX + plain


def create_place(dsn: str, name: str) -> Place:
    """Make the database or schema for a store. Raises `BackendError` when the name is taken."""
    made = place_name(name)
    with connected(dsn) as connection:
        kind = "database" if may_create_database(connection) else "schema"
        create = (
            sql.SQL("CREATE DATABASE {} TEMPLATE template0")
            if kind == "database"
            else sql.SQL("CREATE SCHEMA {}")
        )
        try:
            connection.execute(create.format(sql.Identifier(made)))
        except (psycopg.errors.DuplicateDatabase, psycopg.errors.DuplicateSchema):
            raise BackendError(
                f"the {kind} {made} already exists: another run uses this name, or one was killed "
                "(then drop it)"
            ) from None
        place = _place(dsn, made, kind, {})
        return mark_place(connection, place, {"savermark": 1, "run": run_of(dsn)})


def mark_place(connection: psycopg.Connection, place: Place, marker: dict[str, Any]) -> Place:
    """Write the comment that says the place is ours; returns the place with it."""
    connection.execute(
        sql.SQL("COMMENT ON {} {} IS {}").format(
            sql.SQL("DATABASE" if place.kind == "database" else "SCHEMA"),
            sql.Identifier(place.name),
            sql.Literal(json.dumps(marker)),
        )
    )
    return _place(place.server_dsn, place.name, place.kind, marker)


def find_place(dsn: str, name: str) -> Place:
    """The place that `create_place` made. Raises `BackendError` when there is none of ours."""
    made = place_name(name)
    with connected(dsn) as connection:
        place = _lookup(connection, dsn, made)
    if place is None:
        raise BackendError(f"no store {made} of savermark's on this server: create it first")
    return place


def drop_place(place: Place) -> None:
    """Drop the database or schema, if it is still there and carries our mark."""
    with connected(place.server_dsn) as connection:
        found = _lookup(connection, place.server_dsn, place.name)
        if found is not None:
            connection.execute(sql.SQL(DROP[found.kind]).format(sql.Identifier(found.name)))


def _lookup(connection: psycopg.Connection, dsn: str, made: str) -> Place | None:
    found = connection.execute(
        "SELECT 'database', shobj_description(oid, 'pg_database') FROM pg_database"
        " WHERE datname = %(name)s UNION ALL"
        " SELECT 'schema', obj_description(oid, 'pg_namespace') FROM pg_namespace"
        " WHERE nspname = %(name)s",
        {"name": made},
    ).fetchall()
    for kind, comment in found:
        if marker := parse_marker(comment):
            return _place(dsn, made, kind, marker)
    return None


def _place(dsn: str, name: str, kind: str, marker: dict[str, Any]) -> Place:
    if kind == "database":
        return Place(name, kind, dsn, make_conninfo(dsn, dbname=name), marker)
    options = str(conninfo_to_dict(dsn).get("options") or "")
    inside = make_conninfo(dsn, options=f"{options} -c search_path={name}".strip())
    return Place(name, kind, dsn, inside, marker)
