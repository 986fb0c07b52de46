"""What an environment is, where it is kept, and what makes it another one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from savermark.errors import UsageError

#: The word for the environment that runs us, as it is.
INSTALLED = "installed"
CACHE_VARIABLE = "XDG_CACHE_HOME"
LAYOUT = 1  # counts how an environment is built: another number builds all of them anew
GIT_SECONDS = 30.0

_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_SKIPPED = {".git", "__pycache__", ".venv", ".tox", "node_modules"}


@dataclass(frozen=True, slots=True)
class Install:
    """An interpreter with one requirement installed for it."""

    requirement: str  # as it was given
    python: Path
    distribution: str  # the name of the package that came of it; empty for `INSTALLED`
    version: str
    source: str = ""  # the commit, or the digest of a folder, where there is one

    @property
    def title(self) -> str:
        """What people call it: the package and its version, and the commit of a git reference."""
        if not self.distribution:
            return self.requirement
        source = f" ({self.source[:12]})" if self.source else ""
        return f"{self.distribution} {self.version}{source}"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "python": str(self.python)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Install:
        """The inverse of `to_json`."""
        return cls(**{**data, "python": Path(data["python"])})


@dataclass(frozen=True, slots=True)
class Identity:
    """What a requirement stands for at this moment: a branch moves on, a folder is edited."""

    requirement: str  # as pip is given it
    source: str = ""


def identify(requirement: str) -> Identity:
    """The identity of a version spec, a path or a git reference.

    Raises `UsageError` for what is none of them: an option of pip, an empty word, an absent path.
    """
    text = requirement.strip()
    if not text or text.startswith("-") or any(char in text for char in "\n\r\0"):
        raise UsageError(
            f"{requirement!r} is no requirement: give a version (package==1.2.3), a path or git+URL"
        )
    if "git+" in text:
        return Identity(text, _commit(text))
    path = Path(text).expanduser()
    if text.startswith((".", "/", "~")) or path.exists():
        if not path.exists():
            raise UsageError(f"no folder or file {text}: name a saver package's folder or wheel")
        return Identity(str(path.resolve()), digest(path))
    return Identity(text)


def _commit(text: str) -> str:
    """The commit that a git reference names now; empty where git cannot tell."""
    url = text[text.index("git+") + 4 :].partition("#")[0]
    address, at, named = url.rpartition("@")
    if not at or "/" not in address.partition("://")[2]:  # the @ is the user's, not a revision's
        address, named = url, "HEAD"
    if _COMMIT.match(named):
        return named
    wanted = [named, f"refs/heads/{named}", f"refs/tags/{named}^{{}}", f"refs/tags/{named}"]
    try:
        done = subprocess.run(
            ["git", "ls-remote", "--", address, *wanted],
            capture_output=True, text=True, timeout=GIT_SECONDS, check=False,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.split("\n") if done.returncode == 0 else []
    return lines[-2].split("\t")[0] if len(lines) > 1 else ""


def digest(path: Path) -> str:
    """SHA-256 over a file, or over the names and contents of what a folder's package is made of."""
    seen = hashlib.sha256()
    files = [path] if path.is_file() else sorted(_files(path))
    for file in files:
        seen.update(f"{file.relative_to(path) if file != path else file.name}\0".encode())
        seen.update(hashlib.sha256(file.read_bytes()).digest())
    return seen.hexdigest()


def _files(folder: Path) -> list[Path]:
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        found += [Path(root, name) for name in names if not name.endswith((".pyc", ".pyo"))]
    return [file for file in found if file.is_file()]


def cache_folder(given: Path | None = None) -> Path:
    """Where environments are kept: `given`, or savermark's place in the user's cache folder."""
    if given is not None:
        return given.expanduser().resolve()
    base = os.environ.get(CACHE_VARIABLE) or str(Path("~/.cache").expanduser())
    return Path(base) / "savermark" / "environments"


def key(identity: Identity) -> str:
    """The name of an environment's folder: everything that would make it another one is in it."""
    facts = {
        "layout": LAYOUT,
        "requirement": identity.requirement,
        "source": identity.source,
        "python": sys.version,
        "prefix": sys.prefix,
        "beneath": site_folders(),
        "packages": installed_versions(),
    }
    token = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    slug = re.sub(r"[^A-Za-z0-9._=-]+", "-", Path(identity.requirement).name)[-40:].strip("-")
    return f"{slug}-{token}"


def installed_versions() -> dict[str, str]:
    """Every package of the environment that runs us, by normalised name."""
    found: dict[str, str] = {}
    for package in distributions():
        name = package.metadata["Name"]
        if name:
            found.setdefault(normal(name), package.version)
    return found


def normal(name: str) -> str:
    """A package's name as all its spellings compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def site_folders() -> list[str]:
    """The folders of installed packages on our own path, first come first."""
    paths = sysconfig.get_paths()
    own = [paths["purelib"], paths["platlib"]]
    seen = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    return list(dict.fromkeys(str(Path(p).resolve()) for p in [*own, *seen] if Path(p).is_dir()))
