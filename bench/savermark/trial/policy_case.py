"""What a trial of `savermark retain` measures: a conversation on one saver, and a policy."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from savermark.backends.custom import load_object
from savermark.errors import UsageError
from savermark.retention.policy import parse_policy
from savermark.spec import fingerprint, load_workload
from savermark.trial.case import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from savermark.spec import WorkloadSpec

FAMILY = "retention"
#: Enough for an interval around the ratio of two medians; `--set measure.reads=` has the last word.
READS = "measure.reads=15"


@dataclass(frozen=True)
class RetainCase(Case):
    """A case whose retained phase is what a policy makes of it.

    `policy` is a policy's one-line form, or `module:function`. With `scenario` the trial is
    another one (`run_history`), and `policy` is what is done in it.
    """

    policy: str = ""
    protect_tips: bool = False
    scenario: str = ""

    @property
    def family(self) -> str:
        return FAMILY

    @cached_property
    def fingerprint(self) -> str:
        """The spec's and the policy's, so that neither is compared without the other."""
        facts = [fingerprint(self.spec), self.policy, self.protect_tips, self.scenario]
        return sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        own = {
            "policy": self.policy,
            "protect_tips": self.protect_tips,
            "scenario": self.scenario,
        }
        return {**super().to_json(), "retention": own}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        plain = Case.from_json(data)
        return cls(plain.workload, plain.variant, plain.spec, plain.backend, **data["retention"])


def is_function(policy: str) -> bool:
    """Whether a policy is named as `module:function`."""
    return ":" in policy


def load_policy(reference: str) -> Callable[..., Any]:
    """The function that `module:function` names. Raises `UsageError` if it is none."""
    found = load_object(reference, "policy", "function")
    if not callable(found):
        raise UsageError(f"policy {reference!r} is not callable: name a function")
    function: Callable[..., Any] = found
    return function


def checked_policy(text: str, api: str) -> str:
    """The policy in its one form. Raises `UsageError` for one that cannot be run on this api."""
    if not is_function(text):
        return str(parse_policy(text))
    if inspect.iscoroutinefunction(load_policy(text)) and api != "async":
        raise UsageError(f"policy {text!r} is async: measure it with --set run.api=async")
    return text


def make_retain_cases(
    workload: str,
    backends: Sequence[str],
    policies: Sequence[str],
    overrides: tuple[str, ...] = (),
    *,
    protect_tips: bool = False,
) -> list[RetainCase]:
    """One case for each variant of a workload (a name or a file), policy and backend."""
    return [
        RetainCase(
            spec.name,
            _labelled(label, "policy", policy, protect_tips),
            spec,
            backend,
            policy,
            protect_tips,
        )
        for label, spec in _variants(workload, overrides)
        for policy in dict.fromkeys(checked_policy(each, spec.run.api) for each in policies)
        for backend in backends
    ]


def make_scenario_cases(
    scenario: str,
    ways: Sequence[str],
    backends: Sequence[str],
    overrides: tuple[str, ...] = (),
) -> list[RetainCase]:
    """One case for each variant of the scenario's workload, way to treat it and backend."""
    return [
        RetainCase(spec.name, _labelled(label, "leaf", way), spec, backend, way, scenario=scenario)
        for label, spec in _variants(scenario, overrides)
        for way in ways
        for backend in backends
    ]


def _variants(workload: str, overrides: tuple[str, ...]) -> list[tuple[str, WorkloadSpec]]:
    variants = load_workload(workload, (READS, *overrides))
    return [(variant.label, variant.spec) for variant in variants]


def _labelled(label: str, key: str, value: str, protect_tips: bool = False) -> str:
    """The variant with what marks a policy; braces keep the commas of its rules together."""
    told = f"{key}={{{value}}}" if "," in value else f"{key}={value}"
    return ",".join(filter(None, [label, told, "tips=protected" if protect_tips else ""]))
