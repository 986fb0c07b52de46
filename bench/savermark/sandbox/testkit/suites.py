"""The rules as pytest classes: subclass one in your own test module and say how to open a store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from savermark.sandbox.testkit.harness import Rule, SkipRuleError, StoreOptions, run_rule
from savermark.sandbox.testkit.report import CHECKPOINT_RULES, INSTANCE_RULES, SHORT_LEASE

if TYPE_CHECKING:
    from savermark.sandbox.lease import LeaseTimes


class _Suite:
    lease: ClassVar[LeaseTimes] = SHORT_LEASE

    def store(self, options: StoreOptions) -> Any:
        """A fresh, empty store that uses the options' clock and lease times.

        Return the store, an awaitable of it, or an async context manager that yields it.
        """
        raise NotImplementedError("define store(self, options) in your test class")

    def _try(self, rule: Rule) -> None:
        plant = getattr(self, "plant", None)
        try:
            asyncio.run(run_rule(rule, self.store, self.lease, plant))
        except SkipRuleError as skipped:
            pytest.skip(str(skipped))


class CheckpointStoreSuite(_Suite):
    """Every rule of a `SandboxCheckpointStore`; optional parts that it lacks are skipped.

    Define `plant(self, store, checkpoint)` as an async method that stores a checkpoint off the
    head chain, if your store can hold one, to have that rule of `delete_checkpoints` tried too.
    """

    @pytest.mark.parametrize("rule", CHECKPOINT_RULES, ids=str)
    def test_rule(self, rule: Rule) -> None:
        """One promise of the store."""
        self._try(rule)


class InstanceStoreSuite(_Suite):
    """Every rule of a `SandboxInstanceStore`."""

    @pytest.mark.parametrize("rule", INSTANCE_RULES, ids=str)
    def test_rule(self, rule: Rule) -> None:
        """One promise of the store."""
        self._try(rule)
