"""What a trial measures: a workload with every key fixed, on one backend."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from savermark.backends.base import Location
from savermark.spec import SAVERS, Schema, fingerprint, spec_from_json, spec_to_json

if TYPE_CHECKING:
    from typing import Self

    from savermark.spec import WorkloadSpec


@dataclass(frozen=True)
class BaseCase:
    """One workload variant on one backend, of any family: what the runner knows of a case."""

    workload: str
    variant: str  # the swept keys, empty without a sweep
    spec: Any  # it has `measure.repetitions` and `measure.timeout_s`
    backend: str
    schema: ClassVar[Schema]

    @property
    def family(self) -> str:
        """The family of the workload: which trial function measures it."""
        return self.schema.family

    @property
    def case_id(self) -> str:
        """`chat[state.messages.kind=full]@sqlite`, or `chat@sqlite` without a variant."""
        brackets = f"[{self.variant}]" if self.variant else ""
        return f"{self.workload}{brackets}@{self.backend}"

    @cached_property
    def fingerprint(self) -> str:
        """The resolved spec's, 16 hex digits."""
        return fingerprint(self.spec)

    def to_json(self) -> dict[str, Any]:
        """The case as JSON values, as a result's header stores it."""
        family = {} if self.family == SAVERS.family else {"family": self.family}
        return {
            "case_id": self.case_id,
            "workload": self.workload,
            "variant": self.variant,
            "backend": self.backend,
            **family,
            "fingerprint": self.fingerprint,
            "spec": spec_to_json(self.spec),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_json`; raises `WorkloadError` for a spec with foreign keys."""
        return cls(
            workload=data["workload"],
            variant=data["variant"],
            spec=spec_from_json(data["spec"], cls.schema),
            backend=data["backend"],
        )


@dataclass(frozen=True)
class Case(BaseCase):
    """A conversation on one saver; the api is part of the spec."""

    spec: WorkloadSpec
    schema: ClassVar[Schema] = SAVERS


def location_to_json(location: Location) -> dict[str, Any]:
    """Where a store lives, for a worker's standard input. Holds the dsn: never store it."""
    return {"folder": str(location.folder), "name": location.name, "dsn": location.dsn}


def location_from_json(data: dict[str, Any]) -> Location:
    """The inverse of `location_to_json`."""
    return Location(folder=Path(data["folder"]), name=data["name"], dsn=data["dsn"])
