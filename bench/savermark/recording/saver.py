"""`RecordingSaver` wraps any saver and times each call from outside."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from savermark.recording.calls import timed_methods

if TYPE_CHECKING:
    from collections.abc import Collection

    from savermark.recording.recorder import Recorder


class RecordingSaver(BaseCheckpointSaver[Any]):
    """Wraps `inner` and files each call's time in `recorder`; otherwise behaves as `inner`.

    A method that `inner` does not override is not overridden here either, so capability detection
    by class sees what it would see on `inner`. A plain call that raises leaves no sample.
    """

    inner: BaseCheckpointSaver[Any]
    recorder: Recorder

    def __new__(cls, inner: BaseCheckpointSaver[Any], recorder: Recorder) -> RecordingSaver:
        # The methods are closures over the inner saver's bound methods, static on a class of this
        # one wrapper: each attribute looked up per call would cost 30 to 50 ns of a 7 us `put`.
        methods = {name: staticmethod(call) for name, call in timed_methods(inner, recorder)}
        return super().__new__(type(f"Recording{type(inner).__name__}", (cls,), methods))

    def __init__(self, inner: BaseCheckpointSaver[Any], recorder: Recorder) -> None:
        self.__dict__.update(inner=inner, recorder=recorder)

    @property
    def serde(self) -> Any:
        """The inner saver's serializer: there is no second one."""
        return self.inner.serde

    @serde.setter
    def serde(self, value: Any) -> None:
        self.inner.serde = value

    @property
    def config_specs(self) -> list[Any]:
        """The inner saver's."""
        return self.inner.config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The inner saver's: version formats differ between savers."""
        return self.inner.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> RecordingSaver:
        """The inner saver's clone, wrapped again over the same recorder."""
        clone = self.inner.with_allowlist(extra_allowlist)
        return self if clone is self.inner else RecordingSaver(clone, self.recorder)

    def __copy__(self) -> RecordingSaver:
        return RecordingSaver(copy.copy(self.inner), self.recorder)

    def __getattr__(self, name: str) -> Any:
        if name in ("inner", "recorder"):  # not yet initialised: do not recurse
            raise AttributeError(name)
        return getattr(self.inner, name)
