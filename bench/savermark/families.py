"""The families of workloads: what each case's `family` stands for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from savermark.errors import UsageError, unknown

if TYPE_CHECKING:
    from savermark.trial.case import BaseCase
    from savermark.trial.family import Family

# Imported when asked for: a worker of one family needs nothing of the other.
FAMILIES = {
    "savers": "savermark.trial.family",
    "sandbox": "savermark.sandbox_trial.family",
    "walks": "savermark.walking.family",
    "retention": "savermark.trial.policy_family",
}


def get_family(name: str) -> Family:
    """The family of this name; raises `UsageError` for an unknown one."""
    if name not in FAMILIES:
        raise UsageError(unknown("family", name, FAMILIES))
    family: Family = import_module(FAMILIES[name]).FAMILY
    return family


def case_from_json(data: dict[str, Any]) -> BaseCase:
    """The case of a result's header or a job; one that names no family is a saver case."""
    return get_family(data.get("family", "savers")).case(data)
