"""The pure rules: records, chains, keep-sets, and which channels a checkpoint must rebuild."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from savermark.errors import ContractError, UsageError
from savermark.history.lineage import (
    BlobRow,
    CheckpointRow,
    KeepSet,
    LineageError,
    ThreadImage,
    WriteRow,
    chain,
    counted_channels,
    is_reserved,
    keep_all,
    keep_ids,
    missing_values,
)


def row(
    name: str,
    parent: str | None = None,
    versions: str = "",
    stored: str = "",
    *,
    counts: str = "",
    space: str = "",
    **more: Any,
) -> CheckpointRow:
    """A checkpoint whose channels are single letters."""
    metadata = {"counters_since_delta_snapshot": {c: [1, 1] for c in counts}} if counts else {}
    more.setdefault("metadata", metadata)
    return CheckpointRow(
        space, name, parent, dict.fromkeys(versions, "1"), frozenset(stored), **more
    )


def image(*rows: CheckpointRow, writes: tuple[WriteRow, ...] = ()) -> ThreadImage:
    return ThreadImage("t", rows, writes)


LINE = (
    row("c1", None, "ab", "ab"),
    row("c2", "c1", "ab", "b"),
    row("c3", "c2", "ab"),
    row("c4", "c3", "ab"),
)


def test_chain_ends_at_the_seed_inclusive() -> None:
    assert keep_ids(image(*LINE), "", "c4", ["b"]) == {"c2", "c3", "c4"}
    assert keep_ids(image(*LINE), "", "c4", ["a"]) == {"c1", "c2", "c3", "c4"}
    assert keep_ids(image(*LINE), "", "c4") == {"c1", "c2", "c3", "c4"}


def test_no_channels_keep_the_checkpoint_alone() -> None:
    assert keep_ids(image(*LINE), "", "c4", []) == {"c4"}


def test_a_target_that_stores_the_value_needs_no_one() -> None:
    assert keep_ids(image(*LINE), "", "c1") == {"c1"}
    assert keep_ids(image(*LINE), "", "c2", ["b"]) == {"c2"}


def test_a_channel_without_version_is_not_sought() -> None:
    assert keep_ids(image(*LINE), "", "c4", ["z"]) == {"c4"}


def test_an_unknown_target_needs_nothing() -> None:
    found = keep_ids(image(*LINE), "", "c9")
    assert found == set() and found.targets == set()
    assert keep_ids(image(*LINE), "other", "c4") == set()


def test_a_root_without_seed_keeps_the_whole_chain() -> None:
    rows = (row("c1", None, "a"), row("c2", "c1", "a"), row("c3", "c2", "a"))
    assert keep_ids(image(*rows), "", "c3") == {"c1", "c2", "c3"}


def test_a_keep_set_equals_a_set_and_tells_support_apart() -> None:
    found = keep_ids(image(*LINE), "", "c4", ["b"])
    assert isinstance(found, KeepSet)
    assert (found.targets, found.support) == ({"c4"}, {"c2", "c3"})
    both = keep_all(image(*LINE), "", ["c4", "c3"], ["b"])
    assert (both, both.targets, both.support) == ({"c2", "c3", "c4"}, {"c3", "c4"}, {"c2"})


def test_a_missing_parent_is_told_with_names() -> None:
    with pytest.raises(LineageError, match="names parent c1, which is not stored") as caught:
        keep_ids(image(*LINE[1:]), "", "c4")
    error = caught.value
    assert (error.thread_id, error.checkpoint_ns) == ("t", "")
    assert (error.checkpoint_id, error.missing) == ("c2", "c1")
    assert isinstance(error, ContractError) and error.exit_code == 3


def test_a_missing_parent_beyond_the_seed_does_not_matter() -> None:
    assert keep_ids(image(*LINE[1:]), "", "c4", ["b"]) == {"c2", "c3", "c4"}


def test_a_circle_is_told() -> None:
    rows = (row("c1", "c2", "a"), row("c2", "c1", "a"))
    with pytest.raises(LineageError, match="its own ancestor") as caught:
        keep_ids(image(*rows), "", "c2")
    assert caught.value.missing is None
    with pytest.raises(LineageError):
        keep_ids(image(row("c1", "c1", "a")), "", "c1")


def test_an_unreadable_row_is_never_taken_for_an_empty_one() -> None:
    sealed = row("c1", None, unreadable="msgpack+aes")
    for target in (sealed, row("c2", "c1", "a")):
        with pytest.raises(LineageError, match=r"msgpack\+aes"):
            keep_ids(image(sealed, target), "", target.checkpoint_id)


def test_a_null_that_the_walk_passes_is_still_a_value_to_read() -> None:
    rows = (
        row("c1", None, "a", "a"),
        row("c2", "c1", "a", nulls=frozenset("a")),
        row("c3", "c2", "a"),
    )
    assert keep_ids(image(*rows), "", "c3") == {"c1", "c2", "c3"}
    assert keep_ids(image(*rows), "", "c2") == {"c2"}


def test_namespaces_are_chains_apart() -> None:
    rows = (*LINE, row("c4", None, "a", "a", space="sub"), row("c5", "c4", "a", space="sub"))
    assert keep_ids(image(*rows), "sub", "c5") == {"c4", "c5"}
    assert {space: head.checkpoint_id for space, head in image(*rows).heads.items()} == {
        "": "c4",
        "sub": "c5",
    }


# --- "auto": which channels ---------------------------------------------------------------------


def test_reserved_channels_are_never_rebuilt() -> None:
    for name in ("__start__", "__pregel_tasks", "branch:to:a"):
        assert is_reserved(name)
    for name in ("__root__", "messages", "branch", "start"):  # a state may be one channel alone
        assert not is_reserved(name)
    versions = {"branch:to:a": "1", "__start__": "1"}
    rows = (row("c1"), CheckpointRow("", "c2", "c1", versions))
    assert keep_ids(image(*rows), "", "c2") == {"c2"}


def test_a_reserved_name_that_is_counted_is_a_delta_channel() -> None:
    found = CheckpointRow(
        "",
        "c1",
        None,
        {"branch:to:a": "1"},
        metadata={"counters_since_delta_snapshot": {"branch:to:a": [1, 1]}},
    )
    assert missing_values(found) == ({"branch:to:a"}, set())


def test_counted_channels_are_certain_the_others_doubtful() -> None:
    assert missing_values(row("c1", None, "abc", "c", counts="a")) == ({"a"}, {"b"})
    assert missing_values(row("c1", None, "abc", "c", counts="a"), ["b", "c"]) == ({"b"}, set())


def test_old_counters_and_damaged_ones() -> None:
    assert counted_channels({"delta_updates_since_snapshot": {"a": 3}}) == {"a"}
    assert counted_channels({"counters_since_delta_snapshot": ["a"]}) == set()
    assert counted_channels({}) == set()


def test_a_channel_that_only_holds_nothing_costs_no_ancestor() -> None:
    """An ephemeral channel beside a counted one: no checkpoint counts or snapshots it."""
    rows = (
        row("c1", None, "ae", "a", counts="a"),
        row("c2", "c1", "ae", "e", counts="a"),
        row("c3", "c2", "ae", counts="a"),
        row("c4", "c3", "ae", "a", counts="b"),
    )
    assert keep_ids(image(*rows), "", "c4") == {"c4"}
    assert keep_ids(image(*rows), "", "c3") == {"c1", "c2", "c3"}


def test_another_graphs_channel_counts_from_where_it_is_counted() -> None:
    """Graph Y (counts b) wrote the head of a thread of graph X (counts n too)."""
    rows = (
        row("c1", None, "bn", "bn"),
        row("c2", "c1", "bn", counts="bn"),
        row("c3", "c2", "bn", "b", counts="x"),
        row("c4", "c3", "bn", counts="b"),
    )
    assert keep_ids(image(*rows), "", "c4") == {"c1", "c2", "c3", "c4"}
    assert keep_ids(image(*rows[:1], row("c2", "c1", "bn", counts="b"), *rows[2:]), "", "c4") == {
        "c3",
        "c4",
    }


def test_a_snapshot_shows_a_delta_channel() -> None:
    rows = (
        row("c1", None, "bn", "n", snapshots=frozenset("n")),
        row("c2", "c1", "bn", "b", counts="b"),
        row("c3", "c2", "bn", "b", counts="b"),
    )
    assert keep_ids(image(*rows), "", "c3") == {"c1", "c2", "c3"}


def test_silence_proves_nothing_where_nobody_counts() -> None:
    rows = (row("c1", None, "e"), row("c2", "c1", "e", "e"), row("c3", "c2", "e"))
    assert keep_ids(image(*rows), "", "c3") == {"c2", "c3"}
    assert keep_ids(image(rows[0], row("c2", "c1", "e"), rows[2]), "", "c3") == {"c1", "c2", "c3"}


@pytest.mark.parametrize("wrong", ["messages", "", "autos"])
def test_a_bare_string_is_no_list_of_channels(wrong: str) -> None:
    with pytest.raises(UsageError, match="must be a list"):
        keep_ids(image(*LINE), "", "c4", wrong)


# --- old formats --------------------------------------------------------------------------------


def test_pending_sends_of_an_old_checkpoint_keep_its_parent() -> None:
    sends = WriteRow("", "c1", "t", 0, "__pregel_tasks", "", 5)
    rows = (row("c1"), row("c2", "c1", v=3))
    assert keep_ids(image(*rows, writes=(sends,)), "", "c2") == {"c1", "c2"}
    assert keep_ids(image(*rows), "", "c2") == {"c2"}
    assert keep_ids(image(row("c1"), row("c2", "c1"), writes=(sends,)), "", "c2") == {"c2"}
    assert keep_ids(image(row("c2", "c1", v=3), writes=(sends,)), "", "c2") == {"c2"}


# --- images -------------------------------------------------------------------------------------


def test_chain_follows_parents_to_the_root() -> None:
    assert [r.checkpoint_id for r in chain(image(*LINE), "", "c3")] == ["c3", "c2", "c1"]
    assert chain(image(*LINE), "", "c9") == ()
    with pytest.raises(LineageError):
        chain(image(*LINE[1:]), "", "c4")
    with pytest.raises(LineageError):
        chain(image(row("c1", "c2"), row("c2", "c1")), "", "c1")


def test_own_writes_come_in_the_order_of_application() -> None:
    """T4: no path first, then by path, task and number; twelve stay twelve."""
    late = [WriteRow("", "c1", "f" * 8, idx, "a", "~a", 1) for idx in (1, 0)]
    other = WriteRow("", "c1", "0" * 8, 0, "a", "~b", 1)
    bare = WriteRow("", "c1", "9" * 8, 0, "a", "", 1)
    many = [WriteRow("", "c2", "t", idx, "a", "", 1) for idx in reversed(range(12))]
    found = image(writes=(*late, other, bare, *many)).own_writes
    assert found["", "c1"] == (bare, late[1], late[0], other)
    assert [write.idx for write in found["", "c2"]] == list(range(12))


def test_cut_leaves_no_link_and_no_blob_to_the_rest() -> None:
    blobs = tuple(BlobRow("", c, "1", "msgpack", 3) for c in "abz")
    whole = ThreadImage("t", LINE, (WriteRow("", "c1", "t", 0, "a", "", 1),), blobs)
    part = whole.cut([("", "c3"), ("", "c4")])
    assert [(r.checkpoint_id, r.parent_id) for r in part.checkpoints] == [
        ("c3", None),
        ("c4", "c3"),
    ]
    assert part.writes == () and [blob.channel for blob in part.blobs] == ["a", "b"]
    assert (whole.rows, part.rows) == (8, 4)
    assert set(whole.children) == {("", "c1"), ("", "c2"), ("", "c3")}


# --- properties ---------------------------------------------------------------------------------


@st.composite
def images(draw: st.DrawFn) -> ThreadImage:
    """Any links at all: forks, circles, parents that are missing or sort above their child."""
    names = [f"c{n:02}" for n in range(draw(st.integers(1, 9)))]
    some = st.sets(st.sampled_from("abc"))
    rows = []
    for name in names:
        parent = draw(st.one_of(st.none(), st.sampled_from([*names, "gone"])))
        versions = draw(some)
        stored = draw(some) & versions
        counts = "".join(sorted(draw(st.one_of(st.just(set()), some))))
        snapshots = frozenset(draw(some) & stored)
        rows.append(
            row(
                name, parent, "".join(versions), "".join(stored), counts=counts, snapshots=snapshots
            )
        )
    return image(*rows)


def attempt(found: ThreadImage, names: list[str], channels: Any) -> Any:
    try:
        return keep_all(found, "", names, channels)
    except LineageError as error:
        return error.checkpoint_id, error.missing


@given(images(), st.one_of(st.just("auto"), st.lists(st.sampled_from("abc"))))
@settings(max_examples=100, deadline=None)
def test_the_set_of_many_is_the_union_of_each(found: ThreadImage, channels: Any) -> None:
    names = [r.checkpoint_id for r in found.checkpoints]
    each = [attempt(found, [name], channels) for name in names]
    every = attempt(found, names, channels)
    if all(isinstance(one, KeepSet) for one in each):
        assert every == frozenset().union(*each)
        assert every.targets == set(names)
    else:
        assert every in each


@given(images(), st.lists(st.sampled_from("abc"), unique=True))
@settings(max_examples=100, deadline=None)
def test_the_set_is_what_each_channel_alone_asks_for(
    found: ThreadImage, channels: list[str]
) -> None:
    """Against a naive walk for one channel at a time."""
    rows = found.spaces[""]
    for name, target in rows.items():
        wanted: set[str] | None = {name}
        for channel in channels:
            if channel in target.versions and channel not in target.stored:
                path = naive(rows, target, channel)
                wanted = None if path is None or wanted is None else wanted | path
        seen = attempt(found, [name], channels)
        assert seen == wanted if wanted is not None else isinstance(seen, tuple)


def naive(rows: Any, target: CheckpointRow, channel: str) -> set[str] | None:
    path, current = [target.checkpoint_id], target
    while current.parent_id is not None:
        if current.parent_id not in rows or current.parent_id in path:
            return None
        current = rows[current.parent_id]
        path.append(current.checkpoint_id)
        if channel in current.stored:
            break
    return set(path)
