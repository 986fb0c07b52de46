"""Profiles: what they name exists, and what is quick is marked."""

from __future__ import annotations

import pytest

from savermark.errors import UsageError
from savermark.profiles import PROFILES, get_profile, make_cases, profile_cases
from savermark.runner import CAP_BYTES, RunPlan, check_plan, plan_trials
from savermark.script import estimate_bytes


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_makes_a_plan(name: str) -> None:
    profile = get_profile(name)
    plan = RunPlan(cases=tuple(profile_cases(profile)), repetitions=profile.repetitions)
    check_plan(plan)
    assert len(plan_trials(plan)) == len(plan.cases) * profile.repetitions
    assert {case.backend for case in plan.cases} == set(profile.backends)
    assert profile.quick == (name == "quick")
    assert profile.summary


def test_quick_compares_full_and_delta_on_three_backends() -> None:
    cases = profile_cases(get_profile("quick"))
    assert len(cases) == 18
    assert {case.workload for case in cases} == {"chat", "tool-heavy", "branching"}
    kinds = [case.spec.state.messages.kind for case in cases]
    assert kinds.count("full") == kinds.count("delta") == 9
    assert sum(estimate_bytes(case.spec) for case in cases) < CAP_BYTES / 2


def test_backends_and_overrides_of_the_caller_come_last() -> None:
    (only,) = profile_cases(
        get_profile("quick"),
        ("null",),
        ("messages.kind=delta", "conversation.turns=3"),
    )[:1]
    assert (only.backend, only.spec.state.messages.kind) == ("null", "delta")
    assert only.spec.conversation.turns.value == 3


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown profile 'quik': did you mean 'quick'"):
        get_profile("quik")


def test_case_ids_name_workload_variant_and_backend() -> None:
    cases = make_cases("chat", ("sqlite",), ('state.messages.kind=["full", "delta"]',))
    assert [case.case_id for case in cases] == [
        "chat[messages.kind=full]@sqlite",
        "chat[messages.kind=delta]@sqlite",
    ]
