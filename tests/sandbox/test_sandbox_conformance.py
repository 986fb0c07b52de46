"""Our stores keep every rule of the kit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sandbox_stores import Opener, open_memory, plant, postgres_opener, sqlite_opener

from savermark.sandbox.testkit import (
    CheckpointStoreSuite,
    InstanceStoreSuite,
    RuleStatus,
    StoreOptions,
    run_conformance,
)


class Checkpoints(CheckpointStoreSuite):
    opener: Opener

    def store(self, options: StoreOptions) -> Any:
        return self.opener(options)

    async def plant(self, store: Any, checkpoint: Any) -> None:
        await plant(store, checkpoint)


class Instances(InstanceStoreSuite):
    opener: Opener

    @asynccontextmanager
    async def store(self, options: StoreOptions) -> AsyncIterator[Any]:
        async with self.opener(options) as store:
            yield store.instances


class OnMemory:
    @pytest.fixture(autouse=True)
    def _open(self) -> None:
        self.opener = open_memory


class OnSqlite:
    @pytest.fixture(autouse=True)
    def _open(self, tmp_path: Path) -> None:
        self.opener = sqlite_opener(tmp_path)


class OnPostgres:
    @pytest.fixture(autouse=True)
    def _open(self, postgres_dsn: str) -> None:
        self.opener = postgres_opener(postgres_dsn)


class TestMemory(OnMemory, Checkpoints):
    pass


class TestSqlite(OnSqlite, Checkpoints):
    pass


class TestPostgres(OnPostgres, Checkpoints):
    pass


class TestMemoryInstances(OnMemory, Instances):
    pass


class TestSqliteInstances(OnSqlite, Instances):
    pass


class TestPostgresInstances(OnPostgres, Instances):
    pass


def test_report_without_pytest() -> None:
    report = run_conformance(open_memory, plant=plant)
    assert report.failed == ()
    assert report.ok
    assert report.count(RuleStatus.PASSED) == len(report.results)
    assert all(result.says for result in report.results)
