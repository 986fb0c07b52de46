"""`savermark sandbox run`: workloads, trials and reports, on real stores and small workloads."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from savermark.backends.base import Location
from savermark.cli import run as cli
from savermark.errors import UsageError, WorkloadError
from savermark.frame import load_runs, summarize, to_frame
from savermark.profiles import PROFILES
from savermark.records import Phase, Status, TrialResult
from savermark.runner import RunPlan, resumed_plan, run_workloads
from savermark.sandbox_trial import retain as retaining
from savermark.sandbox_trial import verify
from savermark.sandbox_trial.case import SandboxCase, make_sandbox_cases
from savermark.sandbox_trial.ground import Ground, pair_at
from savermark.sandbox_trial.places import PAIRS
from savermark.sandbox_trial.script import Content, write_script
from savermark.sandbox_trial.story import run_sandbox_trial
from savermark.spec import (
    SANDBOX,
    Dist,
    fingerprint,
    load_sandbox_workload,
    load_workload,
    spec_from_json,
    spec_to_json,
    workload_names,
)
from savermark.spec.load import workload_folder
from savermark.spec.parse import spec_keys

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:moto")

SMALL = (
    "workspace.files=8",
    "chains.threads=3",
    "chains.captures=5",
    "chains.forks=1",
    "changes.undo_every=3",
    "artifacts.every=2",
    "artifacts.kept=1",
    "artifacts.bytes=3000",
    "retention.keep=2",
    "measure.reads=1",
)


def small(*backends: str, more: tuple[str, ...] = ()) -> list[SandboxCase]:
    return make_sandbox_cases("sandbox-coding-agent", backends, (*SMALL, *more))


@pytest.fixture
def trial(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., TrialResult]:
    def run(backend: str, *more: str) -> TrialResult:
        urls: dict[str, str | None] = {"s3": None}
        if backend.startswith("postgres"):
            urls["postgres"] = request.getfixturevalue("postgres_dsn")
        if backend.endswith("s3"):
            endpoint = request.getfixturevalue("s3_endpoint")
            bucket = request.getfixturevalue("s3_bucket")
            urls["s3"] = f"moto+{endpoint}/{bucket}"
        (case,) = small(backend, more=more)
        folder = tmp_path / backend
        folder.mkdir()
        name = f"sandbox-{tmp_path.name}"
        return run_sandbox_trial(case, Location(folder, name, json.dumps(urls)))

    return run


# -- workloads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", workload_names("sandbox"))
def test_each_workload_loads_and_survives_json(name: str) -> None:
    (variant,) = load_sandbox_workload(name)
    assert variant.spec.name == name
    assert 0 < len(variant.spec.summary) < 100
    again = json.loads(json.dumps(spec_to_json(variant.spec)))
    assert spec_from_json(again, SANDBOX) == variant.spec


def test_the_template_has_every_key_with_its_default_and_a_comment() -> None:
    path = workload_folder() / "_sandbox-template.toml"
    text = path.read_text(encoding="utf-8")
    (variant,) = load_sandbox_workload(str(path))
    assert variant.spec == SANDBOX.root(name="template")
    table = tomllib.loads(text)
    assert (table.pop("family"), table.pop("sweep")) == ("sandbox", {})
    flat = {
        f"{section}.{key}" if isinstance(value, dict) else section
        for section, value in table.items()
        for key in (value if isinstance(value, dict) else (section,))
    }
    assert flat == set(spec_keys(SANDBOX))
    lines = [line for line in text.splitlines() if re.match(r"[a-z_]+ = ", line)]
    assert [line for line in lines if "#" not in line] == []


def test_every_number_has_a_range() -> None:
    kinds = spec_keys(SANDBOX)
    assert {key for key, kind in kinds.items() if kind in (int, float, Dist)} == set(SANDBOX.ranges)


def test_overrides_and_sweeps_are_those_of_the_saver_workloads() -> None:
    swept = load_sandbox_workload("sandbox-coding-agent", ["duplicates=[0.0, 0.5]"])
    assert [variant.label for variant in swept] == ["duplicates=0.0", "duplicates=0.5"]
    assert len({fingerprint(variant.spec) for variant in swept}) == 2
    with pytest.raises(WorkloadError, match=r"did you mean 'changes.edits'\?"):
        load_sandbox_workload("sandbox-coding-agent", ["edit=3"])
    with pytest.raises(WorkloadError, match="must be from 0 to 1"):
        load_sandbox_workload("sandbox-coding-agent", ["duplicates=1.5"])


def test_each_verb_names_the_other_for_the_other_family(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WorkloadError, match="use `savermark run chat`"):
        load_sandbox_workload("chat")
    with pytest.raises(WorkloadError, match="use `savermark sandbox run"):
        load_workload(str(workload_folder() / "sandbox-coding-agent.toml"))
    assert cli(["run", "sandbox-coding-agent"]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert "use `savermark sandbox run sandbox-coding-agent`" in error[0]


def test_no_profile_holds_one_and_the_list_shows_both(capsys: pytest.CaptureFixture[str]) -> None:
    names = set(workload_names("sandbox"))
    assert not names & {name for profile in PROFILES.values() for name in profile.workloads}
    assert not names & set(workload_names())
    assert cli(["list", "workloads", "--format", "csv"]) == 0
    listed = capsys.readouterr().out
    assert "chat,savermark run" in listed
    assert "sandbox-coding-agent,savermark sandbox run" in listed


# -- the script ------------------------------------------------------------------------------------


def test_the_script_is_the_same_every_time_and_changes_with_the_seed() -> None:
    (case,), (other,) = small("memory+memory"), small("memory+memory", more=("payload.seed=2",))
    assert write_script(case.spec) == write_script(case.spec)
    assert write_script(case.spec) != write_script(other.spec)


def test_undo_goes_on_from_the_checkpoint_before() -> None:
    (case,) = small("memory+memory")
    (first, *_) = write_script(case.spec)
    assert [step.undone for step in first.steps] == [False, False, True, False, False]
    said = [len(step.state.talk) for step in first.steps]
    assert said == [6, 12, 18, 18, 24]  # the undone capture's messages are gone


def test_duplicates_repeat_contents() -> None:
    def distinct(share: str) -> int:
        (case,) = small("memory+memory", more=(f"workspace.duplicates={share}",))
        tree = write_script(case.spec)[0].steps[0].state.tree
        return len({item for item in tree.values() if isinstance(item, Content)})

    assert distinct("0.9") < distinct("0.0") == 8


# -- trials ----------------------------------------------------------------------------------------

COUNTED = ("phase", "thread_id", "table", "rows", "logical_bytes")


def counted(result: TrialResult) -> set[tuple[Any, ...]]:
    return {
        (part.phase, row.thread_id, row.table, row.rows, row.logical_bytes)
        for part in result.phases
        for row in part.storage
        if row.rows
    }


def test_every_pair_holds_the_same_rows_and_keeps_every_promise(
    trial: Callable[..., TrialResult],
) -> None:
    pairs = ("memory+memory", "sqlite+folder", "postgres+folder", "sqlite+s3")
    found = {pair: trial(pair, "measure.cold=false") for pair in pairs}
    for pair, result in found.items():
        assert (result.status, result.cause) == (Status.OK, ""), pair
        assert all(check.ok for check in result.checks)
        assert counted(result) == counted(found["memory+memory"])
        assert [part.floor for part in result.phases] == [
            part.floor for part in found["memory+memory"].phases
        ]
    names = {(check.phase, check.check) for check in found["memory+memory"].checks}
    for name in ("restored_workspaces", "counts", "named_blobs_exist", "rows"):
        assert (Phase.LOADED, name) in names and (Phase.RETAINED, name) in names
    assert (Phase.RETAINED, "untouched_threads") in names


def test_every_method_is_sampled_warm_cold_before_and_after(
    trial: Callable[..., TrialResult],
) -> None:
    result = trial("sqlite+folder")
    assert result.status is Status.OK, result.cause
    seen = {(str(s.phase), s.temperature, s.op) for s in result.samples}
    for op in ("append", "acquire_writer", "delete_head", "fork", "capture", "blob_put"):
        assert ("loaded", "run", op) in seen
    reads = ("get", "list", "get_head", "list_blob_references", "restore")
    for phase in ("loaded", "compacted"):
        assert {(phase, "warm", op) for op in (*reads, "acquire_writer", "renew")} <= seen
        assert {(phase, "cold", op) for op in reads} <= seen
    assert ("compacted", "cold", "capture") in seen
    assert {("retained", "warm", op) for op in ("delete_checkpoints", "sweep")} <= seen
    loaded, retained, compacted = (
        {row.table: row for row in part.storage if row.thread_id == ""} for part in result.phases
    )
    assert retained["sandbox-files/"].rows < loaded["sandbox-files/"].rows
    assert compacted["sandbox-files/"] == retained["sandbox-files/"]
    assert retained["ids"].rows == loaded["ids"].rows  # ids of removed checkpoints stay used
    assert result.process is not None
    assert 0 < result.process.saver_busy_ns <= result.process.run_wall_ns


def test_without_a_bucket_s3_is_unsupported(tmp_path: Path) -> None:
    (case,) = small("sqlite+s3")
    result = run_sandbox_trial(case, Location(tmp_path, "x", json.dumps({"s3": None})))
    assert result.status is Status.UNSUPPORTED
    assert "--s3 https://endpoint/bucket" in result.cause


def test_an_unknown_pair_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'sqlite\+folder'"):
        pair_at("sqlite+folders", Location(tmp_path, "x"))
    assert len(PAIRS) == 9


# -- checks see what is wrong ----------------------------------------------------------------------


def broken(result: TrialResult) -> set[str]:
    assert result.status is Status.FAILED
    return {check.check for check in result.checks if not check.ok}


def test_a_lost_blob_is_seen(
    trial: Callable[..., TrialResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def greedy(*, blobs: Any, **options: Any) -> list[str]:
        names = [info.key async for info in blobs.list("sandbox-artifacts/")]
        for name in names:
            await blobs.delete(name)
        return names

    monkeypatch.setattr(retaining, "sweep_sandbox_blobs", greedy)
    assert broken(trial("memory+memory")) >= {"named_blobs_exist"}


def test_a_touched_thread_is_seen(
    trial: Callable[..., TrialResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_newest = retaining.keep_newest

    async def all_threads(store: Any, thread_id: str, keep: int) -> Any:
        for name in {thread_id, "t00000", "t00001", "t00002", "f00000"}:
            await keep_newest(store, name, keep)

    monkeypatch.setattr(retaining, "keep_newest", all_threads)
    assert broken(trial("memory+memory")) >= {"untouched_threads", "chains", "counts", "rows"}


def test_a_folder_that_differs_is_seen(tmp_path: Path) -> None:
    (case,) = small("memory+memory")
    threads = write_script(case.spec)
    pair = pair_at(case.backend, Location(tmp_path, "x"))
    ground = Ground(case, Location(tmp_path, "x"), pair, None, None, threads, int)  # type: ignore[arg-type]
    from savermark.sandbox_trial.load import lay

    state, folder = threads[0].steps[0].state, tmp_path / "work"
    lay(case.spec, folder, {}, state.tree)
    assert verify.differing(ground, folder, state) == ""
    path = next(path for path, item in sorted(state.tree.items()) if isinstance(item, Content))
    data = (folder / path).read_bytes()
    (folder / path).write_bytes(data[:-1] + b"!")
    assert verify.differing(ground, folder, state) == f"{path} differs"
    (folder / path).unlink()
    assert verify.differing(ground, folder, state) == f"{path} is missing"
    (folder / path).write_bytes(data)
    (folder / "more").write_bytes(b"")
    assert verify.differing(ground, folder, state) == "more is too much"


# -- the verb --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two pairs through the command line, in fresh processes."""
    out = tmp_path_factory.mktemp("sandbox") / "run"
    options = [f"--set={key}" for key in SMALL]
    pairs = ["-b", "memory+memory", "-b", "sqlite+folder"]
    words = ["sandbox", "run", "sandbox-coding-agent", *pairs, *options]
    assert cli([*words, "--out", str(out), "-q", "--format", "json"]) == 0
    return out


