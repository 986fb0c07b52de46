"""Plots: what they show is what the frames hold, and every word of them can be read."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from fix_results import FakeCase, FakeRun, matrix, write_run
from savermark.frame import load_runs, to_frame
from savermark.plots import PLOTS, draw, draw_all, to_png, to_svg
from savermark.plots.growth import exponent, growth_table
from savermark.plots.latency import LEAST_IN_BAND, bins
from savermark.plots.layout import fold, spread, text_width
from savermark.plots.series import CASE, NoData, case_labels, headline, left_out, series_of
from savermark.plots.space import composition_table, phase_table
from savermark.plots.strip import operations, saver_shares, strip_table
from savermark.plots.style import backend_look, backend_order, series_look
from savermark.plots.tradeoff import tradeoff_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from savermark.plots import Drawing, Frames

BACKENDS = ("memory", "sqlite", "postgres")
KINDS = {plot.kind: plot for plot in PLOTS}


@dataclass(frozen=True)
class Swept(FakeCase):
    """A case of a sweep over more than the mode."""

    keys: str = ""

    @property
    def variant(self) -> str:
        return ",".join(filter(None, [f"messages.kind={self.mode}", self.keys]))


def _cases(scenario: str) -> list[FakeCase]:
    frequency = "state.messages.snapshot_frequency"
    modes = [(backend, mode) for backend in BACKENDS for mode in ("full", "delta")]
    if scenario == "turns":
        return [
            Swept(backend=b, mode=m, turns=t, keys=f"conversation.turns={t}")
            for b, m in modes
            for t in (5, 20, 60)
        ]
    if scenario == "frequencies":
        pairs = [("full", 50), *(("delta", f) for f in (5, 10, 20, 40))]
        return [
            Swept(backend=b, mode=m, snapshot_frequency=f, turns=30, keys=f"{frequency}={f}")
            for b in BACKENDS
            for m, f in pairs
        ]
    if scenario == "crowded":
        names = (*BACKENDS, "acme_distributed_key_value_store", "redis")
        return [
            Swept(backend=b, mode=m, api=a, turns=8, keys=f"run.api={a},x.y={v}")
            for b in names
            for m in ("full", "delta")
            for a in ("sync", "async")
            for v in (0, 8000)
        ]
    if scenario == "single":
        return [FakeCase(label=False)]
    return matrix(workloads=("chat",))


def _small(scenario: str) -> list[FakeCase]:
    threads = 4 if scenario == "single" else 2
    return [replace(case, threads=threads, reads=6) for case in _cases(scenario)]


SCENARIOS = ("plain", "turns", "frequencies", "crowded", "single")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Frames]:
    kinds = ("storage", "footprint", "samples", "latency", "trials")
    found = {}
    for scenario in SCENARIOS:
        folder = tmp_path_factory.mktemp(scenario)
        run = load_runs(write_run(folder, FakeRun(cases=_small(scenario), repetitions=1)))[0]
        found[scenario] = {kind: to_frame(run, kind) for kind in kinds}
    return found


@pytest.fixture(scope="module")
def drawings(scenes: dict[str, Frames]) -> dict[str, list[Drawing]]:
    return {scenario: list(draw_all(frames)) for scenario, frames in scenes.items()}


# -- what is drawn, and what is left out -----------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "missing"),
    [
        ("plain", {"bytes-by-turns", "trade-off"}),
        ("turns", {"trade-off"}),
        ("frequencies", {"bytes-by-turns"}),
        ("crowded", {"bytes-by-turns", "trade-off"}),
        ("single", {"bytes-by-turns", "trade-off"}),
    ],
)
def test_a_plot_is_drawn_or_says_why_not(
    scenario: str, missing: set[str], drawings: dict[str, list[Drawing]]
) -> None:
    found = drawings[scenario]
    assert [item.kind for item in found] == [p.kind for p in PLOTS if "savers" in p.families]
    assert {item.kind for item in found if item.figure is None} == missing
    assert all(bool(item.reason) == (item.figure is None) for item in found)
    assert all(item.caption for item in found if item.figure)


def test_no_panel_is_empty(drawings: dict[str, list[Drawing]]) -> None:
    for item in (item for items in drawings.values() for item in items if item.figure):
        for axes in item.figure.axes:
            assert axes.lines or axes.collections, item.name


@pytest.mark.parametrize("name", ["storage", "footprint", "samples", "latency"])
def test_without_rows_there_is_no_picture(name: str, scenes: dict[str, Frames]) -> None:
    frames = {**scenes["plain"], name: scenes["plain"][name].iloc[:0]}
    drawn = [draw(plot, frames, "chat") for plot in PLOTS]
    assert any("the run holds no" in item.reason for item in drawn)
    assert draw(KINDS["operations"], {"latency": pd.DataFrame()}, "chat").figure is None


def test_the_reason_names_the_key_to_sweep(drawings: dict[str, list[Drawing]]) -> None:
    reasons = {item.kind: item.reason for item in drawings["plain"]}
    assert "conversation.turns" in reasons["bytes-by-turns"]
    assert "state.messages.snapshot_frequency" in reasons["trade-off"]


# -- every word can be read ------------------------------------------------------------------------


def _texts(figure: Figure) -> list[tuple[str, Any]]:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    # Text's own method: an annotation's would count its arrow, too.
    boxes = [(t.get_text(), Text.get_window_extent(t, canvas.get_renderer())) for t in shown]
    # Tick labels beyond the ends of an axis are never drawn.
    ghosts = {
        id(tick.label1)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if tick not in axis._update_ticks()
    }
    return [box for t, box in zip(shown, boxes, strict=True) if id(t) not in ghosts]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_text_is_clipped_or_covered(scenario: str, drawings: dict[str, list[Drawing]]) -> None:
    for item in (item for item in drawings[scenario] if item.figure):
        texts = _texts(item.figure)
        edge = item.figure.bbox
        for text, box in texts:
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= edge.x1 and box.y1 <= edge.y1
            assert inside, f"{item.name}: {text!r} is clipped"
        for (one, a), (other, b) in combinations(texts, 2):
            wide = min(a.x1, b.x1) - max(a.x0, b.x0)
            tall = min(a.y1, b.y1) - max(a.y0, b.y0)
            assert wide < 1 or tall < 2, f"{item.name}: {one!r} covers {other!r}"


def test_axes_carry_units(drawings: dict[str, list[Drawing]]) -> None:
    plots = {item.kind: item.figure for item in drawings["turns"]}
    growth, depth = plots["bytes-by-turns"], plots["latency-over-depth"]
    assert growth is not None and depth is not None
    for figure, unit in ((growth, r"(B|kB|MB|GB)"), (depth, r"(ns|µs|ms|s)")):
        labels = [t.get_text() for axes in figure.axes for t in axes.get_yticklabels()]
        assert labels and all(re.fullmatch(rf"0|[\d.,]+ {unit}", label) for label in labels)


def test_growth_has_log_axes_and_shares_do_not(drawings: dict[str, list[Drawing]]) -> None:
    plots = {item.kind: item.figure for item in drawings["turns"]}
    (growth,) = plots["bytes-by-turns"].axes  # type: ignore[union-attr]
    assert (growth.get_xscale(), growth.get_yscale()) == ("log", "log")
    bars, shares = plots["where-bytes-are"].axes  # type: ignore[union-attr]
    assert bars.get_xscale() == shares.get_xscale() == "linear"
    assert bars.get_xlim()[0] == 0  # the length of a bar is its value


# -- looks -----------------------------------------------------------------------------------------


def _grey(color: str) -> float:
    red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2


def test_the_shipped_backends_differ_in_grey_and_in_shape() -> None:
    looks = [backend_look(name) for name in BACKENDS]
    greys = sorted(_grey(color) for color, _ in looks)
    assert all(b - a > 0.08 for a, b in pairwise(greys))
    assert len({marker for _, marker in looks}) == len(BACKENDS)


def test_unknown_backends_get_looks_of_their_own() -> None:
    names = ["redis", "acme", "mongo", "dynamo", "other"]
    looks = {backend_look(name, names) for name in names}
    assert len(looks) == len(names)
    assert not looks & {backend_look(name) for name in BACKENDS}
    assert backend_look("redis", names) == backend_look("redis", reversed(names))
    assert sorted(["redis", *BACKENDS, "acme"], key=backend_order) == [*BACKENDS, "acme", "redis"]


def test_modes_differ_in_line_and_in_fill() -> None:
    full, delta, odd = (series_look("sqlite", mode) for mode in ("full", "delta", "files"))
    assert full.color == delta.color
    assert len({full.dashes, delta.dashes, odd.dashes}) == 3
    assert full.fill != delta.fill


# -- what is drawn is what was measured ------------------------------------------------------------


def test_labels_hold_only_what_differs(scenes: dict[str, Frames]) -> None:
    def labels(scenario: str) -> list[str]:
        return list(case_labels(scenes[scenario]["trials"][list(CASE)].drop_duplicates()))

    assert labels("single") == ["sqlite delta"]
    assert "postgres full" in labels("plain")
    assert {"memory delta (f=5)", "memory full"} <= set(labels("frequencies"))
    assert "sqlite delta (20 turns)" in labels("turns")
    assert "redis full (async, y=8000)" in labels("crowded")


def test_a_swept_table_is_one_value_of_a_label(scenes: dict[str, Frames]) -> None:
    cases = scenes["single"]["trials"][list(CASE)].assign(
        variant='tools.calls=3,tools.output_bytes={ dist = "fixed", value = 9 }'
    )
    (label,) = case_labels(cases)
    assert label == 'sqlite delta (calls=3, output_bytes={ dist = "fixed", value = 9 })'


def test_too_many_series_keep_the_outermost(scenes: dict[str, Frames]) -> None:
    every = series_of(scenes["crowded"]["trials"])
    few = headline(every, most=10)
    assert len(every) == 40 and len(few) == 10
    assert {(item.backend, item.mode) for item in few} == {
        (item.backend, item.mode) for item in every
    }
    assert left_out(every, few) == " 30 of 40 variants are only in the table."
    assert left_out(few, few) == ""


def test_composition_adds_up(scenes: dict[str, Frames]) -> None:
    table, _, drawn = composition_table(scenes["plain"], "chat")
    storage = scenes["plain"]["storage"].query("phase == 'loaded'")
    whole = storage.groupby(["backend", "mode"])["logical_bytes"].sum()
    for item in drawn:
        assert table.loc[item.label].sum() == whole[item.backend, item.mode]
    assert list(table.columns)[:2] == ["checkpoints", "blobs: messages"]


def test_phases_hold_the_footprint_and_the_live_bytes(scenes: dict[str, Frames]) -> None:
    table, _, _ = phase_table(scenes["plain"], "chat")
    here = table.set_index(["label", "phase"])
    total = scenes["plain"]["footprint"].query("component == 'total' and backend == 'postgres'")
    full = total[total["mode"] == "full"].set_index("phase")["bytes"]
    for phase, size in full.items():
        assert here.loc[("postgres full", phase), "footprint"] == size
    live = here.loc[("postgres full",), "live"]
    assert live["loaded"] > live["retained"] > 0
    stored = scenes["plain"]["storage"].query(
        "phase == 'loaded' and backend == 'postgres' and mode == 'full'"
    )
    assert live["loaded"] == stored["stored_bytes"].sum()


def test_growth_shows_the_square(scenes: dict[str, Frames]) -> None:
    table, label, series = growth_table(scenes["turns"], "chat")
    assert label == "turns of the conversation"
    assert sorted(table["x"].unique()) == [5, 20, 60]
    assert len(series) == 6
    mine = table[(table["backend"] == "memory") & table["variant"].str.contains("full")]
    line = mine.groupby("x")["logical_bytes"].median()
    assert exponent(line.index.to_series(), line) == pytest.approx(2, abs=0.15)


def test_growth_within_one_case_uses_the_lengths_of_its_threads(scenes: dict[str, Frames]) -> None:
    frames = dict(scenes["single"])
    threads = sorted(frames["storage"]["thread_id"].unique())
    lengths = {thread: 10 * (place + 1) for place, thread in enumerate(threads)}
    place = {"workload": "chat", "variant": "", "backend": "sqlite", "repetition": 0}
    frames["thread_turns"] = pd.DataFrame(
        [{**place, "thread_id": t, "thread_turns": n} for t, n in lengths.items()]
    )
    table, label, _ = growth_table(frames, "chat")
    assert label == "turns of the thread"
    assert dict(zip(table["thread_id"], table["x"], strict=True)) == lengths
    frames["storage"] = frames["storage"].assign(
        rows=[10 * lengths[t] for t in frames["storage"]["thread_id"]]
    )
    del frames["thread_turns"]
    table, label, _ = growth_table(frames, "chat")
    assert label == "checkpoints of the thread"
    assert sorted(table["x"]) == [100, 200, 300, 400]


def test_equal_lengths_show_no_growth(scenes: dict[str, Frames]) -> None:
    with pytest.raises(NoData, match="same length"):
        growth_table(scenes["single"], "chat")


def test_bins_hold_medians_and_leave_thin_bands_out() -> None:
    depth = [1.0] * LEAST_IN_BAND + [2.0]
    table = bins(pd.DataFrame({"x": depth, "ns": [10, 20, 30, 40, 7]}))
    assert list(table["x"]) == [1, 2]
    assert list(table["mid"]) == [25, 7]
    assert table["low"].isna().tolist() == [False, True]
    many = pd.DataFrame({"x": range(1000), "ns": range(1000)})
    gathered = bins(many)
    assert 10 <= len(gathered) <= 16
    assert gathered["x"].is_monotonic_increasing


def test_warm_up_samples_are_not_drawn(scenes: dict[str, Frames]) -> None:
    frames = dict(scenes["single"])
    frames["samples"] = frames["samples"].assign(warmup=True)
    assert draw(KINDS["latency-over-depth"], frames, "chat").figure is None


def test_operations_read_from_the_run_to_cold(scenes: dict[str, Frames]) -> None:
    table, _, _ = strip_table(scenes["plain"], "chat")
    ops = operations(table)
    assert ops[0] == ("turn", "run") and ops[-1] == ("get_state", "cold")
    latency = scenes["plain"]["latency"].query(
        "op == 'turn' and window == 'all' and backend == 'sqlite' and mode == 'full'"
    )
    drawn = table.set_index(["label", "op"]).loc[("sqlite full", "turn"), "p50_ns"]
    assert drawn == latency["p50_ns"].median()


def test_shares_of_the_run_are_shares(scenes: dict[str, Frames]) -> None:
    _, _, shown = strip_table(scenes["plain"], "chat")
    shares = {item.label: share for item, share in saver_shares(scenes["plain"], "chat", shown)}
    assert 0 < shares["memory delta"] < shares["sqlite delta"] < 1
    assert saver_shares({}, "chat", shown) == []


def test_the_trade_off_names_every_frequency(scenes: dict[str, Frames]) -> None:
    table, series = tradeoff_table(scenes["frequencies"], "chat")
    assert {item.frequency for item in series} == {None, 5, 10, 20, 40}
    assert set(table["when"]) == {"warm", "cold"}
    storage = scenes["frequencies"]["storage"].query(
        "phase == 'loaded' and backend == 'sqlite' and snapshot_frequency == 5"
    )
    mean = storage.groupby("thread_id")["logical_bytes"].sum().mean()
    mine = next(s for s in series if s.backend == "sqlite" and s.frequency == 5)
    assert set(table[table["label"] == mine.label]["bytes"]) == {mean}


# -- pieces ----------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_spread_labels_keep_their_order_and_distance(places: list[float]) -> None:
    places.sort()
    heights = [0.1] * len(places)
    moved = spread(places, heights)
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(moved))
    assert all(0.05 - 1e-9 <= place <= 0.95 + 1e-9 for place in moved)


def test_spread_leaves_alone_what_does_not_collide() -> None:
    assert spread([0.2, 0.5, 0.8], [0.1, 0.1, 0.1]) == pytest.approx([0.2, 0.5, 0.8])


def test_long_names_are_folded_to_their_room() -> None:
    name = "acme_distributed_key_value_store delta (f=50, async, exit)"
    lines = fold(name, 1.5).splitlines()
    assert len(lines) > 1
    assert "".join(lines).replace(" ", "") == name.replace(" ", "")
    assert all(text_width(line) <= 1.75 for line in lines)
    assert fold("short", 1.5) == "short"


def test_saving_is_repeatable_and_undated(scenes: dict[str, Frames]) -> None:
    def once() -> tuple[str, bytes]:
        figure = draw(KINDS["where-bytes-are"], scenes["plain"], "chat").figure
        assert figure is not None
        return to_svg(figure), to_png(figure)

    first, second = once(), once()
    assert first == second
    assert "<dc:date>" not in first[0] and "matplotlib" not in first[0].split("<defs>")[0]
    assert first[1].startswith(b"\x89PNG")
    assert "Verdana" in first[0]


def test_file_names_are_plain() -> None:
    frames = {"storage": pd.DataFrame()}
    assert draw(PLOTS[0], frames, "../My Load/ü").name == "my-load.bytes-by-turns"
