"""What the scripted model, its tools and the agent's other nodes say, as pure functions.

Everything is decided from the conversation: the last human message (whose id names the thread,
the turn and the branch) and the tool results since then. The graph and the oracle share these
functions; the oracle alone knows in which order they are called and what a state must then hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savermark.payload import draw, payload
from savermark.script.events import Message

if TYPE_CHECKING:
    from savermark.spec import Dist, WorkloadSpec

_QUERY_BYTES = 40


@dataclass(frozen=True, slots=True)
class Cue:
    """A human message's id, read: which thread, which turn, and 0 or the number of the branch."""

    thread_id: str
    turn: int
    branch: int

    def __str__(self) -> str:
        suffix = f"-b{self.branch:05d}" if self.branch else ""
        return f"{self.thread_id}-h{self.turn:05d}{suffix}"

    @classmethod
    def parse(cls, message_id: str) -> Cue:
        """The inverse of `str`."""
        thread_id, turn, *branch = message_id.split("-")
        return cls(thread_id, int(turn[1:]), int(branch[0][1:]) if branch else 0)


def _text(spec: WorkloadSpec, dist: Dist, ordinal: int, *key: str | int) -> str:
    size = draw(dist, ordinal, spec.payload.seed, *key)
    return payload(spec.payload, size, *key)


def human(spec: WorkloadSpec, cue: Cue, text_of: Cue | None = None) -> Message:
    """The human message `cue`, with the words of `text_of` when a turn is asked again."""
    source = text_of or cue
    content = _text(spec, spec.conversation.human_bytes, source.turn, str(source))
    return Message("human", str(cue), content)


def last_human(messages: Sequence[Any]) -> tuple[Cue, int]:
    """The last human message's cue, and how many tool results came since."""
    results = 0
    for message in reversed(messages):
        if message.type == "human":
            return Cue.parse(message.id), results
        results += message.type == "tool"
    raise ValueError("no human message in the conversation")


def reply(spec: WorkloadSpec, messages: Sequence[Any]) -> Message:
    """The model: calls tools until it has all results, then answers."""
    cue, results = last_human(messages)
    if results < spec.tools.calls:
        parallel = spec.tools.order == "parallel"
        numbers = range(results, spec.tools.calls if parallel else results + 1)
        calls = tuple(_call(spec, cue, number) for number in numbers)
        return Message("ai", f"{cue}-m{results}", "", tool_calls=calls)
    content = _text(spec, spec.conversation.model_bytes, cue.turn, str(cue), "answer")
    return Message("ai", f"{cue}-m{results}", content)


def _call(spec: WorkloadSpec, cue: Cue, number: int) -> dict[str, Any]:
    query = payload(spec.payload, _QUERY_BYTES, str(cue), "query", number)
    return {"name": "search", "args": {"query": query}, "id": f"{cue}-c{number}"}


def tool_result(spec: WorkloadSpec, call: Mapping[str, Any]) -> Message:
    """What the tool returns for one call; a long output only as a preview and a reference."""
    call_id = str(call["id"])
    human_id, _, number = call_id.rpartition("-c")
    ordinal = (Cue.parse(human_id).turn - 1) * spec.tools.calls + int(number) + 1
    output = _text(spec, spec.tools.output_bytes, ordinal, call_id, "output")
    limit = spec.tools.externalize_over
    if limit and len(output) > limit:
        preview = output[: spec.tools.preview_bytes]
        output = f"{preview}\n[{len(output)} bytes in all: tool-results/{call_id}.txt]"
    return Message("tool", f"{call_id}-r", output, tool_call_id=call_id, name=str(call["name"]))


def static(spec: WorkloadSpec, thread_id: str) -> str:
    """The content of the channel that is written once."""
    return payload(spec.payload, spec.state.static.bytes, thread_id, "static")


def side_channels(spec: WorkloadSpec, cue: Cue) -> dict[str, Any]:
    """What the last step of a turn adds to the files and to the extra channels."""
    update: dict[str, Any] = {}
    files = spec.state.files
    if files.kind != "none":
        update["files"] = {
            f"notes/{cue}-{number}.md": _text(
                spec,
                files.file_bytes,
                (cue.turn - 1) * files.writes + number + 1,
                str(cue),
                "file",
                number,
            )
            for number in range(files.writes)
        }
    for index in range(spec.state.extra.count):
        name = extra_channel(index)
        update[name] = [_text(spec, spec.state.extra.item_bytes, cue.turn, str(cue), name)]
    return update


def extra_channel(index: int) -> str:
    """The name of the extra channel at `index`."""
    return f"extra_{index:02d}"


def finding(spec: WorkloadSpec, cue: Cue, number: int) -> str:
    """What fan-out worker `number` (from 0) adds."""
    ordinal = (cue.turn - 1) * spec.fan_out.width + number + 1
    return _text(spec, spec.fan_out.item_bytes, ordinal, str(cue), "finding", number)


def report(spec: WorkloadSpec, cue: Cue) -> str:
    """What the subgraph hands back; as long as a model message."""
    return _text(spec, spec.conversation.model_bytes, cue.turn, str(cue), "report")


def research_note(spec: WorkloadSpec, cue: Cue, step: int) -> Message:
    """The message that step `step` (from 0) of the subgraph adds to its own conversation."""
    content = _text(spec, spec.conversation.model_bytes, cue.turn, str(cue), "note", step)
    return Message("ai", f"{cue}-s{step}", content)


def asks(spec: WorkloadSpec, cue: Cue) -> bool:
    """Whether the agent stops in this turn to ask the human."""
    return spec.interrupts.every > 0 and cue.turn % spec.interrupts.every == 0


def approval(cue: Cue) -> str:
    """The human's answer to the interrupt of a turn."""
    return f"approved {cue}"
