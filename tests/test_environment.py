"""What a result tells about the machine, and what it must not tell."""

from __future__ import annotations

import getpass
import json
import os
import platform
from pathlib import Path

import pytest

from savermark.environment import capture_environment, changed_facts, settings


def test_the_facts_are_there_and_are_json() -> None:
    facts = capture_environment()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cores"] == os.cpu_count()
    assert facts["python"] == platform.python_version()
    assert facts["memory_bytes"] > 100_000_000
    assert {"savermark", "langgraph", "langgraph-checkpoint"} <= set(facts["packages"])
    assert len(facts["load_average"]) == 3


def test_no_person_host_or_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGGRAPH_AES_KEY", "hunter2hunter2ab")
    text = json.dumps(capture_environment())
    assert "hunter2" not in text
    for private in (str(Path.home()), str(Path.cwd()), platform.node()):
        assert len(private) < 4 or private not in text
    if getpass.getuser() != "root":
        assert getpass.getuser() not in text


def test_a_checkout_has_a_commit_and_a_flag() -> None:
    facts = capture_environment()
    if (Path(__file__).parents[1] / ".git").exists():
        assert len(facts["git_commit"]) == 40
        assert facts["git_dirty"] in (True, False)
    else:
        assert (facts["git_commit"], facts["git_dirty"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("LANGGRAPH_STRICT_MSGPACK", "true", "true"),
        ("LANGGRAPH_DELTA_MAX_SUPERSTEPS_SINCE_SNAPSHOT", "4", "4"),
        ("LANGGRAPH_AES_KEY", "1234567890", "(set)"),
        ("LANGGRAPH_AES_KEY", "12345678", "(set)"),
        ("LANGGRAPH_WHATEVER", "/home/me", "(set)"),
        ("PYTHONHASHSEED", "random", "random"),
        ("PATH", "/bin", None),
        ("PYTHONPATH", "/x", None),
    ],
)
def test_settings(name: str, value: str, shown: str | None) -> None:
    assert settings({name: value}).get(name) == shown


def test_changed_facts_name_what_changed() -> None:
    before = {"python": "3.11.7", "cores": 2, "packages": {"langgraph": "1.2.24", "psycopg": "3"}}
    now = {"python": "3.12.0", "cores": 2, "packages": {"langgraph": "1.2.25"}, "release": "new"}
    assert changed_facts(before, before) == []
    assert changed_facts(before, now) == [
        "python: 3.11.7 -> 3.12.0",
        "packages.langgraph: 1.2.24 -> 1.2.25",
        "packages.psycopg: 3 -> None",
    ]
