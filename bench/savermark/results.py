"""Result files: append-only JSON Lines that lose at most the line being written.

A run's folder holds `run.jsonl`: a `run` line (what will be measured, and where), a `trial` line
after each trial, an `end` line. Nothing in it is edited later, except that a line which a kill
cut short is removed before a resumed run goes on.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from savermark.errors import ResultError, UsageError, unknown
from savermark.records import SCHEMA_VERSION, Status, TrialResult

RUN_FILE = "run.jsonl"
LOCK_FILE = "run.lock"
RESULTS = Path("results/local")
LATEST = "latest"

_HEADER = ("run_id", "created_at", "profile", "seed", "environment", "cases")
_TRIAL_LINE = re.compile(rb'\{"record": ?"trial"')

Record = dict[str, Any]
Records = list[Record]


def _with_costs(records: Records) -> Records:
    """Version 2 has what calls cost in counts; nothing counted them before."""
    added: dict[str, Record] = {"run": {"schema_version": 2}, "trial": {"costs": []}}
    return [{**record, **added.get(str(record.get("record")), {})} for record in records]


#: Schema version -> what turns its records into those of the next one; files stay as they are.
UPGRADES: dict[int, Callable[[Records], Records]] = {1: _with_costs}


@dataclass(slots=True)
class RunResult:
    """A result as read from its file; a trial that was run again replaces the earlier one."""

    path: Path  # of run.jsonl
    header: Record
    trials: list[TrialResult] = field(default_factory=list)
    complete: bool = False  # every trial was tried and the end was written
    truncated_line: bool = False  # the last line was cut short, as a kill leaves it

    @property
    def run_id(self) -> str:
        return str(self.header["run_id"])

    @property
    def quick(self) -> bool:
        """Whether this is a quick run's result, which never serves as a baseline."""
        return bool(self.header.get("quick", False))

    @property
    def cases(self) -> dict[str, Record]:
        """The header's cases by case id, each with its spec and fingerprint."""
        return {case["case_id"]: case for case in self.header["cases"]}


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One line of a list of results."""

    run_id: str
    path: Path
    created_at: str
    profile: str
    quick: bool
    cases: int
    trials: int
    complete: bool


def new_run_id(now: datetime | None = None) -> str:
    """A sortable id: `20260105-101500-3fa9`."""
    return f"{(now or datetime.now(UTC)):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def create_run(folder: Path, header: Record) -> Path:
    """Write the first line of a new result; raises `ResultError` where that cannot be."""
    check_new(folder)
    path = folder / RUN_FILE
    append(path, {"record": "run", "schema_version": SCHEMA_VERSION, **header})
    return path


def check_new(folder: Path) -> None:
    """Raise `ResultError` if the folder holds a result: none is ever overwritten."""
    if (folder / RUN_FILE).exists():
        raise ResultError(f"{folder} already holds a result: name another folder, or --resume it")


def append_trial(path: Path, trial: TrialResult) -> None:
    """Append one trial; when this returns, the line is on the disk."""
    append(path, trial.to_json())


def append(path: Path, record: Record) -> None:
    """Append one line, flushed to the disk; a line that cannot be written whole is taken back."""
    line = (json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n").encode()
    try:
        new = not path.exists()
        with path.open("ab") as file:
            size = file.tell()
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), size)
                raise
        if new:
            _sync_folder(path.parent)
    except OSError as error:
        raise ResultError(write_problem(path, error)) from error


def write_problem(path: Path, error: OSError) -> str:
    """One line that says why `path` cannot be written and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full: cannot write {path}; free some space, then --resume"
    reason = (error.strerror or str(error)).lower()
    return f"cannot write {path} ({reason}): name another folder with --out"


