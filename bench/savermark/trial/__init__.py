"""Runs one case: the phases of a trial, its reads, its checks, and the process it runs in.

The names below are imported when they are asked for: a worker loads only what its family needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from savermark.trial.case import BaseCase, Case, location_from_json, location_to_json
    from savermark.trial.child import ChildEnd, redact, run_child
    from savermark.trial.failure import failed_trial
    from savermark.trial.reads import read_cold
    from savermark.trial.retention import Retain, Retained, delete_share
    from savermark.trial.story import run_trial

__all__ = [
    "BaseCase",
    "Case",
    "ChildEnd",
    "Retain",
    "Retained",
    "delete_share",
    "failed_trial",
    "location_from_json",
    "location_to_json",
    "read_cold",
    "redact",
    "run_child",
    "run_trial",
]

_HOMES = {
    "case": ("BaseCase", "Case", "location_from_json", "location_to_json"),
    "child": ("ChildEnd", "redact", "run_child"),
    "failure": ("failed_trial",),
    "reads": ("read_cold",),
    "retention": ("Retain", "Retained", "delete_share"),
    "story": ("run_trial",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The public names of the modules of this folder."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
