"""The serializer a workload asks for, as the backends' `serde` argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from savermark.spec import WorkloadSpec

#: Not a secret: every run encrypts with it, so that any process can read a run's store.
_KEY = b"savermark-benchmark-key-32-bytes"


def make_serde(spec: WorkloadSpec) -> SerializerProtocol | None:
    """AES over the default serializer for `run.serializer = "encrypted"`; None for plain.

    None leaves each saver the serializer that its own documentation gives it.
    """
    if spec.run.serializer == "plain":
        return None
    return EncryptedSerializer.from_pycryptodome_aes(key=_KEY)
