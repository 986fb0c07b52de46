"""Text and JSON in a form that every database takes and gives back unchanged.

Postgres stores no NUL and neither database driver a lone surrogate, yet both may occur where the
format does not forbid them. `to_text` escapes them and keeps the order of well-formed strings:
comparing the UTF-8 bytes of two escaped ids gives what comparing the originals gives.
"""

from __future__ import annotations

import json
import re
from typing import Any

_ESCAPE = "\x01"
_UNSAFE = re.compile("[\x00\x01\ud800-\udfff]")
_ESCAPED = re.compile("\x01(?:([\x01\x02])|\x03(d[0-9a-f]{3}))")


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char == "\x00":
        return _ESCAPE + "\x01"
    if char == "\x01":
        return _ESCAPE + "\x02"
    return f"{_ESCAPE}\x03{ord(char):x}"


def _unescape(match: re.Match[str]) -> str:
    if match[2]:
        return chr(int(match[2], 16))
    return "\x00" if match[1] == "\x01" else "\x01"


def to_text(value: str) -> str:
    """A string as it is stored: without NUL and lone surrogates."""
    return _UNSAFE.sub(_escape, value)


def from_text(value: str) -> str:
    """The string that `to_text` was given."""
    return _ESCAPED.sub(_unescape, value) if _ESCAPE in value else value


def to_optional_text(value: str | None) -> str | None:
    """`to_text` that lets None pass."""
    return None if value is None else to_text(value)


def from_optional_text(value: str | None) -> str | None:
    """`from_text` that lets None pass."""
    return None if value is None else from_text(value)


def to_json(value: Any) -> str:
    """JSON in ASCII, which holds every string. Raises TypeError or ValueError for other data."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def from_json(text: str) -> Any:
    """The data that `to_json` was given, in new objects."""
    return json.loads(text)
