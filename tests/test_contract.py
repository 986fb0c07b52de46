"""The contract's scenarios: what passes them, and that each kind of wrong prune is caught."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import _messages_delta_reducer

from fix_threads import STORES, Kept
from savermark.backends.base import Location
from savermark.backends.registry import get_backend
from savermark.contract.graphs import MODES, chat
from savermark.contract.report import ContractBroken, as_markdown, as_text
from savermark.contract.run import RULES, Row, arun_contract, run_contract
from savermark.contract.scenarios import SCENARIOS
from savermark.errors import UsageError
from savermark.graphs.channels import extend_all
from savermark.history.arows import arow_access
from savermark.history.lineage import keep_all
from savermark.history.rows import row_access
from savermark.retention.apply import apply
from savermark.retention.findings import CHECKS
from savermark.retention.fold import reducer_fold
from savermark.retention.policy import parse_policy
from savermark.retention.records import Applied, ThreadPlan
from savermark.retention.savers import RetainingInMemorySaver

if TYPE_CHECKING:
    from collections.abc import Collection


def by_policy(policy: str) -> Any:
    """The product's own retention as a prune."""

    def prune(saver: Any, threads: list[str], protect: Collection[str]) -> list[Applied]:
        terms = parse_policy(policy)
        return list(apply(row_access(saver), terms, threads=threads, protect=protect))

    return prune


def silent(saver: Any, threads: list[str], protect: Collection[str]) -> None:
    """A careful prune that tells nothing of what it did: heads, protected ids, keep-sets."""
    for thread in threads:
        with row_access(saver).transaction(thread) as txn:
            image = txn.image()
            live = [s for s in image.spaces if ":" not in s]
            for space in live:
                wanted = {image.heads[space].checkpoint_id, *protect}
                for root in [image.heads[""].checkpoint_id, *protect]:
                    wanted |= {max((i for i in image.spaces[space] if i < root), default="")}
                kept = keep_all(image, space, wanted)
                gone = [(space, one) for one in image.spaces[space] if one not in kept]
                txn.delete_writes_of(gone)
                txn.delete_checkpoints(gone)
            _sweep(txn)


def _sweep(txn: Any) -> None:
    """Cut links to what is gone, and delete what nothing refers to."""
    left = txn.image()
    roots = left.spaces[""]
    dead = [
        row.key
        for row in left.checkpoints
        if ":" in row.checkpoint_ns and row.metadata["parents"][""] not in roots
    ]
    txn.delete_writes_of(dead)
    txn.delete_checkpoints(dead)
    left = txn.image()
    for row in left.checkpoints:
        if row.parent_id and left.row(row.checkpoint_ns, row.parent_id) is None:
            txn.reparent(*row.key, None)
    named = {(r.checkpoint_ns, *pair) for r in left.checkpoints for pair in r.versions.items()}
    txn.delete_blobs(blob.key for blob in left.blobs if blob.key not in named)


def naive(saver: Any, threads: list[str], protect: Collection[str]) -> None:
    """Delete all but the newest row of each namespace."""
    for thread in threads:
        with row_access(saver).transaction(thread) as txn:
            heads = {head.key for head in txn.image().heads.values()}
            gone = [row.key for row in txn.image().checkpoints if row.key not in heads]
            txn.delete_writes_of(gone)
            txn.delete_checkpoints(gone)
            _sweep(txn)


def told(rows: list[Row]) -> str:
    return as_text([row for row in rows if not row.ok])


@pytest.mark.parametrize("mode", MODES)
def test_keep_latest_passes_every_scenario(kept: Kept, mode: Any) -> None:
    rows = list(run_contract(kept.saver, by_policy("keep-latest"), modes=[mode]))
    assert all(row.ok for row in rows), told(rows)
    assert {row.scenario for row in rows} == set(SCENARIOS)
    assert {row.check for row in rows} == set(RULES)
    left = {row.scenario: int(row.detail.split()[0]) for row in rows if row.check == "prune"}
    had = {row.scenario: int(row.detail.split()[2]) for row in rows if row.check == "prune"}
    assert all(left[key] < had[key] for key in SCENARIOS)  # each scenario lets something go


def test_compact_passes_every_scenario(kept: Kept) -> None:
    """Folded onto the kept checkpoints, nothing else is needed: as few stay as in full mode."""
    reducers = dict.fromkeys(("facts", "log", "steps"), extend_all)

    def prune(saver: Any, threads: list[str], protect: Collection[str]) -> list[Applied]:
        fold = reducer_fold({"messages": _messages_delta_reducer, **reducers}, saver)
        policy = parse_policy("compact")
        return list(apply(row_access(saver), policy, threads=threads, protect=protect, fold=fold))

    rows = list(run_contract(kept.saver, prune, modes=["delta"]))
    assert all(row.ok for row in rows), told(rows)
    left = {row.scenario: row.detail.split()[0] for row in rows if row.check == "prune"}
    assert left["D"] == left["A"] == "1"
    assert left["H"] == "2"


