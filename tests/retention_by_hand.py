"""Random threads put row by row: what older runtimes, other tools and accidents leave behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from fix_threads import Hand, Kept, at, snapshot

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NULL_TASK = "00000000-0000-0000-0000-000000000000"
SPACES = ("", "", "", "", "s", "s:t1", "s:t2", "s:t1|in:x", "s|c:t3", "odd:1")
HARMS = ("swapped", "gap", "cycle", "cut", "lost blob", "shared base")


def aged(minutes: float) -> str:
    """A time-ordered id of this age at `NOW`."""
    made = NOW - timedelta(minutes=minutes)
    ticks = int((made - datetime(1582, 10, 15, tzinfo=UTC)) / timedelta(microseconds=1)) * 10
    return f"{ticks >> 28:08x}-{(ticks >> 12) & 0xFFFF:04x}-6{ticks & 0xFFF:03x}-8000-000000000000"


@dataclass(frozen=True)
class Step:
    """One checkpoint; `back` is how far its parent lies back in its namespace, 0 for a root."""

    space: str
    back: int
    stored: str  # a, b: snapshots; A, B: plain values, as before delta channels; n: a None for b
    written: str  # the kinds of `WRITES`
    source: str
    pause: int  # minutes since the one before
    v: int
    run: int


STEPS = st.builds(
    Step,
    space=st.sampled_from(SPACES),
    back=st.sampled_from([0, 1, 1, 1, 1, 1, 1, 2, 3]),
    stored=st.sampled_from(["", "", "", "", "a", "b", "ab", "A", "AB", "n"]),
    written=st.sampled_from(["", "a", "b", "ab", "k", "m", "p", "abq", "ar", "ae", "c", "at"]),
    source=st.sampled_from(["input", "loop", "loop", "loop", "update", "fork", "stamp", "stamp"]),
    pause=st.integers(1, 90),
    v=st.sampled_from([4, 4, 4, 4, 4, 3]),
    run=st.integers(0, 3),
)


@dataclass(frozen=True)
class Case:
    """A thread. `harm` is what befell it, at `place`; `counted` whether its runtime counted."""

    steps: tuple[Step, ...]
    counted: bool
    harm: str
    place: int
    orphans: tuple[int, ...]  # minutes of age


PLAIN = st.builds(
    Step,
    space=st.sampled_from(["", "", "", "s"]),
    back=st.just(1),
    stored=st.sampled_from(["a", "b", "ab", "ab", "AB"]),
    written=st.sampled_from(["", "a", "b", "k", "m"]),
    source=st.sampled_from(["input", "loop"]),
    pause=st.integers(1, 90),
    v=st.just(4),
    run=st.integers(0, 3),
)
CASES = st.builds(
    Case,
    steps=st.one_of(
        st.lists(STEPS, min_size=1, max_size=10).map(tuple),
        st.lists(STEPS, min_size=1, max_size=10).map(tuple),
        st.lists(PLAIN, min_size=1, max_size=10).map(tuple),
    ),
    counted=st.sampled_from([True, True, True, False]),
    harm=st.sampled_from([*[""] * 12, *HARMS]),
    place=st.integers(0, 30),
    orphans=st.lists(st.integers(1, 200), max_size=2).map(tuple),
)


@dataclass
class Built:
    """A thread that was built: its ids by namespace, which of them are copies, what was harmed."""

    hand: Hand
    ids: dict[str, list[str]] = field(default_factory=dict)
    stamped: set[str] = field(default_factory=set)
    orphans: dict[str, int] = field(default_factory=dict)  # id -> minutes of age
    harm: str = ""


def build(kept: Kept, case: Case, thread: str) -> Built:
    """The thread of a case; where nothing is to be harmed, as a runtime of today forks."""
    built = Built(kept.hand(thread), harm=case.harm)
    ages = [sum(step.pause for step in case.steps[at:]) for at in range(1, len(case.steps) + 1)]
    if case.harm == "swapped" and len(ages) > 1:
        place = case.place % (len(ages) - 1)
        ages[place], ages[place + 1] = ages[place + 1], ages[place]
    born = set[tuple[str, str]]()
    hands: dict[str, Hand] = {"": built.hand}
    for number, step in enumerate(case.steps):
        hand = hands.setdefault(step.space, Hand(kept.saver, thread, step.space))
        _put(kept, built, case, hand, step, aged(ages[number]), number, born)
    for age in case.orphans:
        built.hand.write(aged(age), ("a", ["orphan"]), task=f"orphan-{age}")
        built.orphans[aged(age)] = age
    _harm(kept, built, case)
    return built


def _put(
    kept: Kept,
    built: Built,
    case: Case,
    hand: Hand,
    step: Step,
    name: str,
    number: int,
    born: set[tuple[str, str]],
) -> None:
    names = built.ids.setdefault(step.space, [])
    parent = names[-min(step.back, len(names))] if names and step.back else None
    if step.source == "stamp" and names and not step.space:
        _copy(kept, hand, name, names[-1], number)
        born.add((step.space, names[-1]))
        built.stamped.add(name)
    else:
        alone = case.harm == "shared base" or (step.space, parent or "") not in born
        stored = step.stored if alone else "ab"
        values: dict[str, Any] = {c: snapshot(f"{c}{number}") for c in "ab" if c in stored}
        values |= {c: [f"{c}{number} plain"] for c in "ab" if c.upper() in stored}
        if "n" in stored:
            values["b"] = None
        doubtful = "abe" if any(each.back != 1 for each in case.steps) else "ab"
        moved = [c for c in doubtful if c not in values and number % 3 < 2]
        source = "loop" if step.source == "stamp" else step.source
        told: dict[str, Any] = {"source": source, "step": number, "run_id": f"run-{step.run}"}
        if step.space and not step.space.startswith("odd"):
            told["parents"] = _callers(built, step.space)
        plain = {"k": [number], **({"flag": True} if number % 2 else {})}
        hand.put(
            name,
            parent,
            {**values, **plain},
            moved=moved,
            counts="ab" if case.counted else "",
            metadata=told,
            v=step.v,
        )
        born.add((step.space, parent or ""))
    names.append(name)
    for kind in step.written:
        _write(hand, name, kind, number)


def _callers(built: Built, space: str) -> dict[str, str]:
    """The newest checkpoint of each namespace above."""
    parts = space.split("|")
    above = ["", *("|".join(parts[:at]) for at in range(1, len(parts)))]
    return {each: built.ids[each][-1] for each in above if built.ids.get(each)}


def _write(hand: Hand, name: str, kind: str, number: int) -> None:
    if kind in "abk":
        hand.write(name, (kind, [f"{kind}w{number}"]), task=f"t-{kind}", path="~p")
    elif kind == "m":  # numbers, not text, order the writes of one task
        hand.write(name, *(("a", [f"m{number}.{at}"]) for at in range(12)), task="t-m", path="~m")
    elif kind == "p":  # paths before tasks
        hand.write(name, ("a", ["late"]), task="00", path="~b")
        hand.write(name, ("a", ["early"]), ("b", ["early"]), task="ff", path="~a")
    elif kind == "q":
        hand.write(name, ("__interrupt__", [f"?{number}"]), task="t-q", path="~q")
    elif kind == "r":
        hand.write(name, ("__resume__", "yes"), task=NULL_TASK)
    elif kind == "e":
        hand.write(name, ("__error__", "it broke"), task="t-e", path="~e")
    elif kind == "c":  # a command's update belongs to no task
        hand.write(name, ("a", [f"c{number}"]), task=NULL_TASK)
    else:
        hand.write(name, ("__pregel_tasks", f"send {number}"), task="t-t", path="~t")


def _copy(kept: Kept, hand: Hand, name: str, parent: str, number: int) -> None:
    """A duration-only copy, as an application appends it."""
    held = kept.saver.get_tuple(at(hand.thread, parent, hand.space))
    assert held is not None
    stamps = {"run_durations": {f"r{number}": 1}, "writes": {"runtime_run_duration": {}}}
    values = {k: v for k, v in held.checkpoint["channel_values"].items() if k != "__pregel_tasks"}
    checkpoint: Any = {**held.checkpoint, "id": name, "channel_values": values}
    metadata: Any = {**held.metadata, "source": "update", "step": number, **stamps}
    kept.saver.put(held.config, checkpoint, metadata, {})
    hand.versions[name] = dict(hand.versions[parent])


def _harm(kept: Kept, built: Built, case: Case) -> None:
    """What people, other tools and accidents do to rows."""
    root = sorted(built.ids.get("", ()))
    if not root or case.harm in ("", "swapped", "shared base"):
        return
    name = root[case.place % len(root)]
    with kept.rows.transaction(built.hand.thread) as txn:
        image = txn.image()
        if case.harm == "gap":
            txn.delete_checkpoints([("", name)])
        elif case.harm == "cut":  # a clean-up that knows of checkpoints alone
            txn.delete_checkpoints([("", each) for each in root if each < name])
        elif case.harm == "cycle":
            txn.reparent("", root[0], name)
        elif image.blobs:
            txn.delete_blobs([image.blobs[case.place % len(image.blobs)].key])
