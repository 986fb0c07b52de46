"""Workload specs: what a TOML file says, as frozen dataclasses with strict keys.

A workload describes the shape of a conversation, never code. Every section of the file is one
dataclass below and every key one field, so defaults live in one place; `workloads/_template.toml`
lists them all with a comment each (a test keeps the two equal).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: The shapes in `savermark.script` and `savermark.graphs` (a test keeps them equal).
GRAPHS = ("agent", "human-ai", "ai-only", "channels", "deep-agent")


@dataclass(frozen=True, slots=True)
class Dist:
    """How many, or how large: a seeded distribution of whole numbers.

    In TOML a bare integer is `fixed`; a table names the others:
    `{ dist = "lognormal", median = 20, sigma = 1.2, min = 1, max = 400 }`,
    `{ dist = "mixture", small = 2000, large = 80000, every = 10 }` (every 10th is large).
    """

    dist: Literal["fixed", "lognormal", "mixture"] = "fixed"
    value: int = 0
    median: int = 0
    sigma: float = 0.0
    min: int = 0
    max: int = 0
    small: int = 0
    large: int = 0
    every: int = 0

    @property
    def typical(self) -> int:
        """The fixed value, the median, or the small part: what a label shows."""
        return {"fixed": self.value, "lognormal": self.median, "mixture": self.small}[self.dist]


def fixed(value: int) -> Dist:
    """A distribution that always gives `value`."""
    return Dist(value=value)


@dataclass(frozen=True, slots=True)
class MessagesSpec:
    """`[state.messages]`: the conversation's channel.

    `full` is a list with `add_messages`, stored whole at each change; `delta` a `DeltaChannel`
    whose whole value is stored after every `snapshot_frequency` updates.
    """

    kind: Literal["full", "delta"] = "delta"
    snapshot_frequency: int = 50


@dataclass(frozen=True, slots=True)
class FilesSpec:
    """`[state.files]`: a dictionary-valued channel from path to content."""

    kind: Literal["none", "full", "delta"] = "none"
    snapshot_frequency: int = 50
    writes: int = 1  # files written a turn, each under a new path
    file_bytes: Dist = field(default_factory=lambda: fixed(1_000))


@dataclass(frozen=True, slots=True)
class StaticSpec:
    """`[state.static]`: a channel that is written once, on the first turn."""

    bytes: int = 0  # 0: no such channel


@dataclass(frozen=True, slots=True)
class ExtraSpec:
    """`[state.extra]`: further list channels that get one item each at the end of a turn."""

    count: int = 0
    kind: Literal["full", "delta"] = "delta"
    frequencies: tuple[int, ...] = (50,)  # taken in turn: channel i has frequencies[i % len]
    item_bytes: Dist = field(default_factory=lambda: fixed(250))


@dataclass(frozen=True, slots=True)
class StateSpec:
    """`[state]`: the graph's channels."""

    messages: MessagesSpec = MessagesSpec()
    files: FilesSpec = FilesSpec()
    static: StaticSpec = StaticSpec()
    extra: ExtraSpec = ExtraSpec()


@dataclass(frozen=True, slots=True)
class ConversationSpec:
    """`[conversation]`: how many threads, how long, how talkative.

    `model_bytes` is the size of a turn's final answer; a message that calls tools has no text.
    """

    threads: int = 1
    turns: Dist = field(default_factory=lambda: fixed(10))
    human_bytes: Dist = field(default_factory=lambda: fixed(80))
    model_bytes: Dist = field(default_factory=lambda: fixed(400))


@dataclass(frozen=True, slots=True)
class ToolsSpec:
    """`[tools]`: tool calls of a turn and what they return.

    In `sequence` the model asks for one call a step, so n calls take 2n steps; in `parallel` for
    all at once, and each call is a task of its own (`Send`) in one step. An output of more than
    `externalize_over` bytes reaches the state as its first `preview_bytes` and a reference.
    """

    calls: int = 0
    order: Literal["sequence", "parallel"] = "sequence"
    output_bytes: Dist = field(default_factory=lambda: fixed(2_000))
    externalize_over: int = 0  # 0: never; else larger outputs become preview + file reference
    preview_bytes: int = 500


