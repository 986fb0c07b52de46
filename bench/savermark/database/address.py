"""What a database's address says: a path or `sqlite:///`, or a Postgres URI or keyword string."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from savermark.errors import UsageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=//)")
_KEYWORDS = re.compile(
    r"\s*(host|hostaddr|port|dbname|user|password|service|sslmode|options)\s*=", re.I
)
Kind = Literal["file", "server"]
_KINDS: dict[str, Kind] = {"sqlite": "file", "postgresql": "server", "postgres": "server"}
FORMS = "give the path of a SQLite file, sqlite:///PATH, or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is: the path of a file, or what libpq connects to (may hold a password)."""

    kind: Kind
    target: str = field(repr=False)


def parse_address(uri: str) -> Address:
    """The address that a person typed. Raises `UsageError` with the forms that are known."""
    scheme = _SCHEME.match(uri)
    if scheme is None:
        if not uri.strip():
            raise UsageError(f"the database's address is empty: {FORMS}")
        if _KEYWORDS.match(uri) and not Path(uri).exists():
            return Address("server", uri)
        return Address("file", uri)
    name, rest = scheme[1].lower(), uri[scheme.end() :]
    plain = name.partition("+")[0]  # SQLAlchemy writes the driver behind a plus
    kind = _KINDS.get(plain)
    if kind is None:
        raise UsageError(f"databases of the kind {name}:// are not known: {FORMS}")
    if kind == "server":
        return Address(kind, f"{plain}:{rest}")
    if not rest.startswith("///") or len(rest) == 3:
        raise UsageError(
            "write a SQLite file as sqlite:///relative/path or sqlite:////absolute/path"
        )
    return Address(kind, unquote(rest[3:]))
