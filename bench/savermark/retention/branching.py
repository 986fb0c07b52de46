"""Where a branch from an older message starts: the settled checkpoint before that message.

An application that lets a person regenerate an answer walks from the newest checkpoint along the
parent links to the newest ancestor that does not have the message yet and has no task left to
run. What lies between is an ancestor that a branch needs.

Three things can go wrong, and they are told apart because an application treats them differently:
`ParentMissing` (the walk came to a root: a scan of the whole thread may still find the place),
`LineageIntegrity` (a link that leads nowhere: nothing may be guessed) and `DepthExceeded`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from savermark.errors import ContractError

MAX_DEPTH = 400  # links; the same number bounds the scan


class BranchError(ContractError):
    """No checkpoint to branch from was found."""


class LineageIntegrity(BranchError):
    """The head lacks the message, or a parent is named and not stored, is another, or comes twice.

    An application answers it as a conflict; scanning instead could branch from the wrong state.
    """


class ParentMissing(BranchError):
    """The walk came to a checkpoint without a parent before it found the place."""


class DepthExceeded(LineageIntegrity):
    """More links than the walk may follow."""


@dataclass(frozen=True, slots=True)
class Place:
    """One checkpoint as the walk sees it: the messages it has and whether tasks are left."""

    checkpoint_id: str
    parent_id: str | None
    message_ids: frozenset[str]
    pending: bool = False
    duration_only: bool = False


class Places(Protocol):
    """Reads places of one thread and namespace."""

    def place(self, checkpoint_id: str) -> Place | None:
        """The checkpoint of this id, None when it is not stored."""
        ...


class AsyncPlaces(Protocol):
    """The async twin of `Places`."""

    def place(self, checkpoint_id: str) -> Awaitable[Place | None]:
        """The checkpoint of this id, None when it is not stored."""
        ...


@dataclass
class Lookup:
    """One walk up from a head that finds the place before each of several messages.

    Feed it each ancestor in turn, as `wants` names it, until `wants` is None. `found` has then an
    id or an error for every message.
    """

    head: Place
    messages: Iterable[str]
    max_depth: int = MAX_DEPTH
    found: dict[str, str | BranchError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._open = dict.fromkeys(self.messages)
        self._last = self.head
        self._seen = {self.head.checkpoint_id}
        for message in [name for name in self._open if name not in self.head.message_ids]:
            self._settle([message], LineageIntegrity(f"the head has no message {message!r}"))

    @property
    def wants(self) -> str | None:
        """The checkpoint to read next, None when nothing is left to find."""
        if not self._open:
            return None
        parent = self._last.parent_id
        if parent is None:
            at = self._last.checkpoint_id
            self.end(ParentMissing(f"checkpoint {at} has no parent: the thread begins there"))
        elif parent in self._seen:
            self.end(LineageIntegrity(f"checkpoint {parent} is its own ancestor"))
        elif len(self._seen) > self.max_depth:
            self.end(DepthExceeded(f"not found within {self.max_depth} links: raise max_depth"))
        else:
            return parent
        return None

    def skip(self, place: Place) -> None:
        """The checkpoint that `wants` named, which is no place to branch from."""
        self.feed(replace(place, pending=True))

    def feed(self, place: Place | None) -> None:
        """The checkpoint that `wants` named, None when it is not stored."""
        asked = self._last.parent_id
        if place is None or place.checkpoint_id != asked:
            what = "is not stored" if place is None else f"reads back as {place.checkpoint_id}"
            self.end(LineageIntegrity(f"parent {asked} of {self._last.checkpoint_id} {what}"))
            return
        self._seen.add(place.checkpoint_id)
        self._last = place
        if place.duration_only or place.pending:
            return
        self._settle(
            [name for name in self._open if name not in place.message_ids], place.checkpoint_id
        )

    def _settle(self, messages: Iterable[str], outcome: str | BranchError) -> None:
        for message in messages:
            del self._open[message]
            self.found[message] = outcome

    def end(self, error: BranchError) -> None:
        """Nothing more is found: what is still open has this outcome."""
        self._settle(list(self._open), error)


def find_checkpoint_before_message(
    places: Places, head: Place, message_id: str, *, max_depth: int = MAX_DEPTH
) -> str:
    """The id of the checkpoint to branch from so that `message_id` is as if it had not come.

    Steps over duration-only checkpoints and over those with tasks left: within a run a message may
    be renamed, so its absence there does not mean "before it". Raises `BranchError`.
    """
    walk = _walk(head, message_id, max_depth)
    answer: Place | None = None
    while True:
        try:
            asked = walk.send(answer)
        except StopIteration as stop:
            return str(stop.value)
        answer = places.place(asked)


async def afind_checkpoint_before_message(
    places: AsyncPlaces, head: Place, message_id: str, *, max_depth: int = MAX_DEPTH
) -> str:
    """The async twin of `find_checkpoint_before_message`."""
    walk = _walk(head, message_id, max_depth)
    answer: Place | None = None
    while True:
        try:
            asked = walk.send(answer)
        except StopIteration as stop:
            return str(stop.value)
        answer = await places.place(asked)


def _walk(head: Place, message_id: str, max_depth: int) -> Generator[str, Place | None, str]:
    lookup = Lookup(head, [message_id], max_depth)
    while (asked := lookup.wants) is not None:
        lookup.feed((yield asked))
    outcome = lookup.found[message_id]
    if isinstance(outcome, BranchError):
        raise outcome
    return outcome


def scan_before_message(
    places: Iterable[Place], message_id: str, *, budget: int = MAX_DEPTH
) -> str | None:
    """The newest settled checkpoint older than the first that has the message, or None.

    For a thread whose walk ended in `ParentMissing` only. `places` come oldest first; no more than
    `budget` are looked at, and checkpoints that stay only as support must be left out.
    """
    base: str | None = None
    for number, place in enumerate(places):
        if number >= budget:
            return None
        if message_id in place.message_ids:
            return base
        if not (place.pending or place.duration_only):
            base = place.checkpoint_id
    return None
