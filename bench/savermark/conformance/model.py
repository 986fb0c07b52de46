"""Checks and the rows they yield."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from savermark.conformance.apis import Api


class Status(StrEnum):
    """What came of a check. `failed`: the rule is broken; `error`: the saver raised."""

    OK = "ok"
    FAILED = "failed"
    ERROR = "error"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Row:
    """One check on one api of a saver; `detail` is one line, empty where all is well."""

    api: str
    group: str
    capability: str
    check: str
    status: Status
    detail: str = ""


class Missing(Exception):
    """The saver lacks what the check is about: the row is `unsupported`."""


Run = Callable[["Api"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """A rule in words, and the coroutine that raises `AssertionError` where it is broken.

    It is driven by both apis and awaits nothing but the `Api` it is given.
    """

    group: str
    capability: str
    name: str
    run: Run


class Checks(list[Check]):
    """The checks of one file, in the order in which they are written."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self.group = group

    def rule(self, capability: str, name: str) -> Callable[[Run], Run]:
        """Register a coroutine as the check of this rule."""

        def register(run: Run) -> Run:
            self.append(Check(self.group, capability, name, run))
            return run

        return register


def same(seen: object, wanted: object, what: str) -> None:
    """Fail where the two differ, with both in the message."""
    if seen != wanted:
        fail(f"{what}: {_short(seen)} instead of {_short(wanted)}")


def fail(reason: str) -> NoReturn:
    """The rule is broken."""
    raise AssertionError(reason)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


async def outcome(check: Check, api: Api) -> Row:
    """Run one check."""
    status, detail = Status.OK, ""
    try:
        await check.run(api)
    except Missing as reason:
        status, detail = Status.UNSUPPORTED, str(reason)
    except AssertionError as broken:
        status, detail = Status.FAILED, str(broken)
    except Exception as error:  # foreign code: whatever it raises is its failure
        status, detail = Status.ERROR, f"{type(error).__name__}: {error}"
    return Row(
        api.name, check.group, check.capability, check.name, status, " ".join(detail.split())
    )
