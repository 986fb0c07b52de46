"""Workload files: strict keys, ranges, sweeps, overrides, fingerprints."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savermark.errors import WorkloadError
from savermark.spec import (
    GRAPHS,
    Dist,
    PayloadSpec,
    WorkloadSpec,
    fingerprint,
    fixed,
    load_workload,
    spec_from_json,
    spec_to_json,
    workload_names,
)
from savermark.spec.limits import RANGES
from savermark.spec.load import workload_folder
from savermark.spec.parse import spec_keys
from savermark.spec.sweep import short_names

OWN = (
    *("chat", "tool-heavy", "branching", "two-channels", "fan-out", "human-in-the-loop"),
    *("exit-durability", "fleet", "durations", "tool-result-probe"),
)


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def _load(text: str, *overrides: str) -> Any:
        path = tmp_path / "some.toml"
        path.write_text(text, encoding="utf-8")
        return load_workload(str(path), overrides)

    return _load


def _flat(table: dict[str, Any], at: str = "") -> set[str]:
    keys = set()
    for key, value in table.items():
        keys |= _flat(value, f"{at}{key}.") if isinstance(value, dict) else {f"{at}{key}"}
    return keys


class TestShippedFiles:
    def test_the_template_is_the_defaults(self) -> None:
        path = workload_folder() / "_template.toml"
        (variant,) = load_workload(str(path))
        assert variant.label == ""
        assert variant.spec == WorkloadSpec(name="template")

    def test_the_template_has_every_key_with_a_comment(self) -> None:
        text = (workload_folder() / "_template.toml").read_text(encoding="utf-8")
        assert _flat(tomllib.loads(text)) == set(spec_keys())
        lines = [line for line in text.splitlines() if re.match(r"[a-z_]+ = ", line)]
        assert len(lines) == len(spec_keys())
        assert [line for line in lines if "#" not in line] == []

    def test_it_is_not_listed(self) -> None:
        assert set(OWN) <= set(workload_names())
        assert not any(name.startswith("_") for name in workload_names())

    @pytest.mark.parametrize("name", workload_names())
    def test_each_loads_and_says_what_it_is(self, name: str) -> None:
        text = (workload_folder() / f"{name}.toml").read_text(encoding="utf-8")
        header = text.split("\n\n")[0] if name != "deep-agent" else text[: text.index("\nname")]
        assert all(line.startswith("#") for line in header.splitlines() if line)
        variants = load_workload(name)
        assert len({variant.label for variant in variants}) == len(variants)
        assert len({fingerprint(variant.spec) for variant in variants}) == len(variants)
        for variant in variants:
            assert variant.spec.name == name
            assert 0 < len(variant.spec.summary) < 100

    @pytest.mark.parametrize("name", ["chat", "tool-heavy", "branching"])
    def test_the_quick_ones_sweep_the_modes(self, name: str) -> None:
        labels = [variant.label for variant in load_workload(name)]
        assert labels == ["messages.kind=full", "messages.kind=delta"]


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a = \n", r"TOML syntax error at line 1, column 5: invalid value"),
            ("[tools]\ncalls = 3\ncalls = 4\n", r"TOML syntax error at line 3, column 10"),
            ('a = """', r"TOML syntax error at line 1, column 8 \(the end\)"),
            ("[tools]\ncals = 3", r"unknown key 'tools.cals': did you mean 'tools.calls'\?"),
            ("[tool]\ncalls = 3", r"unknown key 'tool': did you mean 'tools'\?"),
            ("[state]\nmesages = 3", r"did you mean 'state.messages'\?"),
            ("calls = 3", r"unknown key 'calls': did you mean 'tools.calls'\?"),
            ("zzzz = 3", r"unknown key 'zzzz': .*_template.toml lists every key"),
            ("tools = 3", r"tools is a section, not a value"),
            ("[tools]\ncalls = -1", r"tools.calls = -1: must be from 0 to 1,000"),
            ("[tools]\ncalls = 1.5", r"tools.calls = 1.5: must be a whole number"),
            ("[tools]\ncalls = true", r"tools.calls = True: must be a whole number"),
            ('[tools]\norder = "paralel"', r"one of 'sequence', 'parallel' \(did you mean 'par"),
            ("[conversation]\nturns = 0", r"conversation.turns = 0: must be from 1 to 99,999"),
            ('[conversation]\nturns = "9"', r"whole number or a distribution such as"),
            (
                '[conversation]\nturns = { dist = "normal", mean = 3 }',
                r"conversation.turns.dist = 'normal': must be one of 'fixed', 'lognormal'",
            ),
            (
                '[conversation]\nturns = { dist = "lognormal", median = 3 }',
                r"conversation.turns: a lognormal distribution needs sigma",
            ),
            (
                '[conversation]\nturns = { dist = "lognormal", median = 3, sigma = 9 }',
                r"conversation.turns.sigma = 9.0: must be from 0 to 5",
            ),
            (
                '[conversation]\nturns = { dist = "mixture", small = 3, large = 9, evry = 2 }',
                r"unknown key of a mixture distribution 'evry': did you mean 'every'\?",
            ),
            (
                '[conversation]\nturns = { dist = "mixture", small = 0, large = 9, every = 2 }',
                r"conversation.turns.small = 0: must be from 1",
            ),
            (
                '[conversation]\nturns={dist="lognormal",median=3,sigma=1,min=5,max=4}',
                r"conversation.turns.max = 4: must be 0 \(no limit\) or at least 5",
            ),
            ("[state.extra]\nfrequencies = []", r"must be a list of one or more whole numbers"),
            ("[state.extra]\nfrequencies = [0]", r"frequencies = 0: must be from 1"),
            ("[measure]\ndelete_share = nan", r"measure.delete_share = nan: must be from 0 to 1"),
            ("[measure]\ncold = 1", r"measure.cold = 1: must be true or false"),
            ("[fleet]\ndriven = 2", r"fleet.driven = 2: must be from 0 to conversation.threads"),
            ("[payload]\ncompressibility = 0.1", r"from 0.3 to 0.9 for payload.kind = 'text'"),
            ('graph = "agnet"', r"unknown graph 'agnet': did you mean 'agent'\?"),
            ('name = "a@b"', r"name = 'a@b': must be letters"),
            ("name = 3", r"name = 3: must be text"),
            ("[sweep]\ntools.cals = [1]", r"did you mean 'tools.calls'\? \(in \[sweep\]\)"),
            ("[sweep]\ntools.calls = 1", r"sweep of tools.calls = 1: must be a list of values"),
            ("[sweep]\ntools.calls = []", r"must be a list of values to try"),
            ("[sweep]\ntools.calls = [1, -1]", r"tools.calls = -1: must be from 0"),
            ('[sweep]\nname = ["a"]', r"sweep.name: a workload has one name"),
            ("sweep = 3", r"\[sweep\] is a section"),
        ],
    )
    def test_each_is_one_line_that_names_the_fix(self, load: Any, text: str, message: str) -> None:
        with pytest.raises(WorkloadError, match=message) as caught:
            load(text)
        assert "\n" not in str(caught.value)
        assert "some.toml" in str(caught.value)

    def test_an_unknown_workload(self) -> None:
        with pytest.raises(WorkloadError, match="unknown workload 'chta': did you mean 'chat'"):
            load_workload("chta")

    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(WorkloadError, match="no such file"):
            load_workload(str(tmp_path / "none.toml"))
        with pytest.raises(WorkloadError, match="cannot be read: Is a directory"):
            load_workload(str(tmp_path))
        latin = tmp_path / "latin.toml"
        latin.write_bytes(b'summary = "caf\xe9"')
        with pytest.raises(WorkloadError, match=r"is not UTF-8 text \(byte 14\)"):
            load_workload(str(latin))

    @pytest.mark.parametrize("key", sorted(RANGES))
    def test_ranges_are_of_known_keys(self, key: str) -> None:
        assert key in spec_keys()

    def test_every_number_has_a_range(self) -> None:
        numbers = {
            key for key, kind in spec_keys().items() if kind in (int, float, Dist, tuple[int, ...])
        }
        assert numbers == set(RANGES)


