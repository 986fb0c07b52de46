"""A package's releases: lines that stay, ratios that are taken in turn, a picture."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from savermark.cli import run
from savermark.errors import ResultError, UsageError
from savermark.installs import Install
from savermark.plots.versions import plot_versions
from savermark.probe import Probe
from savermark.profiles import make_cases
from savermark.tracking import (
    Ratio,
    Version,
    history_file,
    merged,
    read_history,
    track,
    write_history,
)
from savermark.tracking.measure import ratio_of
from savermark.tracking.store import release_order

SETS = ("conversation.turns=3", "conversation.threads=1", 'state.messages.kind="delta"')


def _line(version: str, statements: int = 2) -> Version:
    probe = Probe(
        "chat@sqlite", "f" * 16,
        {"walk own": {"statements": statements}}, {"writes rows": 3, "writes bytes": 99},
    )  # fmt: skip
    return Version("a-saver", version, "2026-01-01", probe, "3.1.2", 5e6, Ratio(0.3, 0.2, 0.4, 3))


def test_lines_are_merged_in_the_order_of_releases(tmp_path: Path) -> None:
    path = history_file(tmp_path / "new", "a-saver")
    assert read_history(path) == []
    write_history(path, merged([], [_line("3.1.10"), _line("3.1.9")]))
    write_history(path, merged(read_history(path), [_line("3.1.9", 1), _line("3.0.0")]))
    found = read_history(path)
    assert [line.version for line in found] == ["3.0.0", "3.1.9", "3.1.10"]
    assert found[1].probe.counts["walk own"]["statements"] == 1
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_prerelease_comes_before_its_release() -> None:
    order = ["3.0.0", "3.1.0a1", "3.1.0rc2", "3.1.0", "3.1.0.1", "3.2", "10.0"]
    assert sorted(set(order), key=release_order) == order


def test_a_damaged_file_is_left_alone(tmp_path: Path) -> None:
    path = history_file(tmp_path, "a-saver")
    path.write_text(json.dumps({"record": "version", "schema_version": 99}) + "\n", "utf-8")
    with pytest.raises(ResultError, match="line 1"):
        read_history(path)


def test_two_builds_in_turn_on_a_real_store() -> None:
    """The same interpreter twice: equal counts, and ratios of about one for each round."""
    (case,) = make_cases("chat", ("sqlite",), SETS)
    newest = Install("installed", Path(sys.executable), "a-saver", "2.0")
    lines = track([newest, replace(newest, version="1.0")], case, rounds=1)
    assert [line.version for line in lines] == ["2.0", "1.0"]
    assert lines[0].probe.counts == lines[1].probe.counts
    assert lines[0].probe.storage == lines[1].probe.storage
    assert lines[0].to_newest is None
    assert lines[1].to_newest is not None
    assert 0.1 < lines[1].to_newest.value < 10
    assert lines[1].to_base is not None
    assert 0 < lines[1].to_base.value < 10


def test_ratios_have_their_range() -> None:
    assert ratio_of([1.0, 1.5, 1.1]) == Ratio(1.1, 1.0, 1.5, 3)
    assert ratio_of([1.2]) == Ratio(1.2, None, None, 1)
    (case,) = make_cases("chat", ("memory",), SETS)
    with pytest.raises(UsageError, match="rounds is 0"):
        track([], case, rounds=0)


def test_the_picture_has_a_row_a_package(tmp_path: Path) -> None:
    from matplotlib.image import imread

    lines = [_line("1.0", 90), _line("1.1"), replace(_line("1.2"), to_base=None)]
    one = imread(plot_versions([lines], tmp_path / "one.png"))
    two = imread(plot_versions([lines, lines], tmp_path / "two.png"))
    assert two.shape[0] > 1.5 * one.shape[0]
    assert (
        plot_versions([lines], tmp_path / "again.png").read_bytes()
        == (tmp_path / "one.png").read_bytes()
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["no such package!"], "no package's name"),
        (["langgraph-checkpoint-sqlite", "--last", "0"], "last is 0"),
    ],
)
def test_mistakes_are_one_line(
    argv: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["history", *argv, "--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
