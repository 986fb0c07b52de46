"""Reads checkpoints back through the public methods of a saver, and keeps digests only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from langgraph.channels.base import BaseChannel
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from savermark.history.image import counted_channels
from savermark.history.lineage import TASKS, TRIGGER
from savermark.retention.asking import Ask, Failure, Reader, id_of
from savermark.retention.branching import Place
from savermark.retention.digest import (
    RANK,
    Evidence,
    Verdict,
    contributions,
    judged,
    rebuilt_evidence,
    replayed,
    stored_evidence,
    value_digest,
)

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.types import StateSnapshot

Channel = BaseChannel[Any, Any, Any]
Specs = Callable[[str], Mapping[str, Channel] | None]  # namespace -> its channels, None if unknown
INTERRUPT = "__interrupt__"
_REDUCING = (DeltaChannel, BinaryOperatorAggregate)  # what the runtime rebuilds from writes


@dataclass(frozen=True, slots=True)
class Reading:
    """One checkpoint as it reads back.

    `frontier` covers versions and what each node has seen of them, so that with the same pending
    writes the same tasks come next. `writes` are the pending writes in order. `state`, `upcoming`
    and `interrupts` come from a compiled graph, where one is given. `error` is what a read raised.
    """

    checkpoint_id: str
    parent_id: str | None = None
    values: Mapping[str, Evidence] = field(default_factory=dict)
    frontier: bytes = b""
    writes: tuple[bytes, ...] = ()
    interrupted: bool = False
    state: bytes | None = None
    upcoming: tuple[str, ...] | None = None
    interrupts: tuple[bytes, ...] = ()
    error: str = ""

    def lost_in(self, other: Reading) -> tuple[Verdict, str] | None:
        """The worst that happened to a value between this reading and another; None: nothing."""
        worst: tuple[Verdict, str] | None = None
        for channel, evidence in self.values.items():
            verdict, why = judged(evidence, other.values.get(channel))
            if verdict != "ok" and (worst is None or RANK[verdict] < RANK[worst[0]]):
                worst = verdict, f"channel {channel!r} {why}"
        return worst

    def shows(self, other: Reading) -> bool:
        """Whether a graph shows the same state, as far as two readings of it can be compared."""
        values = [*self.values.values(), *other.values.values()]
        return self.state == other.state or not all(each.stable for each in values)


@dataclass(frozen=True, slots=True)
class Lens:
    """How checkpoints are read: through which graph and reducers, and how often each history."""

    specs: Specs
    graph: Any = None
    serde: SerializerProtocol | None = None
    messages: str = "messages"
    twice: bool = True


def lens_of(
    saver: BaseCheckpointSaver[Any],
    graph: Any = None,
    channels: Mapping[str, Any] | None = None,
    messages: str = "messages",
) -> Lens:
    """How the threads of a saver are read; the graph is made to read through this saver."""
    if graph is not None and getattr(graph, "checkpointer", None) is not saver:
        graph = graph.copy({"checkpointer": saver})
    return Lens(specs_of(graph, channels or {}), graph, getattr(saver, "serde", None), messages)


def specs_of(graph: Any, channels: Mapping[str, Any]) -> Specs:
    """The channels of each namespace, from a compiled graph and from reducers given by name."""
    given = {
        name: each if isinstance(each, BaseChannel) else DeltaChannel(each)
        for name, each in channels.items()
    }
    subgraphs = dict(graph.get_subgraphs(recurse=True)) if graph is not None else {}
    found: dict[str, Mapping[str, Channel] | None] = {}

    def specs(space: str) -> Mapping[str, Channel] | None:
        if space not in found:
            # Task ids and call numbers are left out of a namespace to find its subgraph.
            path = "|".join(p.partition(":")[0] for p in space.split("|") if not p.isdigit())
            owner = graph if not space else subgraphs.get(path)
            own = getattr(owner, "channels", None)
            found[space] = {**(own or {}), **given} if own or given else None
        return found[space]

    return specs


@dataclass(frozen=True, slots=True)
class Seen:
    """A reading, and while it is at hand the tuple and the messages it was made from."""

    reading: Reading
    found: CheckpointTuple | None = None  # None: the read raised
    messages: list[Any] = field(default_factory=list)


def read_checkpoint(
    ask: Ask, lens: Lens, deltas: Collection[str], *, state: bool = False
) -> Reader[Seen | None]:
    """What a checkpoint reads back as; None when it is not stored.

    `deltas` are channels that the thread's data shows to be delta channels; with `state` the graph
    is asked too.
    """
    found = yield ask
    if found is None or isinstance(found, Failure):
        return None if found is None else _failed(ask.checkpoint_id or "", found)
    held = cast("CheckpointTuple", found)
    if not isinstance(held.checkpoint, Mapping):  # bytes of another serializer may decode to this
        kind = type(held.checkpoint).__name__
        return _failed(ask.checkpoint_id or "", Failure(f"its checkpoint reads back as {kind}"))
    names = _rebuilt(held, lens.specs(ask.checkpoint_ns), deltas)
    at = Ask("history", ask.thread_id, ask.checkpoint_ns, id_of(held), names)
    histories = []
    for _ in range(2 if lens.twice else 1) if names else ():
        history = yield at
        if isinstance(history, Failure):
            return _failed(id_of(held), history)
        histories.append(history)
    snapshot: Any = None
    if state and lens.graph is not None:
        snapshot = yield Ask("state", ask.thread_id, ask.checkpoint_ns, ask.checkpoint_id)
        if isinstance(snapshot, Failure):
            return _failed(id_of(held), snapshot)
    specs = lens.specs(ask.checkpoint_ns) or {}
    reading = _reading(held, names, histories, specs, snapshot, lens.serde)
    return Seen(reading, held, _messages(held, histories, specs, lens.messages))


def _failed(checkpoint_id: str, failure: Failure) -> Seen:
    return Seen(Reading(checkpoint_id, error=str(failure)))


def _rebuilt(
    found: CheckpointTuple, specs: Mapping[str, Channel] | None, deltas: Collection[str]
) -> tuple[str, ...]:
    """The channels whose value a read of this checkpoint rebuilds."""
    values = found.checkpoint.get("channel_values") or {}
    absent = (found.checkpoint.get("channel_versions") or {}).keys() - values.keys()
    known = {name for name, spec in (specs or {}).items() if isinstance(spec, _REDUCING)}
    counted = counted_channels(found.metadata or {})
    return tuple(sorted(absent & (known | counted | set(deltas))))


def _reading(
    found: CheckpointTuple,
    names: tuple[str, ...],
    histories: list[Any],
    specs: Mapping[str, Channel],
    snapshot: StateSnapshot | None,
    serde: SerializerProtocol | None,
) -> Reading:
    checkpoint = found.checkpoint
    values = {
        name: stored_evidence(value, serde)
        for name, value in (checkpoint.get("channel_values") or {}).items()
    }
    for name in names:
        spec = specs.get(name)
        parts = [history[name] for history in histories]
        values[name] = rebuilt_evidence(parts, spec if isinstance(spec, _REDUCING) else None, serde)
    versions = {k: str(v) for k, v in (checkpoint.get("channel_versions") or {}).items()}
    seen = {
        node: {k: str(v) for k, v in each.items()}
        for node, each in (checkpoint.get("versions_seen") or {}).items()
    }
    writes = found.pending_writes or []
    parent = found.parent_config
    return Reading(
        id_of(found),
        parent["configurable"]["checkpoint_id"] if parent else None,
        values,
        value_digest([versions, seen]),
        tuple(value_digest(list(write), serde) for write in writes),
        any(channel == INTERRUPT for _, channel, _ in writes),
        *_told(snapshot, serde),
    )


def _told(
    snapshot: StateSnapshot | None, serde: SerializerProtocol | None
) -> tuple[bytes | None, tuple[str, ...] | None, tuple[bytes, ...]]:
    if snapshot is None:
        return None, None, ()
    tasks = tuple(f"{task.name}:{task.id}" for task in snapshot.tasks)
    asked = tuple(value_digest(each, serde) for each in snapshot.interrupts)
    return value_digest(snapshot.values, serde), (*snapshot.next, *tasks), asked


def _messages(
    found: CheckpointTuple, histories: list[Any], specs: Mapping[str, Channel], channel: str
) -> list[Any]:
    """The messages of a checkpoint; where no reducer is known, whatever was ever contributed."""
    values = found.checkpoint.get("channel_values") or {}
    if channel in values:
        value = values[channel]
        return contributions(value.value if isinstance(value, _DeltaSnapshot) else value, ())
    if not histories or channel not in histories[0]:
        return []
    spec, history = specs.get(channel), histories[0][channel]
    if isinstance(spec, _REDUCING):
        return contributions(replayed(spec, history), ())
    seed = history.get("seed", [])
    writes = [value for _, _, value in history["writes"]]
    return contributions(seed.value if isinstance(seed, _DeltaSnapshot) else seed, writes)


def message_ids(messages: list[Any], *, asked_by: Collection[str] = ()) -> list[str]:
    """The ids of messages, of those of these types only if any is named; in order."""
    found = []
    for message in messages:
        plain = isinstance(message, Mapping)
        one = message.get("id") if plain else getattr(message, "id", None)
        kind = message.get("type") if plain else getattr(message, "type", None)
        if isinstance(one, str) and (not asked_by or kind in asked_by):
            found.append(one)
    return found


def place_of(found: CheckpointTuple, messages: list[Any], *, duration_only: bool = False) -> Place:
    """A checkpoint as a walk to a branch point sees it.

    Tasks are left where a trigger stands that no node has consumed yet, or a send is pending.
    """
    values = found.checkpoint.get("channel_values") or {}
    pending = any(k.startswith(TRIGGER) or k == "__start__" for k in values)
    parent = found.parent_config
    return Place(
        id_of(found),
        parent["configurable"]["checkpoint_id"] if parent else None,
        frozenset(message_ids(messages)),
        pending or bool(values.get(TASKS)),
        duration_only,
    )
