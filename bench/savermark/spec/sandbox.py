"""Sandbox workloads: an agent's workspace and what happens to it between two captures.

Every section of the file is one dataclass below and every key one field;
`workloads/_sandbox-template.toml` lists them all with a comment each (a test keeps the two equal).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from savermark.errors import WorkloadError
from savermark.spec.limits import RANGES, check_common
from savermark.spec.schema import Schema
from savermark.spec.types import Dist, PayloadSpec, fixed

_COUNT = (0, 1_000_000)
_FILES = (0, 100_000)
_BYTES = (0, 1_000_000_000)
_SHARE = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class WorkspaceSpec:
    """`[workspace]`: the files that a thread starts with.

    `duplicates` is the share of all new contents, now and later, that repeat an earlier one of the
    thread; `shared` the share of the first files that every thread has, as a checkout of one
    repository gives.
    """

    files: int = 20
    folders: int = 4
    file_bytes: Dist = field(default_factory=lambda: fixed(2_000))
    duplicates: float = 0.0
    shared: float = 0.5
    symlinks: int = 0


@dataclass(frozen=True, slots=True)
class ChangesSpec:
    """`[changes]`: what the agent does to the files between two captures.

    After every `undo_every`-th capture it changes its mind: the head is deleted, the workspace
    restored from the checkpoint before it, and the work goes on from there.
    """

    edits: int = 2
    adds: int = 1
    renames: int = 0
    deletes: int = 0
    undo_every: int = 0  # 0: never


@dataclass(frozen=True, slots=True)
class ArtifactsSpec:
    """`[artifacts]`: products handed out; a checkpoint lists the newest `kept` of its thread."""

    every: int = 0  # a new one with every n-th capture; 0: never
    bytes: Dist = field(default_factory=lambda: fixed(100_000))
    kept: int = 0  # 0: all


@dataclass(frozen=True, slots=True)
class TalkSpec:
    """`[conversation]`: messages added by each capture; a checkpoint holds all of them."""

    messages: int = 2
    message_bytes: Dist = field(default_factory=lambda: fixed(400))


@dataclass(frozen=True, slots=True)
class ChainsSpec:
    """`[chains]`: how many threads, how many captures each, and how many forks.

    A fork starts from the checkpoint half way along a thread and makes `fork_captures` more.
    """

    threads: int = 2
    captures: Dist = field(default_factory=lambda: fixed(8))
    forks: int = 0
    fork_captures: int = 2


@dataclass(frozen=True, slots=True)
class KeepSpec:
    """`[retention]`: what the retained phase does: prune threads to their newest, then sweep."""

    keep: int = 3  # checkpoints of a head chain that stay
    share: float = 0.75  # of the threads; the others must stay as they are


@dataclass(frozen=True, slots=True)
class SandboxMeasureSpec:
    """`[measure]`: how often what is called."""

    repetitions: int = 1  # trials of each case
    reads: int = 5  # warm samples of each call
    cold: bool = True  # also call in a new process on new connections
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A whole sandbox workload."""

    name: str
    summary: str = ""
    workspace: WorkspaceSpec = field(default_factory=WorkspaceSpec)
    changes: ChangesSpec = ChangesSpec()
    artifacts: ArtifactsSpec = field(default_factory=ArtifactsSpec)
    conversation: TalkSpec = field(default_factory=TalkSpec)
    chains: ChainsSpec = field(default_factory=ChainsSpec)
    retention: KeepSpec = KeepSpec()
    payload: PayloadSpec = field(default_factory=PayloadSpec)
    measure: SandboxMeasureSpec = SandboxMeasureSpec()


def check_sandbox(spec: SandboxSpec) -> None:
    """Raise `WorkloadError` for values that are fine alone and make no sense together."""
    check_common(
        spec.name,
        spec.payload,
        {
            "workspace.file_bytes": spec.workspace.file_bytes,
            "artifacts.bytes": spec.artifacts.bytes,
            "conversation.message_bytes": spec.conversation.message_bytes,
            "chains.captures": spec.chains.captures,
        },
    )
    if spec.chains.forks and spec.changes.undo_every == 1:
        raise WorkloadError("changes.undo_every = 1 undoes every capture: nothing is left to fork")


SANDBOX = Schema(
    family="sandbox",
    root=SandboxSpec,
    ranges={
        "workspace.files": _FILES,
        "workspace.folders": (1, 10_000),
        "workspace.file_bytes": _BYTES,
        "workspace.duplicates": _SHARE,
        "workspace.shared": _SHARE,
        "workspace.symlinks": (0, 10_000),
        "changes.edits": _FILES,
        "changes.adds": _FILES,
        "changes.renames": _FILES,
        "changes.deletes": _FILES,
        "changes.undo_every": _COUNT,
        "artifacts.every": _COUNT,
        "artifacts.bytes": _BYTES,
        "artifacts.kept": _COUNT,
        "conversation.messages": (0, 10_000),
        "conversation.message_bytes": _BYTES,
        "chains.threads": (1, 99_999),
        "chains.captures": (1, 99_999),
        "chains.forks": (0, 99_999),
        "chains.fork_captures": (0, 99_999),
        "retention.keep": (1, 1_000_000),
        "retention.share": _SHARE,
        **{
            key: RANGES[key]
            for key in (
                "payload.compressibility",
                "payload.seed",
                "measure.repetitions",
                "measure.reads",
                "measure.timeout_s",
            )
        },
    },
    check=check_sandbox,
    template="workloads/_sandbox-template.toml",
    verb="savermark sandbox run",
    noun="a sandbox workload",
)
