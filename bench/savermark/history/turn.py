"""One user of a connection at a time, without a wait that nobody can end."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from savermark.errors import BackendError
from savermark.history.rows import ThreadBusy

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60.0  # seconds; a saver holds its lock for one call, a `list` as long as it is read


class Lock(Protocol):
    """What `threading` offers, and savers have."""

    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool:
        """Wait for the lock."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...


class Turn:
    """Hands a lock to one OS thread at a time, and refuses the one that would wait for itself."""

    def __init__(self, lock: Lock | None) -> None:
        self._lock = lock or threading.Lock()
        self._user: int | None = None

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the lock. Raises `BackendError` inside itself, `ThreadBusy` after `PATIENCE`."""
        if self._user == threading.get_ident():
            raise BackendError("a transaction of this thread is open: use its methods, or leave it")
        if not self._lock.acquire(timeout=PATIENCE):
            raise ThreadBusy("the saver is in use: read its list() to the end first")
        self._user = threading.get_ident()
        try:
            yield
        finally:
            self._user = None
            self._lock.release()
