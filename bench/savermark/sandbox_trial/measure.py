"""What both stores hold at a phase: rows, bytes, the floor, and what copies would have taken."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from savermark.records import Phase, PhaseStorage
from savermark.sandbox.codec import to_json
from savermark.sandbox.records import ARTIFACTS_PREFIX, FILES_PREFIX
from savermark.sandbox_trial.places.base import blob_storage
from savermark.sandbox_trial.script import Content, message
from savermark.sandbox_trial.verify import expected, list_blobs
from savermark.storage import SHARED, FloorRow, FootprintRow

if TYPE_CHECKING:
    from savermark.sandbox.blobs import BlobInfo
    from savermark.sandbox_trial.ground import Ground
    from savermark.sandbox_trial.script import State
    from savermark.storage import SandboxTable, StorageRow

_PREFIXES: tuple[SandboxTable, ...] = ("sandbox-files/", "sandbox-artifacts/")
assert set(_PREFIXES) == {FILES_PREFIX, ARTIFACTS_PREFIX}


async def measure(ground: Ground, phase: Phase) -> None:
    """File what the pair holds now under the phase, and check that its sums agree."""
    states = [
        state
        for held in expected(ground, pruned=phase is not Phase.LOADED).values()
        for state in held.values()
    ]
    blobs: dict[SandboxTable, list[BlobInfo]] = {prefix: [] for prefix in _PREFIXES}
    for info in await list_blobs(ground):
        next(found for prefix, found in blobs.items() if info.key.startswith(prefix)).append(info)
    rows = ground.pair.store.storage()
    ground.phases.append(
        PhaseStorage(
            phase,
            storage=(*rows, *blob_storage(blobs)),
            footprint=(*_footprint(ground, blobs), *_captured(states)),
            floor=(_floor(ground, states),),
        )
    )
    _check_rows(ground, phase, rows)


def _footprint(ground: Ground, blobs: dict[SandboxTable, list[BlobInfo]]) -> list[FootprintRow]:
    place = ground.pair.blobs
    parts = ground.pair.store.footprint() + [
        FootprintRow(place.component, prefix, sum(place.space(info) for info in found))
        for prefix, found in blobs.items()
    ]
    counted = ("payload", "heap", "toast", "index")
    total = sum(row.bytes for row in parts if row.component in counted)
    return [*parts, FootprintRow("total", None, total)]


def _captured(states: list[State]) -> list[FootprintRow]:
    """What the contents would take with a copy for each checkpoint and path."""
    files = sum(item.size for s in states for item in s.tree.values() if isinstance(item, Content))
    products = sum(product.content.size for state in states for product in state.products)
    sizes = zip(_PREFIXES, (files, products), strict=True)
    return [FootprintRow("captured", prefix, size) for prefix, size in sizes]


def _floor(ground: Ground, states: list[State]) -> FloorRow:
    contents = {item for s in states for item in s.tree.values() if isinstance(item, Content)}
    contents |= {product.content for state in states for product in state.products}
    said = {item for state in states for item in state.talk}
    talk = sum(len(to_json(message(ground.spec, thread, n))) for thread, n in said)
    size = sum(content.size for content in contents)
    return FloorRow(SHARED, len(contents) + len(said), size + talk)


def _check_rows(ground: Ground, phase: Phase, rows: list[StorageRow]) -> None:
    """The tables hold exactly the rows that the script leads to."""
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        seen[row.thread_id, row.table] += row.rows
    broken = []
    wanted = expected(ground, pruned=phase is not Phase.LOADED)
    for thread_id, states in wanted.items():
        counts = {
            "checkpoints": len(states),
            "artifacts": sum(len(state.products) for state in states.values()),
            "threads": 1,
        }
        broken += [
            f"{thread_id} has {seen[thread_id, table]} rows in {table}, not {count}"
            for table, count in counts.items()
            if seen[thread_id, table] != count
        ]
    ground.check(phase, "rows", 3 * len(wanted), broken)
