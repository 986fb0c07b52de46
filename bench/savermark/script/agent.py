"""The oracle of the `agent` shape: the events of a thread and the state each tip must hold."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from savermark.script import dialogue
from savermark.script.dialogue import Cue
from savermark.script.digest import state_digest
from savermark.script.estimate import estimate_agent_bytes
from savermark.script.events import Duration, Event, Fork, ThreadBody, Tip, Turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from savermark.spec import WorkloadSpec

State = dict[str, Any]


@dataclass(slots=True)
class _Link:
    """One run on the current branch."""

    event: int  # its index among the thread's events
    turn: int
    said: Cue  # whose words the human used
    sizes: Mapping[str, Any]  # what `_rewind` needs to get back to the state after it


@dataclass(slots=True)
class _Thread:
    """A thread while it is being written: the state is the head's."""

    spec: WorkloadSpec
    thread_id: str
    state: State = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    chain: list[_Link] = field(default_factory=list)  # the branch that leads to the head
    tips: dict[str, Tip] = field(default_factory=dict)
    runs: int = 0


def write_thread(spec: WorkloadSpec, thread_id: str, turns: int) -> ThreadBody:
    """Turn after turn on the head; after every n-th a branch, which becomes the head.

    With pending interrupts a thread ends at the last turn that asks, whose question stays open.
    """
    thread = _Thread(spec, thread_id)
    pending = 0
    if spec.interrupts.every and not spec.interrupts.resume:
        pending = turns - turns % spec.interrupts.every
    for turn in range(1, (pending or turns) + 1):
        _turn(thread, Cue(thread_id, turn, 0), pending=turn == pending)
        every = spec.branching.every
        if turn != pending and every and turn % every == 0 and len(thread.chain) > 1:
            _fork(thread)
    waiting = (("approve",), 1) if pending else ((), 0)
    thread.tips["head"] = Tip(state_digest(thread.state), *waiting)
    return ThreadBody(thread.runs, tuple(thread.events), thread.tips)


def _turn(thread: _Thread, cue: Cue, *, pending: bool) -> None:
    spec = thread.spec
    update: State = {"messages": [dialogue.human(spec, cue)]}
    if spec.state.static.bytes and cue.turn == 1:
        update["static"] = dialogue.static(spec, thread.thread_id)
    number, run_id, answers = _begin(thread, cue, pending)
    _run(thread, update, cue, pending)
    _append(thread, Turn(number, update, run_id, answers), cue.turn, cue)
    if not pending:
        _time(thread, run_id)


def _fork(thread: _Thread) -> None:
    """Ask an earlier turn again, from the checkpoint before it: that run is the new head.

    A branch that would start before the first turn starts after it.
    """
    spec = thread.spec
    back = min(spec.branching.back, len(thread.chain) - 1)
    base, redone = thread.chain[-1 - back], thread.chain[-back]
    number = len(thread.tips) + 1
    _mark(thread, base, before := f"before-{number}")
    _mark(thread, thread.chain[-1], abandoned := f"fork-{number}")
    thread.tips[abandoned] = Tip(state_digest(thread.state))
    cue = Cue(thread.thread_id, redone.turn, number)
    said = cue if spec.branching.kind == "edit" else redone.said
    update: State = {"messages": [dialogue.human(spec, cue, said)]}
    thread.state = _rewind(thread.state, base.sizes)
    del thread.chain[-back:]
    number, run_id, answers = _begin(thread, cue, pending=False)
    _run(thread, update, cue, pending=False)
    fork = Fork(number, spec.branching.kind, before, update, run_id, answers)
    _append(thread, fork, redone.turn, said)
    _time(thread, run_id)


def _begin(thread: _Thread, cue: Cue, pending: bool) -> tuple[int, str, tuple[str, ...]]:
    thread.runs += 1
    asked = dialogue.asks(thread.spec, cue) and not pending
    run_id = f"{thread.thread_id}-run{thread.runs:05d}"
    return thread.runs, run_id, (dialogue.approval(cue),) if asked else ()


def _append(thread: _Thread, event: Turn | Fork, turn: int, said: Cue) -> None:
    spec = thread.spec
    sizes = _sizes(thread.state) if spec.branching.every else {}
    thread.chain.append(_Link(len(thread.events), turn, said, sizes))
    thread.events.append(event)


def _time(thread: _Thread, run_id: str) -> None:
    """Record the last run's duration, in every n-th run."""
    every = thread.spec.durations.every
    if every and thread.runs % every == 0:
        thread.events.append(Duration(run_id, 1 + thread.runs % 60))


def _mark(thread: _Thread, link: _Link, name: str) -> None:
    event = thread.events[link.event]
    assert isinstance(event, (Turn, Fork))
    thread.events[link.event] = replace(event, marks=(*event.marks, name))


def _run(thread: _Thread, update: State, cue: Cue, pending: bool) -> None:
    """Let the agent work, step by step as its graph would."""
    spec, state = thread.spec, thread.state
    _apply(state, update)
    if spec.subgraph.kind != "none":
        _apply(state, {"report": dialogue.report(spec, cue)})
    if spec.fan_out.width:
        found = [dialogue.finding(spec, cue, number) for number in range(spec.fan_out.width)]
        _apply(state, {"findings": found})
    if pending:
        return
    if dialogue.asks(spec, cue):
        _apply(state, {"decision": dialogue.approval(cue)})
    while True:
        message = dialogue.reply(spec, state["messages"])
        _apply(state, {"messages": [message]})
        if not message.tool_calls:
            break
        results = [dialogue.tool_result(spec, call) for call in message.tool_calls]
        _apply(state, {"messages": results})
    _apply(state, dialogue.side_channels(spec, cue))


def _apply(state: State, update: State) -> None:
    """Merge an update as the channels would: lists grow, dictionaries merge, text is replaced."""
    for key, value in update.items():
        if isinstance(value, list):
            state.setdefault(key, []).extend(value)
        elif isinstance(value, dict):
            state.setdefault(key, {}).update(value)
        else:
            state[key] = value


def _sizes(state: State) -> dict[str, Any]:
    return {key: value if isinstance(value, str) else len(value) for key, value in state.items()}


def _rewind(state: State, sizes: Mapping[str, Any]) -> State:
    """An earlier state on the same branch: lists and dictionaries only ever grew at the end."""
    earlier: State = {}
    for key, size in sizes.items():
        value = state[key]
        if isinstance(value, list):
            earlier[key] = value[:size]
        else:
            earlier[key] = dict(islice(value.items(), size)) if isinstance(value, dict) else size
    return earlier


def estimate_thread_bytes(spec: WorkloadSpec, turns: int) -> int:
    """Logical bytes of one thread, to the order of magnitude."""
    return estimate_agent_bytes(spec, turns)
