"""`db inspect`: its numbers against what is known otherwise, on both engines, and its output."""

from __future__ import annotations

import csv
import io
import json
import random
import sqlite3
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from fix_databases import Left, identity
from fix_threads import snapshot
from savermark.cli import run
from savermark.cli.db_verb import VERBS
from savermark.database.ages import LABELS, Calendar
from savermark.database.document import SECTIONS, inspection_document
from savermark.database.inspect import GRACE, Inspection, Largest, inspect
from savermark.database.opening import open_database
from savermark.history.lineage import chain
from savermark.retention.age import age_of

if TYPE_CHECKING:
    from pathlib import Path

    from savermark.history.image import ThreadImage

IDS = [identity(number) for number in range(2)]


def look(left: Left, **options: Any) -> Inspection:
    with open_database(left.uri) as database:
        return inspect(database, **options)


def fill(left: Left, threads: int = 3) -> None:
    """Threads of growing length with a delta channel, a plain one and a flag that is True."""
    for number in range(threads):
        hand = left.hand(f"thread {number}")
        parent = None
        for step in range(2 + number):
            name = identity(step)
            values: dict[str, Any] = {"plain": [step] * 3, "flag": True}
            if step == 1:
                values["log"] = snapshot("a")
            counts = () if step == 1 else ("log",)
            hand.put(name, parent, values, moved=("log",), counts=counts)
            hand.write(name, ("log", ["entry" * 10]), ("plain", step))
            parent = name


def test_totals_are_those_of_the_store(left: Left) -> None:
    fill(left)
    found = look(left)
    rows = left.store.storage()
    for table, size in found.tables.items():
        of = [row for row in rows if row.table == table]
        assert size.rows == sum(row.rows for row in of)
        assert size.logical_bytes == sum(row.logical_bytes for row in of)
        assert size.stored_bytes == sum(row.stored_bytes or 0 for row in of)
    for (table, channel), size in found.channels.items():
        of = [row for row in rows if (row.table, row.channel) == (table, channel)]
        assert size.rows == sum(row.rows for row in of)
        assert size.logical_bytes == sum(row.logical_bytes for row in of)
    assert {channel for _, channel in found.channels} >= {"log", "plain"}
    assert found.thread_count == 3
    assert [thread.thread_id for thread in found.threads] == ["thread 2", "thread 1", "thread 0"]
    assert sum(thread.total.rows for thread in found.threads) == found.total.rows
    assert sum(made.checkpoints for made in found.ages.values()) == found.tables["checkpoints"].rows
    parts = {row.component: row.bytes for row in found.footprint if row.table is None}
    assert parts["total"] > found.total.stored_bytes


def test_an_empty_database_has_zeros(left: Left) -> None:
    if left.name == "postgres":
        left.saver.setup()  # type: ignore[attr-defined]
    found = look(left)
    assert (found.thread_count, found.total.rows, found.heads, found.losses) == (0, 0, (), ())
    document = inspection_document(found)
    assert document["threads"] == []


def test_depth_and_distance_are_those_of_a_walk(left: Left) -> None:
    """Random threads with forks: against the chain and the stored values of the thread's image."""
    chance = random.Random(7)
    for number in range(40):
        hand = left.hand(f"t{number}", space="" if number % 3 else "sub")
        names: list[str] = []
        for step in range(chance.randrange(1, 12)):
            name = identity(step)
            parent = chance.choice([None, *names[-3:]]) if names else None
            hand.put(
                name,
                parent,
                {"log": snapshot(step)} if chance.random() < 0.2 else {"other": step},
                moved=("log", "more"),
                counts=[c for c in ("log", "more") if chance.random() < 0.7],
            )
            names.append(name)
    found = look(left, top=0)
    assert found.head_count == len(found.heads) == 40
    with open_database(left.uri) as database:
        images = {image.thread_id: image for image in database.rows.images()}
    for head in found.heads:
        depth, distance, seeded = walked(images[head.thread_id], head.checkpoint_ns)
        assert (head.depth, head.distance, head.seeded) == (depth, distance, seeded)
    keys = [(-1 if h.distance is None else h.distance, h.depth) for h in found.heads]
    assert keys == sorted(keys, reverse=True)