class TestSweep:
    def test_the_product_in_order(self, load: Any) -> None:
        variants = load(
            '[sweep]\n"state.messages.kind" = ["full", "delta"]\nconversation.turns = [3, 5]'
        )
        assert [variant.label for variant in variants] == [
            "messages.kind=full,turns=3",
            "messages.kind=full,turns=5",
            "messages.kind=delta,turns=3",
            "messages.kind=delta,turns=5",
        ]
        assert variants[1].spec.state.messages.kind == "full"
        assert variants[1].spec.conversation.turns == fixed(5)

    def test_a_frequency_means_nothing_in_full_mode(self, load: Any) -> None:
        variants = load(
            '[sweep]\nstate.messages.kind = ["full", "delta"]\n'
            "state.messages.snapshot_frequency = [10, 50]"
        )
        assert [variant.label for variant in variants] == [
            "messages.kind=full",
            "messages.kind=delta,snapshot_frequency=10",
            "messages.kind=delta,snapshot_frequency=50",
        ]

    def test_the_file_may_decide_the_mode(self, load: Any) -> None:
        variants = load(
            '[state.messages]\nkind = "full"\n[sweep]\nstate.messages.snapshot_frequency = [1, 2]'
        )
        assert [variant.label for variant in variants] == [""]

    def test_distributions_and_lists_are_values(self, load: Any) -> None:
        variants = load(
            "[sweep]\n"
            'conversation.turns = [{ dist = "lognormal", median = 20, sigma = 1.2 }, 7]\n'
            "state.extra.frequencies = [[1, 5], [9]]"
        )
        assert [variant.label for variant in variants] == [
            "turns=lognormal:20:1.2,frequencies=1+5",
            "turns=lognormal:20:1.2,frequencies=9",
            "turns=7,frequencies=1+5",
            "turns=7,frequencies=9",
        ]

    def test_short_names_stay_apart(self) -> None:
        keys = ["state.messages.snapshot_frequency", "state.files.snapshot_frequency", "run.api"]
        assert list(short_names(keys).values()) == [
            "messages.snapshot_frequency",
            "files.snapshot_frequency",
            "api",
        ]

    @given(st.lists(st.sampled_from(sorted(spec_keys())), unique=True, min_size=1))
    def test_short_names_are_endings_of_one_key_only(self, keys: list[str]) -> None:
        names = short_names(keys)
        assert len(set(names.values())) == len(keys)
        for key, name in names.items():
            assert [k for k in keys if f".{k}".endswith(f".{name}")] == [key]


