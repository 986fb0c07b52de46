"""What a thread promises before a policy runs: what each checkpoint reads back as, in digests.

`snapshot_promises` reads it, `verify` compares it with a second reading. Only digests and keys are
held, one batch of threads at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from savermark.history.image import ThreadImage
from savermark.history.lineage import LineageError, chain, is_reserved
from savermark.retention.asking import Ask, Failure, Reader, adrive, drive
from savermark.retention.branching import (
    MAX_DEPTH,
    BranchError,
    LineageIntegrity,
    Lookup,
    ParentMissing,
    Place,
    scan_before_message,
)
from savermark.retention.circles import unclosed
from savermark.retention.duration import is_duration_only
from savermark.retention.leftovers import is_call
from savermark.retention.reading import (
    Lens,
    Reading,
    Seen,
    lens_of,
    message_ids,
    place_of,
    read_checkpoint,
)
from savermark.retention.told import Targets, Told, named, told_targets

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.history.lineage import CheckpointKey

_ASKING = ("human", "user")


@dataclass(frozen=True, slots=True)
class ThreadReading:
    """One thread at one moment.

    `latest` is what a run that goes on would load. `points` tells for each message a person sent
    where a branch before it starts, or why there is no such place. `calls` names the per-call
    subgraph namespaces that each checkpoint's tasks launched. `image` holds links and keys; where
    the tables are not known (`tables`), it is what `list` told, and lacks writes and blobs.
    """

    image: ThreadImage
    keys: frozenset[CheckpointKey] = frozenset()
    latest: Reading | None = None
    readings: Mapping[CheckpointKey, Reading] = field(default_factory=dict)
    points: Mapping[str, str | BranchError] = field(default_factory=dict)
    calls: Mapping[str, frozenset[str]] = field(default_factory=dict)
    deltas: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tables: bool = True

    @property
    def heads(self) -> dict[str, str]:
        """The newest id of each namespace."""
        return dict(sorted(self.keys))


@dataclass(frozen=True, slots=True)
class Promises:
    """What a batch of threads promises, and how it was read."""

    threads: Mapping[str, ThreadReading]
    lens: Lens
    protect: frozenset[str] = frozenset()


def snapshot_promises(
    saver: BaseCheckpointSaver[Any],
    threads: Iterable[str],
    *,
    protect: Collection[str] = (),
    graph: Any = None,
    channels: Mapping[str, Any] | None = None,
    plans: Told = None,
    messages: str = "messages",
) -> Promises:
    """Read what these threads promise, before anything is deleted.

    `graph` is the compiled graph of the threads: its reducers decide whether a folded channel is
    still the same, and it says which tasks come next. Without it `channels` may name reducers
    (`(state, writes) -> state`, or a channel). With `plans` only what they keep addressable is
    read; without, every checkpoint. `messages` is the channel that branches are looked up in.

    Raises `UsageError` for a bare string as threads or protected ids.
    """
    names, lens = _given(saver, threads, protect, graph, channels, messages)
    wanted = told_targets(plans)
    work = _read_all(names, lens, {name: wanted.get(name) for name in names})
    return Promises(drive(saver, lens.graph, work), lens, frozenset(protect))


async def asnapshot_promises(
    saver: BaseCheckpointSaver[Any],
    threads: Iterable[str],
    *,
    protect: Collection[str] = (),
    graph: Any = None,
    channels: Mapping[str, Any] | None = None,
    plans: Told = None,
    messages: str = "messages",
) -> Promises:
    """The async twin of `snapshot_promises`."""
    names, lens = _given(saver, threads, protect, graph, channels, messages)
    wanted = told_targets(plans)
    work = _read_all(names, lens, {name: wanted.get(name) for name in names})
    return Promises(await adrive(saver, lens.graph, work), lens, frozenset(protect))


def _given(
    saver: BaseCheckpointSaver[Any],
    threads: Iterable[str],
    protect: Collection[str],
    graph: Any,
    channels: Mapping[str, Any] | None,
    messages: str,
) -> tuple[list[str], Lens]:
    named(protect, "protect")
    return named(threads), lens_of(saver, graph, channels, messages)


def _read_all(
    threads: Iterable[str], lens: Lens, targets: Mapping[str, Targets | None]
) -> Reader[dict[str, ThreadReading]]:
    found = {}
    for thread in threads:
        found[thread] = yield from read_thread(thread, lens, targets.get(thread))
    return found


def read_thread(
    thread: str,
    lens: Lens,
    targets: Targets | None = None,
    *,
    only: Collection[CheckpointKey] | None = None,
    deltas: Mapping[str, frozenset[str]] | None = None,
) -> Reader[ThreadReading]:
    """One thread: all of it, or what `targets` and their interrupted subgraphs need, or `only`."""
    image = cast("ThreadImage | None", (yield Ask("image", thread)))
    tables = image is not None
    if image is None:
        listed = yield Ask("rows", thread)
        image = ThreadImage(thread, () if isinstance(listed, Failure) else tuple(listed))
    keys = frozenset(row.key for row in image.checkpoints)
    channels = deltas if deltas is not None else _deltas(image)
    calls = _calls(image)
    wanted = _wanted(keys, targets, calls) if only is None else keys & set(only)
    work = _readings(thread, lens, channels, keys, wanted, image)
    readings, points, live = yield from unclosed(image, work)
    return ThreadReading(image, keys, live, readings, points, calls, channels, tables)


def _readings(
    thread: str,
    lens: Lens,
    channels: Mapping[str, frozenset[str]],
    keys: frozenset[CheckpointKey],
    wanted: Collection[CheckpointKey],
    image: ThreadImage,
) -> Reader[tuple[dict[CheckpointKey, Reading], dict[str, str | BranchError], Reading | None]]:
    """The checkpoints that are wanted, the branch points, and the newest state."""
    wanted = frozenset(wanted)
    found: dict[CheckpointKey, Seen | None] = {}
    points = yield from _branch_points(thread, lens, channels, keys, wanted, image, found)
    for key in sorted(wanted - found.keys()):
        seen = yield from _read(thread, key, lens, channels)
        found[key] = seen and Seen(seen.reading)
    latest = yield from read_checkpoint(
        Ask("tuple", thread), lens, channels.get("", frozenset()), state=True
    )
    readings = {key: seen.reading for key, seen in found.items() if seen and key in wanted}
    return readings, points, latest.reading if latest else None


def _read(
    thread: str, key: CheckpointKey, lens: Lens, deltas: Mapping[str, frozenset[str]]
) -> Reader[Seen | None]:
    ask = Ask("tuple", thread, *key)
    seen = yield from read_checkpoint(ask, lens, deltas.get(key[0], frozenset()), state=not key[0])
    return seen


def _branch_points(
    thread: str,
    lens: Lens,
    deltas: Mapping[str, frozenset[str]],
    keys: frozenset[CheckpointKey],
    wanted: Collection[CheckpointKey],
    image: ThreadImage,
    found: dict[CheckpointKey, Seen | None],
) -> Reader[dict[str, str | BranchError]]:
    """Walk from the root namespace's head; what is read on the way is left in `found`.

    The walk ends early where nothing that is wanted is left to come. For messages whose walk came
    to a root, what lies before that root and is wanted is scanned.
    """
    head = max((key for key in keys if key[0] == ""), default=None)
    seen = (yield from _read(thread, head, lens, deltas)) if head else None
    if head is None or seen is None or seen.found is None:
        return {}
    found[head] = Seen(seen.reading)
    asked = message_ids(seen.messages, asked_by=_ASKING) or message_ids(seen.messages)
    top = place_of(seen.found, seen.messages)
    lookup = Lookup(top, asked, max_depth=len(keys) + 1)
    left = {key for key in wanted if key[0] == "" and key != head}
    while left and (parent := lookup.wants) is not None:
        place = yield from _place(thread, ("", parent), lens, deltas, image, found)
        left.discard(("", parent))
        lookup.feed(place)
    if (parent := lookup.wants) is not None and (broken := _broken_link(image, parent)):
        lookup.end(LineageIntegrity(broken))
    rooted = [m for m, outcome in lookup.found.items() if isinstance(outcome, ParentMissing)]
    places: list[Place] = []
    first = min(found)
    for key in sorted(key for key in left if key < first)[:MAX_DEPTH] if rooted else ():
        place = yield from _place(thread, key, lens, deltas, image, found)
        places += [place] if place else []
    scanned = {m: scan_before_message([*places, top], m) for m in rooted} if places else {}
    return {**lookup.found, **{m: base for m, base in scanned.items() if base is not None}}


def _broken_link(image: ThreadImage, checkpoint_id: str) -> str:
    """What is wrong above a checkpoint that the walk did not come to, by the links alone."""
    try:
        return "" if chain(image, "", checkpoint_id) else f"parent {checkpoint_id} is not stored"
    except LineageError as error:
        return str(error)


def _place(
    thread: str,
    key: CheckpointKey,
    lens: Lens,
    deltas: Mapping[str, frozenset[str]],
    image: ThreadImage,
    found: dict[CheckpointKey, Seen | None],
) -> Reader[Place | None]:
    seen = yield from _read(thread, key, lens, deltas)
    found[key] = Seen(seen.reading) if seen else None
    if seen is None or seen.found is None:
        return None
    return place_of(seen.found, seen.messages, duration_only=_only(image, seen))


def _only(image: ThreadImage, seen: Seen) -> bool:
    row = image.row("", seen.reading.checkpoint_id)
    return row is not None and is_duration_only(image, row)


def _deltas(image: ThreadImage) -> dict[str, frozenset[str]]:
    """The channels of each namespace that its rows show to be delta channels.

    Where nothing counts or snapshots any, each channel that has a version and no value may be one.
    """
    found: dict[str, frozenset[str]] = {}
    for space, rows in image.spaces.items():
        shown = frozenset().union(*(row.counted | row.snapshots for row in rows.values()))
        if not shown:
            empty = (row.versions.keys() - row.stored - row.nulls for row in rows.values())
            shown = frozenset(c for each in empty for c in each if not is_reserved(c))
        found[space] = shown
    return found


def _calls(image: ThreadImage) -> dict[str, frozenset[str]]:
    """The per-call namespaces by the root checkpoint whose tasks launched them."""
    found: dict[str, set[str]] = {}
    for row in image.checkpoints:
        parents = row.metadata.get("parents")
        root = parents.get("") if isinstance(parents, Mapping) else None
        if isinstance(root, str) and is_call(row.checkpoint_ns):
            found.setdefault(root, set()).add(row.checkpoint_ns)
    return {root: frozenset(spaces) for root, spaces in found.items()}


def _wanted(
    keys: frozenset[CheckpointKey], targets: Targets | None, calls: Mapping[str, frozenset[str]]
) -> frozenset[CheckpointKey]:
    if targets is None:
        return keys
    anywhere = set(targets.get("*", ()))
    chosen = {key for key in keys if key[1] in targets.get(key[0], ()) or key[1] in anywhere}
    spaces = {space for key in chosen if key[0] == "" for space in calls.get(key[1], ())}
    heads = dict(sorted(keys))
    return frozenset(chosen | {(space, heads[space]) for space in spaces})
