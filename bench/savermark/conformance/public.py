"""The public conformance suite of LangGraph, as rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks

from savermark.conformance.apis import AsyncFace, SyncApi
from savermark.conformance.model import Row, Status

if TYPE_CHECKING:
    from savermark.conformance.apis import Api

GROUP = "public"


async def public_rows(api: Api) -> list[Row]:
    """Every test of every capability the saver has; one row for one it has not."""
    tested = AsyncFace.of(api.saver) if isinstance(api, SyncApi) else api.saver
    rows: list[Row] = []

    async def factory() -> AsyncIterator[Any]:
        yield tested

    def begin(capability: str, detected: bool) -> None:
        if not detected:
            detail = f"no {capability}"
            rows.append(Row(api.name, GROUP, capability, "all", Status.UNSUPPORTED, detail))

    def end(capability: str, test: str, passed: bool, trace: str | None) -> None:
        name = test.removeprefix("test_").removeprefix(f"{capability}_").replace("_", " ")
        status, detail = (Status.OK, "") if passed else _told(trace or "")
        rows.append(Row(api.name, GROUP, capability, name, status, detail))

    progress = ProgressCallbacks(on_capability_start=begin, on_test_result=end)
    await validate(checkpointer_test(name=type(tested).__name__)(factory), progress=progress)
    return rows


def _told(trace: str) -> tuple[Status, str]:
    """The exception of a traceback on one line; an assertion means a broken rule."""
    lines = [line for line in trace.strip().splitlines() if line.strip(" ^~")] or ["nothing"]
    starts = [n for n, line in enumerate(lines) if not line.startswith((" ", "Traceback"))]
    start = starts[0] if starts else len(lines) - 1
    said = " ".join(" ".join(lines[start:]).split())
    if not said.startswith("AssertionError"):
        return Status.ERROR, said
    # A bare `assert` says nothing: its line does.
    return Status.FAILED, said.removeprefix("AssertionError").lstrip(": ") or lines[
        start - 1
    ].strip()
