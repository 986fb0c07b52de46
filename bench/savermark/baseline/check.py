"""Checks a baseline: probes its cases again, and compares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savermark.baseline.judge import RATIO_THRESHOLD, RUNTIME, judge_entry, looks_slower
from savermark.baseline.measure import Measured, as_trial, prober
from savermark.compare.model import Comparison, Difference, Verdict
from savermark.compare.turns import judge_turns
from savermark.errors import ContractError, NotComparableError
from savermark.frame.build import case_values
from savermark.results import RunResult
from savermark.runner import Planned, Progress, Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from savermark.baseline.file import Baseline, Entry
    from savermark.baseline.measure import Prober
    from savermark.compare.model import Row
    from savermark.installs import Install
    from savermark.probe import Pairs, Probe
    from savermark.trial import Case

#: Processes that must all find a walk slower before it is called so: one may have met a neighbour.
CONFIRMATIONS = 3
DUEL_ROUNDS = 60  # timed pairs of two processes


def check_baseline(
    baseline: Baseline,
    how: Measured,
    progress: Progress | None = None,
    threshold: float = RATIO_THRESHOLD,
    against: Install | None = None,
) -> Comparison:
    """Probe every case of the baseline now, and judge; a slower walk is measured again first.

    With `against`, times are judged against the saver of that environment, whose process takes
    turns with ours, instead of by the ratios that the baseline holds.
    """
    told, entries = progress or Silent(), baseline.entries
    told.started(len(entries), 0)
    found: list[tuple[Entry, list[Probe]]] = []
    rows: list[Row] = []
    with prober(how, [entry.case for entry in entries]) as probe:
        for done, entry in enumerate(entries):
            told.trial_started(Planned(entry.case, 0), done, len(entries))
            if against is None:
                probes = probes_of(entry, probe, threshold)
            else:
                entry = replace(entry, ratios=())
                now, duels = duels_of(entry, probe, against.python, threshold)
                probes = [now]
                rows += [judge_turns(now.case_id, duels, threshold)] if duels else []
            told.trial_finished(as_trial(probes[0]), done + 1, len(entries))
            found.append((entry, probes))
    compared = comparison(baseline, found, threshold)
    if against is None:
        return compared
    note = f"Times are judged against {against.title}, in turn with it."
    return replace(compared, rows=(*compared.rows, *rows), notes=(note, *compared.notes))


def duels_of(
    entry: Entry, probe: Prober, python: Path, threshold: float = RATIO_THRESHOLD
) -> tuple[Probe, list[Pairs]]:
    """One duel with another interpreter; up to `CONFIRMATIONS` while ours looks slower."""
    duels: list[Pairs] = []
    while True:
        now, pairs = probe.against(entry.case, python, DUEL_ROUNDS)
        if pairs is None:
            return now, duels
        duels.append(pairs)
        slower = judge_turns("", [pairs], threshold).verdict is Verdict.WORSE
        if not slower or len(duels) == CONFIRMATIONS:
            return now, duels


def probes_of(
    entry: Entry, probe: Callable[[Case], Probe], threshold: float = RATIO_THRESHOLD
) -> list[Probe]:
    """One probe of the case; up to `CONFIRMATIONS` while each of them finds the walk slower."""
    probes = [probe(entry.case)]
    while len(probes) < CONFIRMATIONS and looks_slower(entry, probes[-1], threshold):
        probes.append(probe(entry.case))
    return probes


def comparison(
    baseline: Baseline,
    found: Sequence[tuple[Entry, Sequence[Probe]]],
    threshold: float = RATIO_THRESHOLD,
) -> Comparison:
    """The rows, surroundings and remarks of a check."""
    rows = [row for entry, probes in found for row in judge_entry(entry, probes, threshold)]
    falls = [row for row in rows if row.verdict is Verdict.BETTER]
    notes = [*_notes(found)]
    if falls and all(row.verdict is not Verdict.WORSE for row in rows):
        notes.append(
            f"{len(falls)} numbers fell: `savermark baseline save` again, so that they stay down."
        )
    return Comparison(
        name_a=baseline.title,
        name_b="now",
        rows=tuple(rows),
        differences=tuple(_differences(found)),
        notes=tuple(notes),
        broken=tuple(entry.case.case_id for entry, probes in found if probes[0].cause),
        cases={entry.case.case_id: _columns(entry) for entry, _ in found},
    )


def gate_code(compared: Comparison) -> int:
    """0; 3 on a regression; 4 where any case could not be compared: a gate is no guess."""
    if compared.verdict is Verdict.WORSE:
        return ContractError.exit_code
    if compared.counts[Verdict.NOT_COMPARABLE] or not compared.rows:
        return NotComparableError.exit_code
    return 0


def _notes(found: Sequence[tuple[Entry, Sequence[Probe]]]) -> Iterator[str]:
    for entry, probes in found:
        if len(probes) > 1:
            yield (
                f"{entry.case.case_id}: the walk looked slower, so it was timed in "
                f"{len(probes)} processes; all of them have to agree."
            )
        if entry.unsteady:
            names = ", ".join(entry.unsteady)
            yield f"{entry.case.case_id}: not steady, and not compared: {names}."
        for note in probes[0].notes:
            yield f"{entry.case.case_id}: {note}."


def _differences(found: Sequence[tuple[Entry, Sequence[Probe]]]) -> Iterator[Difference]:
    """Versions of what the gate tests, and of what it does not mind."""
    if not found:
        return
    before, now = found[0][0].probe.packages, found[0][1][0].packages
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name) and now:
            what = f"packages.{name}" + (" (decides counts)" if name in RUNTIME else "")
            yield Difference(what, before.get(name, "–"), now.get(name, "–"))


def _columns(entry: Entry) -> dict[str, Any]:
    """The case columns, as a run's frames have them."""
    header = {"run_id": "", "cases": [entry.case.to_json()]}
    return case_values(RunResult(Path(), header), entry.case.case_id, None)
