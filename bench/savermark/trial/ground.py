"""What the steps of a trial share: the case, the opened store, and what they found so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from savermark.graphs.serde import make_serde
from savermark.records import Check, Phase, PhaseStorage, SampleSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from savermark.backends.base import Capability, Store
    from savermark.script import ThreadScript
    from savermark.spec import WorkloadSpec
    from savermark.trial.case import Case
    from savermark.trial.driver import Driver, Graph, Saver

SHOWN = 3  # mismatches that a check's detail spells out


@dataclass(slots=True)
class Loaded:
    """Where the load left each thread."""

    tips: dict[str, Mapping[str, RunnableConfig]] = field(default_factory=dict)
    checkpoints: dict[str, int] = field(default_factory=dict)  # thread -> how many it has
    probe: str = ""  # the thread that reads aim at
    older: list[tuple[int, RunnableConfig]] = field(default_factory=list)  # its depths, configs


@dataclass(slots=True)
class Ground:
    """One trial: what it works on, and what it yields."""

    case: Case
    driver: Driver
    store: Store
    saver: Saver  # not recorded: reads are timed around the graph's own calls
    graph: Graph  # on that saver
    threads: tuple[ThreadScript, ...]
    clock: Callable[[], int]
    walks: tuple[str, ...] = ()  # to be read beside the base class's and the saver's own
    loaded: Loaded = field(default_factory=Loaded)
    samples: list[SampleSet] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    phases: list[PhaseStorage] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> WorkloadSpec:
        return self.case.spec

    @property
    def serde(self) -> SerializerProtocol | None:
        return make_serde(self.case.spec)

    def can(self, capability: Capability, what: str) -> bool:
        """Whether the store can; if not, `what` is noted as unsupported, never as zero."""
        able = capability in self.store.capabilities
        if not able:
            self.unsupported(what, f"{self.case.backend} lacks the capability {capability}")
        return able

    def unsupported(self, what: str, why: str) -> None:
        """Note that `what` could not be done or measured here."""
        self.notes.setdefault("unsupported", {})[what] = why

    def check(self, phase: Phase, name: str, tested: int, broken: list[str]) -> None:
        """File one check over `tested` things, of which `broken` did not hold."""
        detail = f"{tested} checked"
        if broken:
            shown = "; ".join(broken[:SHOWN])
            rest = f"; {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
            detail = f"{len(broken)} of {tested} wrong: {shown}{rest}"
        self.checks.append(Check(phase, name, not broken, detail))
