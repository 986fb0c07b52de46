"""Blobs in a bucket: the user's, or that of moto's server on this machine."""

from __future__ import annotations

import asyncio
import logging
import urllib.request
import warnings
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from savermark.errors import Unsupported, UsageError
from savermark.sandbox_trial.places.base import BlobPlace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from savermark.sandbox.object_blobs import ObjectBlobStore

URL_VARIABLE = "SAVERMARK_S3_URL"
_MOTO = "moto+"  # marks the URL of our own server, whose keys are public


class S3Blobs(BlobPlace):
    """A folder of its own within the bucket, emptied at the end."""

    service_name = "s3"

    @classmethod
    @contextmanager
    def service(cls, folder: Path, given: Mapping[str, str | None]) -> Iterator[str | None]:
        """The user's bucket; else moto's server, if it is installed; else none."""
        url = given.get("s3")
        if url:
            _parts(url)
            yield url
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                from moto.server import ThreadedMotoServer
            except ImportError:
                yield None
                return
            logging.getLogger("werkzeug").setLevel(logging.ERROR)
            server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
            server.start()
        host, port = server.get_host_and_port()
        try:
            url = f"http://{host}:{port}/savermark"
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=30):
                yield _MOTO + url
        finally:
            server.stop()

    def create(self) -> None:
        """Nothing: a folder of a bucket is a name."""
        if self.served() is None:
            raise Unsupported(
                "S3 blobs need a bucket (--s3 https://endpoint/bucket) or "
                "pip install 'moto[server]'"
            )

    def _store(self) -> ObjectBlobStore:
        from savermark.sandbox.object_blobs import open_s3_blobs

        url = self.served() or ""
        ours = url.startswith(_MOTO)
        endpoint, bucket = _parts(url.removeprefix(_MOTO))
        keys = {"access_key_id": "moto", "secret_access_key": "moto"} if ours else {}
        prefix = f"savermark-{self.location.name}"
        return open_s3_blobs(bucket, endpoint=endpoint, prefix=prefix, **keys)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ObjectBlobStore]:
        yield self._store()

    def describe(self) -> dict[str, Any]:
        import obstore

        ours = (self.served() or "").startswith(_MOTO)
        return {
            "blobs": "ObjectBlobStore",
            "obstore": obstore.__version__,
            "s3": "moto on loopback: an imitation, its times say nothing of S3's"
            if ours
            else "the user's bucket",
        }

    def destroy(self) -> None:
        if self.served() is not None:
            asyncio.run(_empty(self._store()))


async def _empty(store: ObjectBlobStore) -> None:
    found = [info.key async for info in store.list("")]
    for key in found:
        await store.delete(key)


def _parts(url: str) -> tuple[str, str]:
    """Endpoint and bucket. Raises `UsageError` for a URL without either."""
    parts = urlsplit(url)
    bucket = parts.path.strip("/")
    if parts.scheme not in ("http", "https") or not parts.netloc or not bucket or "/" in bucket:
        raise UsageError("--s3 must be https://endpoint/bucket; keys come from AWS_* variables")
    if "@" in parts.netloc:
        raise UsageError("--s3 must not hold keys: set AWS_ACCESS_KEY_ID and its secret instead")
    return f"{parts.scheme}://{parts.netloc}", bucket


PLACE = S3Blobs
