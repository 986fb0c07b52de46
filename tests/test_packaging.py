"""The wheel carries the command and the workload files, and installs into an empty environment."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment that holds the built wheel and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("savermark-*.whl")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    return python.parent


def test_the_wheel_brings_its_workloads(empty_environment: Path) -> None:
    listed = _run(
        empty_environment / "python",
        "-c",
        "from savermark.spec import *\n"
        "loads = {'savers': load_workload, 'sandbox': load_sandbox_workload,"
        " 'walks': load_walk_workload}\n"
        "for family, load in loads.items():\n"
        "    print(*(f'{name}:{len(load(name))}' for name in workload_names(family)))",
    )
    shipped = {path.stem for path in (ROOT / "workloads").glob("[!_]*.toml")}
    assert {entry.split(":")[0] for entry in listed.split()} == shipped
    assert {"chat", "tool-heavy", "branching"} <= shipped


def test_the_wheel_brings_the_command_and_its_backends(empty_environment: Path) -> None:
    assert (empty_environment / "savermark").exists()
    listed = _run(
        empty_environment / "python",
        "-c",
        "from savermark.backends.registry import backend_names; print(*backend_names())",
    )
    assert {"null", "memory", "sqlite", "postgres"} <= set(listed.split())


def test_constraints_pin_every_dependency_without_addresses() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all("==" in pin and "/" not in pin and "@" not in pin for pin in pins)
