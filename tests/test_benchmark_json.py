"""Files of pytest-benchmark in `savermark compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from savermark.cli import run
from savermark.compare import Kind, Verdict
from savermark.compare.benchmark_json import compare_benchmarks, is_benchmark_file, load_benchmarks
from savermark.probe import Probe

MACHINE = {"system": "Linux", "machine": "x86_64", "cpu": {"brand_raw": "A CPU", "count": 2}}


def _file(path: Path, machine: dict[str, Any] = MACHINE, **benchmarks: dict[str, Any]) -> Path:
    """A file as pytest-benchmark 5 writes it: only the keys that are read."""
    document = {
        "machine_info": machine,
        "benchmarks": [
            {
                "name": name.split("::")[-1],
                "fullname": f"test_walks.py::{name}",
                "stats": {"rounds": len(stats.get("data", [])), **stats},
                "extra_info": stats.pop("extra_info", {}),
            }
            for name, stats in benchmarks.items()
        ],
        "version": "5.3.1",
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _samples(middle: float, seed: int, n: int = 40) -> list[float]:
    return list(middle * np.random.default_rng(seed).lognormal(0, 0.05, n))


def test_raw_samples_carry_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = _file(tmp_path / "a.json", t_same={"data": _samples(1e-3, 1)},
              t_slow={"data": _samples(1e-3, 2)}, t_fast={"data": _samples(1e-3, 3)})  # fmt: skip
    b = _file(tmp_path / "b.json", t_same={"data": _samples(1e-3, 4)},
              t_slow={"data": _samples(2e-3, 5)}, t_fast={"data": _samples(4e-4, 6)})  # fmt: skip
    compared = compare_benchmarks(load_benchmarks(a), load_benchmarks(b))
    verdicts = {row.case_id.split("::")[1]: row.verdict for row in compared.rows}
    assert verdicts == {
        "t_same": Verdict.SAME, "t_slow": Verdict.WORSE, "t_fast": Verdict.BETTER
    }  # fmt: skip
    slow = next(row for row in compared.rows if row.verdict is Verdict.WORSE)
    assert slow.a == pytest.approx(1e6, rel=0.05)  # ns
    assert run(["compare", str(a), str(b), "--format", "md"]) == 3
    assert "t_slow" in capsys.readouterr().out
    assert run(["compare", str(a), str(b), "--format", "csv"]) == 3
    assert "test_walks.py::t_slow" in capsys.readouterr().out
    assert run(["compare", str(a), str(a)]) == 0


def test_without_samples_n_is_too_small(tmp_path: Path) -> None:
    a = _file(tmp_path / "a.json", t_one={"median": 1.0, "rounds": 5})
    b = _file(tmp_path / "b.json", t_one={"median": 9.0, "rounds": 5})
    (row,) = compare_benchmarks(load_benchmarks(a), load_benchmarks(b)).rows
    assert (row.verdict, row.ratio) == (Verdict.UNRESOLVED, None)
    assert row.detail.startswith("n too small")


def test_another_machine_and_absent_benchmarks(tmp_path: Path) -> None:
    other = {**MACHINE, "cpu": {"brand_raw": "B CPU", "count": 2}}
    a = _file(tmp_path / "a.json", t_one={"data": _samples(1, 1)}, t_gone={"data": _samples(1, 1)})
    b = _file(tmp_path / "b.json", other, t_one={"data": _samples(9, 1)})
    compared = compare_benchmarks(load_benchmarks(a), load_benchmarks(b))
    assert {row.verdict for row in compared.rows} == {Verdict.NOT_COMPARABLE}
    assert "cpu.brand_raw" in compared.rows[0].detail
    assert "only in A" in compared.rows[1].detail
    assert [item.what for item in compared.differences] == ["cpu.brand_raw"]


def test_exact_counts_beside_the_samples(tmp_path: Path) -> None:
    def extra(statements: int, **more: Any) -> dict[str, Any]:
        probe = Probe("t", "f" * 16, {"walk own": {"statements": statements}}, **more)
        return {"savermark": probe.to_json()}

    samples = {"data": _samples(1, 1)}
    a = _file(tmp_path / "a.json", t_one={**samples, "extra_info": extra(2)})
    b = _file(tmp_path / "b.json", t_one={**samples, "extra_info": extra(3)})
    c = _file(tmp_path / "c.json", t_one={**samples, "extra_info": extra(3, meter_version=9)})
    rows = compare_benchmarks(load_benchmarks(a), load_benchmarks(b)).rows
    assert [(row.metric, row.kind, row.verdict) for row in rows] == [
        ("walk own: statements", Kind.COUNT, Verdict.WORSE),
        ("time", Kind.TIME, Verdict.SAME),
    ]
    rows = compare_benchmarks(load_benchmarks(a), load_benchmarks(c)).rows
    assert rows[0].verdict is Verdict.NOT_COMPARABLE


def test_what_is_no_such_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = _file(tmp_path / "a.json", t_one={"data": [1.0]})
    b = _file(tmp_path / "b.json", t_two={"data": [1.0]})
    assert not is_benchmark_file(tmp_path)
    (tmp_path / "c.json").write_text("[]", encoding="utf-8")
    assert not is_benchmark_file(tmp_path / "c.json")
    (tmp_path / "d.json").write_text('{"benchmarks": [{}]}', encoding="utf-8")
    for argv, code, words in (
        ((str(a), str(b)), 4, "no benchmark in common"),
        ((str(a), "latest"), 2, "two files of pytest-benchmark"),
        ((str(a), str(tmp_path / "d.json")), 1, "no file of pytest-benchmark"),
    ):
        assert run(["compare", *argv]) == code
        err = capsys.readouterr().err
        assert words in err
        assert len(err.splitlines()) == 1
