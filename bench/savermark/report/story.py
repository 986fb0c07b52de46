"""What a run shows, in sentences computed from its summary; no number without a passed check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from savermark.plots.series import case_labels, least, most
from savermark.report.retention_story import tell_retention
from savermark.report.sandbox_story import sandbox_sentences
from savermark.report.walk_story import tell_walks
from savermark.spec import Dist
from savermark.units import format_bytes, format_ns

if TYPE_CHECKING:
    from savermark.results import RunResult

SAME = 1.05  # a ratio closer to one than this is called "about the same"
NO_NUMBERS = "No case of this workload gave numbers that may be shown; the causes stand below."
NO_RESULT = "no result"  # the large figure of a workload without one
_PAIR = ["backend", "api", "durability", "threads", "turns"]


@dataclass(frozen=True, slots=True)
class Contrast:
    """One backend in full and in delta mode; bytes a thread, warm get_state p50 in ns."""

    backend: str
    full_bytes: float
    delta_bytes: float
    full_read_ns: float
    delta_read_ns: float

    @property
    def ratio(self) -> float:
        """How many times less delta mode stores."""
        return self.full_bytes / self.delta_bytes


@dataclass(frozen=True, slots=True)
class Chapter:
    """What one workload shows; `figure` and `figure_note` are its one large number."""

    workload: str
    about: str
    shape: str  # threads and turns
    figure: str
    figure_note: str
    sentences: tuple[str, ...]
    contrasts: tuple[Contrast, ...]


def usable(summary: pd.DataFrame) -> pd.DataFrame:
    """The cases whose numbers may be told: some trial ended well and no state check failed."""
    held = summary["checks_ok"].fillna(True).astype(bool)
    return summary[held & (summary["repetitions"] > 0)]


def tell(run: RunResult, summary: pd.DataFrame) -> list[Chapter]:
    """A chapter for each workload, in the order of the run."""
    about = {
        str(case["workload"]): str(case["spec"].get("summary") or "") for case in run.cases.values()
    }
    good = usable(summary)
    families = {str(c["workload"]): c.get("family", "savers") for c in run.cases.values()}

    def chapter(name: str) -> Chapter:
        said = about.get(name, "")
        if families[name] == "sandbox":
            return _sandbox_chapter(name, said, summary, good)
        if families[name] == "walks":
            return _walk_chapter(name, said, run, summary)
        if families[name] == "retention":
            return _retention_chapter(name, said, run)
        return _chapter(name, said, _shape(run, name), good)

    return [chapter(name) for name in dict.fromkeys(summary["workload"].astype(str))]


def _walk_chapter(name: str, about: str, run: RunResult, summary: pd.DataFrame) -> Chapter:
    every = summary[summary["workload"] == name]
    shape = f"one thread, {_range(every['turns'], 'checkpoint')}"
    told = tell_walks(run, name)
    if told is None:
        return Chapter(name, about, shape, NO_RESULT, "", (NO_NUMBERS,), ())
    return Chapter(name, about, shape, f"{times(told.times)}×", told.note, told.sentences, ())


def _retention_chapter(name: str, about: str, run: RunResult) -> Chapter:
    told = tell_retention(run, name)
    if told is None:
        return Chapter(name, about, _shape(run, name), NO_RESULT, "", (NO_NUMBERS,), ())
    return Chapter(name, about, _shape(run, name), told.figure, told.note, told.sentences, ())


def _sandbox_chapter(name: str, about: str, summary: pd.DataFrame, good: pd.DataFrame) -> Chapter:
    every = summary[summary["workload"] == name]
    shape = f"{_range(every['threads'], 'thread')}, {_range(every['turns'], 'capture')} each"
    rows = good[(good["workload"] == name) & good["dedup_ratio"].notna()]
    if rows.empty:
        return Chapter(name, about, shape, NO_RESULT, "", (NO_NUMBERS,), ())
    figure = f"{times(float(rows['dedup_ratio'].iloc[0]))}×"
    note = "fewer bytes than a copy for each checkpoint"
    return Chapter(name, about, shape, figure, note, tuple(sandbox_sentences(rows)), ())


def _chapter(name: str, about: str, shape: str, good: pd.DataFrame) -> Chapter:
    mine = good[good["workload"] == name]
    rows = mine[mine["bytes_per_thread"] > 0]  # a store that keeps nothing is no saving
    if rows.empty and mine["get_state_warm_p50_ns"].notna().any():
        figure, note, said = _reads_only(mine)
        return Chapter(name, about, shape, figure, note, (said,), ())
    if rows.empty:
        return Chapter(name, about, shape, NO_RESULT, "", (NO_NUMBERS,), ())
    longest = rows[rows["turns"] == rows["turns"].max()]
    swept = rows["turns"].nunique() > 1
    where = f"At {int(longest['turns'].iloc[0])} turns, " if swept else ""
    contrasts = tuple(contrast_modes(longest))
    sentences = [
        *_modes(contrasts, where),
        *([] if contrasts else _variants(longest, where)),
        *_backends(longest),
    ]
    sentences = sentences or _alone(longest, where)
    figure, note = _figure(contrasts, longest)
    return Chapter(name, about, shape, figure, note, tuple(map(_capital, sentences)), contrasts)


def _shape(run: RunResult, workload: str) -> str:
    """Threads and turns of a workload's cases: `8 threads, 3 to 120 turns`."""
    talks = [
        case["spec"]["conversation"] for case in run.cases.values() if case["workload"] == workload
    ]
    turns = [length for talk in talks for length in _lengths(talk["turns"])]
    return f"{_range((talk['threads'] for talk in talks), 'thread')}, {_range(turns, 'turn')}"


