"""A verb of `savermark db`, called as a person would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from db_help import Caller


@pytest.fixture
def db(capsys: pytest.CaptureFixture[str]) -> Caller:
    """`db("prune", uri, ...)` returns exit code, stdout and stderr."""
    from db_help import Caller  # it imports plugins, which must not happen while they load

    return Caller(capsys)
