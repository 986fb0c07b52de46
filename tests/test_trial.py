"""Trials in this process, on real stores: phases, samples, checks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fix_clock import DELAYS, DelayedSaver, ManualClock
from savermark.backends.base import Location
from savermark.errors import Unsupported
from savermark.records import Phase, Status, TrialResult
from savermark.script import Duration, Fork, Tip, write_script
from savermark.spec import (
    BranchingSpec,
    ConversationSpec,
    Dist,
    DurationsSpec,
    FleetSpec,
    InterruptsSpec,
    MeasureSpec,
    MessagesSpec,
    RunSpec,
    StateSpec,
    SubgraphSpec,
    ToolsSpec,
    WorkloadSpec,
    fixed,
)
from savermark.trial import Case, Retained, run_trial
from savermark.trial import failure as failures
from savermark.trial import reads as read_path
from savermark.trial.driver import AsyncDriver, SyncDriver
from savermark.trial.load import peak_rss_bytes, with_marks
from savermark.trial.reads import Target
from savermark.trial.retention import choose_share
from savermark.trial.verify import difference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPEC = WorkloadSpec(
    name="chat",
    conversation=ConversationSpec(threads=4, turns=fixed(4)),
    measure=MeasureSpec(reads=2, cold=False),
)
BACKENDS = ("memory", "sqlite", "postgres")


@pytest.fixture
def location(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Location]:
    """Where a backend's store can live here."""

    def make(backend: str) -> Location:
        dsn = request.getfixturevalue("postgres_dsn") if backend == "postgres" else None
        return Location(tmp_path, f"trial_{abs(hash(request.node.name)) % 10**8}", dsn)

    return make


@pytest.fixture
def run(location: Callable[[str], Location]) -> Callable[..., TrialResult]:
    def go(backend: str = "memory", spec: WorkloadSpec = SPEC, **options: Any) -> TrialResult:
        return run_trial(Case("chat", "", spec, backend), location(backend), **options)

    return go


def failed(trial: TrialResult) -> list[Any]:
    return [check for check in trial.checks if not check.ok]


# --- the whole of it, on every backend in both apis -----------------------------------------------

EVERYTHING = replace(
    SPEC,
    conversation=ConversationSpec(threads=6, turns=fixed(4)),
    tools=ToolsSpec(calls=1, output_bytes=fixed(300)),
    branching=BranchingSpec(every=3),
    subgraph=SubgraphSpec(kind="call", steps=1),
    durations=DurationsSpec(every=2),
    fleet=FleetSpec(driven=3),
)


