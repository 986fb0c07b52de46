"""Version strings of one length, so that the bytes of two identical runs are equal."""

from __future__ import annotations

import re
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver

_USUAL = re.compile(r"^\d{32}\.")


@contextmanager
def fixed_versions(saver: BaseCheckpointSaver[Any]) -> Iterator[bool]:
    """Inside the block, the random part of the saver's versions is a serial number of one width.

    Each stays different from all others, as two branches of a thread need it. A saver with
    versions of its own kind is left alone; yields whether they are fixed.
    """
    first: Any = saver.get_next_version(None, None)
    if not isinstance(first, str) or not _USUAL.match(first):
        yield False
        return
    serial = count(1)

    def get_next_version(current: Any, channel: None) -> str:
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}.{next(serial):017}"

    saver.get_next_version = get_next_version  # type: ignore[method-assign]
    try:
        yield True
    finally:
        del saver.get_next_version