def test_a_saver_that_prunes_itself_passes_where_nothing_is_protected() -> None:
    def prune(saver: Any, threads: list[str], protect: Collection[str]) -> None:
        saver.prune(threads, strategy="keep_latest")

    chosen = ["A", "D", "E1", "E2", "G2", "I2"]
    rows = list(run_contract(RetainingInMemorySaver(), prune, scenarios=chosen))
    assert all(row.ok for row in rows), told(rows)


def test_a_prune_that_tells_nothing_passes_too() -> None:
    rows = list(run_contract(InMemorySaver(), silent))
    assert all(row.ok for row in rows), told(rows)


@pytest.mark.parametrize(
    "policy", ["keep-turns=2", "duration-leaves,leaf-siblings", "keep-latest,duration-leaves"]
)
def test_other_policies_pass(policy: str) -> None:
    rows = list(run_contract(InMemorySaver(), by_policy(policy)))
    assert all(row.ok for row in rows), told(rows)


@pytest.mark.parametrize("store", STORES)
def test_async_savers_and_prunes(store: str, tmp_path: Path, request: Any) -> None:
    dsn = request.getfixturevalue("postgres_dsn") if store == "postgres" else None
    made = get_backend(store).create(Location(tmp_path, "contract", dsn))

    async def prune(saver: Any, threads: list[str], protect: Collection[str]) -> list[Applied]:
        async with arow_access(saver) as rows:
            done: list[Applied] = await rows.run(
                lambda rows: list(
                    apply(rows, parse_policy("keep-latest"), threads=threads, protect=protect)
                )
            )
        return done

    async def run() -> list[Row]:
        async with made.asaver() as saver:
            chosen = ["C", "D", "F", "I2"]
            return [row async for row in arun_contract(saver, prune, scenarios=chosen)]

    try:
        rows = asyncio.run(run())
    finally:
        made.destroy()
    assert all(row.ok for row in rows), told(rows)
    assert len({(row.scenario, row.mode) for row in rows}) == 8


def test_the_naive_prune_fails_every_scenario_that_it_breaks() -> None:
    rows = list(run_contract(InMemorySaver(), naive))
    broken = {(row.scenario, row.mode) for row in rows if not row.ok}
    delta = {key for key, mode in broken if mode == "delta"}
    full = {key for key, mode in broken if mode == "full"}
    assert delta == set(SCENARIOS) - {"E2", "G2"}  # their heads happen to store a snapshot
    # In full mode the newest row suffices, but for what is protected and for an older replay.
    assert full == {"B", "C", "F", "G1", "H", "I1"}
    rules = {row.check for row in rows if not row.ok}
    assert rules == {"latest", "resume", "branch", "values", "pending", "goes-on"}


def _fault(plant: Any) -> Any:
    """A prune that does nothing but harm."""

    def prune(saver: Any, threads: list[str], protect: Collection[str]) -> None:
        with row_access(saver).transaction(threads[0]) as txn:
            plant(txn, txn.image())

    return prune


def _drop_pending(txn: Any, image: Any) -> None:
    txn.delete_writes_of([image.heads[""].key])


