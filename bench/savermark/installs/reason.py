"""The one line of what pip prints that says why it could not."""

from __future__ import annotations

import re

_CONFLICT = "The conflict is caused by:"
_ERROR = re.compile(r"^\s*(?:ERROR|error):\s*(.+)$")
#: Lines that pip ends with, whatever went wrong.
_IDLE = ("ResolutionImpossible", "subprocess-exited-with-error", "metadata-generation-failed")


def pip_reason(printed: str, complained: str) -> str:
    """Who wants what, for a conflict; else pip's last error that says something.

    What is held at the version of this environment reads `this environment has ...`.
    """
    conflict = _conflict(printed) or _conflict(complained)
    if conflict:
        return conflict
    lines = [found[1] for line in complained.splitlines() if (found := _ERROR.match(line))]
    telling = [line for line in lines if not line.startswith(_IDLE)]
    if telling:
        return telling[-1].rstrip(".")
    rest = [line.strip() for line in complained.splitlines() if line.strip()]
    return rest[-1] if rest else "pip gave no reason"


def _conflict(text: str) -> str:
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.strip() == _CONFLICT]
    if not starts:
        return ""
    whys = []
    for line in lines[starts[-1] + 1 :]:
        if not line.strip():
            break
        why = line.strip()
        why = re.sub(r"^The user requested \(constraint\) (.+)$", r"this environment has \1", why)
        whys.append(re.sub(r"^The user requested (.+)$", r"asked for \1", why))
    return "; ".join(whys)
