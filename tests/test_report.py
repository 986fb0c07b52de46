"""The report: every file there, whole, repeatable, and no number that may not be told."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from fix_results import FakeCase, FakeRun, matrix, write_run
from fix_written import HOSTILE
from savermark.errors import ResultError
from savermark.frame import FRAMES, load_runs, to_frame
from savermark.records import Status
from savermark.report import background, published, write_report
from savermark.report.markdown import cell
from savermark.report.picture import dark_variant, inline_svg
from savermark.report.story import NO_RESULT, contrast_modes, tell, times, usable
from savermark.report.table import MISSING, lines, shown_columns
from savermark.units import format_bytes, format_ns

if TYPE_CHECKING:
    from savermark.report import Report
    from savermark.report.story import Chapter
    from savermark.results import RunResult


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _run(folder: Path, *cases: FakeCase, **fields: Any) -> RunResult:
    fields.setdefault("repetitions", 1)
    return load_runs(write_run(folder, FakeRun(cases=cases, **fields)))[0]


def _chapters(run: RunResult) -> list[Chapter]:
    return tell(run, to_frame(run, "summary"))


# -- files -----------------------------------------------------------------------------------------


def test_every_part_is_there(good_report: Report) -> None:
    folder = good_report.page.parent
    names = set(_files(folder))
    assert {"run.jsonl", "report.html", "report.md"} <= names
    assert {f"frames/{kind}.{end}" for kind in FRAMES for end in ("csv", "parquet")} <= names
    assert {f"plots/chat.where-bytes-are.{end}" for end in ("svg", "png")} <= names
    assert names == {
        "run.jsonl",
        *(
            str(path.relative_to(folder))
            for path in (
                good_report.page,
                good_report.markdown,
                *good_report.plots,
                *good_report.frames,
            )
        ),
    }


def test_frames_read_back_as_they_are(good_report: Report) -> None:
    run = load_runs(good_report.page.parent)[0]
    for kind in FRAMES:
        frame = to_frame(run, kind)
        folder = good_report.page.parent / "frames"
        pd.testing.assert_frame_equal(pd.read_parquet(folder / f"{kind}.parquet"), frame)
        csv = pd.read_csv(folder / f"{kind}.csv")
        assert list(csv.columns) == list(frame.columns)
        assert len(csv) == len(frame)


def test_the_raw_file_alone_gives_the_same_report(bad_report: Report, tmp_path: Path) -> None:
    """Written elsewhere and twice: the same files, byte for byte, and no other ones."""
    first = bad_report.page.parent
    shutil.copy(first / "run.jsonl", tmp_path)
    write_report(tmp_path)
    once = _files(tmp_path)
    write_report(tmp_path / "run.jsonl")
    assert _files(tmp_path) == once == _files(first)


def test_what_an_earlier_report_left_goes(bad_report: Report, tmp_path: Path) -> None:
    shutil.copy(bad_report.page.parent / "run.jsonl", tmp_path)
    for name in ("plots/old.svg", "plots/old.png", "frames/old.csv", "plots/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old")
    write_report(tmp_path)
    assert {name for name in _files(tmp_path) if "/old" in name} == set()
    assert (tmp_path / "plots" / "notes.txt").read_text() == "old"


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from savermark.report.files import write_whole

    page = tmp_path / "report.html"
    write_whole(page, b"old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ResultError, match=r"cannot write .*report\.html"):
        write_whole(page, b"new")
    assert page.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_without_a_run_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ResultError):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- the page as a file ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["good", "bad"])
def test_the_page_holds_all_that_it_needs(kind: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(f"{kind}_report").page.read_text(encoding="utf-8")
    assert not re.search(r"https?://", page)
    assert not re.search(r"""\s(src|srcset|action|data)=["'](?!data:)""", page.replace(HOSTILE, ""))
    assert set(re.findall(r"<link [^>]*href=\"([^\"]*)\"", page)) == {"data:,"}
    assert "@import" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy and policy[1].startswith("default-src 'none';")
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.S)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy[1]


def test_the_page_tells_the_whole_story(bad_report: Report) -> None:
    page = bad_report.page.read_text(encoding="utf-8")
    for words in (
        "check failed",
        "tips, loaded: t00001",
        "4.2 GB, the cap is 1 GB",
        "the run did not come to its end",
        "lift the safety cap with --allow-large",
        "Example CPU @ 2.50GHz",
        "langgraph-checkpoint-postgres",
        "savermark run chat",
        "conversation.turns",
        "Nothing to draw",
    ):
        assert words in page, words


