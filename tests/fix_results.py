"""Synthetic but plausible results: any number of cases and samples, seeded, no store needed.

`write_run` makes a `run.jsonl` through `TrialResult.to_json`, so it has the shape a real run has.
Rows and bytes follow the counting rules of the real savers (a full channel grows with the square
of the turns, SQLite repeats it in each checkpoint), times are lognormal and grow with depth.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from savermark.meter import Counts
from savermark.records import (
    SCHEMA_VERSION,
    Check,
    CostRow,
    Phase,
    PhaseStorage,
    ProcessCost,
    SampleSet,
    Status,
    TrialResult,
)
from savermark.spec import (
    ConversationSpec,
    MeasureSpec,
    MessagesSpec,
    RunSpec,
    StateSpec,
    WorkloadSpec,
    fixed,
)
from savermark.storage import FloorRow, FootprintRow, StorageRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MESSAGE_BYTES = 480  # one message as serialized
CHECKPOINT_BYTES = 620  # one checkpoint row without values
CALL_NS = {"null": 2_000, "memory": 9_000, "sqlite": 180_000, "postgres": 420_000}
READ_NS = {"null": 5_000, "memory": 60_000, "sqlite": 350_000, "postgres": 900_000}
READS = (  # op, at, factor on READ_NS
    ("get_state", "head", 1.0),
    ("history_10", "head", 4.0),
    ("history_100", "head", 22.0),
    ("resume", "depth:5", 1.1),
    ("walk_base", "head", 3.0),
    ("walk_native", "head", 1.3),
)


@dataclass(frozen=True)
class FakeCase:
    """One case and how it behaves; the factors bend what the model would give."""

    workload: str = "chat"
    backend: str = "sqlite"
    mode: str = "delta"
    turns: int = 20
    threads: int = 4
    snapshot_frequency: int = 50
    api: str = "sync"
    durability: str = "sync"
    label: bool = True  # whether the mode is a swept key and so part of the variant
    slower: float = 1.0  # factor on every time
    heavier: float = 1.0  # factor on every payload byte
    spread: float = 0.15  # sigma of the lognormal noise
    first_slow: float = 1.0  # factor on the first sample of each set
    status: Status = Status.OK
    cause: str = ""
    failed_check: str = ""  # the name of a check that fails
    reads: int = 20
    load_average: float = 0.4
    autovacuum: int = 0
    fsync: str = "on"
    unsupported: str = ""  # something the backend notes that it cannot do

    @property
    def variant(self) -> str:
        return f"state.messages.kind={self.mode}" if self.label else ""

    @property
    def case_id(self) -> str:
        brackets = f"[{self.variant}]" if self.variant else ""
        return f"{self.workload}{brackets}@{self.backend}"

    @property
    def spec(self) -> WorkloadSpec:
        return WorkloadSpec(
            name=self.workload,
            state=StateSpec(
                messages=MessagesSpec(kind=self.mode, snapshot_frequency=self.snapshot_frequency)
            ),
            conversation=ConversationSpec(threads=self.threads, turns=fixed(self.turns)),
            run=RunSpec(api=self.api, durability=self.durability),
            measure=MeasureSpec(reads=self.reads),
        )

    @property
    def fingerprint(self) -> str:
        text = json.dumps(asdict(self.spec), sort_keys=True)
        return sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class FakeRun:
    """A run of several cases; `environment` is merged over the default one."""

    cases: Sequence[FakeCase]
    run_id: str = "20260105-101500-abcd"
    repetitions: int = 3
    seed: int = 1
    profile: str = "standard"
    quick: bool = False
    environment: dict[str, Any] = field(default_factory=dict)
    finished: bool = True
    truncated: bool = False  # the last line is cut in the middle, as a kill leaves it


def matrix(
    workloads: Sequence[str] = ("chat", "tool-heavy", "branching"),
    backends: Sequence[str] = ("memory", "sqlite", "postgres"),
    modes: Sequence[str] = ("full", "delta"),
    **changes: Any,
) -> list[FakeCase]:
    """Every combination, like the quick profile; `changes` go to each case."""
    return [
        FakeCase(workload=workload, backend=backend, mode=mode, **changes)
        for workload in workloads
        for mode in modes
        for backend in backends
    ]


def write_run(folder: Path, run: FakeRun) -> Path:
    """Write `folder/run.jsonl` and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    trials = [
        make_trial(case, repetition, run.seed)
        for repetition in range(run.repetitions)
        for case in run.cases
    ]
    lines: list[dict[str, Any]] = [header(run), *(trial.to_json() for trial in trials)]
    if run.finished:
        ok = sum(trial.status is Status.OK for trial in trials)
        lines.append(
            {
                "record": "end",
                "finished_at": "2026-01-05T10:25:00+00:00",
                "ok": ok,
                "failed": len(trials) - ok,
            }
        )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if run.truncated:
        text = text[: -len(json.dumps(lines[-1])) // 2]
    (folder / "run.jsonl").write_text(text, encoding="utf-8")
    return folder


def header(run: FakeRun) -> dict[str, Any]:
    """The first line of a run file."""
    return {
        "record": "run",
        "schema_version": SCHEMA_VERSION,
        "run_id": run.run_id,
        "created_at": "2026-01-05T10:15:00+00:00",
        "profile": run.profile,
        "quick": run.quick,
        "seed": run.seed,
        "command": "savermark run chat",
        "environment": {**ENVIRONMENT, **run.environment},
        "cases": [
            {
                "case_id": case.case_id,
                "workload": case.workload,
                "variant": case.variant,
                "backend": case.backend,
                "fingerprint": case.fingerprint,
                "spec": asdict(case.spec),
            }
            for case in run.cases
        ],
    }


ENVIRONMENT: dict[str, Any] = {
    "system": "Linux",
    "release": "6.1.0",
    "distribution": "Example Linux 12",
    "machine": "x86_64",
    "cpu": "Example CPU @ 2.50GHz",
    "cores": 2,
    "memory_bytes": 8_000_000_000,
    "scratch_filesystem": "ext4",
    "python": "3.11.7",
    "packages": {
        "savermark": "0.1.0",
        "langgraph": "1.2.24",
        "langgraph-checkpoint": "4.3.2",
        "langgraph-checkpoint-sqlite": "3.1.2",
        "langgraph-checkpoint-postgres": "3.2.0",
    },
    "git_commit": "0123abc",
    "git_dirty": False,
    "settings": {},
    "load_average": [0.4, 0.3, 0.2],
}


def make_trial(case: FakeCase, repetition: int, seed: int) -> TrialResult:
    """One trial of a case; the same arguments give the same trial."""
    digest = sha256(f"{case.case_id}/{repetition}/{seed}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    base = TrialResult(
        case_id=case.case_id,
        repetition=repetition,
        status=case.status,
        cause=case.cause,
        started_at=f"2026-01-05T10:{15 + repetition:02d}:00+00:00",
        duration_ns=3_000_000_000,
        backend={
            "server": f"{case.backend} 1.0",
            "autovacuum_runs": case.autovacuum,
            "settings": {"fsync": case.fsync, "cache": "128MB"},
        },
        notes={
            "load_average": case.load_average,
            "cloned_threads": 0,
            **(
                {"unsupported": {case.unsupported: "no such thing here"}}
                if case.unsupported
                else {}
            ),
        },
    )
    if case.status is not Status.OK:
        return base
    samples = (*_run_samples(case, rng), *_read_samples(case, rng))
    wall = sum(sum(item.ns) for item in samples if item.op == "turn")
    busy = sum(sum(item.ns) for item in samples if item.op in {"put", "put_writes", "get_tuple"})
    return replace(
        base,
        samples=samples,
        phases=tuple(_phase(case, phase, rng) for phase in Phase),
        checks=_checks(case),
        process=ProcessCost(
            setup_ns=1_100_000_000,
            run_wall_ns=wall,
            saver_busy_ns=busy,
            cpu_user_ns=int(wall * 0.8),
            cpu_system_ns=int(wall * 0.1),
            peak_rss_bytes=int(140e6 * (1 + 0.01 * rng.random())),
        ),
        costs=(_cost(case),),
    )


def _cost(case: FakeCase) -> CostRow:
    """What reading the head costs: the same in every repetition, as counts are."""
    depth = case.turns * 3
    counts = Counts(statements=3, rows=depth, bytes=depth * 400, values=depth)
    return CostRow("get_state", Phase.LOADED, "head", depth, counts, tuple(counts.known()))


def _noisy(case: FakeCase, rng: np.random.Generator, base: Any) -> tuple[int, ...]:
    times = np.asarray(base, dtype=float) * case.slower
    times = times * rng.lognormal(0.0, case.spread, times.shape)
    times[0] *= case.first_slow
    return tuple(int(value) for value in times)


def _run_samples(case: FakeCase, rng: np.random.Generator) -> list[SampleSet]:
    depth = np.tile(np.arange(case.turns) * 3, case.threads)
    growth = 1 + depth * (0.02 if case.mode == "full" else 0.002)
    call = CALL_NS.get(case.backend, 100_000)
    per_turn = {"put": 3, "put_writes": 3, "get_tuple": 1}
    sets = []
    for op, calls in per_turn.items():
        deep = np.repeat(depth, calls) + np.tile(np.arange(calls), depth.size)
        times = _noisy(case, rng, np.repeat(call * growth, calls))
        sets.append(_set(op, "run", "", deep, times))
    turn = _noisy(case, rng, 1_500_000 + 7 * call * growth)
    return [_set("turn", "run", "", depth, turn), *sets]


def _read_samples(case: FakeCase, rng: np.random.Generator) -> list[SampleSet]:
    sets = []
    read = READ_NS.get(case.backend, 100_000) * (1 + case.turns * 0.01)
    for op, at, factor in READS:
        if op == case.unsupported:
            continue
        depth = np.full(case.reads, case.turns * 3)
        warm = _noisy(case, rng, np.full(case.reads, read * factor))
        sets.append(_set(op, "warm", at, depth, warm, warmup=1))
        if op == "get_state":
            cold = _noisy(case, rng, np.full(case.threads, read * factor * 5))
            sets.append(_set(op, "cold", at, depth[: case.threads], cold))
    return sets


def _set(op: str, temperature: Any, at: str, depth: Any, ns: Any, warmup: int = 0) -> SampleSet:
    return SampleSet(
        op=op,
        phase=Phase.LOADED,
        temperature=temperature,
        at=at,
        depth=tuple(int(value) for value in depth[: len(ns)]),
        ns=tuple(ns[: len(depth)]),
        warmup=warmup,
    )


def _phase(case: FakeCase, phase: Phase, rng: np.random.Generator) -> PhaseStorage:
    gone = 0 if phase is Phase.LOADED else max(1, case.threads // 4)
    storage = [
        row
        for thread in range(case.threads)
        for row in _thread_rows(case, f"t{thread:05d}", thread < gone, rng)
    ]
    live = sum(row.logical_bytes for row in storage)
    loaded = live * case.threads // max(1, case.threads - gone)
    held = live if phase is Phase.COMPACTED else loaded
    distinct = 2 * case.turns
    return PhaseStorage(
        phase=phase,
        storage=tuple(storage),
        footprint=tuple(_footprint(case.backend, held, held - live)),
        floor=tuple(
            FloorRow(f"t{thread:05d}", 0, 0)
            if thread < gone
            else FloorRow(f"t{thread:05d}", distinct, int(distinct * MESSAGE_BYTES * case.heavier))
            for thread in range(case.threads)
        ),
    )


def _thread_rows(
    case: FakeCase, thread: str, deleted: bool, rng: np.random.Generator
) -> list[StorageRow]:
    if deleted:
        return [
            StorageRow(thread, "", table, None, 0, 0, None if case.backend == "memory" else 0)
            for table in ("checkpoints", "blobs", "writes")
        ]
    turns, message = case.turns, MESSAGE_BYTES * case.heavier
    full = message * (2 * turns * turns + turns)
    snapshots = 2 * turns // case.snapshot_frequency
    values = full if case.mode == "full" else message * case.snapshot_frequency * snapshots
    jitter = int(rng.integers(0, 4))  # version strings have a random part of varying length
    compressed = {"postgres": 0.6, "sqlite": 1.0}.get(case.backend)
    inline = case.backend == "sqlite"
    head = CHECKPOINT_BYTES * 3 * turns + (values * 1.5 if inline else 0)
    parts = [("checkpoints", None, 3 * turns, head + jitter)]
    if not inline:
        rows = 2 * turns if case.mode == "full" else snapshots
        parts.append(("blobs", "messages", rows, values))
        parts.append(("blobs", "__start__", turns, turns * message))
    parts.append(("writes", "messages", 2 * turns, 2 * turns * message))
    parts.append(("writes", "branch:to:model", 2 * turns, 2 * turns * 1.0))
    return [
        StorageRow(
            thread,
            "",
            table,
            channel,
            rows,
            int(size),
            None if compressed is None else int(size * compressed),
        )
        for table, channel, rows, size in parts
    ]


def _footprint(backend: str, held: int, free: int) -> list[FootprintRow]:
    if backend in {"memory", "null"}:
        return [FootprintRow("payload", None, held), FootprintRow("total", None, held)]
    if backend == "sqlite":
        page = 4096
        size = (int(held * 1.15) // page + 8) * page
        return [
            FootprintRow("file", None, size),
            FootprintRow("wal", None, 0),
            FootprintRow("free", None, free // page * page),
            FootprintRow("total", None, size),
        ]
    parts = [
        FootprintRow("heap", "checkpoints", int(held * 0.2)),
        FootprintRow("heap", "blobs", int(held * 0.1)),
        FootprintRow("toast", "blobs", int(held * 0.4)),
        FootprintRow("heap", "writes", int(held * 0.1)),
        FootprintRow("index", "checkpoints", int(held * 0.03) + 16_384),
        FootprintRow("index", "blobs", int(held * 0.03) + 16_384),
        FootprintRow("index", "writes", int(held * 0.04) + 16_384),
    ]
    total = sum(part.bytes for part in parts)
    return [*parts, FootprintRow("free", None, free), FootprintRow("total", None, total)]


def _checks(case: FakeCase) -> tuple[Check, ...]:
    plan = [
        (Phase.LOADED, "final_state"),
        (Phase.LOADED, "tips"),
        (Phase.LOADED, "sums"),
        (Phase.RETAINED, "untouched_rows"),
        (Phase.RETAINED, "final_state"),
    ]
    return tuple(
        Check(phase, name, name != case.failed_check, "" if name != case.failed_check else "t00001")
        for phase, name in plan
    )


@pytest.fixture
def fake_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run under the test's folder: `fake_run("a", cases=[...], ...) -> folder`."""

    def build(name: str = "run", **fields: Any) -> Path:
        fields.setdefault("cases", matrix())
        return write_run(tmp_path / name, FakeRun(**fields))

    return build
