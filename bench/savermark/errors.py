"""Errors that reach a person: one line that says what is wrong and names the fix."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class SavermarkError(Exception):
    """Base of every error that a user can cause or must act on.

    The command line prints the message as one line and exits with `exit_code`.
    """

    exit_code = 1


class UsageError(SavermarkError):
    """A wrong name, option or value."""

    exit_code = 2


class WorkloadError(UsageError):
    """A workload file that cannot be read, or holds an unknown key or a bad value."""


class BackendError(SavermarkError):
    """A backend that cannot be opened, or failed while it was measured."""


class Unsupported(SavermarkError):
    """The backend cannot do or measure this; it becomes an `unsupported` row, never a zero."""


class ResultError(SavermarkError):
    """A result that cannot be read, written or resumed."""


class Interrupted(SavermarkError):
    """Somebody stopped a run; what it had finished is on disk."""

    exit_code = 130


class NotComparableError(SavermarkError):
    """Two results whose checked facts differ."""

    exit_code = 4


class ContractError(SavermarkError):
    """A promise about data that was found broken."""

    exit_code = 3


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """One line for an unknown name: `unknown workload 'chta': did you mean 'chat'? ...`."""
    choices = sorted(known)
    near = get_close_matches(name, choices, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(choices) or 'none'}"
    return f"unknown {what} {name!r}: {hint}"
