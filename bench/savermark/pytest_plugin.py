"""The retention contract as tests of your own prune, on your own saver.

    pytest --savermark-contract=myapp.retention:prune
    pytest --savermark-contract=myapp.retention:prune --savermark-saver=myapp.store:make_saver

adds one test for each scenario in each mode. `prune(saver, thread_ids, protect)` is a function or
a coroutine function; what it may return is described in `savermark.contract.run.run_contract`.
Within a test of your own, the fixture `savermark_contract` runs the same:

    def test_my_prune(savermark_contract):
        savermark_contract(my_prune, saver=my_saver)
"""

# pytest loads this file wherever savermark is installed: nothing but pytest is imported until
# somebody asks for the contract.

from __future__ import annotations

import inspect
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from savermark.benchmarking import history_walk_benchmark, storage_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver

    from savermark.contract.run import Prune, Row

__all__ = ["history_walk_benchmark", "savermark_contract", "storage_snapshot"]

_NAME = "savermark-contract"
_STORE = pytest.StashKey[Any]()
_PROPERTY = "savermark_contract"  # under which a test's rows travel with its report


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, all under one heading of `pytest --help`."""
    group = parser.getgroup("savermark", "the retention contract of savermark")
    add = group.addoption
    add("--savermark-contract", metavar="MODULE:FUNCTION", help="test this prune")
    add(
        "--savermark-saver",
        metavar="BACKEND",
        default="memory",
        help="memory, sqlite, postgres, or module:factory of your own saver (default: memory)",
    )
    add("--savermark-dsn", metavar="DSN", help="the server, where the backend takes one")
    add(
        "--savermark-api",
        choices=("sync", "async"),
        help="which methods of the saver are used (default: async for a coroutine function)",
    )
    add(
        "--savermark-scenario",
        metavar="KEY",
        action="append",
        help="only this scenario, such as A or I2; may be given several times",
    )
    add("--savermark-mode", choices=("full", "delta"), help="only this kind of channels")


def pytest_configure(config: pytest.Config) -> None:
    """Say at once what is wrong with the options."""
    if not config.getoption("savermark_contract"):
        return
    from savermark.backends.registry import get_backend
    from savermark.contract.scenarios import SCENARIOS
    from savermark.errors import SavermarkError, UsageError, unknown

    try:
        _prune(config)
        get_backend(config.getoption("savermark_saver"))
        for key in config.getoption("savermark_scenario") or ():
            if key not in SCENARIOS:
                raise UsageError(unknown("scenario", key, SCENARIOS))
    except SavermarkError as error:
        raise pytest.UsageError(str(error)) from error


def _prune(config: pytest.Config) -> Prune:
    from savermark.backends.custom import load_object
    from savermark.errors import UsageError

    reference = config.getoption("savermark_contract")
    found: Any = load_object(reference, "prune", "function")
    if not callable(found):
        raise UsageError(f"prune {reference!r} is not callable: name a function")
    return found  # type: ignore[no-any-return]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the scenarios to whatever else was collected, before `-k` and the like choose."""
    if not config.getoption("savermark_contract"):
        return
    from savermark.contract.graphs import MODES
    from savermark.contract.scenarios import SCENARIOS

    prune = _prune(config)
    parent = _Contract.from_parent(session, name=_NAME, nodeid=_NAME)
    only = config.getoption("savermark_mode")
    for key in config.getoption("savermark_scenario") or SCENARIOS:
        for mode in [only] if only else MODES:
            name = f"{key}-{mode}"
            items.append(_Scenario.from_parent(parent, name=name, stage=(key, mode), prune=prune))


class _Contract(pytest.Collector):
    """The parent of the scenarios; collects nothing by itself."""

    def collect(self) -> list[pytest.Item]:
        """Nothing: the scenarios are added where the options ask for them."""
        return []


