"""The code in docs/sandbox.md runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "sandbox.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_has_code() -> None:
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs_as_a_script(number: int, tmp_path: Path) -> None:
    script = tmp_path / "test_block.py"
    script.write_text(BLOCKS[number], "utf-8")
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_kit_runs_in_a_test_module_of_another_project(tmp_path: Path) -> None:
    suite = next(block for block in BLOCKS if "CheckpointStoreSuite" in block)
    (tmp_path / "test_my_store.py").write_text(suite, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"8\d passed, 1 skipped", done.stdout), done.stdout