def test_text_from_a_run_is_never_markup(bad_report: Report) -> None:
    page = bad_report.page.read_text(encoding="utf-8")
    assert HOSTILE not in page and "&lt;img src=x onerror=" in page
    text = bad_report.markdown.read_text(encoding="utf-8")
    assert "<img" not in text and "&lt;img" in text


def test_a_failed_check_hides_the_numbers(tmp_path: Path) -> None:
    """Its bytes stand nowhere: not in a table, a sentence or a plot."""
    bad = FakeCase(backend="postgres", mode="full", turns=33, failed_check="tips")
    run = _run(tmp_path, FakeCase(backend="sqlite", mode="full", turns=33), bad)
    good = _run(tmp_path / "good", FakeCase(backend="postgres", mode="full", turns=33))
    hidden = format_bytes(to_frame(good, "summary")["bytes_per_thread"].iloc[0])
    report = write_report(tmp_path)
    for path in (report.page, report.markdown, *report.plots):
        if path.suffix in (".html", ".md", ".svg"):
            assert hidden not in path.read_text(encoding="utf-8"), path.name
    summary = to_frame(run, "summary")
    found = {
        line.backend: (line.status, {cell.text for cell in line.cells})
        for line in lines(summary, shown_columns(summary))
    }
    assert found["postgres"] == ("check failed", {MISSING})
    assert found["sqlite"][0] == "ok"


def test_a_saver_whose_storage_cannot_be_measured(tmp_path: Path) -> None:
    write_run(tmp_path, FakeRun(cases=[FakeCase(backend="acme")], repetitions=1))
    raw = tmp_path / "run.jsonl"
    lines = [json.loads(line) for line in raw.read_text(encoding="utf-8").splitlines()]
    bare = [{**line, "phases": []} if "phases" in line else line for line in lines]
    raw.write_text("".join(json.dumps(line) + "\n" for line in bare), encoding="utf-8")
    report = write_report(tmp_path)
    kinds = {path.name.split(".")[1] for path in report.plots}
    assert kinds == {"operations", "latency-over-depth"}
    page = report.page.read_text(encoding="utf-8")
    assert "the run holds no storage rows" in page
    assert "bytes / thread" not in page


def test_a_run_killed_before_its_first_trial_has_a_report(tmp_path: Path) -> None:
    write_run(tmp_path, FakeRun(cases=matrix(("chat",)), repetitions=0, finished=False))
    report = write_report(tmp_path)
    assert report.plots == ()
    page = report.page.read_text(encoding="utf-8")
    assert "0 of 0 trials ended well, 1 warning, the run did not come to its end." in page
    assert page.count("not tried") >= 6


# -- sentences -------------------------------------------------------------------------------------


def test_the_headline_is_computed(good_report: Report) -> None:
    run = load_runs(good_report.page.parent)[0]
    summary = to_frame(run, "summary")
    chat = summary[summary["workload"] == "chat"].set_index(["backend", "mode"])
    full, delta = (chat.loc[("sqlite", mode)] for mode in ("full", "delta"))
    ratio = full["bytes_per_thread"] / delta["bytes_per_thread"]
    chapter = _chapters(run)[0]
    assert chapter.figure == f"{times(ratio)}×"
    assert chapter.sentences[0].startswith(
        f"Delta mode stores {times(ratio)} times less than full on sqlite "
        f"({format_bytes(delta['bytes_per_thread'])} against "
        f"{format_bytes(full['bytes_per_thread'])} a thread)"
    )
    assert (
        f"{format_ns(delta['get_state_warm_p50_ns'])} against "
        f"{format_ns(full['get_state_warm_p50_ns'])} on sqlite" in chapter.sentences[1]
    )
    for path in (good_report.page, good_report.markdown):
        assert chapter.sentences[2] in path.read_text(encoding="utf-8")


def test_a_sweep_over_turns_speaks_of_the_longest(tmp_path: Path) -> None:
    class Turned(FakeCase):
        @property
        def variant(self) -> str:
            return f"messages.kind={self.mode},conversation.turns={self.turns}"

    cases = [Turned(mode=mode, turns=turns) for mode in ("full", "delta") for turns in (5, 30)]
    (chapter,) = _chapters(_run(tmp_path, *cases))
    assert chapter.shape == "4 threads, 5 to 30 turns"
    assert chapter.sentences[0].startswith("At 30 turns, delta mode stores")


