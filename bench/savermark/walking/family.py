"""Walk workloads for the runner: on the savers' backends, with a trial of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from savermark.backends.base import Capability
from savermark.backends.registry import get_backend
from savermark.trial.family import SaverFamily
from savermark.walking.case import WalkCase
from savermark.walking.rows import channels, snapshot_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.backends.base import Location
    from savermark.records import TrialResult
    from savermark.trial.case import BaseCase

_ROW_BYTES = 900  # of a checkpoint with its metadata and versions, about


class WalkFamily(SaverFamily):
    """Chains of checkpoints, walked."""

    def case(self, data: dict[str, Any]) -> WalkCase:  # type: ignore[override]
        return WalkCase.from_json(data)

    def run(
        self, case: BaseCase, location: Location, repetition: int, *, began_ns: int, keep: bool
    ) -> TrialResult:
        from savermark.walking.story import run_walk_trial

        assert isinstance(case, WalkCase)
        return run_walk_trial(case, location, repetition, keep=keep)

    def read_cold(
        self, case: BaseCase, location: Location, targets: Sequence[dict[str, Any]], rounds: int
    ) -> list[list[int]]:
        from savermark.walking.cold import walk_cold
        from savermark.walking.story import driver_of

        assert isinstance(case, WalkCase)
        return walk_cold(case, location, driver_of(case), targets, rounds)

    def reads_cold(self, case: BaseCase) -> bool:
        capabilities = get_backend(case.backend).store_type.capabilities
        return bool(case.spec.measure.cold) and Capability.COLD in capabilities

    def estimate_bytes(self, case: BaseCase) -> int:
        """Writes, snapshots, the other channel (a write and a value), and the rows around them."""
        assert isinstance(case, WalkCase)
        spec, shown = case.spec, case.spec.channels
        item = shown.item_bytes + 50
        total = spec.thread.depth * (_ROW_BYTES + 2 * shown.other_bytes)
        for channel in range(len(channels(spec))):
            items = sum(shown.snapshot_items or place for place in snapshot_places(spec, channel))
            total += (spec.thread.depth + items) * item
        return total + spec.store.foreign * (_ROW_BYTES + 300)

    def cell_key(self, case: BaseCase) -> str:
        """The case itself: there is no full mode to be compared with."""
        return case.fingerprint


FAMILY = WalkFamily()
