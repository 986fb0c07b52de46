"""Builds environments and keeps them; one that was left half-built is built anew."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from savermark.errors import BackendError, SavermarkError, UsageError
from savermark.installs.model import (
    INSTALLED,
    Identity,
    Install,
    cache_folder,
    identify,
    installed_versions,
    key,
    normal,
    site_folders,
)
from savermark.installs.reason import pip_reason
from savermark.trial.child import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER = "savermark-install.json"  # written last: an environment without it is not finished
PIP_SECONDS = 900.0
_PIP = ("--disable-pip-version-check", "--no-input", "--no-color")

#: What the interpreter of an environment sees beneath its own packages. `addsitedir` and not a
#: plain path: packages of the user's that are installed in place are found by their own .pth files.
_BENEATH = "import site; site.addsitedir({folder!r})\n"


def install(requirement: str, cache: Path | None = None, *, fresh: bool = False) -> Install:
    """The environment of a requirement, built or taken from the cache (`fresh` builds it anew).

    A requirement is a version spec, a path or a git reference, as pip takes it, or `INSTALLED`.
    pip runs with the user's own configuration. Raises `UsageError` for what is no requirement,
    `BackendError` with pip's reason where it cannot be installed.
    """
    if requirement.strip() == INSTALLED:
        return Install(INSTALLED, Path(sys.executable), "", version("savermark"))
    identity = identify(requirement)
    folder = cache_folder(cache) / key(identity)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            found = None if fresh else _finished(folder)
            made = found or _build(identity, folder)
    except OSError as error:
        raise BackendError(
            f"cannot keep an environment in {folder.parent} ({error.strerror or error}): "
            "name another folder with --cache"
        ) from error
    return replace(made, requirement=requirement)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two processes that want the same environment build it once."""
    with folder.with_name(f"{folder.name}.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _finished(folder: Path) -> Install | None:
    try:
        made = Install.from_json(json.loads((folder / MARKER).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return made if made.python.exists() else None


def _build(identity: Identity, folder: Path) -> Install:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        python = _empty(folder)
        name, found = _pip_install(identity, python)
        made = Install(identity.requirement, python, name, found, identity.source)
        _prove(made)
    except (SavermarkError, KeyboardInterrupt):
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / MARKER).write_text(json.dumps(made.to_json()), encoding="utf-8")
    return made


def _empty(folder: Path) -> Path:
    """A virtual environment through which ours is seen; its interpreter."""
    pip = [] if find_spec("pip") is None else ["--without-pip"]  # else ours is seen, too
    done = _run([sys.executable, "-m", "venv", *pip, str(folder)])
    if done.returncode:
        raise BackendError(f"cannot make a virtual environment: {_last(done)}")
    python = folder / "bin" / "python"
    packages = _ask(python, "import sysconfig; print(sysconfig.get_paths()['purelib'])")
    beneath = "".join(_BENEATH.format(folder=folder) for folder in site_folders())
    (Path(packages) / "zz-beneath.pth").write_text(beneath, encoding="utf-8")
    return python


def _pip_install(identity: Identity, python: Path) -> tuple[str, str]:
    """Install the requirement; the name and version of the package that came of it.

    First the package alone, then what of its dependencies is missing: all other packages are held
    at our versions, so that both sides run on the same ones.
    """
    with tempfile.TemporaryDirectory(prefix="savermark-pip-") as name:
        report, constraints = Path(name, "report.json"), Path(name, "held.txt")
        alone = ("--no-deps", "--ignore-installed", "--report", str(report))
        _demand(identity, _pip(python, "install", *alone, identity.requirement))
        asked = _requested(report)
        package, found = normal(asked["name"]), str(asked["version"])
        held = {key: value for key, value in installed_versions().items() if key != package}
        lines = [f"{key}=={value}" for key, value in sorted(held.items()) if "+" not in value]
        constraints.write_text("\n".join(lines), encoding="utf-8")
        done = _pip(python, "install", "-c", str(constraints), f"{package}=={found}")
        _demand(identity, done)
    return package, found


def _requested(report: Path) -> dict[str, Any]:
    items = json.loads(report.read_text(encoding="utf-8"))["install"]
    asked: dict[str, Any] = next(item["metadata"] for item in items if item.get("requested"))
    return asked


def _demand(identity: Identity, done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        reason = redact(pip_reason(done.stdout, done.stderr))
        raise BackendError(f"cannot install {redact(identity.requirement)}: {reason}")


def _prove(made: Install) -> None:
    """The environment runs our worker and has the package that was asked for."""
    done = _run([str(made.python), "-c", _PROOF, made.distribution])
    seen = done.stdout.strip()
    if done.returncode or seen != made.version:
        raise BackendError(
            f"cannot use {made.title} beside this savermark: {redact(_last(done)) or seen}"
        )


_PROOF = """
import sys
from importlib.metadata import version
import savermark.trial.reads, savermark.worker
print(version(sys.argv[1]))
"""


def _pip(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    verb, *others = arguments
    return _run([str(python), "-m", "pip", verb, *_PIP, *others])


def _ask(python: Path, code: str) -> str:
    done = _run([str(python), "-c", code])
    if done.returncode:
        raise BackendError(f"{python} does not run: {_last(done)}")
    return done.stdout.strip()


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False,
            stdin=subprocess.DEVNULL, cwd=tempfile.gettempdir(),
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{' '.join(command[2:4])} took more than {PIP_SECONDS:g} s") from error


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"ended with code {done.returncode}"