@pytest.mark.parametrize("mode", ["full", "delta"])
@pytest.mark.parametrize("api", ["sync", "async"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_trial_on_a_real_store(
    run: Callable[..., TrialResult], backend: str, api: Any, mode: Any
) -> None:
    state = StateSpec(messages=MessagesSpec(kind=mode, snapshot_frequency=5))
    cold = (backend, api, mode) in {("sqlite", "sync", "full"), ("postgres", "async", "delta")}
    measure = replace(SPEC.measure, cold=cold)
    trial = run(backend, replace(EVERYTHING, state=state, run=RunSpec(api=api), measure=measure))
    assert (trial.status, trial.cause, failed(trial)) == (Status.OK, "", [])
    promised = {(check.phase, check.check) for check in trial.checks}
    assert promised >= {
        (Phase.LOADED, "final_state"),
        (Phase.LOADED, "tips"),
        (Phase.LOADED, "history"),
        (Phase.LOADED, "sums"),
        (Phase.LOADED, "clone_rows"),
        (Phase.RETAINED, "deleted_rows"),
        (Phase.RETAINED, "untouched_rows"),
        (Phase.RETAINED, "final_state"),
        (Phase.RETAINED, "tips"),
    }
    ops = {sample.op for sample in trial.samples if sample.temperature == "run"}
    assert ops >= {"turn", "put", "put_writes", "get_tuple"}
    warm = {(s.op, s.at) for s in trial.samples if s.temperature == "warm"}
    assert {("get_state", "head"), ("history_10", "head"), ("history_100", "head")} <= warm
    assert {at for op, at in warm if op == "resume"} == {
        at for op, at in warm if op.startswith("walk") and at != "head"
    } or mode == "full"
    assert ("walk_native" in {op for op, _ in warm}) == (mode == "delta")
    assert ("cold" in {s.temperature for s in trial.samples}) == cold
    phases = {phase.phase: phase for phase in trial.phases}
    assert list(phases) == list(Phase)[: 2 if backend == "memory" else 3]
    assert trial.process is not None
    assert 0 < trial.process.saver_busy_ns < trial.process.run_wall_ns
    assert trial.notes["cloned_threads"] == 3
    assert TrialResult.from_json(json.loads(json.dumps(trial.to_json()))) == trial


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("api", ["sync", "async"])
def test_a_clone_goes_on_like_a_driven_thread(
    run: Callable[..., TrialResult], backend: str, api: Any
) -> None:
    spec = replace(SPEC, fleet=FleetSpec(driven=2), run=RunSpec(api=api))
    trial = run(backend, spec)
    (check,) = [check for check in trial.checks if check.check == "clone_continues"]
    assert (trial.status, check.ok, check.detail) == (Status.OK, True, "2 checked")


@pytest.mark.parametrize("resume", [True, False])
def test_pending_and_answered_interrupts(run: Callable[..., TrialResult], resume: bool) -> None:
    trial = run("sqlite", replace(SPEC, interrupts=InterruptsSpec(every=2, resume=resume)))
    assert (trial.status, failed(trial)) == (Status.OK, [])


@pytest.mark.parametrize("durability", ["async", "exit"])
@pytest.mark.parametrize("serializer", ["plain", "encrypted"])
def test_durability_and_serializer(
    run: Callable[..., TrialResult], durability: Any, serializer: Any
) -> None:
    trial = run("sqlite", replace(SPEC, run=RunSpec(durability=durability, serializer=serializer)))
    assert (trial.status, failed(trial)) == (Status.OK, [])


def test_deleted_threads_are_zeros_and_the_others_unchanged(
    run: Callable[..., TrialResult],
) -> None:
    trial = run("sqlite")
    rows = {phase.phase: {row.thread_id: 0 for row in phase.storage} for phase in trial.phases}
    for phase in trial.phases:
        for row in phase.storage:
            rows[phase.phase][row.thread_id] += row.rows
    assert set(rows[Phase.RETAINED]) == {"t00000", "t00001", "t00002", "t00003"}
    assert rows[Phase.RETAINED] == {**rows[Phase.LOADED], "t00002": 0}
    assert rows[Phase.COMPACTED] == rows[Phase.RETAINED]
    (delete,) = [sample for sample in trial.samples if sample.op == "delete_thread"]
    assert (delete.phase, len(delete.ns)) == (Phase.RETAINED, 1)


def test_reads_aim_at_the_longest_thread(run: Callable[..., TrialResult]) -> None:
    turns = Dist(dist="lognormal", median=4, sigma=1.0, min=1, max=9)
    spec = replace(SPEC, conversation=ConversationSpec(threads=5, turns=turns))
    trial = run("memory", spec)
    checkpoints = [row for row in trial.phases[0].storage if row.table == "checkpoints"]
    (state,) = [sample for sample in trial.samples if sample.op == "get_state"]
    assert set(state.depth) == {max(row.rows for row in checkpoints)}
    assert state.warmup == read_path.WARMUP_ROUNDS
    assert len(state.ns) == read_path.WARMUP_ROUNDS + spec.measure.reads


# --- a known saver on a known clock ---------------------------------------------------------------


def test_known_delays_go_through_the_whole_pipe(
    run: Callable[..., TrialResult], monkeypatch: pytest.MonkeyPatch, manual_clock: ManualClock
) -> None:
    monkeypatch.setattr("odd_savers.delayed", lambda: DelayedSaver(manual_clock), raising=False)
    one = replace(SPEC, conversation=ConversationSpec(threads=2, turns=fixed(3)))
    trial = run("odd_savers:delayed", one, clock=manual_clock)
    assert (trial.status, failed(trial)) == (Status.OK, [])
    by_op = {(s.op, s.temperature, s.at): s for s in trial.samples}
    assert set(by_op["put", "run", ""].ns) == {DELAYS["put"]}
    assert by_op["put", "run", ""].depth == (*range(9), *range(9))
    assert set(by_op["get_tuple", "run", ""].ns) == {DELAYS["get_tuple"]}
    assert set(by_op["walk", "run", ""].ns) == {DELAYS["walk"]}
    assert set(by_op["walk_native", "warm", "head"].ns) == {DELAYS["walk"]}
    assert set(by_op["get_state", "warm", "head"].ns) == {DELAYS["get_tuple"] + DELAYS["walk"]}
    assert by_op["delete_thread", "warm", ""].ns == (DELAYS["delete"],)
    assert trial.process is not None
    assert trial.process.saver_busy_ns == trial.process.run_wall_ns
    assert trial.phases[0].storage == ()
    assert set(trial.notes["unsupported"]) == {"storage", "footprint", "compaction"}


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_saver_that_loses_writes_fails_the_trial_and_keeps_its_numbers(
    run: Callable[..., TrialResult],
) -> None:
    trial = run("odd_savers:Forgets")
    assert trial.status is Status.FAILED
    assert trial.cause.startswith("check final_state: ")
    assert "t00000/head: state" in trial.cause
    assert trial.samples


@pytest.mark.parametrize(
    ("saver", "check"), [("HalfList", "history"), ("KeepsAll", "deleted_state")]
)
def test_a_saver_that_lists_or_deletes_wrongly_is_found_out(
    run: Callable[..., TrialResult], saver: str, check: str
) -> None:
    trial = run(f"odd_savers:{saver}")
    assert (trial.status, [c.check for c in failed(trial)]) == (Status.FAILED, [check])


def test_a_saver_without_the_api_is_unsupported(run: Callable[..., TrialResult]) -> None:
    trial = run("odd_savers:SyncOnly", replace(SPEC, run=RunSpec(api="async")))
    assert trial.status is Status.UNSUPPORTED
    assert "has no async methods" in trial.cause
    assert trial.started_at


def test_the_null_backend_is_timed_without_promises(run: Callable[..., TrialResult]) -> None:
    trial = run("null")
    assert (trial.status, trial.checks, trial.phases[0].storage) == (Status.OK, (), ())
    assert {sample.op for sample in trial.samples} >= {"put", "put_writes", "turn", "get_state"}
    assert "state checks" in trial.notes["unsupported"]
    branches = run("null", replace(SPEC, branching=BranchingSpec(every=2)))
    assert branches.status is Status.UNSUPPORTED
    assert "null keeps nothing" in branches.cause


def test_a_missing_extra_is_unsupported_and_a_missing_module_of_ours_is_not(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., TrialResult]
) -> None:
    def missing(*args: Any) -> Any:
        raise ModuleNotFoundError("No module named 'deepagents'", name="deepagents")

    monkeypatch.setattr("savermark.trial.story.build_graph", missing)
    trial = run("memory")
    assert (trial.status, "deepagents" in trial.cause) == (Status.UNSUPPORTED, True)
    ours = ModuleNotFoundError("No module named 'savermark.nonsense'", name="savermark.nonsense")
    assert not failures.is_unsupported(ours)


def test_other_errors_are_raised(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., TrialResult], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="cannot reach"):
        run("odd_savers:Fails")


