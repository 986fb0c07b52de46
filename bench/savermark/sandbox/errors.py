"""What a sandbox store may refuse, each with a stable code that outlives the class name."""

from __future__ import annotations

from typing import ClassVar

from savermark.errors import SavermarkError, UsageError


class SandboxCheckpointError(SavermarkError):
    """Base of every refusal of a checkpoint store; `code` is the part that callers match on."""

    code: ClassVar[str] = "SANDBOX_SNAPSHOT_ERROR"


class SandboxCheckpointInvalidIdError(SandboxCheckpointError):
    """An id that is not a non-empty, well-formed Unicode string."""

    code = "SANDBOX_SNAPSHOT_INVALID_ID"


class SandboxCheckpointInvalidEntryError(SandboxCheckpointError):
    """A file, artifact, time or `keep` that breaks the format."""

    code = "SANDBOX_SNAPSHOT_INVALID_ENTRY"


class SandboxCheckpointWriterLostError(SandboxCheckpointError):
    """The writer does not hold the current lease of the thread."""

    code = "SANDBOX_SNAPSHOT_WRITER_LOST"


class SandboxCheckpointWriterConflictError(SandboxCheckpointError):
    """Another writer holds an unexpired lease of the thread."""

    code = "SANDBOX_SNAPSHOT_WRITER_CONFLICT"


class SandboxCheckpointDuplicateIdError(SandboxCheckpointError):
    """The checkpoint id was used before, in this thread or another."""

    code = "SANDBOX_SNAPSHOT_DUPLICATE_ID"


class SandboxCheckpointConflictError(SandboxCheckpointError):
    """The head is not the one that the writer expected."""

    code = "SANDBOX_SNAPSHOT_STALE_HEAD"


class SandboxCheckpointParentMismatchError(SandboxCheckpointError):
    """The checkpoint's parent is not the head that it was to follow."""

    code = "SANDBOX_SNAPSHOT_PARENT_MISMATCH"


class SandboxCheckpointNotHeadError(SandboxCheckpointError):
    """Only the head of a thread can be deleted this way."""

    code = "SANDBOX_SNAPSHOT_NOT_HEAD"


class SandboxCheckpointNotFoundError(SandboxCheckpointError):
    """No checkpoint has this id."""

    code = "SANDBOX_SNAPSHOT_CHECKPOINT_NOT_FOUND"


class SandboxCheckpointAtomicForkRequiredError(SandboxCheckpointError):
    """The store cannot fork: it has no `fork_from_checkpoint`."""

    code = "SANDBOX_SNAPSHOT_ATOMIC_FORK_REQUIRED"


class SandboxCheckpointForkSourceNotFoundError(SandboxCheckpointError):
    """The checkpoint to fork from does not exist."""

    code = "SANDBOX_SNAPSHOT_FORK_SOURCE_NOT_FOUND"


class SandboxCheckpointForkSourceThreadMismatchError(SandboxCheckpointError):
    """The checkpoint to fork from is of another thread, or source and destination are one."""

    code = "SANDBOX_SNAPSHOT_FORK_SOURCE_THREAD_MISMATCH"


class SandboxCheckpointForkDestinationNotEmptyError(SandboxCheckpointError):
    """The destination thread or checkpoint id was used before."""

    code = "SANDBOX_SNAPSHOT_FORK_DESTINATION_NOT_EMPTY"


class SandboxRangeError(UsageError, ValueError):
    """A number outside of its range: lease times, or the age limit of a sweep."""


class SandboxBlobError(SavermarkError):
    """A blob that is missing, or whose bytes are not those that its key promises."""


class SandboxWorkspaceError(SavermarkError):
    """A workspace folder that cannot be captured or restored safely."""