def _drop_one_ancestor(txn: Any, image: Any) -> None:
    keys = sorted(image.spaces[""])
    txn.delete_checkpoints([("", keys[len(keys) // 2])])


def _drop_blobs_of_the_leaf(txn: Any, image: Any) -> None:
    """What a deleted duration-only leaf named, its parent names too."""
    leaf = image.heads[""]
    gone = [row.key for row in image.checkpoints if row.checkpoint_id != leaf.parent_id]
    txn.delete_writes_of(gone)
    txn.delete_checkpoints(gone)
    _sweep(txn)
    txn.delete_blobs(("", *pair) for pair in leaf.versions.items())


def _reparent_link(txn: Any, image: Any) -> None:
    """A graft that forgets the writes of the link."""
    link = max(
        row.checkpoint_id
        for row in image.checkpoints
        if "run_durations" in row.metadata and image.own_writes.get(row.key)
    )
    row = image.row("", link)
    for child in image.children[("", link)]:
        txn.reparent("", child.checkpoint_id, row.parent_id)
    txn.delete_writes_of([("", link)])
    txn.delete_checkpoints([("", link)])


def _drop_twin(txn: Any, image: Any) -> None:
    txn.beside(f"{image.thread_id}-twin").delete_all()


@pytest.mark.parametrize(
    ("scenario", "mode", "plant", "rules"),
    [
        ("D", "full", _drop_pending, {"latest", "pending", "goes-on"}),
        ("I2", "full", _drop_pending, {"latest", "pending", "goes-on"}),
        ("G2", "full", _drop_pending, {"latest", "pending"}),
        ("B", "full", _drop_one_ancestor, {"branch", "orphans"}),
        ("E1", "full", _drop_blobs_of_the_leaf, {"latest", "values", "goes-on"}),
        ("F", "delta", _reparent_link, {"latest", "values", "goes-on"}),
        ("A", "full", _drop_twin, {"others"}),
    ],
)
def test_a_planted_fault_is_caught(scenario: str, mode: Any, plant: Any, rules: set[str]) -> None:
    prune = _fault(plant)
    rows = list(run_contract(InMemorySaver(), prune, scenarios=[scenario], modes=[mode]))
    assert rules <= {row.check for row in rows if not row.ok}, as_text(rows)


def test_a_prune_that_ignores_protected_ids_fails() -> None:
    def prune(saver: Any, threads: list[str], protect: Collection[str]) -> Any:
        return by_policy("keep-latest")(saver, threads, ())

    rows = list(run_contract(InMemorySaver(), prune, scenarios=["C"], modes=["full"]))
    assert "(protected) is gone" in told(rows)


def test_a_prune_of_two_parameters_is_called_and_not_told_the_protected_ids() -> None:
    def two(saver: Any, threads: list[str]) -> Any:
        return by_policy("keep-latest")(saver, threads, ())

    rows = list(run_contract(InMemorySaver(), two, scenarios=["A", "C"], modes=["full"]))
    assert {r.scenario: r.ok for r in rows if r.check == "resume"} == {"A": True, "C": False}
    assert all(r.ok for r in rows if r.scenario == "A")


def test_a_refusal_passes_where_nothing_changed() -> None:
    def raises(saver: Any, threads: list[str], protect: Collection[str]) -> None:
        raise NotImplementedError("no delta channels")

    def says(saver: Any, threads: list[str], protect: Collection[str]) -> ThreadPlan:
        return ThreadPlan(threads[0], refused="no delta channels")

    def lies(saver: Any, threads: list[str], protect: Collection[str]) -> ThreadPlan:
        naive(saver, threads, protect)
        return says(saver, threads, protect)

    for prune in (raises, says, by_policy("refuse")):
        rows = list(run_contract(InMemorySaver(), prune, scenarios=["A"], modes=["delta"]))
        assert all(row.ok for row in rows)
        assert rows[0].verdict == "unsupported"
        assert rows[0].detail.startswith("refused: ")
    rows = list(run_contract(InMemorySaver(), lies, scenarios=["A"], modes=["delta"]))
    assert "resume" in {row.check for row in rows if not row.ok}


def test_a_prune_that_raises_is_a_failure_and_the_rest_goes_on() -> None:
    def prune(saver: Any, threads: list[str], protect: Collection[str]) -> None:
        raise ZeroDivisionError("by nought")

    rows = list(run_contract(InMemorySaver(), prune, scenarios=["A", "C"], modes=["full"]))
    assert [(row.check, row.verdict) for row in rows] == [("prune", "failed")] * 2
    assert "ZeroDivisionError: by nought" in as_text(rows)
    with pytest.raises(ContractBroken, match="by nought"):
        raise ContractBroken(rows)


def test_nothing_is_left_on_the_saver() -> None:
    saver = InMemorySaver()
    list(run_contract(saver, silent, scenarios=["A"]))
    assert list(row_access(saver).threads()) == []


def test_misuse_is_named() -> None:
    async def prune(saver: Any, threads: list[str], protect: Collection[str]) -> None:
        pass

    with pytest.raises(UsageError, match="api async"):
        list(run_contract(InMemorySaver(), prune, scenarios=["A"]))
    with pytest.raises(UsageError, match="unknown scenario 'A1'"):
        list(run_contract(InMemorySaver(), silent, scenarios=["A1"]))
    with pytest.raises(UsageError, match="unknown mode"):
        list(run_contract(InMemorySaver(), silent, modes=["half"]))  # type: ignore[list-item]
    with pytest.raises(UsageError, match="must return None, plans"):
        list(run_contract(InMemorySaver(), lambda *given: 7, scenarios=["A"]))


def test_the_markdown_has_a_row_a_scenario() -> None:
    rows = list(run_contract(InMemorySaver(), naive, scenarios=["A", "C"]))
    lines = as_markdown(rows).splitlines()
    assert len(lines) == 2 + 4
    assert lines[2].startswith("| A: a thread that grows | full | 1 of 18 checkpoints are left |")
    assert "latest resume: the newest state" in lines[3]


def test_the_docs_name_every_scenario_and_check_and_their_example_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (Path(__file__).parents[1] / "docs" / "contract.md").read_text(encoding="utf-8")
    for name in [*CHECKS.values(), *SCENARIOS]:
        assert re.search(rf"^\|.*\b{name}\b", text, re.MULTILINE), name
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert example is not None
    saver = InMemorySaver()
    graph = chat("delta", []).compile(checkpointer=saver)
    for word in ("one", "two", "three"):
        given = {"messages": [HumanMessage(word, id=word)]}
        graph.invoke(given, {"configurable": {"thread_id": "thread-1"}})
    exec(example[1], {"saver": saver, "graph": graph})
    assert "ok: 1 thread read back as promised" in capsys.readouterr().out
