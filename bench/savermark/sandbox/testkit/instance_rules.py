"""Rules of the instance store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from savermark.sandbox.records import SandboxInstance
from savermark.sandbox.testkit.harness import Bench, RuleBook, expect, expect_equal

RULES = RuleBook("instances")


def _record(key: str, **fields: Any) -> SandboxInstance:
    base = SandboxInstance(key, "cloud", "sb-1", "thread", 1_000.5, "snap-1", "run-1")
    return replace(base, **fields)


@RULES.rule()
async def a_missing_record_is_none(bench: Bench) -> None:
    """Get of a key that was never stored gives None."""
    expect_equal(await bench.store.get("nothing"), None, "get")


@RULES.rule()
async def every_field_comes_back(bench: Bench) -> None:
    """Get returns the fields as they were stored."""
    full = _record("full", provider="é 😀", provider_sandbox_id="'; --")
    await bench.store.upsert(full)
    expect_equal(await bench.store.get("full"), full, "get")


@RULES.rule()
async def absent_fields_stay_absent(bench: Bench) -> None:
    """An optional field that was not stored is None."""
    bare = _record("bare", latest_snapshot_id=None, latest_run_id=None)
    await bench.store.upsert(bare)
    expect_equal(await bench.store.get("bare"), bare, "get")


@RULES.rule()
async def upsert_replaces_the_whole_record(bench: Bench) -> None:
    """The last write wins, and clears the optional fields that it leaves out."""
    await bench.store.upsert(_record("key"))
    bare = SandboxInstance("key", "other", "sb-2", "thread-2", 500.0)
    await bench.store.upsert(bare)
    expect_equal(await bench.store.get("key"), bare, "get")


@RULES.rule()
async def records_are_independent(bench: Bench) -> None:
    """A write or delete of one key leaves the others alone, however alike they are."""
    keys = ["a", "A", "a ", "é", "e\u0301", "%", "a%"]
    for key in keys:
        await bench.store.upsert(_record(key, provider_sandbox_id=f"sb {key}"))
    await bench.store.delete("a")
    await bench.store.upsert(_record("A", provider="new"))
    for key in keys[2:]:
        wanted = _record(key, provider_sandbox_id=f"sb {key}")
        expect_equal(await bench.store.get(key), wanted, f"get {key!r}")
    expect_equal(await bench.store.get("a"), None, "get of the deleted key")


@RULES.rule()
async def delete_of_a_missing_key_is_no_error(bench: Bench) -> None:
    """Delete removes the record, and does nothing the second time."""
    await bench.store.upsert(_record("key"))
    for _ in range(2):
        await bench.store.delete("key")
        expect_equal(await bench.store.get("key"), None, "get after delete")


@RULES.rule()
async def concurrent_upserts_leave_one_whole_record(bench: Bench) -> None:
    """After upserts at one time the record is one of them, not a mixture."""
    tries = [
        _record("key", provider=f"p{at}", provider_sandbox_id=f"s{at}", updated_at=float(at))
        for at in range(10)
    ]
    await asyncio.gather(*(bench.store.upsert(item) for item in tries))
    expect(await bench.store.get("key") in tries, "the record is one of those written")
