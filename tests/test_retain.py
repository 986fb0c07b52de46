"""Trials with a policy, in this process on real stores; their tables; the run-history scenario."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import planted_policies
from savermark.backends.base import Location
from savermark.compare import compare_runs
from savermark.errors import NotComparableError, UsageError
from savermark.families import case_from_json
from savermark.frame import to_frame
from savermark.frame.retention import (
    ALL,
    broken,
    effort_table,
    reads_table,
    space_table,
    verdicts,
)
from savermark.frame.run_history import history_table
from savermark.records import SCHEMA_VERSION, Phase, Status, TrialResult
from savermark.report.retention_block import retention_markdown, retention_verdict
from savermark.results import RunResult
from savermark.retention.findings import CHECKS
from savermark.spec import (
    BranchingSpec,
    ConversationSpec,
    FleetSpec,
    MeasureSpec,
    MessagesSpec,
    RunSpec,
    StateSpec,
    WorkloadSpec,
    fixed,
)
from savermark.trial import Case, run_trial
from savermark.trial.policy_case import (
    RetainCase,
    checked_policy,
    make_retain_cases,
    make_scenario_cases,
)
from savermark.trial.policy_retention import retain_by_policy
from savermark.trial.run_history import READS, WAYS, durations_of, run_history_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SPEC = WorkloadSpec(
    name="chat",
    state=StateSpec(messages=MessagesSpec(snapshot_frequency=3)),
    conversation=ConversationSpec(threads=2, turns=fixed(5)),
    measure=MeasureSpec(reads=2, cold=False),
)
FULL = replace(SPEC, state=StateSpec(messages=MessagesSpec(kind="full")))
BRANCHES = replace(SPEC, branching=BranchingSpec(every=2, back=1))
BACKENDS = ("memory", "sqlite", "postgres")
APIS = ("sync", "async")


@pytest.fixture
def location(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Location]:
    """Where a backend's store can live here."""

    def make(backend: str) -> Location:
        dsn = request.getfixturevalue("postgres_dsn") if backend == "postgres" else None
        return Location(tmp_path, f"retain_{abs(hash(request.node.name)) % 10**8}", dsn)

    return make


@pytest.fixture
def run(location: Callable[[str], Location]) -> Callable[..., tuple[RetainCase, TrialResult]]:
    """A trial of a policy: its case and what it found."""

    def go(
        policy: str,
        backend: str = "sqlite",
        spec: WorkloadSpec = SPEC,
        *,
        protect_tips: bool = False,
    ) -> tuple[RetainCase, TrialResult]:
        case = RetainCase("chat", f"policy={policy}", spec, backend, policy, protect_tips)
        retain = retain_by_policy(case)
        return case, run_trial(case, location(backend), retain=retain, walks=("onepass",))

    return go


def result_of(cases: Sequence[Case], trials: Sequence[TrialResult]) -> RunResult:
    """A result of these trials, through the JSON of its file."""
    header = {
        "schema_version": SCHEMA_VERSION,
        "run_id": "run",
        "quick": False,
        "environment": {},
        "cases": [case.to_json() for case in cases],
    }
    lines = [json.loads(json.dumps(trial.to_json())) for trial in trials]
    return RunResult(Path("run.jsonl"), header, [TrialResult.from_json(line) for line in lines])


def own(name: str) -> str:
    """A policy of `planted_policies` by its reference."""
    return f"{planted_policies.__name__}:{name}"


def rows(trial: TrialResult, phase: Phase) -> int:
    (part,) = (part for part in trial.phases if part.phase is phase)
    return sum(row.rows for row in part.storage)


def failed(trial: TrialResult) -> dict[str, str]:
    return {check.check: check.detail for check in trial.checks if not check.ok}


def ops(trial: TrialResult, phase: Phase) -> set[str]:
    return {item.op for item in trial.samples if item.phase is phase}


