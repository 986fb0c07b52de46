"""Runs the scenarios of the contract against a prune, on a saver."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from savermark.backends.shared import one_line
from savermark.contract.graphs import MODES, Mode
from savermark.contract.play import aplay, play
from savermark.contract.scenarios import SCENARIOS, Outcomes, Scenario
from savermark.errors import ContractError, Unsupported, UsageError, unknown
from savermark.retention.digest import Verdict
from savermark.retention.findings import CHECKS
from savermark.retention.records import ThreadPlan
from savermark.retention.told import Told, asked, told_plans
from savermark.retention.verify import (
    Promises,
    asnapshot_promises,
    snapshot_promises,
    verify_retention,
)

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

# The prune under test: saver, thread ids, and protected checkpoint ids if it takes a third.
# What it returns is optional.
Prune = Callable[..., Told | Awaitable[Told]]

REFUSALS = (NotImplementedError, ContractError, Unsupported)

RULES = {
    "prune": "the prune ran",
    **CHECKS,
    "others": "other threads untouched",
    "goes-on": "the thread goes on as its twin",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One rule of one scenario: a key of `RULES`, its verdict and what was found."""

    scenario: str
    title: str
    mode: Mode
    check: str
    verdict: Verdict
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is held against the prune."""
        return self.verdict in ("ok", "unsupported")


@dataclass
class Stage:
    """One scenario in one mode on one saver: the thread that is pruned, its twin, their graph."""

    scenario: Scenario
    mode: Mode
    saver: BaseCheckpointSaver[Any]

    def __post_init__(self) -> None:
        self.ran: list[str] = []
        self.graph = self.scenario.build(self.mode, self.ran).compile(checkpointer=self.saver)
        name = f"contract-{self.scenario.key}-{self.mode}-{uuid4().hex[:8]}"
        self.thread, self.twin = name, f"{name}-twin"

    def row(self, check: str, verdict: Verdict, detail: str = "") -> Row:
        """A row of this scenario."""
        return Row(self.scenario.key, self.scenario.title, self.mode, check, verdict, detail)

    @property
    def threads(self) -> list[str]:
        """The thread and its twin."""
        return [self.thread, self.twin]

    def did(self) -> list[str]:
        """What nodes did since the last call, in no particular order."""
        done = sorted(self.ran)
        self.ran.clear()
        return done

    def taken(self, done: Any) -> Told:
        """What a prune returned; one that answers thread by thread is read to its end."""
        self.ran.clear()
        if inspect.isawaitable(done):
            if inspect.iscoroutine(done):
                done.close()
            raise UsageError("the prune is async: run the contract with api async")
        told: Told = list(done) if isinstance(done, Iterator) else done
        told_plans(told)
        return told

    def refused(self, error: Exception) -> Told:
        """A prune may refuse a thread by raising; what it leaves must then be as it was."""
        self.ran.clear()
        return ThreadPlan(self.thread, refused=one_line(error))

    def raised(self, check: str, error: Exception) -> list[Row]:
        """What the prune or a run raised; a misuse of the contract itself comes out."""
        if isinstance(error, UsageError):
            raise error
        return [self.row(check, "failed", one_line(error))]

    def rows(self, before: Promises, after: Promises, told: Told) -> list[Row]:
        """What the prune did, the checks of its thread, and whether the twin is as it was."""
        plan = told_plans(told).get(self.thread)
        was, now = (len(each.threads[self.thread].keys) for each in (before, after))
        did = self.row("prune", "ok", f"{now} of {was} checkpoints are left")
        if isinstance(plan, ThreadPlan) and plan.refused:
            did = self.row("prune", "unsupported", f"refused: {plan.refused}")
        twin = ThreadPlan(self.twin, refused="nobody asked for it")
        plans: Told = {self.twin: twin, **({} if plan is None else {self.thread: plan})}
        checks = verify_retention(before, after, plans=plans).checks
        found = [self.row(c.check, c.verdict, c.detail) for c in checks if c.thread_id != self.twin]
        bad = [each for each in checks if each.thread_id == self.twin and not each.ok]
        wrong = [f"{CHECKS[each.check]}: {each.detail}" for each in bad]
        others = self.row("others", "failed" if wrong else "ok", "; ".join(wrong))
        return [did, *found, others]

    def compared(self, here: Outcomes, twin: Outcomes, ran: list[str], should: list[str]) -> Row:
        """Whether the thread went on as its twin did, tasks that ran included."""
        for (what, got), (_, want) in zip(here, twin, strict=True):
            if got != want:
                return self.row("goes-on", "failed", f"{what}: {_difference(got, want)}")
        if ran != should:
            return self.row("goes-on", "failed", f"tasks that ran: {ran} instead of {should}")
        return self.row("goes-on", "ok", ", ".join(what for what, _ in here))


def _difference(got: Any, want: Any) -> str:
    (values, *rest), (wanted, *others) = got, want
    for name in sorted(values.keys() | wanted.keys()):
        if values.get(name) != wanted.get(name):
            return f"{name} is {_short(values.get(name))} instead of {_short(wanted.get(name))}"
    return f"next and questions are {_short(rest)} instead of {_short(others)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:80]} ... {text[-35:]}"


def stages(
    saver: BaseCheckpointSaver[Any], scenarios: Collection[str] | None, modes: Collection[Mode]
) -> Iterator[Stage]:
    """The chosen scenarios in the chosen modes. Raises `UsageError` for an unknown name."""
    for key in scenarios or ():
        if key not in SCENARIOS:
            raise UsageError(unknown("scenario", key, SCENARIOS))
    for mode in modes:
        if mode not in MODES:
            raise UsageError(unknown("mode", mode, MODES))
    for key, mode in itertools.product(scenarios or SCENARIOS, modes):
        yield Stage(SCENARIOS[key], mode, saver)


def run_contract(
    saver: BaseCheckpointSaver[Any],
    prune: Prune,
    *,
    scenarios: Collection[str] | None = None,
    modes: Collection[Mode] = MODES,
) -> Iterator[Row]:
    """Play the scenarios on a sync saver, and yield what each found.

    `prune(saver, threads, protect)` deletes what it likes but what it must keep; one without a
    third parameter is not told the protected ids, and must keep them all the same. It may return
    plans, what `apply` returned, or for each thread the ids that stay addressable. It may refuse a
    thread in a plan or by raising one of `REFUSALS`, and must then leave it as it was; what else
    it raises fails the scenario. A scenario's threads are deleted after it, where the saver can.
    """
    for stage in stages(saver, scenarios, modes):
        yield from _run(stage, prune)
        with suppress(NotImplementedError):
            for thread in stage.threads:
                saver.delete_thread(thread)


async def arun_contract(
    saver: BaseCheckpointSaver[Any],
    prune: Prune,
    *,
    scenarios: Collection[str] | None = None,
    modes: Collection[Mode] = MODES,
) -> AsyncIterator[Row]:
    """The async twin of `run_contract`; the prune may be a coroutine function."""
    for stage in stages(saver, scenarios, modes):
        for row in await _arun(stage, prune):
            yield row
        with suppress(NotImplementedError):
            for thread in stage.threads:
                await saver.adelete_thread(thread)


def _run(stage: Stage, prune: Prune) -> list[Row]:
    saver, graph, scenario = stage.saver, stage.graph, stage.scenario
    told, twin = (play(graph, saver, scenario.play(each)) for each in stage.threads)
    protect = told.protected | twin.protected
    before = snapshot_promises(saver, stage.threads, protect=protect, graph=graph)
    try:
        done = stage.taken(prune(*asked(prune, saver, [stage.thread], told.protected)))
    except REFUSALS as error:
        done = stage.refused(error)
    except Exception as error:  # the prune is the application's code
        return stage.raised("prune", error)
    after = snapshot_promises(saver, stage.threads, protect=protect, graph=graph)
    rows = stage.rows(before, after, done)
    try:
        here, ran = play(graph, saver, scenario.goes_on(stage.thread, told)), stage.did()
        there, should = play(graph, saver, scenario.goes_on(stage.twin, twin)), stage.did()
    except Exception as error:  # a thread that cannot go on is what is looked for
        return rows + stage.raised("goes-on", error)
    return [*rows, stage.compared(here, there, ran, should)]


async def _arun(stage: Stage, prune: Prune) -> list[Row]:
    saver, graph, scenario = stage.saver, stage.graph, stage.scenario
    told = await aplay(graph, saver, scenario.play(stage.thread))
    twin = await aplay(graph, saver, scenario.play(stage.twin))
    protect = told.protected | twin.protected
    before = await asnapshot_promises(saver, stage.threads, protect=protect, graph=graph)
    try:
        made = prune(*asked(prune, saver, [stage.thread], told.protected))
        done = stage.taken(await made if inspect.isawaitable(made) else made)
    except REFUSALS as error:
        done = stage.refused(error)
    except Exception as error:  # as in `_run`
        return stage.raised("prune", error)
    after = await asnapshot_promises(saver, stage.threads, protect=protect, graph=graph)
    rows = stage.rows(before, after, done)
    try:
        here, ran = await aplay(graph, saver, scenario.goes_on(stage.thread, told)), stage.did()
        there, should = await aplay(graph, saver, scenario.goes_on(stage.twin, twin)), stage.did()
    except Exception as error:  # as in `_run`
        return rows + stage.raised("goes-on", error)
    return [*rows, stage.compared(here, there, ran, should)]
