"""What happens to the workspaces, and what every checkpoint must hold: plain Python, the oracle.

Nothing here knows a store. Every choice is seeded by the spec and a key, so the script is the same
in the worker, in the process of a cold call and in a test.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from savermark.payload import draw, payload, spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from savermark.spec import PayloadSpec, SandboxSpec

EPOCH_MS = 1_700_000_000_000.0  # of the first capture: checkpoints' times are part of the script
STEP_MS = 1_000.0


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file or an artifact, by what they are made from."""

    key: str
    size: int

    def data(self, spec: PayloadSpec) -> bytes:
        """The bytes: the same for the same key."""
        return payload(spec, self.size, self.key).encode("ascii")


@dataclass(frozen=True, slots=True)
class Link:
    """A symlink with its target as written."""

    target: str


Tree = Mapping[str, "Content | Link"]  # path -> what is there


@dataclass(frozen=True, slots=True)
class Product:
    """An artifact: its id and its bytes."""

    artifact_id: str
    content: Content


@dataclass(frozen=True, slots=True)
class State:
    """What a checkpoint must hold."""

    tree: Tree
    products: tuple[Product, ...] = ()
    talk: tuple[tuple[str, int], ...] = ()  # messages: the thread that said it, its number there


@dataclass(frozen=True, slots=True)
class Step:
    """One capture: the workspace as it is then. An undone one is deleted right after."""

    checkpoint_id: str
    created_at: float
    state: State
    undone: bool = False


@dataclass(frozen=True, slots=True)
class ThreadScript:
    """A thread's captures. A fork starts from `source` (thread and checkpoint) as its root."""

    thread_id: str
    steps: tuple[Step, ...]
    source: tuple[str, Step] | None = None

    @property
    def chain(self) -> list[Step]:
        """What is left of the captures, oldest first, without a fork's root."""
        return [step for step in self.steps if not step.undone]


def write_script(spec: SandboxSpec) -> tuple[ThreadScript, ...]:
    """Every thread of the workload: the driven ones, then the forks."""
    lengths = spread(spec.chains.captures, spec.chains.threads, "captures", spec.payload.seed)
    threads = []
    for number, length in enumerate(lengths):
        name = f"t{number:05d}"
        start = State(_first_tree(spec, name))
        threads.append(ThreadScript(name, tuple(_steps(spec, name, start, length))))
    forks = []
    for number in range(spec.chains.forks):
        source = threads[number % len(threads)]
        if source.chain:
            forks.append(_fork(spec, f"f{number:05d}", source))
    return (*threads, *forks)


def root_id(thread_id: str) -> str:
    """The checkpoint id of a fork's root."""
    return f"{thread_id}-root"


def message(spec: SandboxSpec, thread_id: str, number: int) -> dict[str, Any]:
    """The n-th message of a thread's conversation, counted from 1."""
    size = draw(spec.conversation.message_bytes, number, "message", thread_id)
    text = payload(spec.payload, size, "message", thread_id, number)
    return {"id": f"m{number:06d}", "role": "user" if number % 2 else "assistant", "content": text}


def digest(spec: SandboxSpec, content: Content, known: dict[Content, str]) -> str:
    """The SHA-256 of a content; `known` remembers them."""
    if content not in known:
        known[content] = sha256(content.data(spec.payload)).hexdigest()
    return known[content]


# -- how a workspace changes -----------------------------------------------------------------------


@dataclass
class _Maker:
    """New contents and paths of one thread."""

    spec: SandboxSpec
    thread_id: str
    random: random.Random
    pool: list[Content] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def content(self) -> Content:
        """A content that is new, or repeats one of the thread's."""
        if self.pool and self.random.random() < self.spec.workspace.duplicates:
            return self.random.choice(self.pool)
        number = next(self.numbers)
        name = f"{self.thread_id}/{number}"
        size = draw(self.spec.workspace.file_bytes, number, "file", name)
        made = Content(name, size)
        self.pool.append(made)
        return made

    def path(self, name: str) -> str:
        """A path in one of the folders, some of which lie in others."""
        number = self.random.randrange(self.spec.workspace.folders)
        folder = f"src/pkg{number:03d}" if number % 3 else f"src/lib/mod{number:03d}"
        return f"{folder}/{name}.txt"


