"""What the texts of `postgres_bulk_sql.FACTS` say of the namespaces of a thread.

Texts are taken apart here: that costs a fraction of what rows for each version would cost on the
server. Whatever does not come apart as it should makes a namespace one that is not linear.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from savermark.history.image import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

_BETWEEN = '", "'  # two pairs of the versions
_WITHIN = '": "'  # a channel and its version
_ELSEWHERE = "\t"  # begins the blobs outside the root namespace, and those without a value
_EMPTY = "-"


@dataclass(frozen=True, slots=True)
class Facts:
    """One namespace of one thread: ids and versions of its checkpoints, oldest first, and blobs.

    Versions are JSON without what stands before the first name and behind the last version. Blobs
    are pairs of a channel and a version, as they stand in it between the quotation marks; `strays`
    are those that no checkpoint names.
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
        begins = f"{channel}{_WITHIN}"
        pairs = {pair for pair in self.filled if pair.startswith(begins)}
        places = range(len(self.versions) - 1, -1, -1) if pairs else ()
        return next(
            (at for at in places if not pairs.isdisjoint(self.versions[at].split(_BETWEEN))), 0
        )

    def named(self, count: int) -> frozenset[str]:
        """The blobs that the newest `count` checkpoints name."""
        newest = self.versions[-count:] if count else ()
        return self.blobs.intersection([pair for each in newest for pair in each.split(_BETWEEN)])

    def with_blobs(self, pairs: Sequence[str], filled: bool) -> Facts:
        """The same with these blobs."""
        more = frozenset(pairs)
        strays = 0 if self._named.issuperset(more) else len(more - self._named)
        return replace(
            self,
            blobs=self.blobs | more if self.blobs else more,
            filled=self.filled | more if filled else self.filled,
            strays=self.strays + strays,
        )


def spaces_of(rows: int, lines: Sequence[str | None]) -> dict[str, Facts]:
    """The namespaces of one thread, without its blobs.

    `rows` is the number of its checkpoints; `lines` are their namespaces, ids, parents and
    versions, a text with a line for each, all in one order. Nothing is told of a thread whose texts
    are odd.
    """
    texts = [text or "" for text in lines]
    plain = _plain(rows, *texts)
    return {"": plain} if plain else _spaces(rows, texts)


def add_blobs(found: dict[str, Facts], blobs: str) -> int:
    """Tell the namespaces their blobs; how many belong to none of them or to no checkpoint."""
    strays = 0
    for space, filled, pairs in _blobs(blobs):
        if space in found:
            found[space] = found[space].with_blobs(pairs, filled)
        else:
            strays += len(pairs)
    return strays + sum(each.strays for each in found.values())


def _plain(rows: int, spaces: str, ids: str, parents: str, versions: str) -> Facts | None:
    """The root namespace, where it is the only one and a line of the usual kind.

    That is one whose channels go from version to version in the order of texts, as savers count.
    """
    names, before = ids.split("\n"), parents.split("\n")
    lines = versions[2:-2].split('"}\n{"')
    if spaces != "\n" * (rows - 1) or not len(names) == len(before) == len(lines) == rows:
        return None
    if names != sorted(names):
        order = sorted(range(rows), key=names.__getitem__)
        names, before, lines = ([each[at] for at in order] for each in (names, before, lines))
    if before != ["", *names[:-1]] or versions[:2] + versions[-2:] != '{""}':
        return None
    pairs = _BETWEEN.join(lines).split(_BETWEEN)
    return Facts(names, True, lines, _named=frozenset(pairs)) if _rises(pairs, lines) else None


def _rises(pairs: list[str], versions: Sequence[str]) -> bool:
    """Whether each channel stays, with versions in the order of texts: none comes back then.

    The rows at the end that have as many pairs as the last are looked at together, the others one
    by one. Where each place in a row is of one channel these are all equally wide: no row names a
    channel twice, so none is wider, and there are as many pairs as that makes.
    """
    last, at = dict[str, str](), 0
    width = versions[-1].count(_BETWEEN) + 1
    for row in versions:
        size = row.count(_BETWEEN) + 1
        end = len(pairs) if size == width else at + size
        if not _rise(pairs[at:end], size, last):
            return False
        at = end
        if size == width:
            break
    return True


def _rise(pairs: list[str], width: int, last: dict[str, str]) -> bool:
    """The same of rows of one width; `last` has the newest pair of each channel before them."""
    if len(pairs) % width:
        return False
    for at in range(width):
        column = pairs[at::width]
        first, newest = column[0], column[-1]
        channel, found, _ = first.partition(_WITHIN)
        # A name with more in it than a name is one that stands beside a version that is no text.
        if not found or '": ' in channel or not newest.startswith(channel + found):
            return False
        if last.get(channel, "") > first or column != sorted(column):
            return False
        last[channel] = newest
    return len(last) == width


def _spaces(rows: int, texts: Sequence[str]) -> dict[str, Facts]:
    """All namespaces, whatever their lines are like."""
    columns = [text.split("\n") for text in texts]
    if {*map(len, columns)} != {rows} or not all(line.startswith("{") for line in columns[-1]):
        return {}  # a newline in an id, or a checkpoint without versions
    groups: defaultdict[str, list[list[str]]] = defaultdict(list)
    for space, *row in sorted(zip(*columns, strict=True)):
        groups[space].append(row)
    return {space: _space(*zip(*group, strict=True)) for space, group in groups.items()}


def _space(ids: Sequence[str], parents: Sequence[str], versions: Sequence[str]) -> Facts:
    """Of rows in the order of their ids."""
    lines = [each[2:-2] for each in versions]
    rows = [line.split(_BETWEEN) for line in lines]
    named = frozenset[str]().union(*rows)
    every = "\n".join(named)  # versions that are no texts leave pairs together, or cut short
    whole = ', "' not in every and every.count(_WITHIN) == len(named) - ("" in named)
    linear = whole and parents == ("", *ids[:-1])
    return Facts(ids, linear and _fresh(rows) == len(named), lines, _named=named)


def _fresh(rows: Sequence[Sequence[str]]) -> int:
    """How often a checkpoint names what the one before it does not.

    Where no version comes back after another took its place that is once for each. Where a name is
    written with a comma and quotation marks its pieces stand for it: they come back when it does,
    and are the key of no blob.
    """
    return sum(
        len(set(row).difference(before)) for row, before in zip(rows, [(), *rows[:-1]], strict=True)
    )


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