def _lengths(turns: Any) -> list[int]:
    """The shortest and the longest conversation that a spec's turns allow, as far as it says."""
    if not isinstance(turns, dict):
        return [int(turns)]
    dist = Dist(**turns)
    ends = {"lognormal": (dist.min, dist.max), "mixture": (dist.small, dist.large)}
    return [length for length in ends.get(dist.dist, ()) if length] or [dist.typical]


def _range(values: Iterable[Any], what: str) -> str:
    known = sorted({int(value) for value in values})
    if len(known) == 1:
        return f"{known[0]:,} {what}{'' if known[0] == 1 else 's'}"
    return f"{known[0]:,} to {known[-1]:,} {what}s"


def _capital(text: str) -> str:
    """The first letter large, unless the sentence opens with a name in backquotes."""
    return text[:1].upper() + text[1:]


def contrast_modes(rows: pd.DataFrame) -> list[Contrast]:
    """Full against delta on each backend that ran both alike, the greatest saving first."""
    found: dict[str, Contrast] = {}
    for _, group in rows.groupby(_PAIR, sort=False):
        full, delta = group[group["mode"] == "full"], group[group["mode"] == "delta"]
        if full.empty or delta.empty:
            continue
        # Where frequencies were swept, the leanest stands for delta mode; the plot has them all.
        lean, fat = least(delta, "bytes_per_thread"), full.iloc[0]
        name = str(lean["backend"])
        if name not in found and lean["bytes_per_thread"] > 0:
            found[name] = Contrast(
                name,
                float(fat["bytes_per_thread"]),
                float(lean["bytes_per_thread"]),
                float(fat["get_state_warm_p50_ns"]),
                float(lean["get_state_warm_p50_ns"]),
            )
    return sorted(found.values(), key=lambda item: -item.ratio)


def times(ratio: float) -> str:
    """A ratio of one or more, as people say it: `34`, `3.4`, `1.15`."""
    return f"{ratio:,.0f}" if ratio >= 9.95 else f"{ratio:.1f}" if ratio >= 1.95 else f"{ratio:.2f}"


def _saving(ratio: float) -> str:
    """How much less delta mode stores, as words before `on sqlite`."""
    if ratio >= SAME:
        return f"{times(ratio)} times less"
    return "about as much" if ratio > 1 / SAME else f"{times(1 / ratio)} times more"