def walked(image: ThreadImage, space: str) -> tuple[int, int | None, bool]:
    head = image.heads[space]
    line = chain(image, space, head.checkpoint_id)
    delta = head.counted | head.snapshots
    firsts = [next((n for n, row in enumerate(line) if c in row.snapshots), None) for c in delta]
    if not delta:
        return len(line) - 1, None, True
    if None in firsts:
        return len(line) - 1, len(line) - 1, False
    return len(line) - 1, max(first for first in firsts if first is not None), True


def test_large_checkpoints_are_not_read_for_what_cannot_be_in_them(left: Left) -> None:
    """A large plain value beside a delta channel; the seed is found all the same."""
    hand, parent = left.hand("large"), None
    for step in range(6):
        name = identity(step)
        seeds = {"log": snapshot("x" * 9_000)} if step == 2 else {}
        hand.put(
            name,
            parent,
            {"plain": "y" * 9_000, **seeds},
            moved=("log",),
            counts=() if seeds else ("log",),
        )
        parent = name
    (head,) = look(left).heads
    assert (head.depth, head.distance, head.seeded, head.delta) == (5, 3, True, ("log",))


def test_ages_days_and_unknown_ids(left: Left) -> None:
    ages = {"under 1 day": 7_200, "under 7 days": 3 * 86_400, "older": 900 * 86_400}
    for number, age in enumerate(ages.values()):
        left.hand(f"t{number}").put(identity(0, age)).put(identity(1, age))
    left.hand("young").put(identity(0))
    left.hand("odd").put("c1", None, {"x": 1}).put("c2", "c1", {"x": 2})
    found = look(left)
    counts = {label: made.checkpoints for label, made in found.ages.items() if made.checkpoints}
    assert counts == {"under 1 hour": 1, **dict.fromkeys(ages, 2), "unknown": 2}
    idle = {label: count for label, count in found.idle.items() if count}
    assert idle == {"under 1 hour": 1, **dict.fromkeys(ages, 1), "unknown": 1}
    assert sum(made.checkpoints for made in found.days.values()) == 7
    today = datetime.now(UTC).date()
    assert min(found.days) == (datetime.now(UTC) - timedelta(days=900)).date()
    assert max(found.days) in (today, today - timedelta(days=1))


def test_a_calendar_agrees_with_each_id_by_itself() -> None:
    now = datetime(2026, 3, 1, 0, 0, 5, tzinfo=UTC)
    chance = random.Random(3)
    ids = [identity(n, chance.choice([5, 3_600, 86_400, 10**7]) + 40 * chance.random())
           for n in range(3_000)]  # fmt: skip
    ids += ["c1", "", "1" * 36, "ffffffff-ffff-6fff-8fff-ffffffffffff"]
    calendar = Calendar(now)
    calendar.add(dict.fromkeys(ids, (None, 1)))
    limits = (3_600, 86_400, 7 * 86_400, 30 * 86_400, 90 * 86_400, 365 * 86_400, float("inf"))
    expected = dict.fromkeys(LABELS, 0)
    for name in ids:
        age = age_of(name, now)
        place = -1 if age is None else next(
            n for n, limit in enumerate(limits) if age.total_seconds() < limit
        )  # fmt: skip
        expected[LABELS[place]] += 1
    assert {label: rows for label, (rows, _) in calendar.ages().items()} == expected


