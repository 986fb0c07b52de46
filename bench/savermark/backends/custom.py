"""Any third-party saver as a backend, named `package.module:factory`.

The factory is called with those of `folder`, `name`, `dsn` and `serde` that its signature names,
and returns a saver that is ready for use, or a sync or async context manager that yields one. Only
what a saver's interface tells can be measured; the rest is unsupported.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from langgraph.checkpoint.base import BaseCheckpointSaver

from savermark.backends.base import Backend, Capability, Location, Store
from savermark.backends.plain import PlainStore
from savermark.backends.shared import one_line, versions
from savermark.errors import BackendError, SavermarkError, Unsupported, UsageError, unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.serde.base import SerializerProtocol

_OFFERED = ("folder", "name", "dsn", "serde")
_OPTIONAL = (
    "get_delta_channel_history",
    "delete_thread",
    "copy_thread",
    "delete_for_runs",
    "prune",
)
_PROBE: RunnableConfig = {"configurable": {"thread_id": "savermark-probe", "checkpoint_ns": ""}}


def load_object(reference: str, what: str = "saver", form: str = "factory") -> Any:
    """What `package.module:name` names; the name may be dotted. `what` and `form` are for messages.

    Raises `UsageError` for a malformed name and for a module or a name in it that is not there,
    `BackendError` when the module is found and raises while it is imported.
    """
    module_name, _, path = reference.partition(":")
    parts = [*module_name.split("."), *path.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise UsageError(f"{what} {reference!r} is not of the form package.module:{form}")
    here = str(Path.cwd())
    if here not in sys.path:  # a console script does not look where the user stands
        sys.path.append(here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if not _on_the_way(error.name, module_name):
            raise BackendError(
                f"{what} {reference!r} cannot be imported: {one_line(error)}"
            ) from error
        raise UsageError(
            f"{what} {reference!r} cannot be imported: {one_line(error)}: install it, or run where "
            "it lies"
        ) from error
    except Exception as error:  # an import runs foreign code: whatever it raises is its failure
        raise BackendError(f"{what} {reference!r} cannot be imported: {one_line(error)}") from error
    try:
        return attrgetter(path)(module)
    except AttributeError as error:
        public = [name for name in vars(module) if not name.startswith("_")]
        raise UsageError(unknown(f"name in {module_name}", path, public)) from error


def _on_the_way(missing: str | None, module_name: str) -> bool:
    """Whether the missing module is the one that was named, or a package that it is named in."""
    return missing is not None and f"{module_name}.".startswith(f"{missing}.")


def load_factory(reference: str) -> Callable[..., Any]:
    """The callable that `package.module:factory` names (`load_object`)."""
    factory = load_object(reference)
    if not callable(factory):
        raise UsageError(f"saver {reference!r} is not callable: name a class or a function")
    return factory  # type: ignore[no-any-return]


def _arguments(
    reference: str,
    factory: Callable[..., Any],
    location: Location,
    serde: SerializerProtocol | None,
) -> dict[str, Any]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # some C types tell no signature
        parameters = ()  # type: ignore[assignment]
    empty = inspect.Parameter.empty
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    missing = [p.name for p in named if p.default is empty and p.name not in _OFFERED]
    if missing:
        raise UsageError(
            f"saver {reference!r} needs {', '.join(missing)}: wrap it in a function that takes "
            f"none but {', '.join(_OFFERED)}"
        )
    offers = {"folder": location.folder, "name": location.name, "dsn": location.dsn, "serde": serde}
    taken = {p.name for p in named if p.name in offers}
    if serde is not None and "serde" not in taken:
        raise Unsupported(f"saver {reference!r} takes no `serde`: only its own serializer can run")
    return {name: offers[name] for name in taken}


class CustomStore(PlainStore):
    """What a factory gives, through the saver interface alone."""

    capabilities = frozenset({Capability.KEEPS})

    def __init__(self, location: Location, reference: str) -> None:
        self.location = location
        self.label = reference
        self._kept: BaseCheckpointSaver[Any] | None = None
        self._seen: type[BaseCheckpointSaver[Any]] | None = None

    def factory(self) -> Callable[..., Any]:
        """What makes the saver."""
        return load_factory(self.label)

    def _make(self, serde: SerializerProtocol | None) -> Any:
        if self._kept is not None:
            return self._kept
        factory = self.factory()
        arguments = _arguments(self.label, factory, self.location, serde)
        with self._opening():
            made = factory(**arguments)
        if isinstance(made, BaseCheckpointSaver) and not hasattr(made, "loop"):
            # A bare saver may hold its data itself, so one serves all; one bound to an event loop
            # cannot.
            self._kept = made
        return made

    def _checked(self, saver: Any) -> BaseCheckpointSaver[Any]:
        if not isinstance(saver, BaseCheckpointSaver):
            raise BackendError(
                f"saver {self.label!r} gave an object of type {type(saver).__name__}, not a "
                "BaseCheckpointSaver: return a saver or a context manager that yields one"
            )
        self._seen = type(saver)
        return saver

    def _lacks(self, api: str, other: str) -> Unsupported:
        return Unsupported(
            f"saver {self.label!r} has no {api} methods: run it with api = {other} (--api {other})"
        )

    @contextmanager
    def saver(self, serde: SerializerProtocol | None = None) -> Iterator[BaseCheckpointSaver[Any]]:
        """The factory's saver, probed for its sync methods."""
        made = self._make(serde)
        if inspect.iscoroutine(made):
            made.close()
        with ExitStack() as stack:
            if not isinstance(made, BaseCheckpointSaver):
                if isinstance(made, AbstractContextManager):
                    with self._opening():
                        made = stack.enter_context(made)
                elif isinstance(made, AbstractAsyncContextManager) or inspect.isawaitable(made):
                    raise self._lacks("sync", "async")
            yield self._probed(made)

    @asynccontextmanager
    async def asaver(
        self, serde: SerializerProtocol | None = None
    ) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        """The factory's saver, probed for its async methods."""
        made = self._make(serde)
        async with AsyncExitStack() as stack:
            with self._opening():
                if inspect.isawaitable(made):
                    made = await made
                if isinstance(made, BaseCheckpointSaver):
                    pass
                elif isinstance(made, AbstractAsyncContextManager):
                    made = await stack.enter_async_context(made)
                elif isinstance(made, AbstractContextManager):
                    made = stack.enter_context(made)
            yield await self._aprobed(made)

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            yield
        except SavermarkError:
            raise
        except Exception as error:  # foreign code: whatever it raises is its failure
            raise BackendError(f"saver {self.label!r} failed to open: {one_line(error)}") from error

    def _probed(self, saver: Any) -> BaseCheckpointSaver[Any]:
        checked = self._checked(saver)
        try:
            checked.get_tuple(_PROBE)
        except NotImplementedError as error:
            raise self._lacks("sync", "async") from error
        except Exception as error:  # foreign code
            raise self._unread(error) from error
        return checked

    async def _aprobed(self, saver: Any) -> BaseCheckpointSaver[Any]:
        checked = self._checked(saver)
        try:
            await checked.aget_tuple(_PROBE)
        except NotImplementedError as error:
            raise self._lacks("async", "sync") from error
        except Exception as error:  # foreign code
            raise self._unread(error) from error
        return checked

    def _unread(self, error: Exception) -> BackendError:
        return BackendError(
            f"saver {self.label!r} cannot be read ({one_line(error)}): if it needs its setup(), "
            "call that in the factory"
        )

    def describe(self) -> dict[str, Any]:
        """The saver's class, its package's version and which optional methods it overrides."""
        package = self.label.partition(":")[0].partition(".")[0]
        facts: dict[str, Any] = {"backend": self.label}
        facts["versions"] = versions(
            "langgraph-checkpoint", *dict.fromkeys(packages_distributions().get(package, ()))
        )
        if self._seen is not None:
            base, seen = BaseCheckpointSaver, self._seen
            facts["saver"] = f"{seen.__module__}.{seen.__qualname__}"
            facts["overrides"] = [
                name for name in _OPTIONAL if getattr(seen, name, None) is not getattr(base, name)
            ]
        return facts


@cache
def custom_backend(reference: str) -> type[Backend]:
    """A backend for the saver that `package.module:factory` names; fails early on a wrong name."""
    load_factory(reference)

    class CustomBackend(Backend):
        name: ClassVar[str] = reference
        title: ClassVar[str] = f"the saver of {reference}"
        store_type: ClassVar[type[Store]] = CustomStore

        @classmethod
        def create(cls, location: Location) -> Store:
            """A store on what the factory gives: point it at something empty."""
            return CustomStore(location, reference)

        @classmethod
        def attach(cls, location: Location) -> Store:
            """Calls the factory anew; what it finds there is its own affair."""
            return CustomStore(location, reference)

    return CustomBackend
