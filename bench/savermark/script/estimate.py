"""How many bytes a thread of the `agent` shape leaves, to the order of magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from savermark.payload import mean

if TYPE_CHECKING:
    from savermark.spec import WorkloadSpec

_MESSAGE_BYTES = 300  # of a message besides its content: ids, tool calls, field names
_ITEM_BYTES = 40  # of a file or list item besides its content
_CHECKPOINT_BYTES = 1_500  # of a checkpoint row besides channel values


@dataclass(frozen=True, slots=True)
class _Channel:
    """A channel that grows by `grows` bytes a run, in `updates` steps of it."""

    grows: float
    updates: int
    frequency: int  # 0: full, stored whole at each update


def estimate_agent_bytes(spec: WorkloadSpec, turns: int) -> int:
    """The larger of two layouts: values stored by version, and whole in each checkpoint."""
    runs = turns + (turns // spec.branching.every if spec.branching.every else 0)
    exits = spec.run.durability == "exit"
    channels = _channels(spec, exits)
    steps = 1 if exits else _supersteps(spec) + 2
    average = turns / 2  # how many turns a value holds, averaged over the thread
    linear = sum(channel.grows for channel in channels) * 2 * runs  # the write rows
    linear += runs * steps * _CHECKPOINT_BYTES + spec.state.static.bytes * 3
    full = [channel for channel in channels if not channel.frequency]
    versioned = sum(channel.grows * channel.updates for channel in full) * runs * average
    whole = steps * sum(channel.grows for channel in full) * runs * average
    whole += runs * steps * spec.state.static.bytes
    snapshots = sum(
        channel.grows * average * (channel.updates * runs // channel.frequency)
        for channel in channels
        if channel.frequency
    )
    return int(linear + max(versioned, whole) + snapshots + _subgraph(spec, channels, turns, runs))


def _rounds(spec: WorkloadSpec) -> int:
    """How often the model calls tools in one turn."""
    return min(spec.tools.calls, 1) if spec.tools.order == "parallel" else spec.tools.calls


def _supersteps(spec: WorkloadSpec) -> int:
    extra = (spec.subgraph.kind != "none") + bool(spec.fan_out.width)
    return 1 + 2 * _rounds(spec) + extra + bool(spec.interrupts.every)


def _channels(spec: WorkloadSpec, exits: bool) -> list[_Channel]:
    state, rounds = spec.state, _rounds(spec)
    talk = spec.conversation
    output = mean(spec.tools.output_bytes)
    if spec.tools.externalize_over:
        output = min(output, spec.tools.preview_bytes + _ITEM_BYTES)
    messages = mean(talk.human_bytes) + mean(talk.model_bytes) + spec.tools.calls * output
    messages += _MESSAGE_BYTES * (2 + rounds + spec.tools.calls)
    frequency = state.messages.snapshot_frequency if state.messages.kind == "delta" else 0
    channels = [_Channel(messages, 1 if exits else 2 + 2 * rounds, frequency)]
    if state.files.kind != "none":
        each = state.files.snapshot_frequency if state.files.kind == "delta" else 0
        size = state.files.writes * (mean(state.files.file_bytes) + _ITEM_BYTES)
        channels.append(_Channel(size, 1, each))
    for index in range(state.extra.count):
        each = state.extra.frequencies[index % len(state.extra.frequencies)]
        size = mean(state.extra.item_bytes) + _ITEM_BYTES
        channels.append(_Channel(size, 1, each if state.extra.kind == "delta" else 0))
    if spec.fan_out.width:
        size = spec.fan_out.width * (mean(spec.fan_out.item_bytes) + _ITEM_BYTES)
        channels.append(_Channel(size, 1, frequency))
    return channels


def _subgraph(spec: WorkloadSpec, channels: list[_Channel], turns: int, runs: int) -> float:
    """A subgraph is handed the whole state, and stores it as a value and as a write."""
    if spec.subgraph.kind == "none":
        return 0.0
    copies = 2 + (spec.subgraph.steps + 1 if spec.state.messages.kind == "full" else 0)
    state = sum(channel.grows for channel in channels) * turns / 2 + spec.state.static.bytes
    steps = spec.subgraph.steps + 2
    return runs * (copies * state + steps * _CHECKPOINT_BYTES)
