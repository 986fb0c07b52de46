"""The notebook runs from top to bottom and uses nothing of the package but its two readers."""

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

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "compare_backends.ipynb"


def _code() -> str:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "code")


def test_it_uses_only_the_two_readers() -> None:
    code = _code()
    assert set(re.findall(r"savermark\.(\w+)", code)) == {"load_runs", "to_frame"}
    assert "from savermark" not in code


def test_it_is_committed_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(not cell.get("outputs") for cell in cells)


@pytest.mark.filterwarnings("ignore")  # what the notebook tools say about themselves
def test_it_runs(fake_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run = fake_run("run", cases=matrix(workloads=("chat",)), repetitions=1)
    monkeypatch.setenv("SAVERMARK_RESULT", str(run))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    pictures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 2
    assert "times less" in str(notebook.cells)
