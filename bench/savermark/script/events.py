"""The plain records a script is made of: messages, events, tips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Message:
    """A chat message as plain data: the fields that decide a digest, and no others."""

    type: Literal["human", "ai", "tool", "system"]
    id: str
    content: str
    tool_calls: tuple[Mapping[str, Any], ...] = ()  # each with name, args and id
    tool_call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One run on the head of the thread: the graph is invoked with `input`.

    `number` counts the runs of a thread from 1, forks included, without gaps. Each interrupt of
    the run is resumed with the next of `answers`; what is left unanswered stays pending.
    `marks` are names under which the checkpoint after this event is remembered, for a later fork
    or as an abandoned tip.
    """

    number: int
    input: Mapping[str, Any]  # channel -> value; a message is a `Message`
    run_id: str
    answers: tuple[Any, ...] = ()
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fork:
    """One run that starts from the older checkpoint `base` (a mark); its end is the new head.

    - `regenerate`: invoke `input` on the base.
    - `edit`: `update_state` on the base with `input`, as node `__start__`; run on from it.
    - `copy`: copy the base (`as_node="__copy__"`), then invoke `input` on the copy.
    """

    number: int
    kind: Literal["regenerate", "edit", "copy"]
    base: str
    input: Mapping[str, Any]
    run_id: str
    answers: tuple[Any, ...] = ()
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Duration:
    """A metadata-only copy of the head that records how long the run took."""

    run_id: str
    seconds: int


Event = Turn | Fork | Duration


@dataclass(frozen=True, slots=True)
class Tip:
    """What a checkpoint must read back as."""

    digest: str  # `state_digest` of the values
    next: tuple[str, ...] = ()
    interrupts: int = 0


@dataclass(frozen=True, slots=True)
class ThreadBody:
    """What a shape's writer gives for one driven thread."""

    turns: int  # runs played, forks included: the highest `number`
    events: tuple[Event, ...]
    tips: Mapping[str, Tip] = field(default_factory=dict)  # "head" always; "fork-<n>" abandoned


@dataclass(frozen=True, slots=True)
class ThreadScript:
    """One thread of a workload: played event by event, or cloned from the thread `source`."""

    thread_id: str
    source: str | None
    turns: int
    events: tuple[Event, ...]
    tips: Mapping[str, Tip]
