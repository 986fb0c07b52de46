"""The published figures and how near a run must come to them.

A gate is tied to one exact case: the shipped workload with the overrides in `case`. A run with any
other key changed has another fingerprint, so no gate speaks about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PR7586 = "langchain-ai/langgraph pull request 7586 (memory saver)"
PR7676 = "langchain-ai/langgraph pull request 7676 (Postgres)"
OURS7676 = "our run of pull request 7676's graph at 500 turns (Postgres); it names no ratio"
PR7699 = "langchain-ai/langgraph pull request 7699"
DEEP_AGENTS = "vendor's post on delta channels in Deep Agents, 2026-05-12 (memory saver)"
REDUCED = "reduced tier: our reproduction of the post's method"

Case = tuple[str, ...]  # overrides of a shipped workload that leave one variant

FULL = "state.messages.kind=full"
DELTA = "state.messages.kind=delta"

#: Times depend on the machine: a gate on their shape fails only this far beyond its bound.
TIME_SLACK = 3.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What counts as landed; `text` says it to a person."""

    low: float
    high: float
    text: str


def near(value: float, share: float) -> Bounds:
    """Within a share of the published value."""
    return Bounds(value * (1 - share), value * (1 + share), f"±{share:.1%}")


def between(low: float, high: float, scale: float = 1.0, unit: str = "") -> Bounds:
    """From `low` to `high`, both in `unit`, of which one is `scale`."""
    return Bounds(low * scale, high * scale, f"{low:g} to {high:g} {unit}".rstrip())


def at_most(high: float, slack: float = 1.0) -> Bounds:
    """A ratio up to `high`; fails only above `slack` times that."""
    return Bounds(0.0, high * slack, f"at most {high:g}" + _fails("above", high * slack, slack))


def at_least(low: float, slack: float = 1.0) -> Bounds:
    """A ratio from `low`; fails only below that divided by `slack`."""
    return Bounds(
        low / slack, float("inf"), f"at least {low:g}" + _fails("below", low / slack, slack)
    )


def _fails(where: str, limit: float, slack: float) -> str:
    return f" (fails {where} {limit:g})" if slack != 1 else ""


@dataclass(frozen=True, slots=True)
class Gate:
    """One published figure: what to add up in which frame, for which case, and the bounds.

    With `against` the figure is a ratio: the value of `case` over that of `against`. Bytes are
    logical bytes of the storage frame, at phase `loaded`, or one component of the footprint;
    times are warm medians at the head.
    """

    workload: str
    figure: str
    source: str
    published: float
    bounds: Bounds
    case: Case
    against: Case = ()
    backends: tuple[str, ...] = ()  # empty: any
    frame: Literal["storage", "footprint", "latency"] = "storage"
    table: str = ""  # storage: empty is all of them
    channel: str = ""  # storage: empty is all of them
    component: str = ""  # footprint
    op: str = ""  # latency

    @property
    def unit(self) -> str:
        """`bytes` or `ratio`."""
        return "ratio" if self.against else "bytes"


def _turns(number: int, *more: str) -> Case:
    return (f"conversation.turns={number}", *more)


def _pr7586() -> list[Gate]:
    def gate(figure: str, case: Case, published: float, share: float, **part: str) -> Gate:
        return Gate(
            "published-pr7586", figure, PR7586, published, near(published, share), case,
            backends=("memory",), **part,  # type: ignore[arg-type]
        )  # fmt: skip

    blobs = {"table": "blobs", "channel": "messages"}
    # The small figures are printed with two or three digits: no gate can be tighter than that.
    full = ((10, 91e3, 0.01), (50, 2.20e6, 0.005), (100, 8.78e6, 0.002), (250, 54.80e6, 0.001),
            (500, 219.19e6, 0.001))  # fmt: skip
    gates = [
        gate(f"messages blobs, full, {turns} turns", _turns(turns, FULL), value, share, **blobs)
        for turns, value, share in full
    ]
    gates.append(gate("all bytes, full, 500 turns", _turns(500, FULL), 221.16e6, 0.002))
    # Published when cadence counted supersteps: today's frequency 25 and 5 are nearest.
    for now, then, value, share in ((25, 50, 8.56e6, 0.06), (5, 10, 43.67e6, 0.02)):
        case = _turns(500, DELTA, f"state.messages.snapshot_frequency={now}")
        figure = f"messages blobs, delta {now} (then {then}), 500 turns"
        gates.append(gate(figure, case, value, share, **blobs))
    return gates


