"""What the one-pass walk in Postgres learns on the way; it changes statements, and no answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from savermark.history.walks import postgres_sql as sql

Loads = Callable[[tuple[str, bytes]], Any]
Rows = list[tuple[Any, ...]]

_ASK_EVERY = 8  # walks, while a table is small
# Checkpoints that `postgres_window` reads at most: of a chain that ended at a value, since what
# lies beyond is read in vain; and of one that goes to the root, where nothing lies beyond.
_WINDOWS, _WHOLE = (4, 8, 16), 8_192
_REMEMBERED = 256  # channels
# From here on a value is built while the server sends the next ones. A statement read that way is
# planned anew each time, which costs more than a short walk.
_LONG = 1_000


@dataclass(frozen=True, slots=True)
class Query:
    """A statement that is asked; `stream` where its rows may come one by one."""

    text: bytes
    values: dict[str, Any]
    stream: bool = False


class Plans:
    """What is known of the tables behind a connection or pool.

    `windows` are the channels whose last chain was in few checkpoints: in how many to look for the
    next; 0 where one checkpoint had several writes of the channel, so that their order matters.
    `long` are those whose chain was so long that it is read piece by piece; `mixed` those whose
    window once was too small, since threads of unlike length are read in turn.
    """

    __slots__ = ("grown", "long", "mixed", "parallel", "seeded", "walks", "windows")

    def __init__(self) -> None:
        self.grown = self.walks = 0
        self.parallel = False  # several tasks wrote one channel on one checkpoint: paths matter
        self.windows: dict[str, int] = {}
        self.long: set[str] = set()
        self.mixed: set[str] = set()
        self.seeded: set[str] = set()  # channels with stored values

    def ask(self) -> bool:
        """Whether this walk should ask what has grown (see `postgres_sql.text`)."""
        if self.grown == sql.ALL_GROWN:
            return False
        self.walks += 1
        return self.walks % _ASK_EVERY == 1

    def told(self, grown: int) -> None:
        """The answer."""
        if grown != sql.NOT_ASKED:
            self.grown = grown

    def covers(self, channel: str, number: int, *, root: bool) -> None:
        """A chain was found whole in this many checkpoints, its target included.

        Chains to the root say nothing of a channel that has stored values elsewhere: a window for
        whole threads would be read in vain by the next one that ends at a value.
        """
        if self.windows.get(channel) == 0:
            return
        sizes = (_WINDOWS[-1], _WHOLE) if root and channel not in self.seeded else _WINDOWS
        fitting = [size for size in sizes if number < size]
        window = (fitting[-1] if channel in self.mixed else fitting[0]) if fitting else None
        if window is None:
            self.windows.pop(channel, None)
            return
        if len(self.windows) >= _REMEMBERED:
            self.windows.clear()
            self.seeded.clear()
            self.long.clear()
            self.mixed.clear()
        self.windows[channel] = window
        (self.long.add if number >= _LONG else self.long.discard)(channel)

    def missed(self, channel: str) -> None:
        """The window did not hold the chain."""
        if self.windows.pop(channel, None):
            self.mixed.add(channel)


def plans_of(saver: Any) -> Plans:
    """Those of the saver's connection or pool, since the runtime copies savers."""
    return _known.get(saver.conn) or _known.setdefault(saver.conn, Plans())


_known: WeakKeyDictionary[Any, Plans] = WeakKeyDictionary()
