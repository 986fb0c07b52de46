"""Finds a store factory by name, for the command line."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.errors import UsageError

if TYPE_CHECKING:
    from savermark.sandbox.testkit.harness import StoreFactory


def load_factory(name: str) -> StoreFactory:
    """The factory of `module:factory`, looked for in the current folder too.

    Raises `UsageError` for a name of another form, and for what cannot be imported or called.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UsageError(
            f"{name!r} names no factory: write module:factory, e.g. my_store:open_store"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        factory = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot load {name!r}: {error}") from error
    if not callable(factory):
        raise UsageError(f"{name!r} cannot be called: name a function that takes StoreOptions")
    found: StoreFactory = factory
    return found