# --- policies made of rules -----------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_policy_is_planned_applied_verified_and_read_again(
    run: Callable[..., Any], backend: str, api: str
) -> None:
    spec = replace(SPEC, run=RunSpec(api=api))
    _, trial = run("keep-turns=1", backend, spec)
    assert trial.status is Status.OK, trial.cause
    told = trial.notes["retention"]
    assert told["ok"] and told["changed"] == told["verified"] == 2 and not told["refused"]
    assert sum(told["deleted"].values()) == rows(trial, Phase.LOADED) - rows(trial, Phase.RETAINED)
    assert rows(trial, Phase.RETAINED) < rows(trial, Phase.LOADED) / 2
    checks = {c.check for c in trial.checks if c.phase is Phase.RETAINED}
    assert {f"verify-{name}" for name in CHECKS} | {"final_state", "walks", "history"} <= checks
    assert {"plan", "apply", "verify"} <= ops(trial, Phase.RETAINED)
    walks = {"walk_base", "walk_onepass"}
    assert walks | {"get_state", "history_10"} <= ops(trial, Phase.RETAINED)
    assert walks <= ops(trial, Phase.LOADED)
    compacts = any(part.phase is Phase.COMPACTED for part in trial.phases)
    assert (walks <= ops(trial, Phase.COMPACTED)) == compacts == (backend != "memory")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_compact_folds_through_the_workloads_own_graph(
    run: Callable[..., Any], backend: str, api: str
) -> None:
    _, trial = run("compact", backend, replace(SPEC, run=RunSpec(api=api)))
    assert trial.status is Status.OK, trial.cause
    (part,) = (part for part in trial.phases if part.phase is Phase.RETAINED)
    assert sum(row.rows for row in part.storage if row.table == "checkpoints") == 2


def test_threads_that_a_policy_refuses_stay_to_the_byte(run: Callable[..., Any]) -> None:
    _, trial = run("refuse")
    told = trial.notes["retention"]
    assert trial.status is Status.OK and told["ok"]
    assert told["refused"] == 2 and told["changed"] == 0
    assert all("delta" in reason for _, reason in told["reasons"])
    assert next(c for c in trial.checks if c.check == "untouched_rows").detail == "2 checked"


def test_whole_threads_that_go_have_no_reads_after(run: Callable[..., Any]) -> None:
    _, trial = run("delete")
    assert trial.status is Status.OK, trial.cause
    assert rows(trial, Phase.RETAINED) == 0
    assert ops(trial, Phase.RETAINED) == {"plan", "apply", "verify"}
    assert "reads retained" in trial.notes["unsupported"]


@pytest.mark.parametrize("policy", ["keep-latest", own("protecting")])
def test_tips_are_given_up_unless_they_are_protected(run: Callable[..., Any], policy: str) -> None:
    def tips(trial: TrialResult) -> str:
        found = [c for c in trial.checks if c.check == "tips" and c.phase is Phase.RETAINED]
        return found[0].detail if found else "none"

    _, bare = run(policy, spec=replace(BRANCHES, state=FULL.state))
    _, kept = run(policy, spec=replace(BRANCHES, state=FULL.state), protect_tips=True)
    assert (bare.status, kept.status) == (Status.OK, Status.OK), (bare.cause, kept.cause)
    assert (tips(bare), tips(kept)) == ("none", "4 checked")
    assert rows(bare, Phase.RETAINED) < rows(kept, Phase.RETAINED)


def test_of_many_clones_some_are_read_back(run: Callable[..., Any]) -> None:
    fleet = replace(SPEC, fleet=FleetSpec(driven=1))
    fleet = replace(fleet, conversation=ConversationSpec(threads=210, turns=fixed(2)))
    _, trial = run("keep-latest", spec=fleet)
    told = trial.notes["retention"]
    assert trial.status is Status.OK, trial.cause
    assert told["threads"] == 210 and 50 < told["verified"] < 120
    assert any(check.check == "clone_continues" for check in trial.checks)


def test_a_store_that_keeps_nothing_is_unsupported(run: Callable[..., Any]) -> None:
    _, trial = run("keep-latest", "null")
    assert trial.status is Status.UNSUPPORTED and "keeps nothing" in trial.cause