def test_a_failure_is_one_line_without_a_password() -> None:
    try:
        raise ValueError("no route\nto postgresql://me:hunter2@db/x password=hunter2")
    except ValueError as error:
        line = failures.describe(error)
    assert line.startswith("ValueError: no route to postgresql://me:***@db/x password=***")
    assert "test_trial.py:" in line
    assert failures.describe(Unsupported("plain words")) == "plain words"


def test_the_store_is_gone_after_a_trial(tmp_path: Path) -> None:
    location = Location(tmp_path, "gone")
    run_trial(Case("chat", "", SPEC, "sqlite"), location)
    assert list(tmp_path.iterdir()) == []
    run_trial(Case("chat", "", SPEC, "sqlite"), location, keep=True)
    assert list(tmp_path.iterdir()) != []


# --- retention ------------------------------------------------------------------------------------


def test_another_retention_plugs_in(run: Callable[..., TrialResult]) -> None:
    async def none(ground: Any) -> Retained:
        ground.notes["policy"] = "nothing"
        return Retained()

    trial = run("memory", retain=none)
    assert (trial.status, trial.notes["policy"]) == (Status.OK, "nothing")
    assert "deleted_rows" not in {check.check for check in trial.checks}


@pytest.mark.parametrize("damage", ["another thread", "a row too few"])
def test_a_retention_that_does_something_else_is_found_out(
    run: Callable[..., TrialResult], damage: str
) -> None:
    async def wrong(ground: Any) -> Retained:
        if damage == "another thread":
            ground.saver.delete_thread("t00003")
        return Retained(deleted=frozenset({"t00001"}))

    trial = run("memory", retain=wrong)
    broken = {check.check for check in failed(trial)}
    expected = {"deleted_rows"}
    if damage == "another thread":
        expected |= {"untouched_rows", "final_state"}
    assert (trial.status, broken) == (Status.FAILED, expected)


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [
        (4, 0.25, ["2"]),
        (8, 0.25, ["2", "6"]),
        (2, 0.1, ["1"]),
        (3, 1.0, ["0", "1", "2"]),
        (1, 0.5, []),
        (9, 0.0, []),
        (0, 0.5, []),
    ],
)
def test_share_of_threads(count: int, share: float, expected: list[str]) -> None:
    assert choose_share([str(i) for i in range(count)], share) == expected


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        ([], False),
        ([5_000_000_000], False),  # the first is a warm-up
        ([1, 1, 1, 1, 1, 1], False),
        ([400_000_000] * 3, False),  # two that count
        ([400_000_000] * 4, True),
        ([6_000_000_000] * 2, True),
    ],
)
def test_slow_reads_are_sampled_less_often(ns: list[int], expected: bool) -> None:
    assert read_path.enough(ns) == expected


