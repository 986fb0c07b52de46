"""The sandbox store as plainly as it can be said: lists and dictionaries, no code of the product.

Every method returns a value or the last part of an error code in brackets, such as `[NOT_HEAD]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ModelLease:
    thread: str
    fence: int
    expires: float


@dataclass
class ModelThread:
    head: str | None = None
    fence: int = 0
    lease: ModelLease | None = None
    used: bool = False  # a transcript or another record
    transcript: Any = None


@dataclass
class Model:
    duration: float
    now: float = 0.0
    threads: dict[str, ModelThread] = field(default_factory=dict)
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    burnt: set[str] = field(default_factory=set)

    def thread(self, name: str) -> ModelThread:
        return self.threads.setdefault(name, ModelThread())

    def holds(self, lease: ModelLease, thread: str) -> bool:
        return (
            lease.thread == thread
            and self.thread(thread).lease is lease
            and (self.now < lease.expires)
        )

    def acquire(self, thread: str) -> ModelLease | str:
        state = self.thread(thread)
        if state.lease is not None and self.now < state.lease.expires:
            return "[WRITER_CONFLICT]"
        state.fence += 1
        state.lease = ModelLease(thread, state.fence, self.now + self.duration)
        return state.lease

    def renew(self, lease: ModelLease) -> float | str:
        if not self.holds(lease, lease.thread):
            return "[WRITER_LOST]"
        lease.expires = self.now + self.duration
        return lease.expires

    def release(self, lease: ModelLease) -> None:
        state = self.thread(lease.thread)
        if state.lease is lease:
            state.lease = None

    def append(self, lease: ModelLease, row: dict[str, Any], expected: str | None) -> str:
        thread = row["thread"]
        if not self.holds(lease, thread):
            return "[WRITER_LOST]"
        if row["id"] in self.burnt:
            return "[DUPLICATE_ID]"
        if self.thread(thread).head != expected:
            return "[STALE_HEAD]"
        if row["parent"] != expected:
            return "[PARENT_MISMATCH]"
        self.store(row)
        return str(row["id"])

    def store(self, row: dict[str, Any]) -> None:
        self.burnt.add(row["id"])
        self.checkpoints[row["id"]] = row
        self.thread(row["thread"]).head = row["id"]

    def delete_head(self, lease: ModelLease, thread: str, checkpoint: str) -> str | None:
        if not self.holds(lease, thread):
            return "[WRITER_LOST]"
        state = self.thread(thread)
        if state.head is None or state.head != checkpoint:
            return "[NOT_HEAD]"
        parent = self.checkpoints.pop(checkpoint)["parent"]
        state.head = parent if parent in self.checkpoints else None
        return None

    def delete_checkpoints(self, lease: ModelLease, thread: str, keep: int) -> list[str] | str:
        if keep < 1:
            return "[INVALID_ENTRY]"
        if not self.holds(lease, thread):
            return "[WRITER_LOST]"
        chain = []
        at = self.thread(thread).head
        while at is not None and at in self.checkpoints:
            chain.append(at)
            at = self.checkpoints[at]["parent"]
        gone = chain[keep:]
        for item in gone:
            del self.checkpoints[item]
        return gone[::-1]

    def fork(self, lease: ModelLease, source: tuple[str, str], target: tuple[str, str]) -> str:
        if source[0] == target[0]:
            return "[FORK_SOURCE_THREAD_MISMATCH]"
        row = self.checkpoints.get(source[1])
        if row is None:
            return "[FORK_SOURCE_NOT_FOUND]"
        if row["thread"] != source[0]:
            return "[FORK_SOURCE_THREAD_MISMATCH]"
        if not self.holds(lease, target[0]):
            return "[WRITER_LOST]"
        state = self.thread(target[0])
        held = any(item["thread"] == target[0] for item in self.checkpoints.values())
        if state.used or held or state.head is not None or target[1] in self.burnt:
            return "[FORK_DESTINATION_NOT_EMPTY]"
        self.store({**row, "id": target[1], "thread": target[0], "parent": None, "at": self.now})
        state.used, state.transcript = True, [row["says"]]
        return target[1]

    def save_transcript(self, thread: str, messages: list[Any]) -> None:
        state = self.thread(thread)
        state.used, state.transcript = True, messages

    def save_record(self, thread: str) -> None:
        self.thread(thread).used = True

    def listed(self, thread: str) -> list[dict[str, Any]]:
        rows = [row for row in self.checkpoints.values() if row["thread"] == thread]
        return sorted(rows, key=lambda row: (row["at"], row["id"].encode()))

    def references(self) -> list[tuple[str, int]]:
        counts: dict[str, int] = {}
        for row in self.checkpoints.values():
            for key in set(row["keys"]):
                counts[key] = counts.get(key, 0) + 1
        return sorted(counts.items(), key=lambda item: item[0].encode())
