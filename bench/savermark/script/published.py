"""The oracle of the shapes that published benchmarks used: `human-ai`, `ai-only`, `channels`.

Message ids are theirs: `h0`, `a0`, `h1`, ... and in `channels` `c<channel>_<update>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savermark.errors import WorkloadError
from savermark.payload import draw, mean, payload
from savermark.script.digest import state_digest
from savermark.script.events import Message, ThreadBody, Tip, Turn
from savermark.script.limits import only

if TYPE_CHECKING:
    from savermark.spec import Dist, WorkloadSpec

#: What a message costs beside its content, as serialized.
MESSAGE_OVERHEAD = 160
#: A checkpoint row with its metadata, without channel values.
CHECKPOINT_BYTES = 1_300

State = dict[str, Any]


def write_thread(spec: WorkloadSpec, thread_id: str, turns: int) -> ThreadBody:
    """Turn after turn on the head, as the pull requests' scripts do."""
    _check(spec)
    state: State = {}
    events = []
    for index in range(turns):
        update = _input(spec, index)
        answer = notes(spec, index) if spec.graph == "channels" else {"messages": [ai(spec, index)]}
        for change in (update, answer):
            for name, added in change.items():
                state.setdefault(name, []).extend(added)
        events.append(Turn(index + 1, update, f"{thread_id}-run{index + 1:05d}"))
    return ThreadBody(turns, tuple(events), {"head": Tip(state_digest(state))})


def _input(spec: WorkloadSpec, index: int) -> State:
    return {} if spec.graph == "channels" else {"messages": [human(spec, index)]}


def _check(spec: WorkloadSpec) -> None:
    if spec.graph != "channels":
        only(spec, "conversation", "state.messages")
        return
    only(spec, "conversation", "state.messages", "state.extra")
    if spec.state.extra.count < 1 or spec.state.extra.kind != "delta":
        raise WorkloadError(
            "graph 'channels' needs state.extra.count of 1 or more, and takes the kind of its "
            "channels from state.messages.kind: leave state.extra.kind out"
        )


def human(spec: WorkloadSpec, index: int) -> Message:
    """What the human says in turn `index` (from 0)."""
    return Message("human", f"h{index}", _text(spec, spec.conversation.human_bytes, index, "h"))


def ai(spec: WorkloadSpec, index: int) -> Message:
    """What the model answers in turn `index` (from 0)."""
    return Message("ai", f"a{index}", _text(spec, spec.conversation.model_bytes, index, "a"))


def notes(spec: WorkloadSpec, index: int) -> State:
    """The one message that update `index` (from 0) adds to each of the channels."""
    return {
        channel(number): [_note(spec, number, index)] for number in range(spec.state.extra.count)
    }


def channel(number: int) -> str:
    """The name of the channel at `number` in the shape `channels`."""
    return f"c{number}"


def _note(spec: WorkloadSpec, number: int, index: int) -> Message:
    opening = f"Update {index} of channel {number} says that "
    size = draw(spec.conversation.human_bytes, index + 1, spec.payload.seed, number)
    rest = payload(spec.payload, max(size - len(opening), 0), channel(number), index)
    return Message("human", f"{channel(number)}_{index}", (opening + rest)[:size])


def _text(spec: WorkloadSpec, dist: Dist, index: int, who: str) -> str:
    size = draw(dist, index + 1, spec.payload.seed, who)
    return payload(spec.payload, size, who, index)


def estimate_thread_bytes(spec: WorkloadSpec, turns: int) -> int:
    """Logical bytes that one thread leaves, to the order of magnitude."""
    _check(spec)
    talk, messages = spec.conversation, spec.state.messages
    if spec.graph == "channels":
        growth = Growth(mean(talk.human_bytes) + MESSAGE_OVERHEAD, updates=1, steps=3)
        kinds = [(messages.kind, frequency) for frequency in frequencies(spec)]
    else:
        each = mean(talk.human_bytes) + mean(talk.model_bytes) + 2 * MESSAGE_OVERHEAD
        growth = Growth(each, updates=2, steps=4 if spec.graph == "human-ai" else 3)
        kinds = [(messages.kind, messages.snapshot_frequency)]
    values = sum(growth.bytes(kind, frequency, turns) for kind, frequency in kinds)
    return int(values) + growth.steps * turns * CHECKPOINT_BYTES


def frequencies(spec: WorkloadSpec) -> list[int]:
    """The snapshot frequency of each channel of the shape `channels`."""
    extra = spec.state.extra
    return [extra.frequencies[index % len(extra.frequencies)] for index in range(extra.count)]


@dataclass(frozen=True, slots=True)
class Growth:
    """A channel that grows by `each` bytes a turn, in `updates` of the turn's checkpoints."""

    each: float
    updates: int
    steps: int  # checkpoints a turn: a store without blobs repeats a full value in each

    def bytes(self, kind: str, frequency: int, turns: int) -> float:
        """What it leaves: each stored copy holds on average half of the final value.

        Full mode stores one a step, delta mode one every `frequency` updates; besides, each update
        is a write.
        """
        copies = self.steps * turns if kind == "full" else self.updates * turns // frequency
        return copies * turns * self.each / 2 + turns * self.each