# --- one's own function ---------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_naive_policy_is_shown_failing(run: Callable[..., Any], backend: str) -> None:
    case, trial = run(own("naive"), backend)
    assert trial.status is Status.FAILED
    assert {"verify-latest", "verify-values"} <= failed(trial).keys()
    assert "reads back" in failed(trial)["verify-latest"]
    assert ops(trial, Phase.RETAINED) == {"apply", "verify"}  # nothing is read of what is broken
    result = result_of([case], [trial])
    assert broken(result) and space_table([result]).empty and effort_table([result]).empty
    (judged,) = verdicts(result)
    assert not judged.ok and judged.verdict.startswith("FAILED: 2 of 2 threads")
    assert judged.failures and judged.checks["latest"]["failed"] == 2
    block = retention_markdown(result)
    assert "What broke" in block and "ratio of medians" not in block  # no legend without numbers


@pytest.mark.parametrize("name", ["careful", "silent"])
def test_a_right_function_passes_whether_or_not_it_tells_what_it_kept(
    run: Callable[..., Any], name: str
) -> None:
    case, trial = run(own(name))
    assert trial.status is Status.OK, trial.cause
    assert (trial.notes["retention"]["deleted"] is None) == (name == "silent")
    (effort,) = effort_table([result_of([case], [trial])]).to_dict("records")
    # What it does not say is told by the tables.
    assert effort["rows_deleted"] == rows(trial, Phase.LOADED) - rows(trial, Phase.RETAINED) > 0
    assert effort["rows_per_s"] > 0


@pytest.mark.parametrize("name", ["awaited", "careful"])
def test_functions_run_beside_and_on_the_event_loop(run: Callable[..., Any], name: str) -> None:
    if name == "careful":
        _, trial = run(own(name), "memory", replace(SPEC, run=RunSpec(api="async")))
    else:
        _, trial = run(own(name), "sqlite", replace(SPEC, run=RunSpec(api="async")))
    assert trial.status is Status.OK, trial.cause


def test_a_third_parameter_is_given_the_protected_ids(run: Callable[..., Any]) -> None:
    run(own("protecting"), spec=BRANCHES, protect_tips=True)
    assert len(planted_policies.SEEN[0]) == 6  # the head and two abandoned tips of each thread


def test_a_function_that_raises_has_failed_and_one_that_refuses_is_unsupported(
    run: Callable[..., Any],
) -> None:
    case, trial = run(own("raising"))
    assert failed(trial)["policy"] == "RuntimeError: the disk is on fire"
    (judged,) = verdicts(result_of([case], [trial]))
    assert judged.verdict == "FAILED: RuntimeError: the disk is on fire"
    case, trial = run(own("refusing"))
    assert trial.status is Status.UNSUPPORTED
    result = result_of([case], [trial])
    (judged,) = verdicts(result)
    assert "no verdict: unsupported" in judged.verdict and not broken(result)
    assert retention_verdict(result).startswith("No verification in 1 of 1 case")


def test_a_function_that_deletes_whole_threads_is_understood(run: Callable[..., Any]) -> None:
    _, trial = run(own("wiping"))
    names = {check.check for check in trial.checks}
    assert "deleted_rows" in names and rows(trial, Phase.RETAINED) == 0
    # Nobody said that the threads may go: the newest state is lost.
    assert trial.status is Status.FAILED and "verify-latest" in failed(trial)


def test_a_function_that_lies_about_what_it_kept_has_failed(run: Callable[..., Any]) -> None:
    case, trial = run(own("boasting"))
    assert trial.status is Status.FAILED and "verify-resume" in failed(trial)
    assert broken(result_of([case], [trial]))


def test_a_thread_that_a_function_says_it_left_alone_is_compared(run: Callable[..., Any]) -> None:
    case, trial = run(own("hiding"))
    assert trial.status is Status.FAILED and "untouched_rows" in failed(trial)
    (judged,) = verdicts(result_of([case], [trial]))
    assert judged.refused == 2 and judged.reasons[0] == ("t00000", "too busy") and not judged.ok


