"""Reports of synthetic runs, written once: one as it should be, one where much went wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fix_results import FakeCase, FakeRun, matrix, write_run
from savermark.records import Status

if TYPE_CHECKING:
    from savermark.report import Report

HOSTILE = '<img src=x onerror="alert(1)"> | `oops` </script>'


@pytest.fixture(scope="session")
def good_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Two workloads on three backends in both modes; no finding but the first ones."""
    from savermark.report import write_report  # matplotlib waits for a test that draws

    folder = tmp_path_factory.mktemp("good")
    cases = matrix(workloads=("chat", "tool-heavy"), reads=8)
    return write_report(write_run(folder, FakeRun(cases=cases, repetitions=1, quick=True)))


@pytest.fixture(scope="session")
def bad_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A failed check, a failed trial with a hostile cause, a skipped workload, a cut last line."""
    from savermark.report import write_report

    case = FakeCase(mode="full")
    cases = [
        case,
        replace(case, backend="postgres", failed_check="tips"),
        replace(case, backend="memory", mode="delta", status=Status.FAILED, cause=HOSTILE),
        replace(case, workload="big", status=Status.SKIPPED, cause="4.2 GB, the cap is 1 GB"),
    ]
    folder = tmp_path_factory.mktemp("bad")
    return write_report(write_run(folder, FakeRun(cases=cases, repetitions=1, truncated=True)))
