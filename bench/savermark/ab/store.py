"""The result of two sides: two runs as any other, and what was probed of each.

`ab.jsonl` holds an `ab` line (who the sides are), a `probe` line for each case and side, and a
`pairs` line each time that both walked in turn; `a/` and `b/` are results that `savermark show`,
`report` and `compare` read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savermark.ab.plan import SIDES, AbPlan, Side
from savermark.errors import ResultError
from savermark.installs import Install
from savermark.probe import Pairs, Probe
from savermark.results import RunResult, append, create_run, load_run
from savermark.runner.run import header
from savermark.trial import redact

if TYPE_CHECKING:
    from savermark.records import TrialResult

AB_FILE = "ab.jsonl"
AB_VERSION = 1


@dataclass(slots=True)
class AbResult:
    """What a comparison of two environments left on disk."""

    folder: Path
    installs: dict[Side, Install]
    runs: dict[Side, RunResult]
    probes: dict[Side, dict[str, Probe]] = field(default_factory=dict)  # by case id
    duels: dict[str, list[Pairs]] = field(default_factory=dict)  # by case id; B is tested

    @property
    def trials(self) -> list[TrialResult]:
        """The trials of both sides."""
        return [trial for run in self.runs.values() for trial in run.trials]


def create_ab(out: Path, plan: AbPlan, environments: dict[Side, dict[str, Any]]) -> None:
    """Write the first lines of the three files; raises `ResultError` where one is there already."""
    file = out / AB_FILE
    if file.exists():
        raise ResultError(f"{out} already holds a result: name another folder with --out")
    for side in SIDES:
        folder = out / side
        folder.mkdir(parents=True, exist_ok=True)
        create_run(folder, header(plan.run, folder, environments[side]))
    line: dict[str, Any] = {
        "record": "ab",
        "ab_version": AB_VERSION,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": redact(plan.run.command),
        **{side: _stored(plan.install(side)) for side in SIDES},
    }
    append(file, line)


def _stored(install: Install) -> dict[str, Any]:
    """An environment without the paths of this machine, and without a password in its URL."""
    return {**install.to_json(), "python": "", "requirement": redact(install.requirement)}


def append_probe(out: Path, side: Side, probe: Probe) -> None:
    """Append one probe; when this returns, the line is on the disk."""
    append(out / AB_FILE, {"record": "probe", "side": side, **probe.to_json()})


def append_pairs(out: Path, case_id: str, pairs: Pairs) -> None:
    """Append the times of both sides' walks, taken in turn."""
    append(out / AB_FILE, {"record": "pairs", "case_id": case_id, **asdict(pairs)})


def load_ab(folder: Path) -> AbResult:
    """Read a result; raises `ResultError` for what is none."""
    file = folder / AB_FILE
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        first, *others = lines
        if first["record"] != "ab" or first["ab_version"] != AB_VERSION:
            raise ResultError(f"{file} is of another savermark: compare the two sides anew")
        installs = {side: Install.from_json(first[side]) for side in SIDES}
        probes: dict[Side, dict[str, Probe]] = {side: {} for side in SIDES}
        duels: dict[str, list[Pairs]] = {}
        for line in others:
            kind, case_id = line.pop("record"), line["case_id"]
            if kind == "pairs":
                del line["case_id"]
                duels.setdefault(case_id, []).append(Pairs.from_json(line))
            else:
                side = line.pop("side")
                probes[side][case_id] = Probe.from_json(line)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultError(f"{file} is no result of `savermark ab`: {error}") from error
    runs: dict[Side, RunResult] = {side: load_run(folder / side) for side in SIDES}
    return AbResult(folder, installs, runs, probes, duels)
