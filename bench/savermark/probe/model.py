"""What a probe is asked for, and what it found, as plain frozen records."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

#: Counts what is counted and how: counts of other numbers are not compared.
METER_VERSION = 1

#: The walk as the runtime calls it, whichever class brings it: a saver that loses its override is
#: then caught, too.
OWN = "own"

#: Counts that repeat to the digit in a fresh store and process (docs/method.md has the evidence).
#: Blocks do not: where an index's pages split depends on task ids, which are new each time.
EXACT = ("statements", "round_trips", "rows", "bytes", "vm_steps", "values", "value_bytes")
#: Of the write path, which has several threads: instructions depend on where an index's pages
#: split.
EXACT_WRITES = ("statements", "round_trips", "rows", "bytes", "values", "value_bytes")


@dataclass(frozen=True, slots=True)
class Ask:
    """Which walks are counted (`OWN` or a registered one), and which two are timed in pairs."""

    walks: tuple[str, ...] = (OWN,)
    tested: str = OWN
    reference: str = "base"
    rounds: int = 0  # timed pairs; 0: nothing is timed

    def to_json(self) -> dict[str, Any]:
        """As JSON values, for a worker."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Ask:
        """The inverse of `to_json`."""
        return cls(**{**data, "walks": tuple(data["walks"])})


@dataclass(frozen=True, slots=True)
class Pairs:
    """Times in ns a call of two walks in turn; pair `i` is `tested_ns[i]`, `reference_ns[i]`.

    Each is the mean of a block of `calls`, so that both blocks of a pair last about as long.
    """

    tested: str
    reference: str
    tested_ns: tuple[int, ...]
    reference_ns: tuple[int, ...]
    calls: tuple[int, int] = (1, 1)

    @property
    def ratios(self) -> list[float]:
        """tested/reference of each pair: what drifts on the machine hits both."""
        pairs = zip(self.tested_ns, self.reference_ns, strict=True)
        return [tested / reference for tested, reference in pairs if reference]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Pairs:
        """The inverse of `dataclasses.asdict`."""
        times = {name: tuple(data[name]) for name in ("tested_ns", "reference_ns", "calls")}
        return cls(**{**data, **times})


@dataclass(frozen=True, slots=True)
class Probe:
    """One case, probed in one process.

    `counts` are by operation (`write path`, `get_tuple`, `get_state`, `walk own`, ...), `storage`
    by what is counted (`checkpoints rows`, `checkpoints bytes`, ...). With a `cause` it failed, and
    the rest is empty. `engine` are facts about the engine that decide counts, `packages` the
    versions of what else takes part.
    """

    case_id: str
    fingerprint: str
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    storage: dict[str, int] = field(default_factory=dict)
    pairs: Pairs | None = None
    engine: dict[str, Any] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    meter_version: int = METER_VERSION
    cause: str = ""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Probe:
        """The inverse of `to_json`; raises `KeyError` or `TypeError` on a foreign shape."""
        pairs = Pairs.from_json(data["pairs"]) if data.get("pairs") else None
        return cls(**{**data, "pairs": pairs, "notes": tuple(data.get("notes", ()))})
