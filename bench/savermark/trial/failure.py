"""Errors as rows: what a trial reports when it cannot report numbers."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from savermark.errors import SavermarkError, Unsupported
from savermark.records import Status, TrialResult
from savermark.trial.child import redact

if TYPE_CHECKING:
    from savermark.trial.case import BaseCase


def failed_trial(
    case: BaseCase, repetition: int, error: BaseException, started_at: str = ""
) -> TrialResult:
    """The row of a trial that `error` ended: `unsupported` where that is what it says."""
    status = Status.UNSUPPORTED if is_unsupported(error) else Status.FAILED
    return TrialResult(
        case_id=case.case_id,
        repetition=repetition,
        status=status,
        cause=describe(error),
        started_at=started_at,
    )


def is_unsupported(error: BaseException) -> bool:
    """Whether the error says that something is missing, not that something broke."""
    if isinstance(error, ModuleNotFoundError):
        return not (error.name or "").startswith("savermark")  # an extra that is not installed
    return isinstance(error, (Unsupported, NotImplementedError))


def describe(error: BaseException) -> str:
    """One line without secrets: our own message, or the error's type, text and place."""
    if isinstance(error, SavermarkError):
        return redact(str(error))
    frames = traceback.extract_tb(error.__traceback__)
    place = ""
    if frames:
        parts = frames[-1].filename.replace("\\", "/").split("/")
        place = f" ({'/'.join(parts[-2:])}:{frames[-1].lineno})"
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return redact(text + place)