def test_the_result_is_one_like_any_other(result: Path) -> None:
    (run,) = load_runs(result)
    assert run.complete
    assert {case["family"] for case in run.cases.values()} == {"sandbox"}
    frame = summarize(run)
    assert list(frame["backend"]) == ["memory+memory", "sqlite+folder"]
    assert frame["checks_ok"].all() and (frame["dedup_ratio"] > 1.5).all()
    assert frame["mode"].isna().all() and (frame["turns"] == 5).all()
    assert frame["blobs_rows"].isna().all()
    storage = to_frame(run, "storage")
    assert {"entries", "sandbox-files/"} <= set(storage["table"])
    latency = to_frame(run, "latency")
    assert {"append", "capture", "restore", "sweep"} <= set(latency["op"])
    assert pd.isna(frame.loc[0, "restore_cold_p50_ns"])  # memory lives in one process
    assert frame.loc[1, "restore_cold_p50_ns"] > 0


def test_the_report_tells_what_sandboxes_are_about(result: Path) -> None:
    text = (result / "report.md").read_text(encoding="utf-8")
    assert "each content once" in text and "| mode |" not in text
    kinds = {path.name.partition(".")[2].removesuffix(".svg") for path in result.rglob("*.svg")}
    wanted = {"where-bytes-are", "deduplication", "operations", "before-and-after"}
    assert wanted <= kinds and "trade-off" not in kinds
    page = (result / "report.html").read_text(encoding="utf-8")
    assert "time in the stores" in page and "time in the saver" not in page


