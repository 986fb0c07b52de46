"""Conversations that a policy prunes, for the runner: the savers' family with another trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from savermark.trial.family import SaverFamily
from savermark.trial.policy_case import RetainCase

if TYPE_CHECKING:
    from savermark.backends.base import Location
    from savermark.records import TrialResult
    from savermark.trial.case import BaseCase


class RetainFamily(SaverFamily):
    """Measured before and after."""

    def case(self, data: dict[str, Any]) -> RetainCase:
        return RetainCase.from_json(data)

    def run(
        self, case: BaseCase, location: Location, repetition: int, *, began_ns: int, keep: bool
    ) -> TrialResult:
        from savermark.trial.policy_retention import retain_by_policy
        from savermark.trial.run_history import run_history_trial
        from savermark.trial.story import run_trial

        assert isinstance(case, RetainCase)
        if case.scenario:
            return run_history_trial(case, location, repetition, keep=keep)
        return run_trial(
            case,
            location,
            repetition,
            retain=retain_by_policy(case),
            walks=("onepass",),
            began_ns=began_ns,
            keep=keep,
        )

    def reads_cold(self, case: BaseCase) -> bool:
        assert isinstance(case, RetainCase)
        return not case.scenario and super().reads_cold(case)


FAMILY = RetainFamily()
