"""A trial's own start-up: from the birth of its process to the first turn of the conversation."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from goals import Goal

from savermark.results import load_run
from savermark.runner import run_workloads
