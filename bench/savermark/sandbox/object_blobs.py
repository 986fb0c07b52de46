"""Blobs in an object store that speaks S3: AWS, Cloudflare R2, MinIO and their like.

Needs the package obstore: `pip install savermark[s3]`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from savermark.errors import Unsupported
from savermark.sandbox.blobs import BlobInfo, check_key
from savermark.sandbox.errors import SandboxBlobError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from obstore.store import ObjectStore, S3Store

try:
    import obstore
    from obstore.exceptions import BaseError
except ImportError as missing:  # pragma: no cover
    raise Unsupported("S3 blobs need obstore: pip install 'savermark[s3]'") from missing


class ObjectBlobStore:
    """Blobs in a bucket, through any store of obstore; large ones go up in parts."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def get(self, key: str) -> bytes | None:
        """The bytes, or None for a missing key."""
        with _said("get", key):
            try:
                found = await obstore.get_async(self._store, key)
                return bytes(await found.bytes_async())
            except FileNotFoundError:
                return None

    async def head(self, key: str) -> BlobInfo | None:
        """Size and age without the bytes, or None for a missing key. Ages are whole seconds."""
        with _said("head", key):
            try:
                return _info(await obstore.head_async(self._store, key))
            except FileNotFoundError:
                return None

    async def put(self, key: str, data: bytes) -> None:
        """Stores the bytes, in place of what the key held."""
        check_key(key)
        with _said("put", key):
            await obstore.put_async(self._store, key, data)

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """Every blob whose key starts with the prefix, all pages, in the bucket's order."""
        folder = prefix.rpartition("/")[0]  # obstore takes whole path segments only
        with _said("list", prefix):
            async for page in obstore.list(self._store, prefix=folder or None):
                for meta in page:
                    if meta["path"].startswith(prefix):
                        yield _info(meta)

    async def delete(self, key: str) -> None:
        """Removes the blob; a missing one is no error."""
        with _said("delete", key):
            try:
                await obstore.delete_async(self._store, key)
            except FileNotFoundError:
                return


def open_s3_blobs(
    bucket: str,
    *,
    endpoint: str | None = None,
    region: str = "auto",
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    prefix: str | None = None,
) -> ObjectBlobStore:
    """The blobs of a bucket that exists.

    `endpoint` is that of R2 or MinIO; a plain http one is for a server on this machine. Keys that
    are not given come from the environment, as AWS tools read it. `prefix` is a folder within the
    bucket that all keys live in.
    """
    from obstore.store import S3Store

    config: dict[str, Any] = {"region": region}
    if endpoint is not None:
        config |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
        config["client_options"] = {"allow_http": endpoint.startswith("http://")}
    if access_key_id is not None:
        config |= {"access_key_id": access_key_id, "secret_access_key": secret_access_key}
    store: S3Store = S3Store(bucket, prefix=prefix, **config)
    return ObjectBlobStore(store)


def _info(meta: Any) -> BlobInfo:
    return BlobInfo(meta["path"], meta["size"], meta["last_modified"].timestamp() * 1000.0)


@contextmanager
def _said(what: str, key: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        line = str(error).strip().splitlines()[0][:200] if str(error).strip() else "no reason given"
        raise SandboxBlobError(f"the bucket refused to {what} {key}: {line}") from error
