"""Runs the rules without pytest and says which hold."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from savermark.sandbox.lease import LeaseTimes
from savermark.sandbox.testkit import (
    append_rules,
    blob_rules,
    chain_rules,
    content_rules,
    fork_rules,
    instance_rules,
    lease_rules,
    prune_rules,
)
from savermark.sandbox.testkit.harness import (
    ConformanceError,
    Plant,
    Rule,
    SkipRuleError,
    StoreFactory,
    run_rule,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKPOINT_RULES: tuple[Rule, ...] = (
    *chain_rules.RULES,
    *append_rules.RULES,
    *content_rules.RULES,
    *lease_rules.RULES,
    *blob_rules.RULES,
    *blob_rules.SWEEP,
    *prune_rules.RULES,
    *fork_rules.RULES,
)
INSTANCE_RULES: tuple[Rule, ...] = tuple(instance_rules.RULES)
SHORT_LEASE = LeaseTimes(100.0, 25.0)
LONGEST_S = 120.0  # a rule that takes longer waits for something that will not come


class RuleStatus(StrEnum):
    """How a rule came out."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class RuleResult:
    """One rule on one store; `detail` says why it failed or was skipped."""

    group: str
    rule: str
    says: str
    status: RuleStatus
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """All rules on one store."""

    results: tuple[RuleResult, ...]

    @property
    def ok(self) -> bool:
        """Whether no rule failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[RuleResult, ...]:
        """The rules that the store breaks."""
        return tuple(item for item in self.results if item.status is RuleStatus.FAILED)

    def count(self, status: RuleStatus) -> int:
        """The number of rules with this status."""
        return sum(item.status is status for item in self.results)


def run_conformance(
    factory: StoreFactory,
    *,
    instances: bool = False,
    lease: LeaseTimes = SHORT_LEASE,
    plant: Plant | None = None,
    longest_s: float = LONGEST_S,
) -> ConformanceReport:
    """Tries every rule, each on a fresh store from the factory.

    `instances` says that the factory makes instance stores. An optional part that the store does
    not have is skipped; a rule that takes longer than `longest_s` fails.
    """
    rules: Sequence[Rule] = INSTANCE_RULES if instances else CHECKPOINT_RULES
    results = (try_rule(rule, factory, lease, plant, longest_s) for rule in rules)
    return ConformanceReport(tuple(results))


def try_rule(
    rule: Rule,
    factory: StoreFactory,
    lease: LeaseTimes,
    plant: Plant | None = None,
    longest_s: float = LONGEST_S,
) -> RuleResult:
    """Tries one rule in an event loop of its own."""
    status, detail = RuleStatus.PASSED, ""
    try:
        asyncio.run(asyncio.wait_for(run_rule(rule, factory, lease, plant), longest_s))
    except TimeoutError:
        status, detail = RuleStatus.FAILED, f"it took longer than {longest_s:g} s"
    except SkipRuleError as skipped:
        status, detail = RuleStatus.SKIPPED, str(skipped)
    except ConformanceError as broken:
        status, detail = RuleStatus.FAILED, str(broken)
    except Exception as error:
        status = RuleStatus.FAILED
        at = traceback.extract_tb(error.__traceback__)[-1]
        detail = f"{type(error).__name__}: {error} (line {at.lineno} of {at.name})"
    return RuleResult(rule.group, rule.name, rule.says, status, detail)
