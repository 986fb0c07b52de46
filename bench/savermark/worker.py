"""One job in this process: `python -m savermark.worker` reads it on stdin as a line of JSON.

The result goes to the file that the job names, so nothing that a library prints can damage it.
Imports of weight wait until the job asks for them: a trial's start-up is on somebody's clock.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    """Read one job, do it, write its result. A closed stdin ends the process at once."""
    if "--ready" in sys.argv:
        import_module("savermark.trial.reads")
    line = sys.stdin.buffer.readline()
    if not line:  # kept ready in vain
        return
    job = json.loads(line)
    threading.Thread(target=_die_with_parent, args=(job["leads_group"],), daemon=True).start()
    result = _do(job)
    path = Path(job["result"])
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(result), encoding="utf-8")
    partial.replace(path)


def _die_with_parent(leads_group: bool) -> None:
    while os.read(0, 1):
        pass
    # The runner is gone. No clean-up here: whoever runs the services cleans up after a kill.
    if leads_group:
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _do(job: dict[str, Any]) -> dict[str, Any]:
    if job.get("reader"):
        from savermark.trial.child import keep_ready

        keep_ready()
    if job["kind"] == "environment":
        from savermark.environment import capture_environment

        return capture_environment()
    if job["kind"] == "probe":
        from savermark.probe import run_probe_job

        return run_probe_job(job)
    from savermark.families import case_from_json, get_family
    from savermark.trial.case import location_from_json

    case, location = case_from_json(job["case"]), location_from_json(job["location"])
    family = get_family(case.family)
    if job["kind"] == "cold":
        return {"ns": family.read_cold(case, location, job["targets"], job["rounds"])}
    options = {"began_ns": job["began_ns"], "keep": job["keep"]}
    try:
        trial = family.run(case, location, job["repetition"], **options)
    except Exception as error:  # the process is the boundary: any failure becomes a row
        from savermark.trial.failure import failed_trial

        traceback.print_exc()
        trial = failed_trial(case, job["repetition"], error)
    return trial.to_json()


if __name__ == "__main__":
    main()
