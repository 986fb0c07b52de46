"""Runs a job in a fresh process (`python -m savermark.worker`) and tells how it ended."""

from __future__ import annotations

import atexit
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

WORKER = "savermark.worker"
TAIL_BYTES = 16_384  # of what a worker prints; only its last line is ever shown
REAP_SECONDS = 5.0
_PASSWORD = re.compile(
    r"(://[^:/@\s]*:)\S+(@)|(password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a worker ended: with a `result`, or with a one-line `cause` and none."""

    result: dict[str, Any] | None
    cause: str = ""
    timed_out: bool = False


class Child:
    """A worker process that waits for its one job.

    With `own_group`, whatever the worker starts is killed with it; Ctrl-C in the terminal reaches
    neither. A `ready` one imports what most jobs need before its job arrives. `python` is another
    interpreter than ours, which has this savermark, too.
    """

    def __init__(self, *, own_group: bool, ready: bool = False, python: Path | None = None) -> None:
        self._own_group = own_group
        self._process = subprocess.Popen(
            [str(python or sys.executable), "-m", WORKER, *(["--ready"] if ready else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=own_group,
            env=_environment(),
        )
        self._tail = _Tail(self._process)

    def run(self, job: dict[str, Any], folder: Path, timeout_s: float) -> ChildEnd:
        """Do one job; its result goes through a file in `folder`, apart from what is printed.

        The job travels on standard input, which stays open while we live: a worker that finds it
        closed ends itself.
        """
        path = folder / f"result-{secrets.token_hex(4)}.json"
        line = json.dumps({**job, "result": str(path), "leads_group": self._own_group}) + "\n"
        process, timed_out = self._process, False
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it died at once; how, is told below
                process.stdin.write(line.encode())
                process.stdin.flush()
            process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            self.end()
        printed = self._tail.text()
        if timed_out:
            return ChildEnd(None, f"no result after {timeout_s:g} s", timed_out=True)
        try:
            return ChildEnd(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return ChildEnd(None, exit_cause(process.returncode, printed))
        finally:
            path.unlink(missing_ok=True)

    def end(self) -> None:
        """Leave nothing running: kill what still lives, wait for the worker, close its pipes."""
        process = self._process
        with suppress(ProcessLookupError, PermissionError):
            if self._own_group:  # also after a good end: a saver may have left children
                os.killpg(process.pid, signal.SIGKILL)
            elif process.returncode is None:
                process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel: nothing more can be done
            process.wait(timeout=REAP_SECONDS)
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()


_ready: list[Child] = []


def keep_ready() -> None:
    """Start the worker of a later `run_child` in our group now: it imports while we do."""
    child = Child(own_group=False, ready=True)
    _ready.append(child)
    atexit.register(child.end)


def run_child(
    job: dict[str, Any],
    folder: Path,
    timeout_s: float,
    *,
    own_group: bool = True,
    python: Path | None = None,
) -> ChildEnd:
    """Do one job in a fresh process, whose group is its own or ours."""
    ready = _ready and not own_group and python is None
    child = _ready.pop() if ready else Child(own_group=own_group, python=python)
    return child.run(job, folder, timeout_s)


def exit_cause(returncode: int, printed: str) -> str:
    """One line for a worker that ended without a result."""
    last = next((line.strip() for line in reversed(printed.splitlines()) if line.strip()), "")
    if returncode < 0:
        try:
            how = f"killed by {signal.Signals(-returncode).name}"
        except ValueError:
            how = f"killed by signal {-returncode}"
        if -returncode == signal.SIGKILL:
            how += " (out of memory?)"
    else:
        how = f"ended with code {returncode} and no result"
    return redact(f"{how}: {last}" if last else how)


def redact(text: str) -> str:
    """The text on one line, without passwords and of bounded length."""
    hidden = _PASSWORD.sub(lambda m: f"{m[1] or m[3]}***{m[2] or ''}", " ".join(text.split()))
    return hidden if len(hidden) <= 500 else hidden[:499] + "…"


def _environment() -> dict[str, str]:
    # Sets are iterated in one order in every trial, so that stored bytes repeat.
    return {**os.environ, "PYTHONHASHSEED": "0"}


class _Tail:
    """Drains what a process prints, so that it never blocks on a full pipe; keeps the end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._kept = b""
        self._pipe = process.stdout
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        assert self._pipe is not None
        with self._pipe:
            while chunk := self._pipe.read1(65_536):  # type: ignore[attr-defined]
                self._kept = (self._kept + chunk)[-TAIL_BYTES:]

    def text(self) -> str:
        # A process that outlived its group may hold the pipe open: do not wait for it for ever.
        self._reader.join(timeout=1.0)
        return self._kept.decode(errors="replace")
