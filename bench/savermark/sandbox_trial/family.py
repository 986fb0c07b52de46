"""Sandbox workloads for the runner: which services a pair of stores needs, how it is measured."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from savermark.errors import SavermarkError
from savermark.payload import mean
from savermark.sandbox_trial.case import SandboxCase
from savermark.sandbox_trial.places import blob_place, store_place
from savermark.trial.family import Family

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from savermark.backends.base import Location
    from savermark.records import TrialResult
    from savermark.trial.case import BaseCase


class SandboxFamily(Family):
    """Workspaces on pairs of a checkpoint store and a blob store."""

    def case(self, data: dict[str, Any]) -> SandboxCase:
        return SandboxCase.from_json(data)

    def check_backend(self, name: str) -> None:
        store_place(name)

    @contextmanager
    def services(
        self, backends: Sequence[str], folder: Path, given: Mapping[str, str | None]
    ) -> Iterator[dict[str, str | None]]:
        """Each service once, whatever the number of pairs that need it."""
        needed = {
            place.service_name: place
            for name in backends
            for place in (store_place(name), blob_place(name))
            if place.service_name
        }
        with ExitStack() as stack:
            urls: dict[str, str | None] = {}
            for name, place in sorted(needed.items()):
                own = folder / f"sandbox-{name}"
                own.mkdir()
                urls[name] = stack.enter_context(place.service(own, given))
            yield dict.fromkeys(backends, json.dumps(urls))

    def run(
        self, case: BaseCase, location: Location, repetition: int, *, began_ns: int, keep: bool
    ) -> TrialResult:
        from savermark.sandbox_trial.story import run_sandbox_trial

        assert isinstance(case, SandboxCase)
        return run_sandbox_trial(case, location, repetition, began_ns=began_ns, keep=keep)

    def read_cold(
        self, case: BaseCase, location: Location, targets: Sequence[dict[str, Any]], rounds: int
    ) -> list[list[int]]:
        import asyncio

        from savermark.sandbox_trial.reads import call_cold

        assert isinstance(case, SandboxCase)
        return asyncio.run(call_cold(case, location, targets, rounds))

    def sweep(self, case: BaseCase, location: Location) -> None:
        from savermark.sandbox_trial.ground import pair_at

        with suppress(SavermarkError):  # it may not have come so far as to make one
            pair_at(case.backend, location).destroy()

    def estimate_bytes(self, case: BaseCase) -> int:
        """Blobs, and about 150 bytes for each row of a file."""
        assert isinstance(case, SandboxCase)
        spec = case.spec
        captures = mean(spec.chains.captures) * spec.chains.threads
        captures += spec.chains.forks * spec.chains.fork_captures
        size = mean(spec.workspace.file_bytes)
        files = spec.workspace.files * spec.chains.threads
        changed = captures * (spec.changes.edits + spec.changes.adds)
        made = captures / spec.artifacts.every if spec.artifacts.every else 0.0
        rows = captures * (spec.workspace.files + spec.changes.adds * captures / 2)
        talk = captures * mean(spec.chains.captures) / 2 * spec.conversation.messages
        return round(
            (files + changed) * size
            + made * mean(spec.artifacts.bytes)
            + 150 * rows
            + talk * mean(spec.conversation.message_bytes)
        )


FAMILY = SandboxFamily()
