"""What a policy did to a workload, in sentences computed from its tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savermark.frame.retention import ALL, effort_table, space_table, verdicts
from savermark.frame.run_history import history_table
from savermark.plots.series import least, most
from savermark.units import format_bytes, format_count, format_ns

if TYPE_CHECKING:
    import pandas as pd

    from savermark.results import RunResult


@dataclass(frozen=True, slots=True)
class PolicyStory:
    """The one large number, what it is, and sentences."""

    figure: str
    note: str
    sentences: tuple[str, ...]


def tell_retention(run: RunResult, workload: str) -> PolicyStory | None:
    """The story of one workload; None where no case gave numbers and none was judged."""
    history = history_table([run])
    history = history[history["workload"] == workload]
    if not history.empty:
        return _history(history)
    judged = [each for each in verdicts(run) if each.workload == workload]
    bad = [each for each in judged if not each.ok]
    space = space_table([run])
    space = space[(space["workload"] == workload) & (space["table"] == ALL)]
    said = [f"{each.policy} on {each.backend}: {each.verdict}." for each in bad]
    space = space[space["logical_bytes_loaded"] > 0]
    if space.empty:
        return PolicyStory("no proof", f"in {len(bad)} cases", tuple(said)) if bad else None
    space = space.assign(freed=1 - space["logical_bytes_retained"] / space["logical_bytes_loaded"])
    row = most(space, "freed")
    if not bad:
        said.append(f"Verification ok in {len(judged)} cases.")
    said += [*_policies(space), *_stores(space), *_effort(effort_table([run]), workload)]
    note = f"of the payload freed by {row['policy']}, on {row['backend']}"
    return PolicyStory(f"{row['freed']:.0%}", note, tuple(said))


def _policies(space: pd.DataFrame) -> Iterator[str]:
    for policy, rows in space.groupby("policy", sort=False):
        low, high = f"{rows['freed'].min():.0%}", f"{rows['freed'].max():.0%}"
        deleted = rows["rows_loaded"] - rows["rows_retained"]
        share = f"{(deleted / rows['rows_loaded']).max():.0%}"
        told = low if low == high else f"{low} to {high}"
        yield f"{policy} frees {told} of the payload, and up to {share} of the rows."


def _stores(space: pd.DataFrame) -> Iterator[str]:
    """Deleted rows are free space until the store is compacted."""
    known = space[space["footprint_bytes_compacted"].notna()]
    for backend, rows in known.groupby("backend", sort=False):
        row = most(rows, "footprint_bytes_loaded")
        yield (
            f"The whole store on {backend}: {format_bytes(row['footprint_bytes_loaded'])} before, "
            f"{format_bytes(row['footprint_bytes_retained'])} after, "
            f"{format_bytes(row['footprint_bytes_compacted'])} once space was given back."
        )


def _effort(effort: pd.DataFrame, workload: str) -> Iterator[str]:
    rows = effort[(effort["workload"] == workload) & (effort["rows_per_s"] > 0)]
    if not rows.empty:
        slow, fast = least(rows, "rows_per_s"), most(rows, "rows_per_s")
        yield (
            f"Rows deleted a second: {format_count(slow['rows_per_s'])} on {slow['backend']} to "
            f"{format_count(fast['rows_per_s'])} on {fast['backend']}."
        )


def _history(rows: pd.DataFrame) -> PolicyStory:
    """Each backend's idle time by what is done to the leaf."""
    said, ratios = [], []
    for (setting, backend), mine in rows.groupby(["setting", "backend"], sort=False):
        ways: dict[Any, Any] = mine.set_index("policy").to_dict("index")
        if not {"kept", "idle", "admission"} <= ways.keys():
            continue
        kept, idle, admission = (ways[way] for way in ("kept", "idle", "admission"))
        ratios.append((idle["idle_ns"] / admission["idle_ns"], str(backend)))
        said.append(
            f"On {backend}{f' ({setting})' if setting else ''} the history reads of a run take "
            f"{format_ns(idle['idle_ns'])} when a pass deletes the leaf after each, "
            f"{format_ns(kept['idle_ns'])} when it is kept and "
            f"{format_ns(admission['idle_ns'])} when the next run deletes it; "
            f"{format_count(idle['scans'])}, {format_count(kept['scans'])} and "
            f"{format_count(admission['scans'])} of {format_count(kept['reads'])} reads scan the "
            f"thread, and {format_count(idle['duration_copies'])}, "
            f"{format_count(kept['duration_copies'])} and "
            f"{format_count(admission['duration_copies'])} leaves are left."
        )
    if not ratios:
        return PolicyStory("–", "some way of the scenario gave no numbers", tuple(said))
    ratio, backend = max(ratios)
    note = f"the time of history reads when the leaf is deleted while idle, on {backend}"
    return PolicyStory(f"{ratio:.1f}×", note, tuple(said))
