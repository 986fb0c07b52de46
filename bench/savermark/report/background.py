"""What stands behind the numbers: how trials ended, findings, the machine, the spec."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from savermark.records import Status
from savermark.units import format_bytes

if TYPE_CHECKING:
    from savermark.results import RunResult

_GRAVEST = ("error", "warning", "note")
_WORDS = {  # SI names for the facts that read badly raw
    "memory_bytes": "memory",
    "git_commit": "commit",
    "git_dirty": "uncommitted changes",
}


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """One kind of finding with its remedy, and every case it is about."""

    severity: str
    finding: str
    remedy: str
    subjects: tuple[tuple[str, str], ...]  # case id or `run`, detail


def group_findings(findings: pd.DataFrame) -> list[FindingGroup]:
    """Findings of one kind and remedy together, the gravest first."""
    groups = [
        FindingGroup(
            str(severity),
            str(finding),
            str(remedy),
            tuple((str(s), str(d)) for s, d in zip(rows["subject"], rows["detail"], strict=True)),
        )
        for (severity, finding, remedy), rows in findings.groupby(
            ["severity", "finding", "remedy"], sort=False
        )
    ]
    order = {name: place for place, name in enumerate(_GRAVEST)}
    return sorted(groups, key=lambda group: order.get(group.severity, len(order)))


@dataclass(frozen=True, slots=True)
class Trouble:
    """A case that did not give numbers, and why."""

    case_id: str
    status: str
    cause: str
    count: int  # trials


def troubles(run: RunResult) -> list[Trouble]:
    """Every case with a trial that did not end well or a check that failed, with its cause."""
    found: dict[tuple[str, str, str], int] = {}
    for trial in run.trials:
        failed = [check for check in trial.checks if not check.ok]
        reasons = [("check failed", f"{c.check}, {c.phase}: {c.detail}") for c in failed]
        if trial.status is not Status.OK:
            reasons.append((str(trial.status), trial.cause or "no cause was recorded"))
        for status, cause in reasons:
            key = (trial.case_id, status, cause)
            found[key] = found.get(key, 0) + 1
    tried = {trial.case_id for trial in run.trials}
    for case_id in run.cases:
        if case_id not in tried:
            found[case_id, "not tried", "the run ended before its turn"] = 0
    return [Trouble(*key, count) for key, count in found.items()]


def verdict(run: RunResult, findings: pd.DataFrame) -> tuple[str, str]:
    """How the run went in one sentence, and its colour: `good`, `fair` or `bad`."""
    counts = Counter(str(trial.status) for trial in run.trials)
    ok = counts.pop("ok", 0)
    checks = [check.ok for trial in run.trials for check in trial.checks]
    broken = checks.count(False)
    told = [f"{ok} of {len(run.trials)} trials ended well"]
    told += [f"{count} {status}" for status, count in sorted(counts.items())]
    if broken:
        told.append(f"{broken} of {len(checks):,} state checks failed")
    elif checks:
        told.append(f"all {len(checks):,} state checks held")
    warnings = int((findings["severity"] == "warning").sum())
    if warnings:
        told.append(f"{warnings} warning{'s' if warnings > 1 else ''}")
    if not run.complete:
        told.append("the run did not come to its end")
    bad = broken or counts["failed"] or counts["timeout"]
    colour = "bad" if bad else "fair" if warnings or counts or not run.complete else "good"
    return ", ".join(told) + ".", colour


def facts(environment: dict[str, Any]) -> list[tuple[str, str]]:
    """The environment as pairs of words; dictionaries are told apart by the caller."""
    return [
        (_WORDS.get(key, key.replace("_", " ")), _plain(key, value))
        for key, value in environment.items()
        if not isinstance(value, dict) and value is not None and value != ""
    ]


def _plain(key: str, value: Any) -> str:
    if key.endswith("_bytes"):
        return format_bytes(float(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def stores(run: RunResult) -> dict[str, list[tuple[str, str]]]:
    """What each backend says about itself: versions and the settings that decide the numbers."""
    found: dict[str, list[tuple[str, str]]] = {}
    for trial in run.trials:
        name = run.cases[trial.case_id]["backend"]
        if trial.backend and name not in found:
            found[name] = list(_flat(trial.backend))
    return found


def specs(run: RunResult) -> dict[str, list[tuple[str, list[str]]]]:
    """Each workload's resolved spec: key and its values over the cases (several when swept)."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for case in run.cases.values():
        keys = found.setdefault(str(case["workload"]), {})
        for key, value in _flat(case["spec"]):
            keys.setdefault(key, {})[value] = None
    return {
        workload: [(key, list(values)) for key, values in keys.items() if key not in _TOLD]
        for workload, keys in found.items()
    }


_TOLD = ("name", "summary")


def _flat(tree: dict[str, Any], path: str = "") -> list[tuple[str, str]]:
    """Nested dictionaries as dotted keys; a distribution is one value."""
    pairs = []
    for key, value in tree.items():
        name = f"{path}{key}"
        if isinstance(value, dict) and "dist" in value:
            pairs.append((name, _distribution(value)))
        elif isinstance(value, dict):
            pairs += _flat(value, f"{name}.")
        else:
            pairs.append((name, value if isinstance(value, str) else json.dumps(value)))
    return pairs


def _distribution(value: dict[str, Any]) -> str:
    parts = {
        "fixed": ("value",),
        "lognormal": ("median", "sigma", "min", "max"),
        "mixture": ("small", "large", "every"),
    }.get(str(value["dist"]), tuple(key for key in value if key != "dist"))
    if value["dist"] == "fixed":
        return str(value.get("value"))
    return f"{value['dist']}({', '.join(f'{part}={value.get(part)}' for part in parts)})"
