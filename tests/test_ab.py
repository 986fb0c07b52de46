"""Two builds of a saver: environments that differ in one package, and trials in turn."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from savermark.ab import AbPlan, backends_of, compare_ab, load_ab, plan_steps, run_ab
from savermark.cli import run
from savermark.compare import Verdict
from savermark.errors import BackendError, ResultError, UsageError
from savermark.installs import INSTALLED, Install, install
from savermark.installs.build import MARKER
from savermark.installs.model import cache_folder, digest, identify, key
from savermark.installs.reason import pip_reason
from savermark.profiles import make_cases
from savermark.runner import RunPlan
from savermark.trial import child

SETS = ("conversation.turns=2", "conversation.threads=1", "measure.cold=false")
SAVER = """
import sqlite3
from contextlib import closing, contextmanager
from langgraph.checkpoint.sqlite import SqliteSaver

class TestSaver(SqliteSaver):
    def get_delta_channel_history(self, **options):
        with self.cursor(transaction=False) as cursor:
            for _ in range({more}):
                cursor.execute("SELECT 1").fetchone()
        return super().get_delta_channel_history(**options)

@contextmanager
def opened(folder):
    path = folder / "t.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        saver = TestSaver(connection)
        saver.setup()
        yield saver
"""


def _wheel(folder: Path, version: str, more: int) -> Path:
    """A saver's package as a wheel, made by hand: a test of pip needs no build and no network."""
    import zipfile

    path = folder / f"savermark_test_saver-{version}-py3-none-any.whl"
    info = f"savermark_test_saver-{version}.dist-info"
    files = {
        "savermark_test_saver.py": SAVER.replace("{more}", str(more)),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: savermark-test-saver\nVersion: {version}"
        "\nRequires-Dist: langgraph-checkpoint>=4\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
    return path


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def test_a_wheel_lies_over_what_is_installed(tmp_path: Path, no_index: None) -> None:
    cache = tmp_path / "cache"
    made = install(str(_wheel(tmp_path, "1.0", 0)), cache)
    assert (made.distribution, made.version) == ("savermark-test-saver", "1.0")
    code = "\n".join(
        f"import {name} as module; print(module.__file__)"
        for name in ("savermark_test_saver", "savermark", "langgraph.checkpoint.sqlite")
    )
    command = [made.python, "-c", code]
    seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    import langgraph.checkpoint.sqlite as ours

    import savermark

    assert seen[0].startswith(str(cache))
    assert seen[1:3] == [savermark.__file__, ours.__file__]
    done = subprocess.run([sys.executable, "-c", "import savermark_test_saver"], check=False)
    assert done.returncode != 0  # nothing came into the environment of ours


def test_environments_are_kept_and_half_built_ones_are_not(tmp_path: Path, no_index: None) -> None:
    cache, wheel = tmp_path / "cache", _wheel(tmp_path, "1.0", 0)
    first = install(str(wheel), cache)
    folder = first.python.parents[1]
    mark = folder / "mark"
    mark.touch()
    assert install(str(wheel), cache) == first
    assert mark.exists()
    (folder / MARKER).unlink()  # as a kill leaves it
    assert install(str(wheel), cache) == first
    assert not mark.exists()
    wheel.unlink()
    _wheel(tmp_path, "1.0", 7)  # the same name, another content
    assert install(str(wheel), cache).python != first.python


def test_what_cannot_be_installed_gives_pips_reason(tmp_path: Path, no_index: None) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(BackendError, match=r"^cannot install no-such-saver==1: [^\n]*[Nn]o match"):
        install("no-such-saver==1", cache)
    bad = tmp_path / "bad-1.0-py3-none-any.whl"
    bad.write_bytes(b"no zip")
    with pytest.raises(BackendError, match=r"^cannot install [^\n]*bad-1.0[^\n]*: [^\n]+$"):
        install(str(bad), cache)
    assert [path.suffix for path in cache.iterdir()] == [".lock", ".lock"]


@pytest.mark.parametrize("text", ["", " ", "-e .", "--index-url=x", "./nowhere", "a\nb"])
def test_what_is_no_requirement(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        install(text, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_conflict_names_both_sides() -> None:
    printed = """
The conflict is caused by:
    a-saver 3.0.0 depends on langgraph-checkpoint<4.0.0 and >=3
    The user requested (constraint) langgraph-checkpoint==4.3.2

To fix this you could try to:
"""
    assert pip_reason(printed, "ERROR: ResolutionImpossible: for help visit") == (
        "a-saver 3.0.0 depends on langgraph-checkpoint<4.0.0 and >=3; "
        "this environment has langgraph-checkpoint==4.3.2"
    )
    assert pip_reason("", "WARNING: x\nERROR: No matching distribution found for y") == (
        "No matching distribution found for y"
    )
    assert pip_reason("", "") == "pip gave no reason"


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "savermark" / "environments"
    assert cache_folder(Path("~/x")) == Path.home() / "x"


def test_identities(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "a.py").write_text("1")
    before, whole = digest(package), identify(str(package))
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.pyc").write_text("x")
    assert digest(package) == before
    (package / "a.py").write_text("2")
    assert identify(str(package)).source != whole.source
    assert key(identify(str(package))) != key(whole)
    assert identify("a-saver==1.0") != identify("a-saver==1.1")


def test_a_git_reference_is_its_commit(tmp_path: Path) -> None:
    def git(*argv: str) -> str:
        named = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(tmp_path), *named, *argv]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "one")
    first = git("rev-parse", "HEAD")
    url = f"git+file://{tmp_path}"
    assert identify(f"{url}@main").source == identify(url).source == first
    git("tag", "-a", "v1", "-m", "one")
    git("commit", "-q", "--allow-empty", "-m", "two")
    assert identify(f"{url}@v1").source == first
    assert identify(f"{url}@main").source == git("rev-parse", "HEAD") != first
    assert identify(f"{url}@{first}").source == first


def test_a_path_that_is_a_package_is_built(tmp_path: Path) -> None:
    """A folder is installed by its own build backend, here one without dependencies."""
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    wheel = _wheel(tmp_path, "2.5", 0)
    (package / "backend.py").write_text(
        "import shutil\n"
        "def build_wheel(folder, config_settings=None, metadata_directory=None):\n"
        f"    shutil.copy({str(wheel)!r}, folder)\n    return {wheel.name!r}\n"
    )
    assert install(str(package), tmp_path / "cache").version == "2.5"


def test_the_sides_of_a_trial_stand_together_in_a_drawn_order() -> None:
    cases = make_cases("chat", ("memory", "sqlite"), SETS)
    steps = plan_steps(RunPlan(cases=tuple(cases), repetitions=5, seed=3))
    probes = [step for step in steps if step.side is None]
    trials = steps[len(probes) :]
    assert [step.case for step in probes] == cases
    assert len(trials) == 2 * 5 * len(cases)
    pairs = list(zip(trials[::2], trials[1::2], strict=True))
    assert all((x.case, x.repetition) == (y.case, y.repetition) for x, y in pairs)
    assert {(x.side, y.side) for x, y in pairs} == {("a", "b"), ("b", "a")}
    assert plan_steps(RunPlan(cases=tuple(cases), repetitions=5, seed=3)) == steps
    assert any(x.repetition != y.repetition for x, y in pairwise(trials))


def test_the_backend_follows_from_the_package() -> None:
    sqlite = Install("x", Path("p"), "langgraph-checkpoint-sqlite", "3.1.2")
    installed = Install(INSTALLED, Path("p"), "", "0.1.0")
    assert backends_of([sqlite, installed]) == ("sqlite",)
    with pytest.raises(UsageError, match="name one with --backend"):
        backends_of([replace(sqlite, distribution="somebodys-saver")])
    with pytest.raises(UsageError, match="what is installed"):
        backends_of([installed, installed])


def test_one_more_statement_between_two_builds(
    tmp_path: Path, no_index: None, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = _wheel(tmp_path, "1.0", 0), _wheel(tmp_path, "1.1", 1)
    factory = "savermark_test_saver:opened"
    out = tmp_path / "out"
    plan = _plan(a, b, tmp_path / "cache", factory)
    result = run_ab(plan, out)
    compared = compare_ab(result, threshold=99)
    rows = {row.metric: row for row in compared.rows if row.verdict is Verdict.WORSE}
    assert (rows["walk own: statements"].a, rows["walk own: statements"].b) == (2, 3)
    assert (compared.name_a, compared.name_b) == (
        f"savermark-test-saver 1.0 ({digest(a)[:12]})",
        f"savermark-test-saver 1.1 ({digest(b)[:12]})",
    )
    assert compared.counts[Verdict.SAME] > 20
    text = (out / "ab.jsonl").read_text(encoding="utf-8")
    assert str(plan.a.python) not in text
    # The result is on disk, and read back it says the same.
    assert compare_ab(load_ab(out), threshold=99).rows == compared.rows
    with pytest.raises(ResultError, match="already holds a result"):
        run_ab(plan, out)
    assert run(["compare", str(out / "a"), str(out / "b"), "--threshold", "99"]) in (0, 3)
    assert "Verdict" in capsys.readouterr().out


def _plan(a: Path, b: Path, cache: Path, factory: str) -> AbPlan:
    left, right = install(str(a), cache), install(str(b), cache)
    spec = make_cases("chat", ("sqlite",), (*SETS, "state.messages.kind=delta"))[0]
    case = replace(spec, backend=factory)
    return AbPlan(left, right, RunPlan(cases=(case,), repetitions=1))


def test_a_side_that_does_not_start_is_one_line(tmp_path: Path) -> None:
    broken = Install("x", Path(sys.executable), "x", "1")
    (case,) = make_cases("chat", ("memory",), (*SETS, "state.messages.kind=delta"))
    plan = AbPlan(broken, replace(broken, python=tmp_path / "no"), RunPlan(cases=(case,)))
    with pytest.raises(BackendError, match="does not start"):
        run_ab(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["chat"], "--a"),
        (["--a", "installed", "--b", "-x", "chat"], "no requirement"),
        (["--a", "installed", "--b", "installed", "chta", "-b", "sqlite"], "did you mean 'chat'"),
        (["--a", "installed", "--b", "installed", "chat", "-b", "sqlte"], "did you mean 'sqlite'"),
        (["--a", "installed", "--b", "installed", "chat"], "name one with --backend"),
        (["--a", "installed", "--b", "installed", "chat", "--threshold", "1"], "ratio above 1"),
    ],
)
def test_mistakes_cost_nothing(
    argv: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["ab", *argv, "-q"]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_worker_of_another_interpreter(tmp_path: Path) -> None:
    """The job runs where it was told to, and not in the interpreter that asks."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec env WHO=other {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    job: dict[str, Any] = {"kind": "environment"}
    end = child.run_child(job, tmp_path, 60, python=python)
    assert end.result is not None
    assert end.result["python"].count(".") == 2