@dataclass(frozen=True, slots=True)
class BranchingSpec:
    """`[branching]`: after every n-th turn the human goes back, which abandons a tip.

    The branch starts from the settled checkpoint `back` turns before the head, counted along the
    branch the head is on, and never before the end of the first turn. It redoes the one turn that
    followed there, under a new message id; its end is the new head and the conversation goes on
    from it. The old head stays readable.

    - `regenerate`: the same words again, invoked with the older checkpoint's id.
    - `edit`: `update_state` puts other words on the older checkpoint (as node `__start__`), then
      the run goes on from there.
    - `copy`: the older checkpoint is copied first (`as_node="__copy__"`), then the same words are
      invoked on the copy.
    """

    every: int = 0  # after every n-th turn; 0: never
    back: int = 1  # how many turns back the branch starts
    kind: Literal["regenerate", "edit", "copy"] = "regenerate"


@dataclass(frozen=True, slots=True)
class SubgraphSpec:
    """`[subgraph]`: a subgraph that runs once a turn, before the model.

    It is a node of the graph and is handed the whole state, of which it stores a copy as its input.
    A `call` starts afresh in a namespace of its own each turn; a `persistent` one
    (`checkpointer=True`) keeps its conversation in one namespace.
    """

    kind: Literal["none", "call", "persistent"] = "none"
    steps: int = 2  # supersteps inside one call


@dataclass(frozen=True, slots=True)
class FanOutSpec:
    """`[fan_out]`: workers launched through `Send`, each turn, before the model.

    Their findings are a list channel that grows; it is full or delta as `[state.messages]` is.
    """

    width: int = 0
    item_bytes: Dist = field(default_factory=lambda: fixed(1_000))


@dataclass(frozen=True, slots=True)
class InterruptsSpec:
    """`[interrupts]`: the graph stops before the model and asks a human.

    With `resume` each question is answered. Without, all but the last of a thread are: the thread
    ends there, its question open. A thread too short to ask plays all its turns.
    """

    every: int = 0  # every n-th turn; 0: never
    resume: bool = True  # False: the last interrupt of a thread stays pending


@dataclass(frozen=True, slots=True)
class DurationsSpec:
    """`[durations]`: metadata-only copies of the head after a run (retention contract)."""

    every: int = 0  # after every n-th run, branches included; 0: never


@dataclass(frozen=True, slots=True)
class RunSpec:
    """`[run]`: how the graph is driven."""

    api: Literal["sync", "async"] = "sync"
    durability: Literal["sync", "async", "exit"] = "sync"
    serializer: Literal["plain", "encrypted"] = "plain"
    run_id: bool = True  # a run id in each run's metadata


@dataclass(frozen=True, slots=True)
class PayloadSpec:
    """`[payload]`: what the bytes look like.

    `text`, `json` and `code` can be made to compress by 0.3 to 0.9; `random` (by a sixth) and
    `repeat` (to nothing) have a compressibility of their own and ignore the key.
    """

    kind: Literal["text", "json", "code", "random", "repeat"] = "text"
    compressibility: float = 0.5  # share of the bytes that zlib removes from 16 KiB
    seed: int = 1


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """`[fleet]`: threads by cloning.

    The turns of the driven threads are spread evenly over their distribution, and each is cloned
    as often as the others, give or take one.
    """

    driven: int = 0  # 0: every thread is driven; n: n thread shapes are driven, the rest cloned


@dataclass(frozen=True, slots=True)
class MeasureSpec:
    """`[measure]`: how often what is read, and what the simplest retention deletes."""

    repetitions: int = 1  # trials of each case
    reads: int = 5  # warm samples of each read
    cold: bool = True  # also read in a new process on a new connection
    history_limits: tuple[int, ...] = (10, 100)
    delete_share: float = 0.25  # share of the threads that the retained phase deletes
    timeout_s: float = 120.0  # of one trial


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """One workload with every key resolved; `graph` names the shape in `savermark.graphs`."""

    name: str
    summary: str = ""
    graph: str = "agent"
    state: StateSpec = StateSpec()
    conversation: ConversationSpec = field(default_factory=ConversationSpec)
    tools: ToolsSpec = field(default_factory=ToolsSpec)
    branching: BranchingSpec = BranchingSpec()
    subgraph: SubgraphSpec = SubgraphSpec()
    fan_out: FanOutSpec = field(default_factory=FanOutSpec)
    interrupts: InterruptsSpec = InterruptsSpec()
    durations: DurationsSpec = DurationsSpec()
    run: RunSpec = RunSpec()
    payload: PayloadSpec = PayloadSpec()
    fleet: FleetSpec = FleetSpec()
    measure: MeasureSpec = MeasureSpec()
