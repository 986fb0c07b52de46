"""A saver that somebody holds in his hands, probed where it is."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savermark.backends.base import Capability, Location
from savermark.backends.plain import PlainStore
from savermark.errors import BackendError, Unsupported, UsageError
from savermark.probe.model import OWN, Ask, Probe
from savermark.probe.run import probe_store
from savermark.script import write_script
from savermark.spec import load_workload
from savermark.trial.case import Case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol

#: What is played on a saver when nothing else is asked for: one thread in delta mode.
WORKLOAD = "chat"
_KEYS = ("conversation.threads=1", 'run.api="sync"', 'state.messages.kind="delta"')


class GivenStore(PlainStore):
    """A store whose saver is there already; it is neither opened nor closed here."""

    capabilities = frozenset({Capability.KEEPS})

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self.given = saver
        self.label = type(saver).__name__
        self.location = Location(Path(), "given")

    @contextmanager
    def saver(self, serde: SerializerProtocol | None = None) -> Iterator[BaseCheckpointSaver[Any]]:
        """The saver itself; a workload's serializer is not forced on it."""
        yield self.given

    def asaver(self, serde: SerializerProtocol | None = None) -> Any:
        """Unsupported: a test of pytest-benchmark has no event loop."""
        raise Unsupported(f"{self.label} is probed by its sync methods only")

    def describe(self) -> dict[str, Any]:
        """The engine's version where the saver's connection tells it."""
        facts: dict[str, Any] = {"backend": self.label}
        connection = getattr(self.given, "conn", None)
        info = getattr(connection, "info", None)
        if isinstance(connection, sqlite3.Connection):
            facts["sqlite"] = sqlite3.sqlite_version
        elif info is not None:
            facts["server"] = info.parameter_status("server_version")
        return facts


def given_case(saver: BaseCheckpointSaver[Any], turns: int, workload: str = WORKLOAD) -> Case:
    """One thread of a workload in delta mode on this saver. Raises `UsageError`."""
    variants = load_workload(workload, [*_KEYS, f"conversation.turns={turns}"])
    if len(variants) != 1:
        raise UsageError(f"workload {workload!r} is a sweep: name one that is not, such as 'chat'")
    return Case(workload, "", variants[0].spec, f"given:{type(saver).__name__}")


def probe_saver(saver: BaseCheckpointSaver[Any], case: Case, walks: tuple[str, ...]) -> Probe:
    """Play the case on an empty saver, and count; the thread stays there.

    Raises `UsageError` for a saver that holds the thread already, `Unsupported` for one without
    sync methods, `BackendError` where a state reads back wrong.
    """
    thread_id = thread_of(case)
    try:
        there = saver.get_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
    except NotImplementedError as error:
        name = type(saver).__name__
        raise Unsupported(f"a {name} has no sync methods: give its sync twin") from error
    if there is not None:
        raise UsageError(f"the saver holds thread {thread_id!r} already: give an empty one")
    found = probe_store(case, GivenStore(saver), Ask(walks=(OWN, *walks)))
    if found.cause:
        raise BackendError(f"{type(saver).__name__}: {found.cause}")
    return replace(found, case_id=f"{case.workload}@{type(saver).__name__}")


def thread_of(case: Case) -> str:
    """The thread that a case with one thread plays."""
    thread_id: str = write_script(case.spec)[0].thread_id
    return thread_id
