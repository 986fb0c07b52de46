"""What was seen of the calls to a pair of stores: the only clock around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from savermark.records import Phase, SampleSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from savermark.sandbox.records import BlobReference

# Method of a store -> the operation that its samples are filed under.
STORE_OPS = {
    "get": "get",
    "list": "list",
    "get_head": "get_head",
    "append": "append",
    "delete_head": "delete_head",
    "acquire_writer": "acquire_writer",
    "delete_checkpoints": "delete_checkpoints",
    "fork_from_checkpoint": "fork",
}
BLOB_OPS = {"get": "blob_get", "head": "blob_head", "put": "blob_put", "delete": "blob_delete"}
# What a step as a whole is called; these contain the calls above.
STEPS = ("capture", "restore", "keep_newest", "sweep")


@dataclass
class Log:
    """Start, end and depth of every call by operation, in ns of `clock`."""

    clock: Callable[[], int] = perf_counter_ns
    depth: int = 0  # checkpoints that the thread now at work has
    spans: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)

    @contextmanager
    def timed(self, op: str) -> Iterator[None]:
        """Time the block; one that raises leaves no sample."""
        depth, start = self.depth, self.clock()
        yield
        self.spans.setdefault(op, []).append((start, self.clock(), depth))

    def wrap(self, op: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The call, timed."""

        async def timed(*args: Any, **options: Any) -> Any:
            with self.timed(op):
                return await call(*args, **options)

        return timed

    def samples(self, phase: Phase) -> list[SampleSet]:
        """What was seen since the log was made, filed under the phase as part of a run."""
        return [
            SampleSet(
                op,
                phase,
                "run",
                "",
                tuple(depth for _, _, depth in seen),
                tuple(end - start for start, end, _ in seen),
            )
            for op, seen in self.spans.items()
        ]

    def busy_ns(self) -> int:
        """The length of the union of all calls to the stores."""
        return _union(
            (start, end)
            for op, seen in self.spans.items()
            if op not in STEPS
            for start, end, _ in seen
        )


def _union(spans: Iterable[tuple[int, int]]) -> int:
    busy, reach = 0, 0
    for start, end in sorted(spans):
        busy += max(0, end - max(start, reach))
        reach = max(reach, end)
    return busy


class _Timed:
    """Has exactly the methods that the inner object has, the named ones timed.

    They are attributes of the object: what a store can do is told by what it has.
    """

    def __init__(self, inner: Any, log: Log, ops: dict[str, str]) -> None:
        self.inner = inner
        for name in dir(inner):
            if not name.startswith("_") and callable(method := getattr(inner, name)):
                setattr(self, name, log.wrap(ops[name], method) if name in ops else method)


class RecordedBlobs(_Timed):
    """A blob store whose calls are timed."""

    def __init__(self, inner: Any, log: Log) -> None:
        super().__init__(inner, log, BLOB_OPS)


class RecordedStore(_Timed):
    """A checkpoint store whose calls, and those of its leases, are timed."""

    def __init__(self, inner: Any, log: Log) -> None:
        super().__init__(inner, log, STORE_OPS)

        async def acquire_writer(thread_id: str) -> RecordedLease:
            with log.timed("acquire_writer"):
                lease = await inner.acquire_writer(thread_id)
            return RecordedLease(lease, log)

        async def list_blob_references() -> AsyncIterator[BlobReference]:
            with log.timed("list_blob_references"):
                found = [item async for item in inner.list_blob_references()]
            for item in found:
                yield item

        self.acquire_writer = acquire_writer
        self.list_blob_references = list_blob_references


class RecordedLease:
    """A lease whose calls are timed."""

    def __init__(self, inner: Any, log: Log) -> None:
        self._inner = inner
        self.renew = log.wrap("renew", inner.renew)
        self.release = log.wrap("release", inner.release)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