def _deep_agents(letter: str, turns: int, published: float, bounds: Bounds, source: str) -> Gate:
    return Gate(
        f"published-deepagents-{letter}",
        f"all bytes, full over delta, {turns} turns",
        source,
        published,
        bounds,
        _turns(turns, FULL),
        against=_turns(turns, DELTA),
        backends=("memory",),
    )


def _deep_agents_bytes(
    letter: str, turns: int, kind: str, published: float, bounds: Bounds
) -> Gate:
    return Gate(
        f"published-deepagents-{letter}",
        f"all bytes, {kind.rpartition('=')[2]}, {turns} turns",
        DEEP_AGENTS,
        published,
        bounds,
        _turns(turns, kind),
        backends=("memory",),
    )


def _all_deep_agents() -> list[Gate]:
    return [
        _deep_agents("a", 10, 6, between(4.5, 7.5), DEEP_AGENTS),
        _deep_agents("a", 100, 25.3, near(25.3, 0.04), REDUCED),
        _deep_agents("a", 500, 41, between(38, 45), DEEP_AGENTS),
        _deep_agents_bytes("a", 500, FULL, 4e9, between(3.8, 4.3, 1e9, "GB")),
        _deep_agents_bytes("a", 500, DELTA, 110e6, between(90, 110, 1e6, "MB")),
        _deep_agents("b", 50, 25.8, near(25.8, 0.04), REDUCED),
        _deep_agents("b", 200, 41, between(38, 46), DEEP_AGENTS),
        _deep_agents_bytes("b", 200, FULL, 5.27e9, between(5.2, 5.7, 1e9, "GB")),
        _deep_agents_bytes("b", 200, DELTA, 129e6, between(119, 135, 1e6, "MB")),
    ]


def _pr7676() -> list[Gate]:
    def ten(turns: int) -> Case:
        return _turns(turns, DELTA, "state.messages.snapshot_frequency=10")

    never = _turns(500, DELTA, "state.messages.snapshot_frequency=1000000")

    def gate(
        figure: str, source: str, published: float, bounds: Bounds, case: Case, against: Case
    ) -> Gate:
        return Gate(
            "published-pr7676", f"get_state, {figure}", source, published, bounds, case, against,
            backends=("memory", "sqlite", "postgres"), frame="latency", op="get_state",
        )  # fmt: skip

    bounded, slow = at_most(2, TIME_SLACK), at_least(1.5, TIME_SLACK)
    over_full = [
        gate(f"delta 10 over full, {turns} turns", OURS7676, 1.2, bounded, ten(turns),
             _turns(turns, FULL))
        for turns in (100, 500)
    ]  # fmt: skip
    return [
        *over_full,
        gate("no snapshots over delta 10, 500 turns", OURS7676, 3.3, slow, never, ten(500)),
        # The blobs grow 24 times: a read that fetched all of them would, too.
        gate("delta 10, 500 turns over 100", PR7676, 2.7, at_most(8, TIME_SLACK), ten(500),
             ten(100)),
    ]  # fmt: skip


def _pr7699() -> list[Gate]:
    def blobs(count: int, published: float) -> Gate:
        return Gate(
            "published-pr7699", f"blobs of {count} channels, delta 50, 500 turns", PR7699,
            published, near(published, 0.02), _turns(500, f"state.extra.count={count}"),
            backends=("memory",), table="blobs",
        )  # fmt: skip

    def file(workload: str, case: Case, published: float) -> Gate:
        mode = "full" if FULL in case else "delta 50"
        return Gate(
            workload, f"file, 1 channel, {mode}, {case[0].rpartition('=')[2]} turns", PR7699,
            published, near(published, 0.03), case, backends=("sqlite",), frame="footprint",
            component="file",
        )  # fmt: skip

    return [
        blobs(3, 3.3e6),
        blobs(8, 8.7e6),
        file("published-pr7699", _turns(500, "state.extra.count=1"), 2.9e6),
        file("published-pr7699-file", _turns(200, DELTA), 942e3),
        file("published-pr7699-file", _turns(200, FULL), 25.1e6),
        file("published-pr7699-file", _turns(500, DELTA), 2.9e6),
        file("published-pr7699-file", _turns(500, FULL), 152.3e6),
    ]


#: Every published figure that a workload of ours can land on.
GATES: tuple[Gate, ...] = (*_pr7586(), *_all_deep_agents(), *_pr7676(), *_pr7699())