class _Scenario(pytest.Item):
    """One scenario in one mode."""

    def __init__(self, *, stage: tuple[str, str], prune: Prune, **rest: Any) -> None:
        super().__init__(**rest)
        self.stage = stage
        self.prune = prune

    def runtest(self) -> None:
        """Play it on a saver of the chosen backend."""
        from savermark.contract.report import ContractBroken

        key, mode = self.stage
        rows = _run(self.config, self.prune, scenarios=[key], modes=[mode])
        told = [[row.scenario, row.mode, row.check, row.verdict, row.detail] for row in rows]
        self.user_properties.append((_PROPERTY, json.dumps(told)))
        if not all(row.ok for row in rows):
            raise ContractBroken(rows)
        for row in rows:
            if row.check == "prune" and row.verdict == "unsupported":
                pytest.skip(row.detail)  # nothing was lost, and nothing was pruned either

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The rules that were broken; of anything else the traceback."""
        from savermark.contract.report import ContractBroken
        from savermark.errors import SavermarkError

        if isinstance(excinfo.value, ContractBroken | SavermarkError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, int | None, str]:
        """Where a report says it failed."""
        from savermark.contract.scenarios import SCENARIOS

        key, mode = self.stage
        return _NAME, None, f"{SCENARIOS[key]} ({mode})"


def _run(
    config: pytest.Config,
    prune: Prune,
    *,
    saver: BaseCheckpointSaver[Any] | None = None,
    scenarios: Collection[str] | None = None,
    modes: Collection[Any] | None = None,
) -> list[Row]:
    """The rows of these scenarios, on a given saver or on a fresh store of the chosen backend."""
    import asyncio

    from savermark.contract.graphs import MODES
    from savermark.contract.run import arun_contract, run_contract

    chosen: Any = {"scenarios": scenarios, "modes": modes or MODES}
    api = config.getoption("savermark_api")
    asynchronous = api == "async" or (api is None and inspect.iscoroutinefunction(prune))
    if saver is not None and not asynchronous:
        return list(run_contract(saver, prune, **chosen))

    async def each(on: BaseCheckpointSaver[Any]) -> list[Row]:
        return [row async for row in arun_contract(on, prune, **chosen)]

    if saver is not None:
        return asyncio.run(each(saver))
    store = _store(config)
    if not asynchronous:
        with store.saver() as opened:
            return list(run_contract(opened, prune, **chosen))

    async def on_store() -> list[Row]:
        async with store.asaver() as opened:
            return await each(opened)

    return asyncio.run(on_store())


def _store(config: pytest.Config) -> Any:
    """A fresh store of the chosen backend, made once and gone when pytest ends."""
    if (made := config.stash.get(_STORE, None)) is not None:
        return made
    import tempfile
    from contextlib import ExitStack
    from pathlib import Path

    from savermark.backends.base import Location
    from savermark.backends.registry import get_backend

    backend = get_backend(config.getoption("savermark_saver"))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="savermark-")))
        dsn = stack.enter_context(backend.service(folder, config.getoption("savermark_dsn")))
        store = backend.create(Location(folder, f"contract-{os.getpid()}", dsn))
        stack.callback(store.destroy)
        config.add_cleanup(stack.pop_all().close)
    config.stash[_STORE] = store
    return store


@pytest.fixture
def savermark_contract(request: pytest.FixtureRequest) -> Callable[..., list[Row]]:
    """Runs the contract against a prune; fails the test with a report where a rule is broken.

    `savermark_contract(prune, saver=None, scenarios=None, modes=None)` returns what was found.
    Without a saver the one of `--savermark-saver` is used.
    """

    def check(
        prune: Prune,
        saver: BaseCheckpointSaver[Any] | None = None,
        *,
        scenarios: Collection[str] | None = None,
        modes: Collection[Any] | None = None,
    ) -> list[Row]:
        from savermark.contract.report import ContractBroken

        rows = _run(request.config, prune, saver=saver, scenarios=scenarios, modes=modes)
        if not all(row.ok for row in rows):
            raise ContractBroken(rows)
        return rows

    return check


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What the prune did in each scenario; also where other processes ran them."""
    rows = list(_reported(terminalreporter))
    if not rows:
        return
    from savermark.contract.report import as_text

    config = terminalreporter.config
    on = config.getoption("savermark_saver")
    terminalreporter.section(f"{config.getoption('savermark_contract')} on {on}")
    terminalreporter.write_line(as_text(rows))


def _reported(terminalreporter: Any) -> Iterator[Row]:
    reports = [each for group in terminalreporter.stats.values() for each in group]
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == _PROPERTY and getattr(report, "when", "") == "call":
                from savermark.contract.run import Row
                from savermark.contract.scenarios import SCENARIOS

                for key, *rest in json.loads(value):
                    yield Row(key, SCENARIOS[key].title, *rest)
