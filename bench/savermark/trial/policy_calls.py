"""A policy carried out on the store of a trial: one made of rules, or somebody's own function."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import TYPE_CHECKING, Any

from savermark.backends.shared import one_line
from savermark.errors import Unsupported
from savermark.history.arows import arow_access
from savermark.history.rows import row_access
from savermark.retention.apply import aapply, apply
from savermark.retention.fold import graph_fold
from savermark.retention.records import Applied, ThreadPlan
from savermark.retention.told import Told, asked, told_plans

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from savermark.retention.policy import RetentionPolicy
    from savermark.trial.ground import Ground


@dataclass(slots=True)
class Done:
    """What a policy said and did. `told` is what verification holds it to."""

    told: Told = None
    deleted: frozenset[str] = frozenset()  # threads
    pruned: frozenset[str] = frozenset()
    refused: dict[str, str] = field(default_factory=dict)  # thread -> reason
    rows: dict[str, int] | None = None  # deleted, by table; None: it does not say
    error: str = ""


async def apply_rules(
    ground: Ground,
    policy: RetentionPolicy,
    names: Sequence[str],
    protect: Collection[str],
    now: datetime,
    grace: timedelta,
) -> Done:
    """Carry out a policy made of rules on all threads."""
    fold = graph_fold(ground.graph, ground.saver) if policy.folds else None
    options: dict[str, Any] = {
        "threads": names,
        "protect": protect,
        "now": now,
        "grace": grace,
        "fold": fold,
    }
    if ground.spec.run.api == "async":
        async with arow_access(ground.saver) as access:
            return _of_rules([each async for each in aapply(access, policy, **options)])
    return _of_rules(list(apply(row_access(ground.saver), policy, **options)))


def _of_rules(applied: Sequence[Applied]) -> Done:
    changed = [each for each in applied if not each.refused and not each.plan.empty]
    rows = Counter[str]()
    for each in changed:
        rows.update(each.deleted)
    return Done(
        applied,
        frozenset(each.thread_id for each in changed if each.plan.whole),
        frozenset(each.thread_id for each in changed if not each.plan.whole),
        {each.thread_id: each.refused for each in applied if each.refused},
        dict(rows),
    )


async def call_function(
    ground: Ground,
    function: Callable[..., Any],
    names: list[str],
    protect: frozenset[str],
) -> Done:
    """Somebody's own policy: `function(saver, thread_ids)`, or with a third parameter `protect`."""
    given = asked(function, ground.saver, names, protect)
    try:
        told = await _answer(ground, function, given)
    except (NotImplementedError, Unsupported):
        raise
    except Exception as error:  # foreign code: whatever it raises is what it did
        return Done(pruned=frozenset(names), error=one_line(error))
    if told and isinstance(told, (list, tuple)) and all(isinstance(d, Applied) for d in told):
        return replace(_of_rules(told), told=told)
    gone = frozenset([name for name in names if await _empty(ground, name)])
    said = told_plans(told).items()
    refused = {name: p.refused for name, p in said if isinstance(p, ThreadPlan) and p.refused}
    return Done(told, gone, frozenset(names) - gone - refused.keys(), refused)


async def _answer(ground: Ground, function: Callable[..., Any], given: tuple[Any, ...]) -> Told:
    if ground.spec.run.api != "async":
        told = function(*given)
        if inspect.isawaitable(told):
            if inspect.iscoroutine(told):
                told.close()
            raise Unsupported("the policy is async: measure it with --set run.api=async")
    elif inspect.iscoroutinefunction(function):
        told = await function(*given)
    else:  # an async saver's sync methods must not be called on its own loop
        told = await asyncio.to_thread(function, *given)
        told = await told if inspect.isawaitable(told) else told
    if not isinstance(told, (Mapping, list, tuple, Iterator, ThreadPlan, Applied, NoneType)):
        return None  # a count, as some return: it says nothing of what was kept
    answer: Told = list(told) if isinstance(told, Iterator) else told
    told_plans(answer)  # a `UsageError` now, not in the middle of the verification
    return answer


async def _empty(ground: Ground, name: str) -> bool:
    place = {"configurable": {"thread_id": name}}
    return await ground.driver.call(ground.saver, "get_tuple", place) is None
