"""Maintenance beside live runs and beside itself, each over a connection of its own."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

import tiny_graph
from fix_threads import Kept, at
from savermark.history.rows import row_access
from savermark.retention.apply import apply, apply_thread
from savermark.retention.fold import graph_fold
from savermark.retention.policy import parse_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from savermark.retention.records import Applied

NUMBERS = itertools.count()
WORDS = [f"w{number}" for number in range(12)]


def side_by_side(*jobs: Callable[[], object]) -> None:
    """Run these at once; what one raises is raised here."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("policy", ["keep-latest", "compact", "keep-turns=2", "older-than=0s"])
def test_a_run_that_goes_on_meanwhile_loses_nothing(kept: Kept, policy: str) -> None:
    thread, done = f"live-{next(NUMBERS)}", threading.Event()
    seen: list[Applied] = []

    def run() -> None:
        try:
            with kept.store.saver() as saver:
                graph = tiny_graph.build(saver)
                for word in WORDS:
                    graph.invoke({"said": [word]}, at(thread))
        finally:
            done.set()

    def prune() -> None:
        with kept.store.saver() as saver:
            rows, fold = row_access(saver), graph_fold(tiny_graph.build(None), saver)
            while not done.wait(0.002):
                seen.append(apply_thread(rows, thread, parse_policy(policy), fold=fold))

    side_by_side(run, prune)
    graph = tiny_graph.build(kept.saver)
    assert graph.get_state(at(thread)).values == tiny_graph.expected(WORDS)
    assert sum(each.deleted.get("checkpoints", 0) for each in seen) > 0
    last = apply_thread(kept.rows, thread, parse_policy(policy), fold=graph_fold(graph, kept.saver))
    assert not last.refused
    assert graph.get_state(at(thread)).values == tiny_graph.expected(WORDS)


def test_two_jobs_over_two_connections(kept: Kept) -> None:
    names = [f"two-{next(NUMBERS)}" for _ in range(4)]
    graph = tiny_graph.build(kept.saver)
    for name in names:
        for word in "abc":
            graph.invoke({"said": [word]}, at(name))
    found: list[Applied] = []

    def job(order: int) -> Callable[[], None]:
        def work() -> None:
            with kept.store.saver() as saver:
                rows = row_access(saver)
                found.extend(apply(rows, parse_policy("keep-latest"), threads=names[::order]))

        return work

    side_by_side(job(1), job(-1), job(1))
    assert not [each.refused for each in found if each.refused]
    for name in names:
        gone = [
            each.deleted["checkpoints"] for each in found if each.thread_id == name and each.deleted
        ]
        assert len(gone) == 1
        assert graph.get_state(at(name)).values == tiny_graph.expected("abc")


def test_a_number_as_thread_id() -> None:
    """T41: the memory saver keeps an int apart from its text."""
    saver: Any = InMemorySaver()
    graph = tiny_graph.build(saver)
    for word in "abc":
        graph.invoke({"said": [word]}, at(7))
    rows = row_access(saver)
    fold = graph_fold(graph, saver)
    (applied,) = apply(rows, parse_policy("compact"), threads=[7], fold=fold)
    assert applied.thread_id == "7" and len(rows.image(7).checkpoints) == 1
    assert graph.get_state(at(7)).values == tiny_graph.expected("abc")