def test_modes_that_store_alike_are_said_so(tmp_path: Path) -> None:
    summary = to_frame(_run(tmp_path, *matrix(("chat",), ("sqlite",))), "summary")
    (contrast,) = contrast_modes(summary.assign(bytes_per_thread=1000.0))
    assert contrast.ratio == 1
    run = load_runs(tmp_path)[0]
    (same,) = tell(run, summary.assign(bytes_per_thread=1000.0))
    assert "stores about as much as full on sqlite" in same.sentences[0]
    more = summary.assign(bytes_per_thread=[1000.0, 3000.0])  # full first
    (chapter,) = tell(run, more)
    assert "stores 3.0 times more than full on sqlite" in chapter.sentences[0]
    assert chapter.figure == format_bytes(1000)


def test_one_case_alone_still_says_something(tmp_path: Path) -> None:
    (chapter,) = _chapters(_run(tmp_path, FakeCase(label=False)))
    assert chapter.sentences[0].startswith("A thread holds ")
    assert "a warm get_state takes" in chapter.sentences[0]


@pytest.mark.parametrize("held", [0.0, float("nan")])
def test_a_store_without_bytes_tells_its_reads(held: float, tmp_path: Path) -> None:
    run = _run(tmp_path, *matrix(("chat",), ("sqlite", "memory")))
    summary = to_frame(run, "summary")
    (chapter,) = tell(run, summary.assign(bytes_per_thread=held))
    assert "nothing or cannot be measured" in chapter.sentences[0]
    assert chapter.figure.endswith("s")
    some = summary.assign(bytes_per_thread=[held, 9e3, held, 3e3])  # memory full, memory delta
    (chapter,) = tell(run, some)
    assert "3.0 times less than full on memory (3.00 kB" in chapter.sentences[0]


def test_variants_without_two_modes_are_compared(tmp_path: Path) -> None:
    class Sized(FakeCase):
        @property
        def variant(self) -> str:
            return f"tools.externalize_over={int(self.heavier * 1000)}"

    (chapter,) = _chapters(_run(tmp_path, Sized(heavier=1), Sized(heavier=4)))
    assert "delta (externalize_over=1000) stores" in chapter.sentences[0]
    assert "times less than delta (externalize_over=4000)" in chapter.sentences[0]


def test_a_workload_without_any_number_says_so(tmp_path: Path) -> None:
    run = _run(tmp_path, FakeCase(status=Status.TIMEOUT, cause="after 120 s"))
    (chapter,) = _chapters(run)
    assert chapter.figure == NO_RESULT
    assert usable(to_frame(run, "summary")).empty


@pytest.mark.parametrize(
    ("ratio", "text"), [(41.2, "41"), (9.96, "10"), (3.42, "3.4"), (1.154, "1.15"), (1234, "1,234")]
)
def test_ratios_read_as_people_say_them(ratio: float, text: str) -> None:
    assert times(ratio) == text


# -- what stands behind ----------------------------------------------------------------------------


def test_every_finding_is_told_with_its_remedy(bad_report: Report) -> None:
    findings = to_frame(load_runs(bad_report.page.parent), "findings")
    groups = background.group_findings(findings)
    assert sum(len(group.subjects) for group in groups) == len(findings) > 2
    assert groups[0].severity == "error"
    page = bad_report.page.read_text(encoding="utf-8")
    text = bad_report.markdown.read_text(encoding="utf-8")
    for group in groups:
        assert group.finding in page and group.remedy in page
        assert group.finding in text and group.remedy in text


def test_the_verdict_counts_trials_and_checks(tmp_path: Path) -> None:
    def verdict(name: str, *cases: FakeCase, **fields: Any) -> tuple[str, str]:
        run = _run(tmp_path / name, *cases, **fields)
        return background.verdict(run, to_frame(run, "findings"))

    good = FakeCase(reads=40)
    assert verdict("good", good, repetitions=2) == (
        "2 of 2 trials ended well, all 10 state checks held.",
        "good",
    )
    failed = FakeCase(backend="memory", status=Status.FAILED, cause="x")
    text, colour = verdict("failed", good, failed)
    assert text.startswith("1 of 2 trials ended well, 1 failed") and colour == "bad"
    text, colour = verdict("check", FakeCase(failed_check="tips"))
    assert "1 of 5 state checks failed" in text and colour == "bad"
    text, colour = verdict("cut", good, truncated=True)
    assert text.endswith("the run did not come to its end.") and colour == "fair"
    skipped = FakeCase(backend="memory", status=Status.SKIPPED, cause="x")
    assert verdict("skipped", good, skipped)[1] == "fair"


