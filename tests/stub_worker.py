"""Stands in for `savermark.worker` where a test is about the runner: quick, and odd on demand.

What it does is the workload's name: `ok`, `hang`, `print-dsn`, ... No import of savermark, so a
run of many trials takes a second.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    job = json.loads(sys.stdin.readline())
    case = job["case"]
    folder = Path(job["location"]["folder"])
    behaviour = BEHAVIOURS.get(case["workload"])
    if behaviour is not None:
        behaviour(job, folder)
    time.sleep(random.random() / 20)
    trial = {
        "record": "trial",
        "case_id": case["case_id"],
        "repetition": job["repetition"],
        "status": "ok",
        "samples": [],
        "phases": [],
        "checks": [],
        "process": None,
        "notes": {"folder": str(folder), "load_average": 0.1},
    }
    Path(job["result"]).write_text(json.dumps(trial), encoding="utf-8")


def hang(job: dict[str, Any], folder: Path) -> None:
    """Start another process, then never answer, not even to a polite request to stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with subprocess.Popen(["sleep", "600"]) as helper:
        pids = f"{os.getpid()} {helper.pid}"
        Path(os.environ["STUB_PIDS"]).write_text(pids, encoding="ascii")
        time.sleep(600)


def print_dsn(job: dict[str, Any], folder: Path) -> None:
    sys.stderr.write(f"connection to {job['location']['dsn']} failed\n")
    sys.exit(3)


BEHAVIOURS = {"hang": hang, "print-dsn": print_dsn}

if __name__ == "__main__":
    main()
