"""What to keep: the rules a policy is made of, and its one-line form.

Three kinds of rules combine:

- *keep rules* (`keep-latest`, `keep-turns`, `older-than`, and `compact`, `refuse` and `snapshot`,
  which are `keep-latest` with another treatment of delta channels) say which checkpoints of a
  thread stay addressable. With several of them a checkpoint goes only when every one lets it go.
- *leaf rules* (`duration-leaves`, `leaf-siblings`) name single checkpoints that go as well, even
  where a keep rule would keep them.
- *thread rules* (`idle-threads`, `delete`) take whole threads.

Whatever the rules say, what the contract protects stays (`plan`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Literal, get_args

from savermark.errors import UsageError, unknown

Delta = Literal["walk", "compact", "refuse", "snapshot"]

# Name -> what it does, for `savermark list policies`. A name with `=` takes a value.
RULES = {
    "keep-latest": "keep the newest state of each namespace, and what it is rebuilt from",
    "compact": "like keep-latest, with the delta channels folded onto the kept checkpoint",
    "refuse": "like keep-latest, but leave threads with delta channels alone, by name",
    "snapshot": "store delta channels as compact does, delete no checkpoint; then keep-latest can",
    "keep-turns=N": "keep the last N turns addressable, and what they are rebuilt from",
    "older-than=AGE": "delete only what is older than AGE (90s, 15m, 12h, 30d, 8w)",
    "leaf-siblings": "delete childless side branches that own no writes",
    "duration-leaves": "delete checkpoints that only record how long a run took",
    "idle-threads=AGE": "delete threads whole whose newest checkpoint is older than AGE",
    "delete": "delete threads whole",
}

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"(\d+)([smhdw])")


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The rules, each off by default. A policy without any keep rule keeps every checkpoint.

    Raises `UsageError` for a number of turns below 1, a negative age, no rule at all, `delete`
    beside a keep rule, and `snapshot` beside a rule that takes leaves or threads.
    """

    keep_latest: bool = False
    keep_turns: int | None = None
    older_than: timedelta | None = None
    leaf_siblings: bool = False
    duration_leaves: bool = False
    idle_threads: timedelta | None = None
    delete: bool = False
    delta: Delta = "walk"  # how the delta channels of what stays are treated

    def __post_init__(self) -> None:
        if self.keep_turns is not None and self.keep_turns < 1:
            raise UsageError(f"keep-turns={self.keep_turns}: the number of turns must be 1 or more")
        for name, age in (("older-than", self.older_than), ("idle-threads", self.idle_threads)):
            if age is not None and age < timedelta(0):
                raise UsageError(f"{name}: the age must not be negative")
        values = (getattr(self, field.name) for field in fields(self))
        if all(value in (None, False, "walk") for value in values):
            raise UsageError(f"a policy needs a rule: {', '.join(RULES)}")
        if self.delete and self.keeps:
            raise UsageError("delete takes whole threads, whatever a keep rule says: give it alone")
        leaves = self.leaf_siblings or self.duration_leaves
        if self.delta == "snapshot" and (leaves or self.delete or self.idle_threads is not None):
            raise UsageError("snapshot deletes no checkpoint: take leaves and threads apart")

    @property
    def keeps(self) -> bool:
        """Whether a keep rule is set, so that checkpoints inside a thread may go by it."""
        return (
            self.keep_latest
            or self.keep_turns is not None
            or self.older_than is not None
            or self.delta != "walk"
        )

    @property
    def folds(self) -> bool:
        """Whether values are made and stored, which takes the graph or its reducers."""
        return self.delta in ("compact", "snapshot")

    def __str__(self) -> str:
        """The one-line form, which `parse_policy` reads back."""
        parts = ["keep-latest"] * self.keep_latest
        parts += [self.delta] * (self.delta != "walk")
        if self.keep_turns is not None:
            parts.append(f"keep-turns={self.keep_turns}")
        if self.older_than is not None:
            parts.append(f"older-than={_age_text(self.older_than)}")
        parts += ["leaf-siblings"] * self.leaf_siblings
        parts += ["duration-leaves"] * self.duration_leaves
        if self.idle_threads is not None:
            parts.append(f"idle-threads={_age_text(self.idle_threads)}")
        parts += ["delete"] * self.delete
        return ",".join(parts)


def parse_policy(text: str) -> RetentionPolicy:
    """A policy from its one-line form, such as `keep-turns=3,duration-leaves`.

    Raises `UsageError` that names the fix for an unknown rule, a missing or bad value, a rule
    given twice, and two of `compact`, `refuse` and `snapshot` together.
    """
    values: dict[str, object] = {}
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and not all(parts):
        raise UsageError(f"policy {text!r}: a rule is missing before or after a comma")
    for part in filter(None, parts):
        name, _, value = part.partition("=")
        key, found = _rule(name, value, "=" in part)
        if key in values:
            if key == "delta":
                names = ", ".join(get_args(Delta)[1:])
                raise UsageError(f"policy {text!r}: give only one of {names}")
            raise UsageError(f"policy {text!r}: {name} is given twice")
        values[key] = found
    return RetentionPolicy(**values)  # type: ignore[arg-type]


def parse_age(text: str) -> timedelta:
    """An age such as `90s`, `15m`, `12h`, `30d` or `8w`. Raises `UsageError` for another form."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"age {text!r}: give a number and a unit, such as 90s, 15m, 12h, 30d, 8w")
    try:
        return timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    except OverflowError:
        raise UsageError(f"age {text!r} is longer than time can be counted") from None


def _rule(name: str, value: str, given: bool) -> tuple[str, object]:
    known = {rule.partition("=")[0]: "=" in rule for rule in RULES}
    if name not in known:
        raise UsageError(unknown("rule", name, known))
    if given != known[name]:
        fix = next(rule for rule in RULES if rule.partition("=")[0] == name)
        raise UsageError(f"rule {name!r}: write it as {fix}")
    if name in get_args(Delta):
        return "delta", name
    key = name.replace("-", "_")
    if not given:
        return key, True
    return key, _count(name, value) if name == "keep-turns" else parse_age(value)


def _count(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{name}={value}: the value must be a whole number, 1 or more") from None


def _age_text(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    for unit, size in sorted(_UNITS.items(), key=lambda pair: -pair[1]):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