def prepare_folder(folder: Path) -> None:
    """Make the folder and prove that it can be written; raises `ResultError`."""
    probe = folder / f".probe-{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise ResultError(write_problem(folder, error)) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder, so that no other process writes the same result.

    The system drops the lock when its holder dies. Raises `ResultError` if it is held.
    """
    path = folder / LOCK_FILE
    try:
        file = path.open("a+b")
    except OSError as error:
        raise ResultError(write_problem(path, error)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultError(
                f"another run is writing {folder}: wait for it, or name another folder with --out"
            ) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def load_run(path: Path | str) -> RunResult:
    """Read a result: its folder, or the file itself.

    Raises `ResultError` for what is no result, has a newer schema, or is damaged in the middle.
    """
    file = _run_file(Path(path))
    records, truncated = _read_records(file)
    if not records or records[0].get("record") != "run":
        raise ResultError(f"{file} is no result: its first line is not a run record")
    records = upgrade(records, file)
    _check_header(records[0], file)
    run = RunResult(file, records[0], truncated_line=truncated)
    trials: dict[tuple[str, int], TrialResult] = {}
    for number, record in enumerate(records[1:], start=2):
        if record.get("record") == "trial":
            trial = _trial(record, file, number)
            trials[trial.case_id, trial.repetition] = trial
    run.trials = list(trials.values())
    run.complete = records[-1].get("record") == "end"
    return run


def _check_header(header: Record, file: Path) -> None:
    lacks = [name for name in _HEADER if name not in header]
    if not lacks and not all({"case_id", "fingerprint"} <= set(case) for case in header["cases"]):
        lacks = ["case_id or fingerprint of a case"]
    if lacks:
        raise ResultError(f"{file} is no result: its first line lacks {', '.join(lacks)}")


def upgrade(records: Records, file: Path) -> Records:
    """The records in today's shape, one step a version."""
    version = records[0].get("schema_version")
    if not isinstance(version, int) or version < 1:
        raise ResultError(f"{file} states no schema version: it is no result of savermark")
    if version > SCHEMA_VERSION:
        raise ResultError(
            f"{file} has schema version {version}, newer than {SCHEMA_VERSION}, the newest that "
            "this savermark reads: upgrade savermark"
        )
    for step in range(version, SCHEMA_VERSION):
        records = UPGRADES[step](records)
    return records


def trim(path: Path) -> None:
    """Remove a last line that a kill cut short, so that appending goes on at a line's start."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole == len(data):
        return
    with path.open("r+b") as file:
        if _parsed(data[whole:]) is None:
            file.truncate(whole)
        else:  # only its end is missing
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
        file.flush()
        os.fsync(file.fileno())


def find_result(name: str, root: Path = RESULTS) -> Path:
    """The run file of `latest`, a run id, a folder or a file.

    Raises `UsageError` for a name that none has, `ResultError` where there is no result at all.
    """
    if name == LATEST:
        runs = list_runs(root)
        if not runs:
            raise ResultError(f"no result in {root}: `savermark run` makes one")
        return runs[-1].path
    for place in (Path(name), root / name):
        if place.is_file() or (place / RUN_FILE).is_file():
            return _run_file(place)
    raise UsageError(unknown("result", name, [LATEST, *(run.run_id for run in list_runs(root))]))


def list_runs(root: Path = RESULTS) -> list[RunInfo]:
    """The results in a folder, oldest first; what cannot be read as one is left out."""
    found = []
    for file in sorted(root.glob(f"*/{RUN_FILE}")):
        try:
            found.append(_info(file))
        except (ResultError, KeyError):
            continue
    return sorted(found, key=lambda run: (run.created_at, run.run_id))


def _info(file: Path) -> RunInfo:
    """From the first and the last line; the samples between them are not parsed."""
    lines = [line for line in file.read_bytes().split(b"\n") if line]
    header = _parsed(lines[0]) if lines else None
    if header is None or header.get("record") != "run":
        raise ResultError(f"{file} is no result")
    last = _parsed(lines[-1])
    return RunInfo(
        run_id=header["run_id"],
        path=file,
        created_at=header["created_at"],
        profile=header["profile"],
        quick=bool(header.get("quick", False)),
        cases=len(header["cases"]),
        trials=sum(_TRIAL_LINE.match(line) is not None for line in lines),
        complete=last is not None and last.get("record") == "end",
    )


def finished_trials(run: RunResult, retry: Collection[Status] = ()) -> set[tuple[str, int]]:
    """(case id, repetition) of what a resumed run need not do again; `retry` ended badly."""
    return {(trial.case_id, trial.repetition) for trial in run.trials if trial.status not in retry}


def _run_file(path: Path) -> Path:
    file = path / RUN_FILE if path.is_dir() else path
    if not file.is_file():
        raise ResultError(f"no result at {path}: `savermark list results` shows what there is")
    return file


def _read_records(file: Path) -> tuple[Records, bool]:
    """The file's records, and whether its last line was cut short."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ResultError(f"cannot read {file}: {(error.strerror or 'failed').lower()}") from error
    *lines, rest = data.split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        record = _parsed(line)
        if record is None:
            raise ResultError(f"{file}, line {number}: not a JSON record; the file is damaged")
        records.append(record)
    last = _parsed(rest) if rest else None
    if last is not None:
        records.append(last)
    return records, bool(rest) and last is None


def _parsed(line: bytes) -> Record | None:
    """The line's record; None when it is not one, as when a part of it is missing."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _trial(record: Record, file: Path, number: int) -> TrialResult:
    try:
        return TrialResult.from_json(record)
    except (KeyError, TypeError, ValueError) as error:
        raise ResultError(
            f"{file}, line {number}: not a trial of schema version {SCHEMA_VERSION} ({error})"
        ) from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
