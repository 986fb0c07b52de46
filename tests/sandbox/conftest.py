"""An S3 server on loopback, for the tests of this folder."""

from __future__ import annotations

import logging
import urllib.request
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The URL of a server that speaks S3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        moto = pytest.importorskip("moto.server", reason="the S3 tests need moto[server]")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_bucket(s3_endpoint: str, request: pytest.FixtureRequest) -> str:
    """A new bucket."""
    import secrets

    name = f"bucket-{secrets.token_hex(6)}"
    make = urllib.request.Request(f"{s3_endpoint}/{name}", method="PUT")
    with urllib.request.urlopen(make, timeout=30) as answer:
        assert answer.status == 200
    return name
