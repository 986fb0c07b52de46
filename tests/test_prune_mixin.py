"""The mixin for authors: four hooks give cleanup that leaves delta channels whole."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import tiny_graph
from fix_threads import Hand, at
from mixed_savers import MixedMemorySaver, async_sqlite
from savermark.conformance import Status, run_conformance
from savermark.errors import ContractError, UsageError
from savermark.history.rows import row_access
from savermark.retention.mixin import DeltaChannelAwarePruneMixin
from test_runs import _asking


@pytest.mark.parametrize(
    ("factory", "lacking"), [(MixedMemorySaver, set()), (async_sqlite, {"sync"})]
)
def test_four_hooks_pass_every_check(factory: Any, lacking: set[str]) -> None:
    """The async saver's sync methods are refused by its own loop, so that api is not there."""
    rows = run_conformance(factory, groups=["public", "cleanup"])
    wrong = [row for row in rows if row.status is not Status.OK]
    assert {row.api for row in wrong} == lacking
    assert all(row.status is Status.UNSUPPORTED for row in wrong)
    assert {row.capability for row in rows} >= {"prune", "copy_thread", "delete_for_runs"}


def test_delta_channels_may_be_named() -> None:
    class Named(MixedMemorySaver):
        DELTA_CHANNELS = ("said",)

    saver = Named()
    graph = tiny_graph.build(saver)
    words = ["a", "b", "c", "d", "e", "f"]
    for word in words:
        graph.invoke({"said": [word]}, at("t"))
    before = len(list(saver.list(at("t"))))
    saver.prune(["t"])
    assert 1 < len(list(saver.list(at("t")))) < before
    assert graph.get_state(at("t")).values == tiny_graph.expected(words)


def test_a_run_that_answered_stays_where_its_writes_cannot_be_told_apart() -> None:
    saver = MixedMemorySaver()
    graph = _asking(saver, inner=False)
    graph.invoke({"said": ["hello"]}, {**at("t"), "metadata": {"run_id": "one"}})
    answered = graph.invoke(Command(resume="yes"), {**at("t"), "metadata": {"run_id": "two"}})
    saver.delete_for_runs(["two"])
    assert graph.get_state(at("t")).values == answered


def _broken(saver: Any, thread: str) -> None:
    hand = Hand(saver, thread)
    hand.put("c2", "c1", moved=["d"], counts=["d"], metadata={"run_id": "r"})
    hand.put("c3", "c2", moved=["d"], counts=["d"])


@pytest.mark.parametrize("api", ["sync", "async"])
def test_a_broken_chain_is_left_alone_and_named(api: str) -> None:
    saver = MixedMemorySaver()
    _broken(saver, "bad")
    Hand(saver, "good").put("c1", values={"x": 1}, metadata={"run_id": "r"}).put("c2", "c1")
    bad = row_access(saver).image("bad")

    def clean(method: str, *args: Any) -> None:
        if api == "sync":
            getattr(saver, method)(*args)
        else:
            asyncio.run(getattr(saver, f"a{method}")(*args))

    with pytest.raises(ContractError, match=r"'bad'.*c1, which is not stored"):
        clean("prune", ["bad", "good"])
    assert len(row_access(saver).image("good").checkpoints) == 1
    with pytest.raises(ContractError, match="'bad'"):
        clean("delete_for_runs", ["r"])
    assert row_access(saver).image("bad") == bad
    clean("copy_thread", "bad", "copy")
    assert row_access(saver).image("copy").rows == bad.rows


def test_wrong_arguments() -> None:
    saver = MixedMemorySaver()
    Hand(saver, "t").put("c1")
    Hand(saver, "used").put("c1")
    with pytest.raises(TypeError, match="not a str"):
        saver.prune("t")
    with pytest.raises(TypeError, match="not a str"):
        saver.delete_for_runs("t")
    with pytest.raises(ValueError, match="unknown prune strategy"):
        saver.prune(["t"], strategy="all")
    for source, target, words in (
        ("t", "t", "to itself"),
        ("no", "x", "holds no checkpoints"),
        ("t", "used", "holds rows already"),
    ):
        with pytest.raises(UsageError, match=words):
            saver.copy_thread(source, target)


def test_a_missing_hook_is_not_silent() -> None:
    class Bare(DeltaChannelAwarePruneMixin, InMemorySaver):
        pass

    with pytest.raises(NotImplementedError):
        Bare().prune(["t"])
