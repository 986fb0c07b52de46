"""The notebooks run from top to bottom and use nothing of the package but its two readers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
from nbclient import NotebookClient

from fix_results import matrix

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "compare_backends.ipynb"
WALKS = ROOT / "notebooks" / "history_walks.ipynb"
BOTH = pytest.mark.parametrize("path", [NOTEBOOK, WALKS], ids=lambda path: path.stem)


def _code(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "code")


def _pictures(notebook: nbformat.NotebookNode) -> int:
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return sum("image/png" in output.get("data", {}) for output in outputs)


@BOTH
def test_it_uses_only_the_two_readers(path: Path) -> None:
    code = _code(path)
    assert set(re.findall(r"savermark\.(\w+)", code)) == {"load_runs", "to_frame"}
    assert "from savermark" not in code


@BOTH
def test_it_is_committed_without_outputs(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert all(not cell.get("outputs") for cell in cells)


@pytest.mark.filterwarnings("ignore")  # what the notebook tools say about themselves
def test_it_runs(fake_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run = fake_run("run", cases=matrix(workloads=("chat",)), repetitions=1)
    monkeypatch.setenv("SAVERMARK_RESULT", str(run))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert _pictures(notebook) == 2
    assert "times less" in str(notebook.cells)


@pytest.mark.filterwarnings("ignore")
def test_the_walks_tell_of_the_committed_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAVERMARK_RESULT", raising=False)
    notebook = nbformat.read(WALKS, as_version=4)
    place = {"metadata": {"path": str(WALKS.parent)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=place).execute()
    assert _pictures(notebook) == 2
    sound, counts, advice = (
        _said(notebook, part) for part in ('to_frame(run, "checks")', "not_exact(row)", "cheapest(")
    )
    assert "True" in sound and "False" not in sound
    assert "onepass" in counts and "native" in counts
    assert "20 ms" in advice and "every " in advice


def _said(notebook: nbformat.NotebookNode, part: str) -> str:
    """What the cells that contain a piece of code put out, as text."""
    cells = (cell for cell in notebook.cells if part in cell.source and "outputs" in cell)
    return "".join(o["data"].get("text/plain", "") for c in cells for o in c.outputs if "data" in o)
