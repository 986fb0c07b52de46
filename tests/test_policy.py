"""Policies: their one-line form, how rules combine, and every wrong form in one line."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savermark.errors import UsageError
from savermark.retention.policy import RULES, RetentionPolicy, parse_age, parse_policy

AGES = st.integers(0, 10**6).map(lambda n: timedelta(seconds=n))


@given(
    st.builds(
        RetentionPolicy,
        keep_latest=st.booleans(),
        keep_turns=st.none() | st.integers(1, 10**4),
        older_than=st.none() | AGES,
        leaf_siblings=st.booleans(),
        duration_leaves=st.just(True),
        idle_threads=st.none() | AGES,
        delta=st.sampled_from(["walk", "compact", "refuse"]),
    )
)
def test_the_one_line_form_reads_back(policy: RetentionPolicy) -> None:
    assert parse_policy(str(policy)) == policy


def test_every_rule_is_known_and_alone_enough() -> None:
    for rule in RULES:
        name, _, value = rule.partition("=")
        text = name if not value else f"{name}={'2' if value == 'N' else '2d'}"
        assert str(parse_policy(text)) == text


def test_rules_combine_and_blanks_do_not_matter() -> None:
    policy = parse_policy(" keep-turns=3 , older-than=4w,duration-leaves ")
    assert policy == RetentionPolicy(
        keep_turns=3, older_than=timedelta(weeks=4), duration_leaves=True
    )
    assert policy.keeps and not RetentionPolicy(duration_leaves=True).keeps
    assert RetentionPolicy(delta="compact").keeps


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("snapshot,delete", "delete takes whole threads"),
        ("leaf-siblings,keep-latest,snapshot", "deletes no checkpoint"),
        ("snapshot,compact", "give only one of compact, refuse, snapshot"),
        ("refuse,compact", "give only one of compact, refuse, snapshot"),
        ("keep-latest,keep-latest", "given twice"),
        ("keep-latest,,leaf-siblings", "a rule is missing"),
        ("keep-latest,", "a rule is missing"),
        ("keep-latest,delete", "delete takes whole threads"),
        ("compact,delete", "delete takes whole threads"),
        ("walk", "walk"),
        ("", "a policy needs a rule"),
        ("keep-last", "did you mean 'keep-latest'"),
        ("keep-turns", "write it as keep-turns=N"),
        ("keep-latest=1", "write it as keep-latest"),
        ("keep-turns=-1", "must be 1 or more"),
        ("keep-turns=0", "must be 1 or more"),
        ("keep-turns=two", "whole number"),
        ("older-than=5", "give a number and a unit"),
        ("older-than=-5d", "give a number and a unit"),
        ("older-than=99999999999999w", "longer than time"),
        ("compact,refuse", "give only one of"),
        ("keep-latest,keep-latest", "twice"),
    ],
)
def test_a_wrong_policy_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_policy(text)
    assert "\n" not in str(caught.value)


def test_a_negative_age_is_refused_in_code_too() -> None:
    with pytest.raises(UsageError, match="must not be negative"):
        RetentionPolicy(older_than=timedelta(seconds=-1))
    with pytest.raises(UsageError, match="must be 1 or more"):
        RetentionPolicy(keep_turns=0)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("12h", 43_200), ("2w", 1_209_600)]
)
def test_ages(text: str, seconds: int) -> None:
    assert parse_age(text) == timedelta(seconds=seconds)
