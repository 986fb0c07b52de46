"""How images are streamed: the threads in pages, each page cut so that its rows fit a chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from savermark.history.image import ThreadImage

T = TypeVar("T")


class Reader(Protocol):
    """What an engine reads for `stream`; each call is a fixed number of statements."""

    def page(self, after: str | None, limit: int) -> list[tuple[str, int]]:
        """The next threads after this one, in the engine's order, and their rows in all tables."""
        ...

    def sizes(self, threads: Sequence[str]) -> Mapping[str, int]:
        """The rows of these threads in all tables; threads without any may be missing."""
        ...

    def read(self, threads: Sequence[str]) -> list[ThreadImage]:
        """The images of these threads, in this order."""
        ...


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of at most `size`."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def pages(reader: Reader, limit: int) -> Iterator[list[tuple[str, int]]]:
    """All threads with their rows."""
    after = None
    while page := reader.page(after, limit):
        yield page
        after = page[-1][0]


def stream(
    reader: Reader, threads: Sequence[str | int] | None, batch: int, chunk: int
) -> Iterator[ThreadImage]:
    """The images of these threads or of all (`RowAccess.images`)."""
    for part in fitted(reader, threads, batch, chunk):
        yield from reader.read(part)


def fitted(
    reader: Reader, threads: Sequence[str | int] | None, batch: int, chunk: int
) -> Iterator[list[str]]:
    """These threads, each once, or all: at most `batch` at a time, cut so that they fit a chunk."""
    if threads is None:
        found = pages(reader, batch)
    elif batch == 1:
        found = ([(str(thread), 0)] for thread in dict.fromkeys(map(str, threads)))
    else:
        named = dict.fromkeys(str(thread) for thread in threads)
        found = (_sized(reader, part) for part in chunks(named, batch))
    for page in found:
        yield from _fitting(page, chunk)


def _sized(reader: Reader, threads: list[str]) -> list[tuple[str, int]]:
    sizes = reader.sizes(threads)
    return [(thread, sizes.get(thread, 0)) for thread in threads]


def _fitting(page: Iterable[tuple[str, int]], chunk: int) -> Iterator[list[str]]:
    """The threads of a page in lists whose rows add up to no more than `chunk`, or of one."""
    part: list[str] = []
    total = 0
    for thread, rows in page:
        if part and total + rows > chunk:
            yield part
            part, total = [], 0
        part.append(thread)
        total += rows
    if part:
        yield part
