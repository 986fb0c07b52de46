"""The timed twin of each saver method: one function a call shape."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from savermark.recording.recorder import OPS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from savermark.recording.recorder import Clock, Recorder, Seen

    Call = Callable[..., Any]


def overrides(saver: BaseCheckpointSaver[Any], method: str) -> bool:
    """Whether the saver has a method of its own instead of the base class's."""
    own = getattr(type(saver), method, None)
    return own is not None and own is not getattr(BaseCheckpointSaver, method, None)


def timed_methods(
    inner: BaseCheckpointSaver[Any], recorder: Recorder
) -> Iterator[tuple[str, Call]]:
    """Name and timed twin of each recorded method that `inner` overrides."""
    for name, op in OPS.items():
        for method in (name, f"a{name}"):
            if overrides(inner, method):
                wrap = _SHAPES.get(method, _async_call if method != name else _call)
                yield method, wrap(getattr(inner, method), recorder.clock, recorder.seen(op))


# One function a call shape. The three hot calls name their arguments: `*args` costs 100 ns more,
# and the runtime looks for `task_path` in the signature of `put_writes`.


def _put(call: Call, clock: Clock, seen: Seen) -> Call:
    def put(config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        start = clock()
        result = call(config, checkpoint, metadata, new_versions)
        seen[start] = clock()
        return result

    return put


def _aput(call: Call, clock: Clock, seen: Seen) -> Call:
    async def aput(config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        start = clock()
        result = await call(config, checkpoint, metadata, new_versions)
        seen[start] = clock()
        return result

    return aput


def _put_writes(call: Call, clock: Clock, seen: Seen) -> Call:
    if "task_path" not in signature(call).parameters:  # a saver older than that argument
        return _call(call, clock, seen)

    def put_writes(config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        start = clock()
        call(config, writes, task_id, task_path)
        seen[start] = clock()

    return put_writes


def _aput_writes(call: Call, clock: Clock, seen: Seen) -> Call:
    if "task_path" not in signature(call).parameters:
        return _async_call(call, clock, seen)

    async def aput_writes(config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        start = clock()
        await call(config, writes, task_id, task_path)
        seen[start] = clock()

    return aput_writes


def _get_tuple(call: Call, clock: Clock, seen: Seen) -> Call:
    def get_tuple(config: Any) -> Any:
        start = clock()
        result = call(config)
        seen[start] = clock()
        return result

    return get_tuple


def _aget_tuple(call: Call, clock: Clock, seen: Seen) -> Call:
    async def aget_tuple(config: Any) -> Any:
        start = clock()
        result = await call(config)
        seen[start] = clock()
        return result

    return aget_tuple


def _list(call: Call, clock: Clock, seen: Seen) -> Call:
    """Counts the time spent inside the iteration, not what the caller does between rows."""

    def list_(config: Any, **options: Any) -> Iterator[Any]:
        first = start = clock()
        busy = 0
        try:
            for row in call(config, **options):
                busy += clock() - start
                yield row
                start = clock()
            busy += clock() - start
        finally:
            seen[first] = first + busy

    return list_


def _alist(call: Call, clock: Clock, seen: Seen) -> Call:
    async def alist(config: Any, **options: Any) -> AsyncIterator[Any]:
        first = start = clock()
        busy = 0
        try:
            async for row in call(config, **options):
                busy += clock() - start
                yield row
                start = clock()
            busy += clock() - start
        finally:
            seen[first] = first + busy

    return alist


def _call(call: Call, clock: Clock, seen: Seen) -> Call:
    def timed(*args: Any, **options: Any) -> Any:
        start = clock()
        result = call(*args, **options)
        seen[start] = clock()
        return result

    return timed


def _async_call(call: Call, clock: Clock, seen: Seen) -> Call:
    async def timed(*args: Any, **options: Any) -> Any:
        start = clock()
        result = await call(*args, **options)
        seen[start] = clock()
        return result

    return timed


_SHAPES: dict[str, Callable[[Call, Clock, Seen], Call]] = {
    "put": _put,
    "aput": _aput,
    "put_writes": _put_writes,
    "aput_writes": _aput_writes,
    "get_tuple": _get_tuple,
    "aget_tuple": _aget_tuple,
    "list": _list,
    "alist": _alist,
}
