"""The oracle of the `deep-agent` shape, and what its scripted model and its tool say.

A turn: the model writes `state.files.writes` files, calls the search tool `tools.calls` times and
answers; each call is a step of its own, or with `tools.order = "parallel"` all of them are one
step. The model decides from the last message alone: a summarizer may have cut the rest away.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from savermark.errors import WorkloadError
from savermark.payload import draw, mean, payload
from savermark.script.dialogue import Cue
from savermark.script.digest import state_digest
from savermark.script.events import Message, ThreadBody, Tip, Turn
from savermark.script.foreseen import RESULTS_FOLDER
from savermark.script.limits import only
from savermark.script.published import CHECKPOINT_BYTES, MESSAGE_OVERHEAD, Growth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.spec import Dist, WorkloadSpec

#: The agent moves longer tool results into a file (20,000 tokens of 4 characters).
EVICT_OVER = 80_000
#: What the model says when it is asked to summarize.
SUMMARY = "The earlier turns wrote one note after the other and searched once a turn."
SEARCH_TOOL = "external_search"

_QUERY_BYTES = 40


def require_extra() -> None:
    """Raise `WorkloadError` with the command that installs the optional dependency."""
    if find_spec("deepagents") is None:
        raise WorkloadError(
            "graph 'deep-agent' needs the package deepagents: pip install 'savermark[deepagents]'"
        )


def write_thread(spec: WorkloadSpec, thread_id: str, turns: int) -> ThreadBody:
    """Turn after turn on the head; what the agent's middleware adds is not part of the oracle."""
    _check(spec)
    messages: list[Message] = []
    files: dict[str, Any] = {}
    events = []
    for number in range(1, turns + 1):
        asked = human(spec, Cue(thread_id, number, 0))
        messages.append(asked)
        events.append(Turn(number, {"messages": [asked]}, f"{thread_id}-run{number:05d}"))
        while True:
            said = reply(spec, messages)
            messages.append(said)
            if not said.tool_calls:
                break
            for call in said.tool_calls:
                messages.append(_result(spec, call, files))
    digest = state_digest({"messages": messages, "files": files})
    return ThreadBody(turns, tuple(events), {"head": Tip(digest)})


def _check(spec: WorkloadSpec) -> None:
    require_extra()
    only(spec, "conversation", "tools", "state.messages", "state.files")
    if spec.tools.externalize_over:
        raise WorkloadError(
            "graph 'deep-agent' moves long tool results out by itself: "
            "leave tools.externalize_over out"
        )


def human(spec: WorkloadSpec, cue: Cue) -> Message:
    """What the human says in a turn."""
    content = _text(spec, spec.conversation.human_bytes, cue.turn, str(cue))
    return Message("human", str(cue), content)


def reply(spec: WorkloadSpec, messages: Sequence[Any]) -> Message:
    """The model: the next tool call of the turn, the answer, or a summary when asked for one."""
    last = messages[-1]
    if last.type == "tool":
        call_id = last.tool_call_id
    elif _is_cue(last.id):
        call_id = f"{last.id}-c-1"
    else:
        return Message("ai", "", SUMMARY)
    cue, done = _read_call(call_id)
    count = spec.state.files.writes + spec.tools.calls
    if done < count:
        numbers = range(done, count if spec.tools.order == "parallel" else done + 1)
        calls = tuple(_call(spec, cue, number) for number in numbers)
        return Message("ai", f"{cue}-m{done}", "", tool_calls=calls)
    content = _text(spec, spec.conversation.model_bytes, cue.turn, str(cue), "answer")
    return Message("ai", f"{cue}-m{done}", content)


def _is_cue(message_id: str | None) -> bool:
    try:
        return bool(message_id) and str(Cue.parse(str(message_id))) == message_id
    except ValueError:
        return False


def _read_call(call_id: str) -> tuple[Cue, int]:
    """Whose turn a tool call belongs to, and how many calls are done with it."""
    cue, _, number = call_id.partition("-c")
    return Cue.parse(cue), int(number) + 1


def _call(spec: WorkloadSpec, cue: Cue, number: int) -> dict[str, Any]:
    writes = spec.state.files.writes
    if number >= writes:
        query = payload(spec.payload, _QUERY_BYTES, str(cue), "query", number)
        return {"name": SEARCH_TOOL, "args": {"query": query}, "id": f"{cue}-c{number}"}
    ordinal = (cue.turn - 1) * writes + number + 1
    content = _text(spec, spec.state.files.file_bytes, ordinal, str(cue), "file", number)
    args = {"file_path": f"/notes/{cue}-{number}.md", "content": content}
    return {"name": "write_file", "args": args, "id": f"{cue}-c{number}"}


def search(spec: WorkloadSpec, call_id: str) -> str:
    """What the search tool returns for a call."""
    cue, done = _read_call(call_id)
    ordinal = (cue.turn - 1) * spec.tools.calls + done - spec.state.files.writes
    return _text(spec, spec.tools.output_bytes, ordinal, call_id, "output")


def _result(spec: WorkloadSpec, call: Any, files: dict[str, Any]) -> Message:
    """The tool message that a call leads to, and what it leaves in the files."""
    name, args, call_id = call["name"], call["args"], call["id"]
    if name == SEARCH_TOOL:
        content = search(spec, call_id)
        if len(content) > EVICT_OVER:
            path = f"{RESULTS_FOLDER}{call_id}"
            files[path] = {"content": content, "encoding": "utf-8"}
            content = path
    else:
        files[args["file_path"]] = {"content": args["content"], "encoding": "utf-8"}
        content = f"Updated file {args['file_path']}"
    return Message("tool", "", content, tool_call_id=call_id, name=name)


def _text(spec: WorkloadSpec, dist: Dist, ordinal: int, *key: str | int) -> str:
    return payload(spec.payload, draw(dist, ordinal, spec.payload.seed, *key), *key)


def estimate_thread_bytes(spec: WorkloadSpec, turns: int) -> int:
    """Logical bytes that one thread leaves, to the order of magnitude."""
    _check(spec)
    output, calls, writes = spec.tools.output_bytes, spec.tools.calls, spec.state.files.writes
    rounds = 1 if spec.tools.order == "parallel" else writes + calls
    written = writes * mean(spec.state.files.file_bytes)
    said = mean(spec.conversation.human_bytes) + mean(spec.conversation.model_bytes)
    found = calls * mean(output)
    evicted = calls * output.large / output.every if output.large > EVICT_OVER else 0
    talk = said + found - evicted + written + (rounds + calls + writes + 2) * MESSAGE_OVERHEAD
    steps = 2 * rounds + 5
    growths = {
        "messages": Growth(talk, 2 * rounds + 2, steps),
        "files": Growth(written + evicted, rounds, steps),
    }
    values = sum(
        growths[name].bytes(kind, frequency, turns)
        for name, (kind, frequency) in kinds_of(spec).items()
    )
    return int(values) + steps * turns * CHECKPOINT_BYTES


def kinds_of(spec: WorkloadSpec) -> dict[str, tuple[str, int]]:
    """Kind and snapshot frequency of each channel; files follow the messages unless told."""
    messages, files = spec.state.messages, spec.state.files
    kind = messages.kind if files.kind == "none" else files.kind
    return {
        "messages": (messages.kind, messages.snapshot_frequency),
        "files": (kind, files.snapshot_frequency),
    }
