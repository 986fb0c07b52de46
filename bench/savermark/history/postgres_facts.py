"""What the texts of `postgres_bulk_sql.FACTS` say of the namespaces of a thread.

A text is taken apart here: that costs a fraction of what rows for each version would cost on the
server. Whatever does not come apart as it should makes a namespace one that is not linear.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from operator import ne
from typing import TYPE_CHECKING

from savermark.history.image import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

_BETWEEN = '", "'  # two pairs of the versions
_ELSEWHERE = "\t"  # begins the blobs outside the root namespace, and those without a value
_EMPTY = "-"
_WIDTH = 4  # namespace, id, parent, versions


@dataclass(frozen=True, slots=True)
class Facts:
    """One namespace of one thread: ids and versions of its checkpoints, oldest first, and blobs.

    Versions are JSON. Blobs are pairs of a channel and a version, as they stand in it between the
    quotation marks; `strays` are those that no checkpoint names.
    """

    ids: Sequence[str] = ("",)
    linear: bool = False
    versions: Sequence[str] = ()
    blobs: frozenset[str] = NOTHING
    filled: frozenset[str] = NOTHING
    strays: int = 0
    _named: frozenset[str] = field(default=NOTHING, repr=False)

    @property
    def repeats(self) -> bool:
        """Whether the newest checkpoint has the versions of the one before it."""
        return len(self.versions) > 1 and self.versions[-1] == self.versions[-2]

    def newest(self, channel: str) -> int:
        """The place of the newest checkpoint whose version of a channel has a value stored."""
        begins = f'{channel}": "'
        pairs = {pair for pair in self.filled if pair.startswith(begins)}
        places = range(len(self.versions) - 1, -1, -1) if pairs else ()
        return next((at for at in places if not pairs.isdisjoint(_pairs(self.versions[at]))), 0)

    def named(self, count: int) -> frozenset[str]:
        """The blobs that the newest `count` checkpoints name."""
        newest = self.versions[-count:] if count else ()
        return self.blobs.intersection([pair for each in newest for pair in _pairs(each)])

    def with_blobs(self, pairs: Sequence[str], filled: bool) -> Facts:
        """The same with these blobs."""
        more = frozenset(pairs)
        return replace(
            self,
            blobs=self.blobs | more,
            filled=self.filled | more if filled else self.filled,
            strays=self.strays + len(pairs) - len(more & self._named),
        )


def facts_of(rows: int, lines: str, blobs: str) -> tuple[dict[str, Facts], int]:
    """The namespaces of one thread, and how many blobs belong to none or to no checkpoint.

    `rows` is the number of its checkpoints. Nothing is told of a thread whose texts are odd.
    """
    parts = [line.split("\t", 3) for line in sorted(lines.split("\n"))]
    if len(parts) != rows or {*map(len, parts)} != {_WIDTH}:
        return {}, 0  # a newline or a tab in an id
    spaces, ids, parents, versions = zip(*parts, strict=True)
    if spaces[0] == spaces[-1]:
        found = {spaces[0]: _space(ids, parents, versions)}
    else:
        groups: defaultdict[str, list[list[str]]] = defaultdict(list)
        for part in parts:
            groups[part[0]].append(part[1:])
        found = {space: _space(*zip(*group, strict=True)) for space, group in groups.items()}
    strays = 0
    for space, filled, pairs in _blobs(blobs):
        if space in found:
            found[space] = found[space].with_blobs(pairs, filled)
        else:
            strays += len(pairs)
    return found, strays + sum(each.strays for each in found.values())


def _space(ids: Sequence[str], parents: Sequence[str], versions: Sequence[str]) -> Facts:
    pairs = _BETWEEN.join([each[2:-2] for each in versions]).split(_BETWEEN)
    named = frozenset(pairs)
    linear = parents == ("", *ids[:-1]) and list(ids) == sorted(ids)
    whole = ', "' not in "\n".join(named)  # versions that are no texts leave pairs together
    steady = linear and whole and _fresh(pairs, versions) == len(named)
    return Facts(ids, steady, versions, _named=named)


def _fresh(pairs: Sequence[str], versions: Sequence[str]) -> int:
    """How often a checkpoint names what the one before it does not.

    Where no version comes back after another took its place that is once for each. `pairs` are
    those of all checkpoints in a row. Where a name is written with a comma and quotation marks its
    pieces stand for it: they come back when it does, and are the key of no blob.
    """
    sizes = [each.count(_BETWEEN) + 1 for each in versions]
    at = fresh = sizes[0]
    first, size = 0, sizes[0]
    for number, here in enumerate([*sizes[1:], 0], 1):
        if here == size:
            continue
        end = at + size * (number - first - 1)  # the checkpoints of one size, side by side
        fresh += sum(map(ne, pairs[at:end], pairs[at - size : end - size]))
        if here:
            fresh += len(set(pairs[end : end + here]).difference(pairs[end - size : end]))
        at, first, size = end + here, number, here
    return fresh


def _blobs(text: str) -> list[tuple[str, bool, list[str]]]:
    if not text:
        return []
    pieces = text.split("\n")
    if _ELSEWHERE not in text:
        return [("", True, pieces)]
    found: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
    for piece in pieces:
        if not piece.startswith(_ELSEWHERE):
            found["", True].append(piece)
            continue
        place, _, pair = piece[1:].partition("\t")
        found[place[1:], not place.startswith(_EMPTY)].append(pair)
    return [(*place, pairs) for place, pairs in found.items()]


def _pairs(versions: str) -> list[str]:
    return versions[2:-2].split(_BETWEEN)