# --- parts ----------------------------------------------------------------------------------------


def test_marks_are_added_to_runs_only() -> None:
    spec = replace(SPEC, branching=BranchingSpec(every=2), durations=DurationsSpec(every=1))
    thread = write_script(spec)[0]
    assert any(isinstance(event, Fork) for event in thread.events)
    marked = with_marks(thread, [2])
    assert len(marked.events) == len(thread.events)
    assert set(marked.tips) - set(thread.tips) == {"savermark-depth-2"}
    named = [
        event.number
        for event in marked.events
        if not isinstance(event, Duration) and "savermark-depth-2" in event.marks
    ]
    assert named == [2]
    assert with_marks(thread, []) is thread


def test_a_tip_differs_by_what_counts() -> None:
    tip = Tip("ab", ("x", "y"), 1)
    assert difference(Tip("ab", ("y", "x"), 1), tip) is None
    assert difference(Tip("cd", ("y",), 0), tip) == (
        "state cd, expected ab, next ['y'], expected ['x', 'y'], 0 interrupts, expected 1"
    )


def test_drivers_say_the_same() -> None:
    class Thing:
        def get(self, value: int) -> int:
            return value

        async def aget(self, value: int) -> int:
            return value

        def rows(self) -> Any:
            yield from (1, 2)

        async def arows(self) -> Any:
            for row in (1, 2):
                yield row

    async def steps(driver: Any) -> Any:
        return await driver.call(Thing(), "get", 3), await driver.rows(Thing(), "rows")

    for driver in (SyncDriver(), AsyncDriver()):
        assert driver.run(steps(driver)) == (3, [1, 2])


def test_a_sync_step_must_not_wait() -> None:
    import asyncio

    with pytest.raises(RuntimeError, match="waited for an event loop"):
        SyncDriver().run(asyncio.sleep(0))


def test_a_read_target_travels_as_json() -> None:
    from dataclasses import asdict

    target = Target("walk_base", "head", 3, {"thread_id": "t"}, channels=("messages",))
    data = json.loads(json.dumps(asdict(target)))
    assert Target(**{**data, "channels": tuple(data["channels"])}) == target


def test_peak_memory_is_plausible() -> None:
    assert 10_000_000 < peak_rss_bytes() < 10_000_000_000