# --- cases ----------------------------------------------------------------------------------------


def test_policies_are_checked_before_anything_runs() -> None:
    assert checked_policy(" duration-leaves , keep-turns=3", "sync") == (
        "keep-turns=3,duration-leaves"
    )
    assert checked_policy(own("awaited"), "async") == own("awaited")
    with pytest.raises(UsageError, match=r"measure it with --set run\.api=async"):
        checked_policy(own("awaited"), "sync")
    with pytest.raises(UsageError, match="not callable"):
        checked_policy(own("NUMBER"), "sync")
    with pytest.raises(UsageError, match="did you mean 'naive'"):
        checked_policy(own("naiv"), "sync")
    with pytest.raises(UsageError, match="keep-turns"):
        checked_policy("keep-turn=3", "sync")


def test_equal_policies_are_one_case_and_mark_the_variant() -> None:
    twice = ("keep-turns=3,duration-leaves", "duration-leaves,keep-turns=3", "keep-latest")
    cases = make_retain_cases("branching", ["memory"], twice, ("conversation.turns=3",))
    assert [case.variant for case in cases] == [
        "messages.kind=full,policy={keep-turns=3,duration-leaves}",
        "messages.kind=full,policy=keep-latest",
        "messages.kind=delta,policy={keep-turns=3,duration-leaves}",
        "messages.kind=delta,policy=keep-latest",
    ]
    assert len({case.fingerprint for case in cases}) == 4
    again = case_from_json(cases[0].to_json())
    assert again == cases[0] and again.fingerprint == cases[0].fingerprint
    (tips, *_) = make_retain_cases(
        "chat", ["memory"], ["keep-latest"], ("state.messages.kind=full",), protect_tips=True
    )
    assert tips.variant == "policy=keep-latest,tips=protected"


def test_a_run_with_a_policy_is_never_compared_with_one_without(
    run: Callable[..., Any], location: Callable[[str], Location]
) -> None:
    case, trial = run("keep-latest", "memory")
    plain = Case("chat", "", SPEC, "memory")
    without = result_of([plain], [run_trial(plain, location("memory"))])
    with pytest.raises(NotComparableError, match="no case in common"):
        compare_runs(result_of([case], [trial]), without)
    # Not even where somebody names the two alike.
    named = replace(case, variant="")
    same = replace(trial, case_id=named.case_id)
    with pytest.raises(NotComparableError, match="the fingerprints differ"):
        compare_runs(result_of([named], [same]), without)


# --- tables ---------------------------------------------------------------------------------------


def test_the_tables_say_what_the_frames_say(run: Callable[..., Any]) -> None:
    found = [run(policy) for policy in ("keep-turns=1", "keep-latest")]
    result = result_of([case for case, _ in found], [trial for _, trial in found])
    assert "ratio of medians" in retention_markdown(result)
    space = space_table([result]).set_index(["policy", "table"])
    storage = to_frame(result, "storage")
    for policy in ("keep-turns=1", "keep-latest"):
        mine = storage[storage["variant"] == f"policy={policy}"]
        for phase in ("loaded", "retained", "compacted"):
            part = mine[mine["phase"] == phase]
            assert space.loc[(policy, ALL), f"rows_{phase}"] == part["rows"].sum()
            kept = part[part["table"] == "writes"]["logical_bytes"].sum()
            assert space.loc[(policy, "writes"), f"logical_bytes_{phase}"] == kept
    whole = space.xs(ALL, level="table")
    assert (whole["footprint_bytes_compacted"] <= whole["footprint_bytes_loaded"]).all()
    assert space["footprint_bytes_loaded"].notna().sum() == 2  # beside the whole only
    reads = reads_table([result]).set_index(["policy", "op", "at"])
    head = reads.loc[("keep-latest", "get_state", "head")]
    assert head["p50_ns_loaded"] > 0 and head["p50_ns_retained"] > 0
    assert head["ratio"] == pytest.approx(head["p50_ns_retained"] / head["p50_ns_loaded"])
    effort = effort_table([result])
    assert list(effort["policy"]) == ["keep-turns=1", "keep-latest"]
    assert (effort[["plan_ns", "apply_ns", "verify_ns"]] > 0).all(axis=None)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_deleted_rows_leave_the_store_as_large_until_space_is_given_back(
    run: Callable[..., Any], backend: str
) -> None:
    talk = ConversationSpec(threads=2, turns=fixed(12), model_bytes=fixed(3_000))
    case, trial = run("keep-latest", backend, replace(FULL, conversation=talk))
    assert trial.status is Status.OK, trial.cause
    (row,) = space_table([result_of([case], [trial])]).query("table == @ALL").to_dict("records")
    assert row["logical_bytes_retained"] < row["logical_bytes_loaded"] / 5
    before, after, last = (row[f"footprint_bytes_{p}"] for p in ("loaded", "retained", "compacted"))
    assert after > 0.8 * before and last < 0.7 * after