def test_cases_never_tried_are_named(tmp_path: Path) -> None:
    run = _run(tmp_path, FakeCase(), FakeCase(backend="memory"))
    run.trials.pop()
    (trouble,) = background.troubles(run)
    assert (trouble.case_id, trouble.status) == (
        "chat[state.messages.kind=delta]@memory",
        "not tried",
    )


def test_the_spec_shows_swept_values_together(good_report: Report) -> None:
    specs = background.specs(load_runs(good_report.page.parent)[0])
    chat = dict(specs["chat"])
    assert chat["state.messages.kind"] == ["full", "delta"]
    assert chat["conversation.turns"] == ["20"]
    assert "name" not in chat


def test_published_figures_stand_beside_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {
        "workload": "published-x",
        "figure": "bytes | at 500 turns",
        "backend": "memory",
        "api": "sync",
        "published": 219.19e6,
        "measured": 219.25e6,
        "ratio": 1.0003,
        "unit": "bytes",
        "gate": "±0.1%",
        "ok": True,
        "source": "pull request 7586",
    }
    missed = {**row, "unit": "ratio", "published": 26.0, "measured": 12.0, "ok": False}
    found = pd.DataFrame([row, missed])
    monkeypatch.setattr(published, "check_published", lambda *frames: found)
    write_run(tmp_path, FakeRun(cases=[FakeCase()], repetitions=1))
    report = write_report(tmp_path)
    text = report.markdown.read_text(encoding="utf-8")
    assert "| bytes \\| at 500 turns | memory, sync | 219 MB | 219 MB | ±0.1% | met |" in text
    assert "| 26× | 12× | ±0.1% | **missed** |" in text
    page = report.page.read_text(encoding="utf-8")
    assert 'id="published"' in page and "pull request 7586" in page


# -- Markdown --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["good", "bad"])
def test_markdown_is_short_and_its_tables_are_whole(
    kind: str, request: pytest.FixtureRequest
) -> None:
    report: Report = request.getfixturevalue(f"{kind}_report")
    text = report.markdown.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert len(widths) == 1
    for link in re.findall(r"\]\((plots/[^)]+)\)", text):
        assert (report.page.parent / link).is_file()
    assert "## Reproduce" in text


def test_a_long_table_is_cut_and_says_so(tmp_path: Path) -> None:
    cases = matrix(workloads=[f"w{n}" for n in range(7)], reads=2, turns=2, threads=1)
    run = _run(tmp_path, *cases)
    from savermark.report.markdown import markdown

    frames = {kind: to_frame(run, kind) for kind in FRAMES}
    text = markdown(run, frames, _chapters(run), [])
    assert "2 more cases stand in report.html and frames/summary.csv." in text


def test_cells_hold_any_text() -> None:
    assert cell("a|b\n<c> \\") == "a\\|b &lt;c> \\\\"


# -- pictures in the page --------------------------------------------------------------------------


def test_an_inlined_svg_has_ids_and_colours_of_its_own() -> None:
    svg = (
        '<?xml version="1.0"?><svg width="10pt" viewBox="0 0 9 9" xmlns="http://x">'
        '<defs><style type="text/css">*{a: b}</style><path id="m1" d="M 0.123456 1"/></defs>'
        '<g id="unused"><use xlink:href="#m1" style="fill: #0072b2"/><rect fill="#ffffff"/>'
        '<text transform="rotate(-0 1 2)">1.23456 #0072b2</text>'
        '<path clip-path="url(#m1)"/></g></svg>'
    )
    inlined, colors = inline_svg(svg, "g7", 'a "title" <b>')
    assert colors == {"#0072b2", "#ffffff"}
    assert inlined.startswith('<svg role="img" aria-label="a &quot;title&quot; &lt;b&gt;" viewBox')
    assert 'id="g7-m1"' in inlined and 'href="#g7-m1"' in inlined and "url(#g7-m1)" in inlined
    assert "unused" not in inlined and "http" not in inlined and "<style" not in inlined
    assert "fill: var(--p0072b2,#0072b2)" in inlined
    assert 'd="M 0.12 1"' in inlined
    assert ">1.23456 #0072b2<" in inlined  # text stays as it is


def test_dark_colours_turn_the_lightness_over() -> None:
    assert int(dark_variant("#ffffff")[1:3], 16) < 40
    assert int(dark_variant("#1f2328")[1:3], 16) > 190
    red, green, blue = (int(dark_variant("#0072b2")[at : at + 2], 16) for at in (1, 3, 5))
    assert blue > green > red
