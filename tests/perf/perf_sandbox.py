"""An append against the same rows inserted by hand; see tests/sandbox/sandbox_perf.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "sandbox"))

from sandbox_perf import measure

__all__ = ["measure"]