# --- run history ----------------------------------------------------------------------------------

RUNS = 4
TALK = replace(SPEC, conversation=ConversationSpec(threads=1, turns=fixed(RUNS)))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_deleting_the_leaf_while_idle_makes_a_loop_and_at_admission_none(
    location: Callable[[str], Location], backend: str, api: str
) -> None:
    spec = replace(TALK, run=RunSpec(api=api))
    cases = [
        RetainCase("run-history", f"leaf={way}", spec, backend, way, scenario="run-history")
        for way in WAYS
    ]
    place = location(backend)
    trials = [
        run_history_trial(case, replace(place, name=f"{place.name}_{case.policy}"))
        for case in cases
    ]
    assert [trial.status for trial in trials] == [Status.OK] * 3, [t.cause for t in trials]
    table = history_table([result_of(cases, trials)]).set_index("policy")
    reads = RUNS * READS
    assert (table["reads"] == reads).all()
    # One scan a run to fill the cache; a pass after each read empties it again.
    assert dict(table["scans"]) == {"kept": RUNS, "idle": reads, "admission": RUNS}
    assert dict(table["writes"]) == dict(table["scans"])
    assert dict(table["deletes"]) == {"kept": 0, "idle": reads, "admission": RUNS - 1}
    assert dict(table["duration_copies"]) == {"kept": RUNS, "idle": 0, "admission": 1}
    assert table.loc["kept", "checkpoints"] == table.loc["idle", "checkpoints"] + RUNS
    assert (table["idle_ns"] > 0).all() and table["admission_p50_ns"].notna().sum() == 1
    if table["fast_statements"].notna().any():  # an engine that counts statements
        assert (table["fast_rows"] < table["scan_rows"]).all()
        assert table.loc["idle", "idle_rows"] > 2 * table.loc["admission", "idle_rows"]


def test_a_scan_leaves_the_copies_of_other_checkpoints_out(
    location: Callable[[str], Location],
) -> None:
    class Row:
        def __init__(self, ts: str, **metadata: Any) -> None:
            self.checkpoint, self.metadata = {"ts": ts}, metadata

    at = "2026-01-05T10:00:0{}.500000+00:00".format
    found: list[Any] = [
        Row(at(9), source="update", run_id="b"),
        Row(at(5), source="loop", run_id="b"),
        Row(at(3), source="input", run_id="b"),
        Row(at(2), source="loop", run_id="a"),
        Row(at(1), source="input"),
    ]
    assert durations_of(found) == {"b": 2000, "a": 0}


def test_the_scenario_has_a_case_for_each_way() -> None:
    cases = make_scenario_cases("run-history", tuple(WAYS), ["memory"], ())
    assert [case.variant for case in cases][:3] == [f"messages.kind=full,leaf={w}" for w in WAYS]
    assert len({case.fingerprint for case in cases}) == 6
