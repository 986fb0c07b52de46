"""A store that breaks any one rule fails it: one planted fault a rule."""

from __future__ import annotations

import asyncio

import pytest
from faulty_stores import FAULTS
from sandbox_stores import open_memory, plant

from savermark.sandbox.memory import MemorySandboxStore
from savermark.sandbox.testkit import RuleStatus, StoreOptions, run_conformance
from savermark.sandbox.testkit.harness import Rule
from savermark.sandbox.testkit.report import (
    CHECKPOINT_RULES,
    INSTANCE_RULES,
    SHORT_LEASE,
    try_rule,
)

RULES = (*CHECKPOINT_RULES, *INSTANCE_RULES)


def test_every_rule_has_a_fault_and_a_name_of_its_own() -> None:
    names = [str(rule) for rule in RULES]
    assert len(set(names)) == len(names)
    assert set(FAULTS) == set(names)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_fault_fails_the_rule(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:

        def factory(options: StoreOptions) -> object:
            return FAULTS[str(rule)](patch, options)

        result = try_rule(rule, factory, SHORT_LEASE, plant)
    assert result.status is RuleStatus.FAILED, result
    assert result.detail
    if rule not in INSTANCE_RULES:  # and it was the fault that failed it
        assert try_rule(rule, open_memory, SHORT_LEASE, plant).status is RuleStatus.PASSED


class PlainStore:
    """Only what every store must have."""

    def __init__(self, options: StoreOptions) -> None:
        inner = MemorySandboxStore(clock=options.clock, lease=options.lease)
        self.get, self.list, self.get_head = inner.get, inner.list, inner.get_head
        self.append, self.delete_head = inner.append, inner.delete_head
        self.acquire_writer = inner.acquire_writer
        self.list_blob_references = inner.list_blob_references


def test_a_plain_store_skips_the_optional_parts() -> None:
    report = run_conformance(PlainStore)
    assert report.ok
    skipped = {item.group for item in report.results if item.status is RuleStatus.SKIPPED}
    assert skipped == {"prune", "fork", "sweep"}
    assert all(item.detail for item in report.results if item.status is RuleStatus.SKIPPED)
    forks = [item for item in report.results if item.group == "fork"]
    assert {item.status for item in forks} == {RuleStatus.SKIPPED}


def test_a_factory_that_raises_fails_every_rule() -> None:
    def factory(options: StoreOptions) -> object:
        raise RuntimeError("no database")

    report = run_conformance(factory)
    assert len(report.failed) == len(report.results)
    assert "no database" in report.failed[0].detail


def test_a_store_that_hangs_fails_and_the_report_goes_on() -> None:
    class Hangs(PlainStore):
        def __init__(self, options: StoreOptions) -> None:
            super().__init__(options)
            self.get_head = self._never

        async def _never(self, thread_id: str) -> None:
            await asyncio.sleep(3_600)

    result = try_rule(CHECKPOINT_RULES[0], Hangs, SHORT_LEASE, longest_s=0.2)
    assert result.status is RuleStatus.FAILED
    assert "longer than 0.2 s" in result.detail