def _first_tree(spec: SandboxSpec, thread_id: str) -> Tree:
    workspace = spec.workspace
    common = round(workspace.files * workspace.shared)
    tree: dict[str, Content | Link] = {}
    for owner, first, last in (("shared", 0, common), (thread_id, common, workspace.files)):
        maker = _Maker(spec, owner, random.Random(f"tree/{owner}/{spec.payload.seed}"))
        for number in range(first, last):
            tree[maker.path(f"file{number:05d}")] = maker.content()
    files = sorted(tree)
    for number in range(min(workspace.symlinks, len(files))):
        tree[f"link{number:05d}"] = Link(files[number])
    return tree


def _steps(spec: SandboxSpec, thread_id: str, start: State, length: int) -> Iterator[Step]:
    maker = _Maker(spec, thread_id, random.Random(f"steps/{thread_id}/{spec.payload.seed}"))
    maker.numbers = count(1_000_000)
    maker.pool = [item for item in start.tree.values() if isinstance(item, Content)]
    settled, undo = start, spec.changes.undo_every
    for number in range(1, length + 1):
        state = _next(maker, settled, number)
        undone = bool(undo) and number % undo == 0 and number > 1
        name = f"{thread_id}-c{number:05d}"
        yield Step(name, EPOCH_MS + STEP_MS * number, state, undone)
        settled = settled if undone else state


def _next(maker: _Maker, before: State, number: int) -> State:
    spec, tree = maker.spec, dict(before.tree)
    if number > 1:  # the first capture takes the workspace as it is
        _change(maker, tree, number)
    products = before.products
    if spec.artifacts.every and number % spec.artifacts.every == 0:
        name = f"{maker.thread_id}-artifact{number:05d}"
        size = draw(spec.artifacts.bytes, number, "artifact", maker.thread_id)
        again = products and maker.random.random() < spec.workspace.duplicates
        content = maker.random.choice(products).content if again else Content(name, size)
        products = (*products, Product(name, content))[-spec.artifacts.kept :]
    own = sum(thread == maker.thread_id for thread, _ in before.talk)
    said = range(own + 1, own + spec.conversation.messages + 1)
    talk = (*before.talk, *((maker.thread_id, number) for number in said))
    return State(tree, products, talk)


def _change(maker: _Maker, tree: dict[str, Content | Link], number: int) -> None:
    """Edits, renames, deletes and adds, each on files of its own, in the order of the paths."""
    changes = maker.spec.changes
    targets = {item.target for item in tree.values() if isinstance(item, Link)}
    files = sorted(path for path, item in tree.items() if isinstance(item, Content))
    for path in _some(maker.random, files, changes.edits):
        tree[path] = maker.content()
    loose = [path for path in files if path not in targets]
    moved = _some(maker.random, loose, changes.renames + changes.deletes)
    for nth, path in enumerate(moved[: changes.renames]):
        tree[maker.path(f"moved{number:05d}-{nth:03d}")] = tree.pop(path)
    for path in moved[changes.renames :]:
        del tree[path]
    for nth in range(changes.adds):
        tree[maker.path(f"added{number:05d}-{nth:03d}")] = maker.content()


def _some(chosen: random.Random, paths: Sequence[str], most: int) -> list[str]:
    return chosen.sample(paths, min(most, len(paths)))


def _fork(spec: SandboxSpec, thread_id: str, source: ThreadScript) -> ThreadScript:
    chain = source.chain
    step = chain[len(chain) // 2]
    steps = _steps(spec, thread_id, step.state, spec.chains.fork_captures + 1)
    next(steps)  # the root takes the place of the first capture
    return ThreadScript(thread_id, tuple(steps), (source.thread_id, step))