class TestOverrides:
    def test_replaces_a_value_or_a_sweep(self, load: Any) -> None:
        text = '[tools]\ncalls = 2\n[sweep]\nstate.messages.kind = ["full", "delta"]'
        (variant,) = load(text, "tools.calls=5", "state.messages.kind=full")
        assert variant.label == ""
        assert variant.spec.tools.calls == 5
        assert variant.spec.state.messages.kind == "full"

    @pytest.mark.parametrize("given", ["turns=7", "conversation.turns = 7"])
    def test_the_end_of_a_key_is_enough(self, load: Any, given: str) -> None:
        (variant,) = load("", given)
        assert variant.spec.conversation.turns == fixed(7)

    def test_values_are_toml_or_plain_text(self, load: Any) -> None:
        (variant,) = load(
            "",
            "summary=not quoted, = fine",
            'durability="exit"',
            "api=async",
            "cold=false",
            "delete_share=1",
            "history_limits=[5]",
            'output_bytes={ dist = "mixture", small = 1, large = 9, every = 3 }',
        )
        spec = variant.spec
        assert spec.summary == "not quoted, = fine"
        assert (spec.run.durability, spec.run.api) == ("exit", "async")
        assert (spec.measure.cold, spec.measure.delete_share) == (False, 1.0)
        assert spec.measure.history_limits == (5,)
        assert spec.tools.output_bytes == Dist("mixture", small=1, large=9, every=3)

    def test_a_list_is_a_sweep_where_the_key_takes_one_value(self, load: Any) -> None:
        variants = load("", 'api=["sync", "async"]', "frequencies=[[1], [2, 3]]")
        assert [variant.label for variant in variants] == [
            "api=sync,frequencies=1",
            "api=sync,frequencies=2+3",
            "api=async,frequencies=1",
            "api=async,frequencies=2+3",
        ]

    @pytest.mark.parametrize("key", ["conversation.turns.median", "turns.median"])
    def test_a_part_of_a_distribution(self, load: Any, key: str) -> None:
        text = '[conversation]\nturns = { dist = "lognormal", median = 20, sigma = 1.0 }'
        (variant,) = load(text, f"{key}=9")
        assert variant.spec.conversation.turns == Dist("lognormal", median=9, sigma=1.0)

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("kind=full", "key 'kind' is ambiguous: state.messages.kind, state.files.kind"),
            ("tools=3", "tools is a section"),
            ("tols.calls=3", "did you mean 'tools.calls'"),
            ("turns", "override 'turns': must be key=value"),
            ("=3", "override '=3': must be key=value"),
            ("durability=exitt", "run.durability = 'exitt': must be one of"),
            ("calls=[]", r"sweep of tools.calls = \[\]: must be a list of values"),
            ("turns=1979-05-27", "must be a whole number or a distribution"),
        ],
    )
    def test_mistakes(self, load: Any, override: str, message: str) -> None:
        with pytest.raises(WorkloadError, match=message):
            load("", override)