def test_orphans_are_found_from_the_tables(left: Left) -> None:
    """T23, T24: only checkpoint rows were deleted; a young write may belong to a coming one."""
    old, young = identity(0, 7_200), identity(1)
    hand = left.hand("a").put(old, None, {"x": [1, 2]}).write(old, ("x", ["w" * 9]))
    hand.put(identity(2), None, {"x": [3]})
    left.saver.put_writes(
        {"configurable": {"thread_id": "a", "checkpoint_ns": "", "checkpoint_id": young}},
        [("x", 1), ("y", 2)],
        "task",
    )
    left.saver.put_writes(
        {"configurable": {"thread_id": "b", "checkpoint_ns": "", "checkpoint_id": "odd"}},
        [("x", 1)],
        "task",
    )
    left.sql("DELETE FROM checkpoints WHERE checkpoint_id = ?", old)
    losses = {loss.table: loss for loss in look(left).losses}
    writes = losses["writes"]
    assert (writes.old.rows, writes.young.rows, writes.undated.rows) == (1, 2, 1)
    assert (writes.threads, writes.example) == (2, "a")
    assert look(left, grace=timedelta(0)).losses[0].young.rows == 0
    if left.name == "postgres":
        assert losses["blobs"].undated.rows == 1
        kept = left.sql("SELECT count(*) FROM blobs")
        assert kept == [(2,)]
    assert timedelta(hours=1) == GRACE


def test_namespaces_of_calls_whose_caller_is_gone(left: Left) -> None:
    """T25: per-call namespaces go with the caller; a persistent one does not."""
    roots = [identity(n) for n in range(3)]
    hand = left.hand("a")
    for number, name in enumerate(roots):
        hand.put(name, roots[number - 1] if number else None, {"x": number})
        for space in (f"s:{number}", "s"):
            left.hand("a", space).put(
                identity(10 + number), None, {"y": 1}, metadata={"parents": {"": name}}
            )
    assert look(left).dead_namespaces == 0
    left.sql("DELETE FROM checkpoints WHERE checkpoint_ns = '' AND checkpoint_id = ?", roots[0])
    found = look(left)
    assert (found.dead_namespaces, found.dead.checkpoints) == (1, 1)
    assert found.dead.stored_bytes > 0


def test_threads_can_be_chosen(left: Left) -> None:
    fill(left)
    some = look(left, threads=["thread 0", "thread 2"])
    assert some.thread_count == some.head_count == 2
    assert some.tables["checkpoints"].rows == 2 + 4
    assert some.total.rows == sum(row.rows for row in left.store.storage(["thread 0", "thread 2"]))


def test_values_inside_checkpoints_are_counted_when_asked_for(left: Left) -> None:
    fill(left)
    assert look(left).values is None
    values = look(left, channels=True).values
    assert values is not None
    assert values["flag"].rows == 9
    if left.name == "sqlite":
        assert values["plain"].rows == 9
        assert values["plain"].logical_bytes == 9 * 4
        assert values["log"].rows == 3


class _Counted(psycopg.Cursor[Any]):
    statements = 0

    def execute(self, *args: Any, **options: Any) -> Any:
        _Counted.statements += 1
        return super().execute(*args, **options)

    def stream(self, *args: Any, **options: Any) -> Any:
        _Counted.statements += 1
        return super().stream(*args, **options)


def _statements(left: Left) -> int:
    with open_database(left.uri) as database:
        connection: Any = database.rows.connection  # type: ignore[attr-defined]
        if isinstance(connection, sqlite3.Connection):
            seen: list[str] = []
            connection.set_trace_callback(seen.append)
            inspect(database, channels=True)
            return len(seen)
        connection.cursor_factory = _Counted
        _Counted.statements = 0
        inspect(database, channels=True)
        return _Counted.statements


def test_the_number_of_statements_does_not_depend_on_the_threads(left: Left) -> None:
    fill(left, 2)
    few = _statements(left)
    fill(left, 30)
    assert _statements(left) == few
    assert few < 40


def _peak(left: Left) -> int:
    with open_database(left.uri) as database:
        inspect(database, top=5)  # whatever is only made once
        tracemalloc.start()
        try:
            inspect(database, top=5)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_memory_does_not_grow_with_the_threads(left: Left) -> None:
    left.hand("source").put(IDS[0], None, {"x": [1]}).put(IDS[1], IDS[0], {"x": [2]})
    left.store.clone_threads({"source": [f"a{n}" for n in range(1_000)]})
    few = _peak(left)
    left.store.clone_threads({"source": [f"b{n}" for n in range(3_000)]})
    assert _peak(left) < 1.5 * few


