"""What one trial yields, as plain frozen records that become one line of `run.jsonl`.

Raw files are append-only JSON Lines: a `run` line first, a `trial` line after each trial, an `end`
line when every case was tried. `SCHEMA_VERSION` counts their shape; docs/schema.md describes it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

from savermark.meter import Counts
from savermark.storage import FloorRow, FootprintRow, StorageRow

SCHEMA_VERSION = 2


class Phase(StrEnum):
    """Where in a trial something was measured."""

    LOADED = "loaded"  # before retention
    RETAINED = "retained"  # after it
    COMPACTED = "compacted"  # after the store gave space back


class Status(StrEnum):
    """How a trial ended. Failures are rows, so that none drops out of a mean unseen."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class SampleSet:
    """The raw samples of one operation, in the order they were taken.

    `op` is a saver call during the run (`put`, `put_writes`, `get_tuple`, `list`, `walk`), the
    whole `turn`, or a read: `get_state`, `history_10`, `resume`, `walk_base`, `walk_native`.
    `temperature` is `run` (while the conversation ran), `warm` or `cold`. `at` names where in the
    thread a read aimed: `head` or `depth:<n>`; empty for the write path. `depth[i]` is the number
    of checkpoints the thread had when sample `i` was taken, `ns[i]` its duration. The first
    `warmup` samples are kept but count in no statistic.
    """

    op: str
    phase: Phase
    temperature: Literal["run", "warm", "cold"]
    at: str
    depth: tuple[int, ...]
    ns: tuple[int, ...]
    warmup: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """One promise that was tested, and what was seen when it did not hold."""

    phase: Phase
    check: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PhaseStorage:
    """The store at one phase."""

    phase: Phase
    storage: tuple[StorageRow, ...]
    footprint: tuple[FootprintRow, ...]
    floor: tuple[FloorRow, ...]


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """What the worker process itself used; times in ns, memory in bytes.

    `saver_busy_ns` is the union of overlapping saver calls while the conversation ran
    (`run_wall_ns`), never their sum. `setup_ns` is from process start to the first turn.
    """

    setup_ns: int
    run_wall_ns: int
    saver_busy_ns: int
    cpu_user_ns: int
    cpu_system_ns: int
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True)
class CostRow:
    """What one warm call of an operation cost, in counts (`savermark.meter.Counts`).

    `op`, `at` and `depth` are those of its samples. `exact` names the counts that two calls, one
    after the other, agreed on to the digit.
    """

    op: str
    phase: Phase
    at: str
    depth: int
    counts: Counts
    exact: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One case, one repetition, one fresh process."""

    case_id: str
    repetition: int
    status: Status
    cause: str = ""  # one line, when the status is not ok
    started_at: str = ""  # ISO 8601, UTC
    duration_ns: int = 0
    samples: tuple[SampleSet, ...] = ()
    phases: tuple[PhaseStorage, ...] = ()
    checks: tuple[Check, ...] = ()
    process: ProcessCost | None = None
    backend: dict[str, Any] = field(default_factory=dict)  # Store.describe()
    notes: dict[str, Any] = field(default_factory=dict)  # load average, cloned threads, autovacuum
    costs: tuple[CostRow, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The trial as JSON values (`record: trial`)."""
        return {"record": "trial", **asdict(self)}

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> TrialResult:
        """The inverse of `to_json`; raises `KeyError` or `TypeError` on a foreign shape."""
        data = {key: value for key, value in line.items() if key != "record"}
        data["status"] = Status(data["status"])
        data["samples"] = tuple(
            SampleSet(
                **{
                    **item,
                    "phase": Phase(item["phase"]),
                    "depth": tuple(item["depth"]),
                    "ns": tuple(item["ns"]),
                }
            )
            for item in data["samples"]
        )
        data["phases"] = tuple(
            PhaseStorage(
                phase=Phase(item["phase"]),
                storage=tuple(StorageRow(**row) for row in item["storage"]),
                footprint=tuple(FootprintRow(**row) for row in item["footprint"]),
                floor=tuple(FloorRow(**row) for row in item["floor"]),
            )
            for item in data["phases"]
        )
        data["checks"] = tuple(
            Check(**{**item, "phase": Phase(item["phase"])}) for item in data["checks"]
        )
        data["costs"] = tuple(
            CostRow(
                **{
                    **item,
                    "phase": Phase(item["phase"]),
                    "counts": Counts.from_json(item["counts"]),
                    "exact": tuple(item["exact"]),
                }
            )
            for item in data.get("costs", ())
        )
        data["process"] = ProcessCost(**data["process"]) if data["process"] else None
        return cls(**data)
