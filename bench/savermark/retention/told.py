"""What a prune is asked, and what it says it kept: plans, results, or plain ids, in one form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from savermark.errors import UsageError
from savermark.retention.records import Applied, ThreadPlan

Targets = Mapping[str, Collection[str]]  # namespace -> ids that stay addressable
# What a prune may say of what it did: plans, or for each thread the ids that stay addressable.
Told = (
    Mapping[str, ThreadPlan | Applied | Collection[str]]
    | Iterable[ThreadPlan | Applied]
    | ThreadPlan
    | Applied
    | None
)


def named(threads: Iterable[str], what: str = "threads") -> list[str]:
    """The ids, each once. Raises `UsageError` for a bare string, which is a list of letters."""
    if isinstance(threads, (str, bytes)):
        raise UsageError(f"{what} must be a list of ids, not the text {threads!r}: [{threads!r}]")
    return list(dict.fromkeys(str(each) for each in threads))


def asked(
    prune: Callable[..., Any], saver: Any, threads: list[str], protect: frozenset[str]
) -> tuple[Any, ...]:
    """What a prune is called with: a saver, thread ids, and protected ids if it takes a third."""
    try:
        inspect.signature(prune).bind(saver, threads, protect)
    except (TypeError, ValueError):
        return (saver, threads)
    return (saver, threads, protect)


def told_targets(told: Told) -> dict[str, Targets]:
    """What stays addressable, by thread, as far as plans or a prune say it; a refusal says none."""
    found: dict[str, Targets] = {}
    for thread, plan in told_plans(told).items():
        if isinstance(plan, ThreadPlan):
            if not plan.refused:
                found[thread] = {space: keep.targets for space, keep in plan.kept.items()}
        else:
            found[thread] = {"*": plan}
    return found


def told_plans(told: Told) -> dict[str, ThreadPlan | frozenset[str]]:
    """Plans, or the ids that stay addressable in whatever namespace, by thread.

    Raises `UsageError` for anything else.
    """
    if told is None:
        return {}
    if isinstance(told, (ThreadPlan, Applied)):
        told = [told]
    if not isinstance(told, Iterable):
        raise _unknown(told)
    pairs = told.items() if isinstance(told, Mapping) else ((None, each) for each in told)
    found: dict[str, ThreadPlan | frozenset[str]] = {}
    for thread, each in pairs:
        if isinstance(each, Applied):
            refused = ThreadPlan(each.thread_id, refused=each.refused)
            each = refused if each.refused else each.plan
        if isinstance(each, ThreadPlan):
            found[each.thread_id] = each
        elif thread is not None and isinstance(each, Collection) and not isinstance(each, str):
            found[str(thread)] = frozenset(each)
        else:
            raise _unknown(each)
    return found


def _unknown(told: object) -> UsageError:
    return UsageError(
        f"a prune must return None, plans, or the kept ids by thread id, not {type(told).__name__}"
    )
