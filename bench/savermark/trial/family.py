"""What the runner and the worker need of a family of workloads, and the savers' answer.

The table of families is `savermark.families`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savermark.backends.base import Capability
from savermark.backends.registry import get_backend
from savermark.errors import SavermarkError
from savermark.spec import fingerprint
from savermark.trial.case import Case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from savermark.backends.base import Location
    from savermark.records import TrialResult
    from savermark.trial.case import BaseCase


class Family(ABC):
    """How the cases of a family are measured, started for, and cleaned up after."""

    @abstractmethod
    def case(self, data: dict[str, Any]) -> BaseCase:
        """The case of its JSON. Raises `WorkloadError` for a spec with foreign keys."""

    @abstractmethod
    def check_backend(self, name: str) -> None:
        """Raises a `SavermarkError` for a backend that there is not."""

    @abstractmethod
    def services(
        self, backends: Sequence[str], folder: Path, given: Mapping[str, str | None]
    ) -> AbstractContextManager[dict[str, str | None]]:
        """Start what the backends need for the length of a run; the dsn of each one's stores."""

    @abstractmethod
    def run(
        self, case: BaseCase, location: Location, repetition: int, *, began_ns: int, keep: bool
    ) -> TrialResult:
        """One trial, in this process."""

    @abstractmethod
    def read_cold(
        self, case: BaseCase, location: Location, targets: Sequence[dict[str, Any]], rounds: int
    ) -> list[list[int]]:
        """The times of each target in this process, which must be a new one."""

    @abstractmethod
    def sweep(self, case: BaseCase, location: Location) -> None:
        """Remove what a killed worker left, if anything."""

    @abstractmethod
    def estimate_bytes(self, case: BaseCase) -> int:
        """About how much the case stores, for the safety cap."""

    def reads_cold(self, case: BaseCase) -> bool:
        """Whether a trial will start a second process for its cold reads."""
        return False

    def cell_key(self, case: BaseCase) -> str:
        """What cases that are only skipped together share."""
        return case.fingerprint


class SaverFamily(Family):
    """Conversations on savers."""

    def case(self, data: dict[str, Any]) -> Case:
        return Case.from_json(data)

    def check_backend(self, name: str) -> None:
        get_backend(name)

    @contextmanager
    def services(
        self, backends: Sequence[str], folder: Path, given: Mapping[str, str | None]
    ) -> Iterator[dict[str, str | None]]:
        with ExitStack() as stack:
            servers: dict[str, str | None] = {}
            for number, name in enumerate(backends):
                own = folder / f"service{number}"
                own.mkdir()
                service = get_backend(name).service(own, given.get("dsn"))
                servers[name] = stack.enter_context(service)
            yield servers

    def run(
        self, case: BaseCase, location: Location, repetition: int, *, began_ns: int, keep: bool
    ) -> TrialResult:
        from savermark.trial.story import run_trial

        assert isinstance(case, Case)
        return run_trial(case, location, repetition, began_ns=began_ns, keep=keep)

    def read_cold(
        self, case: BaseCase, location: Location, targets: Sequence[dict[str, Any]], rounds: int
    ) -> list[list[int]]:
        from savermark.trial.reads import read_cold

        assert isinstance(case, Case)
        return read_cold(case, location, targets, rounds)

    def sweep(self, case: BaseCase, location: Location) -> None:
        with suppress(SavermarkError):  # it may not have come so far as to make one
            get_backend(case.backend).attach(location).destroy()

    def reads_cold(self, case: BaseCase) -> bool:
        if ":" in case.backend:  # a plain saver, and perhaps not one of this environment
            return False
        capabilities = get_backend(case.backend).store_type.capabilities
        return bool(case.spec.measure.cold) and Capability.COLD in capabilities

    def estimate_bytes(self, case: BaseCase) -> int:
        from savermark.script import estimate_bytes

        return estimate_bytes(case.spec)

    def cell_key(self, case: BaseCase) -> str:
        """The workload at one size, whatever the channel kinds."""
        state = case.spec.state
        alike = replace(
            state,
            messages=replace(state.messages, kind="delta", snapshot_frequency=1),
            files=replace(state.files, kind="delta", snapshot_frequency=1)
            if state.files.kind != "none"
            else state.files,
            extra=replace(state.extra, kind="delta", frequencies=(1,)),
        )
        run = replace(case.spec.run, api="sync", durability="sync", serializer="plain")
        return fingerprint(replace(case.spec, state=alike, run=run))


FAMILY = SaverFamily()
