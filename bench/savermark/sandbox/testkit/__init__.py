"""Proves a sandbox store of your own against every rule.

With pytest, subclass `CheckpointStoreSuite` or `InstanceStoreSuite`; without it, call
`run_conformance`. See docs/sandbox.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from savermark.sandbox.testkit.harness import (
    ConformanceError,
    ManualClock,
    Plant,
    StoreFactory,
    StoreOptions,
)
from savermark.sandbox.testkit.report import (
    ConformanceReport,
    RuleResult,
    RuleStatus,
    run_conformance,
)

if TYPE_CHECKING:
    from savermark.sandbox.testkit.suites import CheckpointStoreSuite, InstanceStoreSuite

__all__ = [
    "CheckpointStoreSuite",
    "ConformanceError",
    "ConformanceReport",
    "InstanceStoreSuite",
    "ManualClock",
    "Plant",
    "RuleResult",
    "RuleStatus",
    "StoreFactory",
    "StoreOptions",
    "run_conformance",
]


def __getattr__(name: str) -> Any:
    """The pytest classes, imported only when asked for: the report needs no pytest."""
    if name in ("CheckpointStoreSuite", "InstanceStoreSuite"):
        from savermark.sandbox.testkit import suites

        return getattr(suites, name)
    raise AttributeError(name)