def test_a_result_goes_on_and_compares_with_itself(
    result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(result, copy)
    lines = (copy / "run.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (copy / "run.jsonl").write_text("".join(lines[:2]), encoding="utf-8")  # one trial, no end
    plan = resumed_plan(load_runs(copy)[0], RunPlan(cases=()))
    assert all(isinstance(case, SandboxCase) for case in plan.cases)
    summary = run_workloads(plan, copy)
    assert (summary.resumed, summary.counts[Status.OK]) == (1, 2)
    assert cli(["compare", str(result), str(result), "--format", "csv"]) == 0
    assert "append" in capsys.readouterr().out


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for words, line in (
        (["run"], "name a sandbox workload"),
        (["run", "sandbox-coding-agent", "-b", "sqlite"], "unknown backend 'sqlite'"),
        (["run", "sandbox-coding-agnt"], "did you mean 'sandbox-coding-agent'"),
        (["run", "sandbox-*", "-b", "memory+s3", "--s3", "nowhere"], "--s3 must be https://"),
        (["conformance", "no_such_module:x"], "cannot load 'no_such_module:x'"),
        (["conformance", "os"], "write module:factory"),
    ):
        assert cli(["sandbox", *words, "-q"]) == 2
        error = capsys.readouterr().err.strip()
        assert line in error.splitlines()[0]


# -- conformance -----------------------------------------------------------------------------------

STORES = """
from contextlib import asynccontextmanager
from savermark.sandbox import MemoryInstanceStore, MemorySandboxStore

@asynccontextmanager
async def good(options):
    yield MemorySandboxStore(clock=options.clock, lease=options.lease)

class Forgetful(MemorySandboxStore):
    async def get_head(self, thread_id):
        return None

@asynccontextmanager
async def bad(options):
    yield Forgetful(clock=options.clock, lease=options.lease)

@asynccontextmanager
async def instances(options):
    yield MemoryInstanceStore()
"""


def test_conformance_says_which_rules_a_store_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "their_sandbox_stores.py").write_text(STORES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert cli(["sandbox", "conformance", "their_sandbox_stores:good", "--format", "json"]) == 0
    shown = capsys.readouterr()
    rules = json.loads(shown.out)
    assert {rule["status"] for rule in rules} <= {"passed", "skipped"} and len(rules) > 30
    assert "0 failed" in shown.err
    assert cli(["sandbox", "conformance", "their_sandbox_stores:bad", "--format", "csv"]) == 3
    assert ",failed," in capsys.readouterr().out
    words = ["conformance", "their_sandbox_stores:instances", "--instances", "--format", "md"]
    assert cli(["sandbox", *words]) == 0
    assert "| passed |" in capsys.readouterr().out


def test_nothing_is_left_of_a_trial(trial: Callable[..., TrialResult], tmp_path: Path) -> None:
    assert trial("sqlite+folder", "measure.cold=false").status is Status.OK
    left = {path.name for path in (tmp_path / "sqlite+folder").iterdir()}
    assert "sandbox.sqlite" not in left and "blobs" not in left
    assert asyncio.run(_checkpoints(tmp_path)) == 0


async def _checkpoints(folder: Path) -> int:
    from savermark.sandbox import SqliteSandboxStore

    async with SqliteSandboxStore.open(folder / "sqlite+folder" / "sandbox.sqlite") as store:
        return len(await store.list("t00000"))