def _leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not is_dataclass(value) or isinstance(value, Dist):
        return [path]
    return [
        leaf
        for item in fields(value)
        for leaf in _leaves(getattr(value, item.name), (*path, item.name))
    ]


class TestIdentity:
    @pytest.mark.parametrize("name", workload_names())
    def test_json_there_and_back(self, name: str) -> None:
        for variant in load_workload(name):
            data = spec_to_json(variant.spec)
            assert spec_from_json(json.loads(json.dumps(data))) == variant.spec
            assert {key.removesuffix(".dist") for key in _flat(data)} >= set(spec_keys())

    def test_a_foreign_shape_is_refused(self) -> None:
        with pytest.raises(WorkloadError, match="key name is missing"):
            spec_from_json({})

    def test_the_fingerprint_is_the_same_everywhere(self) -> None:
        """A run resumed on another day must find it again; a new key of a spec changes it."""
        assert fingerprint(WorkloadSpec(name="x")) == "4b985c07d8c078ce"

    @pytest.mark.parametrize("path", _leaves(WorkloadSpec(name="x")), ids=".".join)
    def test_every_key_counts_but_those_that_say_how_often(self, path: tuple[str, ...]) -> None:
        spec = WorkloadSpec(name="x")
        other = _changed(spec, path)
        ignored = {("summary",)} | {
            ("measure", key) for key in ("repetitions", "reads", "cold", "timeout_s")
        }
        assert (fingerprint(other) == fingerprint(spec)) == (path in ignored)


def _changed(value: Any, path: tuple[str, ...]) -> Any:
    if path:
        return replace(value, **{path[0]: _changed(getattr(value, path[0]), path[1:])})
    if isinstance(value, Dist):
        return fixed(value.value + 1)
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return (*value, 99)
    return f"{value}x" if isinstance(value, str) else value + 1


def test_graphs_are_those_that_exist() -> None:
    from savermark import graphs, script

    assert set(GRAPHS) == set(graphs.SHAPES) == set(script.SHAPES)


def test_specs_are_values() -> None:
    assert hash(PayloadSpec()) == hash(PayloadSpec())
    assert hash(WorkloadSpec(name="x")) == hash(WorkloadSpec(name="x"))
