"""The releases of a package that the user's own package index offers."""

from __future__ import annotations

import re
import subprocess
import sys

from savermark.errors import BackendError, UsageError
from savermark.installs.reason import pip_reason
from savermark.trial.child import redact

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
_SECONDS = 120.0


def newest_versions(package: str) -> list[str]:
    """Every release of the package, newest first; pre-releases are left out.

    Raises `UsageError` for what is no package's name, `BackendError` where pip cannot tell.
    """
    if not _NAME.match(package):
        raise UsageError(f"{package!r} is no package's name: give one such as my-saver-package")
    command = [sys.executable, "-m", "pip", "index", "versions", "--no-color", package]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"the package index gave no answer in {_SECONDS:g} s") from error
    found = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if done.returncode or found is None:
        reason = redact(pip_reason(done.stdout, done.stderr))
        raise BackendError(f"cannot list the versions of {package}: {reason}")
    return [version.strip() for version in found[1].split(",")]