def _modes(contrasts: tuple[Contrast, ...], where: str) -> list[str]:
    if not contrasts:
        return []
    first = contrasts[0]
    than = "than" if not SAME > first.ratio > 1 / SAME else "as"
    alike: dict[str, list[str]] = {}
    for item in contrasts[1:]:
        alike.setdefault(_saving(item.ratio), []).append(item.backend)
    rest = "".join(f", {saving} on {_listed(names)}" for saving, names in alike.items())
    told = [
        f"{where}delta mode stores {_saving(first.ratio)} {than} full on {first.backend} "
        f"({format_bytes(first.delta_bytes)} against {format_bytes(first.full_bytes)} a thread)"
        f"{rest}."
    ]
    reads = [
        f"{format_ns(item.delta_read_ns)} against {format_ns(item.full_read_ns)} on {item.backend}"
        for item in contrasts
        if item.delta_read_ns > 0 and item.full_read_ns > 0
    ]
    if reads:
        told.append(f"a warm get_state takes {_listed(reads)} (delta against full, medians).")
    return told


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _variants(rows: pd.DataFrame, where: str) -> list[str]:
    """Where no modes were compared: the leanest and the largest variant of one backend."""
    backend = str(rows["backend"].iloc[0])
    mine = rows[rows["backend"] == backend].drop_duplicates("variant")
    if len(mine) < 2:
        return []
    mine = mine.assign(label=case_labels(mine).str.removeprefix(backend).str.strip())
    lean, fat = least(mine, "bytes_per_thread"), most(mine, "bytes_per_thread")
    ratio = fat["bytes_per_thread"] / lean["bytes_per_thread"]
    if ratio < SAME:
        return [f"{where}its {len(mine)} variants store about the same on {backend}."]
    return [
        f"{where}on {backend}, {lean['label']} stores {times(ratio)} times less than "
        f"{fat['label']} ({format_bytes(lean['bytes_per_thread'])} against "
        f"{format_bytes(fat['bytes_per_thread'])} a thread)."
    ]


def _backends(rows: pd.DataFrame) -> list[str]:
    """The leanest backend and the range of reads, in one mode; nothing for a single backend."""
    mode = "delta" if (rows["mode"] == "delta").any() else str(rows["mode"].iloc[0])
    mine = rows[rows["mode"] == mode]
    if mine["backend"].nunique() < 2:
        return []
    lean = least(mine, "bytes_per_thread")
    if mine["bytes_per_thread"].max() < SAME * lean["bytes_per_thread"]:
        told = [f"in {mode} mode all backends keep about the same bytes"]
    else:
        told = [
            f"in {mode} mode {lean['backend']} keeps the fewest bytes "
            f"({format_bytes(lean['bytes_per_thread'])} a thread)"
        ]
    reads = mine[mine["get_state_warm_p50_ns"] > 0]
    if reads["backend"].nunique() > 1:
        fast = least(reads, "get_state_warm_p50_ns")
        slow = most(reads, "get_state_warm_p50_ns")
        told.append(
            f"{fast['backend']} reads fastest ({format_ns(fast['get_state_warm_p50_ns'])}), "
            f"{slow['backend']} slowest ({format_ns(slow['get_state_warm_p50_ns'])})"
        )
    return ["; ".join(told) + "."]


def _alone(rows: pd.DataFrame, where: str) -> list[str]:
    """What one case shows when there is nothing to hold it against."""
    row = rows.iloc[0]
    told = (
        f"{where}a thread holds {format_bytes(row['bytes_per_thread'])} in "
        f"{row['rows_per_thread']:,.0f} rows on {row['backend']} in {row['mode']} mode"
    )
    read = row["get_state_warm_p50_ns"]
    return [f"{told}; a warm get_state takes {format_ns(read)}." if read > 0 else f"{told}."]


def _reads_only(rows: pd.DataFrame) -> tuple[str, str, str]:
    """The large number, its note and a sentence where no store can say what it holds."""
    fast = least(rows, "get_state_warm_p50_ns")
    read = format_ns(fast["get_state_warm_p50_ns"])
    said = (
        f"A warm get_state takes {read} on {fast['backend']}; "
        "what its threads store is nothing or cannot be measured."
    )
    return read, f"a warm get_state, on {fast['backend']}", said


def _figure(contrasts: tuple[Contrast, ...], rows: pd.DataFrame) -> tuple[str, str]:
    if contrasts and contrasts[0].ratio >= SAME:
        return (
            f"{times(contrasts[0].ratio)}×",
            f"fewer bytes in delta mode, on {contrasts[0].backend}",
        )
    lean = least(rows, "bytes_per_thread")
    least_of = ": the least" if len(rows) > 1 else ""
    return format_bytes(lean["bytes_per_thread"]), f"a thread, on {lean['backend']}{least_of}"
