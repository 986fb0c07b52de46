"""Runs one case: the phases of a trial, its reads, its checks, and the process it runs in."""

from savermark.trial.case import Case, location_from_json, location_to_json
from savermark.trial.child import ChildEnd, redact, run_child
from savermark.trial.failure import failed_trial
from savermark.trial.reads import read_cold
from savermark.trial.retention import Retain, Retained, delete_share
from savermark.trial.story import run_trial

__all__ = [
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
