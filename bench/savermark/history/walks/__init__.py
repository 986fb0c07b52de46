"""Walks: ways to rebuild a delta channel's history, by name and as classes to mix in.

- `walk(name)`, `walks()`: registered ones (entry-point group `savermark.walks`).
- `with_walk(saver, name)`: a saver whose graphs read through that walk.
- `OnePassHistory`: our walk, to mix into a saver class.
"""

from savermark.history.walks.attach import with_walk
from savermark.history.walks.base import Histories, Walk
from savermark.history.walks.onepass import OnePassHistory
from savermark.history.walks.registry import walk, walk_names, walks

__all__ = ["Histories", "OnePassHistory", "Walk", "walk", "walk_names", "walks", "with_walk"]
