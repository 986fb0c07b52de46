"""Profiles: named sets of cases, as data."""

from __future__ import annotations

from dataclasses import dataclass

from savermark.errors import UsageError, unknown
from savermark.spec import load_workload
from savermark.trial import Case

BOTH_MODES = 'state.messages.kind=["full", "delta"]'
# Threads of 3 to 24 turns: how the bytes grow with the turns shows within one small run.
LENGTHS = 'conversation.turns={ dist = "lognormal", median = 9, sigma = 0.9, min = 3, max = 24 }'
SHORT = 'conversation.turns={ dist = "lognormal", median = 4, sigma = 0.9, min = 2, max = 8 }'
BOTH_APIS = 'run.api=["sync", "async"]'


@dataclass(frozen=True, slots=True)
class Entry:
    """Some workloads with the keys that this profile sets in them."""

    workloads: tuple[str, ...]
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """What `savermark run --profile` measures."""

    name: str
    summary: str
    entries: tuple[Entry, ...]
    backends: tuple[str, ...] = ("memory", "sqlite", "postgres")
    repetitions: int = 1
    quick: bool = False  # its results are marked and never serve as a baseline

    @property
    def workloads(self) -> tuple[str, ...]:
        return tuple(name for entry in self.entries for name in entry.workloads)


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "quick",
            "three workloads, full against delta, small: under 90 s on two cores",
            (
                Entry(("chat", "branching"), (BOTH_MODES, "conversation.threads=5", LENGTHS)),
                Entry(("tool-heavy",), (BOTH_MODES, "conversation.threads=4", SHORT)),
            ),
            quick=True,
        ),
        Profile(
            "standard",
            "the kinds of conversation that decide, three times, frequencies swept: ten minutes",
            (
                Entry(
                    ("chat",),
                    (
                        BOTH_MODES,
                        "state.messages.snapshot_frequency=[5, 20, 50]",
                        "conversation.threads=5",
                        LENGTHS,
                    ),
                ),
                Entry(("tool-heavy", "branching"), (BOTH_MODES,)),
                Entry(("exit-durability", "human-in-the-loop", "fleet")),
            ),
            repetitions=3,
        ),
        Profile(
            "thorough",
            "every workload, longer threads, both apis, and the harness's own cost: hours",
            (
                Entry(
                    ("chat", "tool-heavy"),
                    (
                        BOTH_MODES,
                        BOTH_APIS,
                        "state.messages.snapshot_frequency=[1, 10, 50, 100]",
                        "conversation.turns=[50, 200]",
                    ),
                ),
                Entry(("branching", "fan-out", "human-in-the-loop"), (BOTH_APIS,)),
                Entry(("two-channels", "exit-durability", "durations", "tool-result-probe")),
                Entry(("fleet",), ("conversation.threads=1000",)),
            ),
            backends=("null", "memory", "sqlite", "postgres"),
            repetitions=5,
        ),
    )
}


def get_profile(name: str) -> Profile:
    """The profile of this name; raises `UsageError` for an unknown one."""
    if name not in PROFILES:
        raise UsageError(unknown("profile", name, PROFILES))
    return PROFILES[name]


def profile_cases(
    profile: Profile, backends: tuple[str, ...] = (), overrides: tuple[str, ...] = ()
) -> list[Case]:
    """The profile's cases, on `backends` if given; `overrides` come after the profile's own."""
    return [
        case
        for entry in profile.entries
        for name in entry.workloads
        for case in make_cases(name, backends or profile.backends, (*entry.overrides, *overrides))
    ]


def make_cases(
    workload: str, backends: tuple[str, ...], overrides: tuple[str, ...] = ()
) -> list[Case]:
    """One case for each variant of a workload (a name or a file) and each backend."""
    return [
        Case(variant.spec.name, variant.label, variant.spec, backend)
        for variant in load_workload(workload, overrides)
        for backend in backends
    ]