def test_space_given_back_is_not_mixed_up_with_rows_deleted(left: Left) -> None:
    """T31, T32: deleting shrinks what is stored; the whole stays as it was, part of it free."""
    for number in range(30):
        name = identity(number)
        left.hand(f"t{number}").put(name, None, {"x": list(range(3_000))})
        left.hand(f"t{number}").write(name, ("x", list(range(3_000))))
    before = look(left)
    for table in ("checkpoints", "writes", *(["blobs"] if left.name == "postgres" else [])):
        left.sql(f"DELETE FROM {table} WHERE thread_id <> 't1'")
    after = look(left)
    assert after.total.logical_bytes < before.total.logical_bytes / 10
    whole = [
        sum(row.bytes for row in found.footprint if row.component == "total")
        for found in (before, after)
    ]
    assert whole[1] >= whole[0]
    free = sum(row.bytes for row in after.footprint if row.component == "free")
    assert free > sum(row.bytes for row in before.footprint if row.component == "free")
    if left.name == "postgres":
        assert set(after.dead_rows) == {"checkpoints", "blobs", "writes"}


def test_largest_keeps_the_first_of_equals_and_everything_for_zero() -> None:
    items = [(3, "a"), (1, "b"), (3, "c"), (2, "d")]
    for top, expected in ((2, "ac"), (3, "acd"), (0, "acdb"), (9, "acdb")):
        largest = Largest[str](top)
        for key, name in items:
            largest.offer((key,), name)
        assert "".join(largest.listed()) == expected


def _json(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert run(["db", "inspect", *argv, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_one_document(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    fill(left)
    document = _json(capsys, left.uri, "--top", "2", "--channels")
    assert document["schema"] == "savermark.db-inspect/1"
    assert set(SECTIONS) < set(document)
    assert len(document["threads"]) == len(document["heads"]) == 2
    assert document["totals"]["rows"] == sum(row["rows"] for row in document["tables"])
    assert "password" not in json.dumps(document)
    assert _json(capsys, left.uri, "--section", "heads", "--thread", "thread 1")[0]["depth"] == 2


def test_every_format_and_section(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    fill(left)
    for section in SECTIONS:
        for fmt in ("table", "csv", "md"):
            argv = ["db", "inspect", left.uri, "--section", section, "--format", fmt]
            assert run(argv) == 0
            out, err = capsys.readouterr()
            assert err == ""
            if fmt == "csv":
                rows = list(csv.DictReader(io.StringIO(out)))
                assert section in ("values", "orphans") or rows
    for fmt, sign in (("table", "Largest threads"), ("md", "**Largest threads**")):
        assert run(["db", "inspect", left.uri, "--format", fmt]) == 0
        out = capsys.readouterr().out
        assert sign in out
        assert "3 threads, " in out


def test_a_page_that_fetches_nothing(
    left: Left, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left.hand("<script>alert(1)</script> $x$").put(identity(0), None, {"$y$": [1]})
    fill(left)
    folder = tmp_path / "page"
    assert run(["db", "inspect", left.uri, "-o", str(folder), "-q", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    page = (folder / "inspect.html").read_text()
    assert "<script>alert" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert page.count("<svg") >= 4
    assert {path.stem for path in (folder / "plots").iterdir()} >= {"ages", "days", "threads"}
    assert json.loads((folder / "inspect.json").read_text()) == document
    with (folder / "tables" / "threads.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["inspect"], "Missing argument"),
        (["inspect", "none.db"], "does not exist"),
        (["inspect", "mysql://h/d"], "not known"),
        (["inspekt", "a.db"], "did you mean 'inspect'"),
        (["inspect", "a.db", "--grace", "soon"], "give a number and a unit"),
        (["inspect", "a.db", "--top", "-1"], "-1 is not in the range"),
    ],
)
def test_a_mistake_is_one_line(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len([line for line in err.splitlines() if not line.startswith("try: ")]) == 1


def test_a_thread_that_is_not_there_is_told(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    fill(left)
    assert run(["db", "inspect", left.uri, "--thread", "thread 9"]) == 2
    assert "no thread 'thread 9'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_one_line_of_help_and_an_example(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"savermark db {verb}" in text.partition("Example")[2]
    assert len(VERBS[verb]) < 90
