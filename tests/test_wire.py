"""What serialized forms tell without a value being built."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from savermark.errors import UsageError
from savermark.history.wire import holds_snapshot, outline, sealed, unsealed, with_value

SERDE = JsonPlusSerializer()
ENCRYPTED = EncryptedSerializer.from_pycryptodome_aes(key=b"k" * 16)


def checkpoint(values: dict[str, Any]) -> dict[str, Any]:
    return {
        "v": 4,
        "ts": "",
        "id": "c1",
        "channel_values": values,
        "channel_versions": {"a": "1", "b": 2, "c": 2.5},
        "versions_seen": {"node": {"a": "1"}},
        "updated_channels": None,
    }


@pytest.mark.parametrize("size", [0, 1, 3, 14, 15, 300, 70_000])
def test_a_snapshot_of_any_size_is_told(size: int) -> None:
    assert holds_snapshot(*SERDE.dumps_typed(_DeltaSnapshot("x" * size)))
    assert not holds_snapshot(*SERDE.dumps_typed("x" * size))
    assert not holds_snapshot(*SERDE.dumps_typed(AIMessage("x" * size)))


def test_what_is_no_snapshot() -> None:
    for tag, data in (
        ("empty", b""),
        ("null", b""),
        ("bytes", b"\xc7\x01\x07"),
        ("msgpack", b"\xc7"),
    ):
        assert not holds_snapshot(tag, data)
    assert not holds_snapshot(*ENCRYPTED.dumps_typed(_DeltaSnapshot([])))  # not told from outside


def test_an_outline_names_and_builds_nothing() -> None:
    values = {"a": _DeltaSnapshot([AIMessage("m")]), "b": None, "z": [AIMessage("n")]}
    for serde in (SERDE, ENCRYPTED):
        found = outline(*serde.dumps_typed(checkpoint(values)), serde)
        assert found is not None
        assert (found.v, found.valued, found.snapshots) == (4, {"a", "b", "z"}, {"a"})
        assert found.versions == {"a": "1", "b": "2", "c": "2.5"}
        assert found.exact == {"a": "1", "b": 2, "c": 2.5}


@pytest.mark.parametrize(
    ("tag", "data"),
    [
        ("pickle", b"\x80\x04N."),
        ("pickle+aes", b""),
        ("msgpack+aes", b"\x00" * 40),
        ("msgpack", b"\xc1"),
        ("msgpack", b"\x93\x01\x02\x03"),
        ("msgpack", ormsgpack.packb({"v": 4})),
        ("json", b"{"),
        ("own", b"x"),
        (None, None),
    ],
)
def test_what_cannot_be_read_is_none(tag: str | None, data: Any) -> None:
    for serde in (None, SERDE, ENCRYPTED):
        assert outline(tag, data, serde) is None


_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from("abcz"), _PLAIN | _PLAIN.map(_DeltaSnapshot)), _PLAIN)
@settings(max_examples=60, deadline=None)
def test_setting_a_value_changes_nothing_else(values: dict[str, Any], value: Any) -> None:
    """And what comes out is what the serializer itself would have written."""
    new = _DeltaSnapshot(value)
    typed = with_value(SERDE.dumps_typed(checkpoint(values)), "a", SERDE.dumps_typed(new), SERDE)
    assert typed == SERDE.dumps_typed(checkpoint({**values, "a": new}))
    closed = with_value(
        ENCRYPTED.dumps_typed(checkpoint(values)), "a", ENCRYPTED.dumps_typed(new), ENCRYPTED
    )
    assert closed[0] == "msgpack+aes"
    assert ENCRYPTED.loads_typed(closed) == checkpoint({**values, "a": new})


def test_a_value_of_another_form() -> None:
    held = SERDE.dumps_typed(checkpoint({}))
    for value in (None, b"bytes"):
        found = SERDE.loads_typed(with_value(held, "a", SERDE.dumps_typed(value), SERDE))
        assert found["channel_values"] == {"a": value}
    with pytest.raises(UsageError, match="pickle"):
        with_value(held, "a", ("pickle", b""), SERDE)
    with pytest.raises(UsageError, match="json"):
        with_value(("json", b"{}"), "a", SERDE.dumps_typed(None), SERDE)


def test_sealed_objects_come_back_as_they_were() -> None:
    message = {"m": AIMessage("x"), "n": [_DeltaSnapshot([1])]}
    typed = SERDE.dumps_typed(message)
    assert sealed(unsealed(*typed, SERDE), SERDE) == typed
