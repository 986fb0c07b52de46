"""What a walk run found, one row for each case and read: time, its ratio to the floor, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from savermark import stats
from savermark.frame.build import build
from savermark.frame.summary import summarize_runs
from savermark.meter import FIELDS
from savermark.walking.recommend import Choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from savermark.results import RunResult

FLOOR = "floor"
CASE = ["workload", "variant", "backend", "api", "snapshot_frequency", "turns"]
COLUMNS = (
    *CASE,
    "read",
    "walk",
    "temperature",
    "n",
    "p50_ns",
    "p50_low_ns",
    "p50_high_ns",
    "times_floor",
    *FIELDS,
    "exact",
)
_KEYS = ["workload", "variant", "backend"]
#: What is compared stands together: a read by every walk, the registered ones of others last.
_READS = ("walk", "get_state", "resume", "history")
_WALKS = (FLOOR, "base", "native", "onepass", "cached")
_NEVER = 1_000_000  # updates that no conversation of ours makes
_SAME_BYTES = 0.001  # version strings end in a random number of varying length


def walk_table(runs: Sequence[RunResult]) -> pd.DataFrame:
    """The rows of `COLUMNS` over the walk cases of the runs; repetitions are taken together.

    `read` is `walk`, `get_state`, `resume`, `history_<n>` or `history_all`, and `walk` by which.
    `turns` are the checkpoints of the thread. `times_floor` is the ratio of medians within the
    case, NaN for reads that have no floor. Counts are of warm calls; cases with a failed check are
    left out.
    """
    good = [(run, _of_walks(run)) for run in runs]
    samples = _read_of(_kept(build("samples", [run for run, _ in good]), good))
    samples = samples[~samples["warmup"].astype(bool)]
    costs = _read_of(_kept(build("cost", [run for run, _ in good]), good))
    keys = [*_KEYS, "read", "walk"]
    counted = {key: rows.iloc[0] for key, rows in costs.groupby(keys, sort=False)}
    rows = [
        _row(mine, place[-1], counted.get(tuple(place[:-1])))
        for place, mine in samples.groupby([*keys, "temperature"], sort=False)
    ]
    return _typed(_with_ratio(_ordered(rows, runs)))


def _row(mine: pd.DataFrame, temperature: Any, cost: Any) -> dict[str, Any]:
    """One row from its samples and, for warm ones, its counts."""
    first = mine.iloc[0]
    median = stats.median_interval(mine["ns"].to_numpy(dtype=float))
    found = cost if temperature == "warm" else None
    return {
        **{name: first[name] for name in (*CASE, "read", "walk")},
        "temperature": temperature,
        "n": len(mine),
        "p50_ns": median.value,
        "p50_low_ns": median.low,
        "p50_high_ns": median.high,
        **{name: pd.NA if found is None else found[name] for name in (*FIELDS, "exact")},
    }


def _ordered(rows: list[dict[str, Any]], runs: Sequence[RunResult]) -> list[dict[str, Any]]:
    """In the order of the plan, not of the trials, which is shuffled; a backend's together.

    Within a case by read, and within a read by walk.
    """
    places = {
        (case["workload"], case["variant"], case["backend"]): place
        for run in runs
        for place, case in enumerate(run.cases.values())
    }
    backends = list(dict.fromkeys(key[2] for key in places))

    def place_of(row: dict[str, Any]) -> tuple[Any, ...]:
        key = (row["workload"], row["variant"], row["backend"])
        case = (row["workload"], backends.index(row["backend"]), places[key])
        read, walk = row["read"], row["walk"]
        return (*case, _place(_READS, read), read, _place(_WALKS, walk))

    return sorted(rows, key=place_of)


def _place(known: Sequence[str], name: str) -> int:
    """Where a name stands by what it begins with; behind all others if it is not known."""
    places = (place for place, begin in enumerate(known) if name.startswith(begin))
    return next(places, len(known))


def growth_of(
    table: pd.DataFrame, column: str = "p50_ns"
) -> dict[tuple[str, str, str], stats.Growth]:
    """How a column grows with the depth: `stats.Growth` by (backend, read, walk), warm only.

    Of one workload's rows. Those without growth are left out, and those of which other keys than
    the depth were swept: their law would be a mixture.
    """
    warm = table[table["temperature"] == "warm"]
    found: dict[tuple[str, str, str], stats.Growth] = {}
    for (backend, read, walk), rows in warm.groupby(["backend", "read", "walk"], sort=False):
        known = rows[rows[column].notna()]
        if known.groupby("turns")["variant"].nunique().max() != 1:
            continue
        grown = stats.growth(known["turns"].astype(float).tolist(), known[column].tolist())
        if grown is not None:
            found[str(backend), str(read), str(walk)] = grown
    return found


def choices_of(run: RunResult) -> list[Choice]:
    """What a run offers to choose a snapshot frequency from, at each workload's longest thread.

    Walk cases: a whole read at the head through each walk. Saver workloads in delta mode: a warm
    `get_state` at the head, through the saver's own walk.
    """
    return [*_walk_choices(run), *_saver_choices(run)]


def _walk_choices(run: RunResult) -> list[Choice]:
    table = walk_table([run])
    reads = table[(table["read"] == "get_state") & (table["temperature"] == "warm")]
    if reads.empty:
        return []
    groups = reads.groupby("workload")
    reads = reads[reads["turns"] == groups["turns"].transform("max")]
    swept = reads.groupby("workload")["snapshot_frequency"].nunique(dropna=False)
    offering = list(swept[swept > 1].index) or list(swept.index)  # a depth sweep offers none
    reads = reads[reads["workload"].isin(offering)]
    stored = build("storage", [run]).groupby([*_KEYS, "repetition"])["logical_bytes"].sum()
    held = stored.groupby(level=_KEYS).median().to_dict()
    # Every frequency beyond the depth is the same: no snapshot.
    reads = reads.drop_duplicates(["workload", "backend", "walk", "snapshot_frequency"])
    return [
        Choice(
            backend=row["backend"],
            walk=row["walk"],
            frequency=_whole(row["snapshot_frequency"]),
            stored_bytes=held[row["workload"], row["variant"], row["backend"]],
            read_ns=row["p50_ns"],
            high_ns=_number(row["p50_high_ns"]),
            workload=row["workload"] if len(offering) > 1 else "",
        )
        for row in reads.to_dict("records")
        if tuple(row[name] for name in _KEYS) in held
    ]


def _saver_choices(run: RunResult) -> list[Choice]:
    walks = {case["workload"] for case in run.cases.values() if case.get("family") == "walks"}
    table = summarize_runs([run])
    table = table[(table["mode"] == "delta") & ~table["workload"].isin(walks)]
    table = table[table["bytes_per_thread"].notna() & table["get_state_warm_p50_ns"].notna()]
    if table.empty:
        return []
    table = table[table["turns"] == table["turns"].max()]
    times = build("samples", [run])
    reads = times[(times["op"] == "get_state") & (times["temperature"] == "warm")]
    reads = reads[(reads["phase"] == "loaded") & ~reads["warmup"].astype(bool)]
    samples = {key: rows["ns"].to_numpy(dtype=float) for key, rows in reads.groupby(_KEYS)}
    found = []
    for backend, rows in table.groupby("backend", sort=False):
        rows = rows.sort_values("snapshot_frequency")
        # A frequency that the conversation never reaches stores what the greatest one stores.
        bare = rows["bytes_per_thread"].iloc[-1] * (1 + _SAME_BYTES)
        last = (rows["bytes_per_thread"] <= bare).tolist().index(True)
        reached = last == len(rows) - 1 and rows["snapshot_frequency"].iloc[-1] < _NEVER
        for place, row in enumerate(rows.to_dict("records")[: last + 1]):
            key = (row["workload"], row["variant"], row["backend"])
            found.append(
                Choice(
                    backend=str(backend),
                    walk="native",
                    frequency=None
                    if place == last and not reached
                    else _whole(row["snapshot_frequency"]),
                    stored_bytes=row["bytes_per_thread"],
                    read_ns=row["get_state_warm_p50_ns"],
                    high_ns=stats.median_interval(samples[key]).high,
                )
            )
    return found


def _whole(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _of_walks(run: RunResult) -> set[tuple[str, str, str]]:
    """The walk cases of a run whose every check held."""
    broken = {t.case_id for t in run.trials if any(not check.ok for check in t.checks)}
    return {
        (case["workload"], case["variant"], case["backend"])
        for name, case in run.cases.items()
        if case.get("family") == "walks" and name not in broken
    }


def _kept(frame: pd.DataFrame, good: Sequence[tuple[RunResult, Any]]) -> pd.DataFrame:
    wanted = {(run.header["run_id"], *key) for run, keys in good for key in keys}
    names = ["run_id", *_KEYS]
    held = [tuple(row) in wanted for row in frame[names].itertuples(index=False, name=None)]
    return frame[pd.Series(held, index=frame.index, dtype=bool)]


def _read_of(frame: pd.DataFrame) -> pd.DataFrame:
    """With the columns `read` and `walk`, which an operation's name holds apart by its last `_`."""
    parts = frame["op"].astype(str).str.rpartition("_")
    if frame.empty:
        return frame.assign(read=pd.Series(dtype=str), walk=pd.Series(dtype=str))
    return frame.assign(read=parts[0], walk=parts[2])


def _with_ratio(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    floors = {
        tuple(row[name] for name in _KEYS): row["p50_ns"]
        for row in rows
        if row["walk"] == FLOOR and row["temperature"] == "warm"
    }
    for row in rows:
        floor = floors.get(tuple(row[name] for name in _KEYS))
        compared = floor and row["read"] == "walk" and row["temperature"] == "warm"
        row["times_floor"] = row["p50_ns"] / floor if compared else None
    return rows


def _typed(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    whole = ["n", "turns", "snapshot_frequency", *FIELDS]
    numbers = ["p50_ns", "p50_low_ns", "p50_high_ns", "times_floor"]
    types = dict.fromkeys(whole, "Int64") | dict.fromkeys(numbers, "float64")
    return frame.astype(types)
