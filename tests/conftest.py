"""Registers every fixture plugin: each `fix_*.py` here is one concern."""

from pathlib import Path

pytest_plugins = sorted(path.stem for path in Path(__file__).parent.glob("fix_*.py"))
