"""Blobs as files of a folder: a key is a path below it."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from savermark.errors import BackendError
from savermark.sandbox.blobs import BlobInfo, check_key
from savermark.sandbox.errors import SandboxRangeError

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator

_INCOMING = ".incoming"  # uploads under way
_ABANDONED_S = 3_600.0  # an upload that is this old belongs to a process that died


class FolderBlobStore:
    """Blobs in a folder, safe to share among processes.

    A put writes aside, syncs to the disk and renames, so after a crash a blob is whole or absent.
    """

    def __init__(self, root: str | Path) -> None:
        """Makes the folder if it is missing. Raises `BackendError` if it cannot."""
        self._root = Path(root)
        self._incoming = self._root / _INCOMING
        try:
            self._incoming.mkdir(parents=True, exist_ok=True)
            self._clean()
        except OSError as error:
            raise BackendError(f"cannot use {root} for blobs: {error.strerror}") from error

    async def get(self, key: str) -> bytes | None:
        """The bytes, or None for a missing key."""
        return await asyncio.to_thread(self._get, key)

    async def head(self, key: str) -> BlobInfo | None:
        """Size and age without the bytes, or None for a missing key."""
        return await asyncio.to_thread(self._head, key)

    async def put(self, key: str, data: bytes) -> None:
        """Stores the bytes, in place of what the key held."""
        await asyncio.to_thread(self._put, key, data)

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """Every blob whose key starts with the prefix, by UTF-8 bytes of the key."""
        for key in await asyncio.to_thread(self._keys, prefix):
            info = await asyncio.to_thread(self._head, key)
            if info is not None:
                yield info

    async def delete(self, key: str) -> None:
        """Removes the blob; a missing one is no error."""
        path = self._path(key)
        await asyncio.to_thread(path.unlink, missing_ok=True)

    def _path(self, key: str) -> Path:
        check_key(key)
        if key.split("/")[0] == _INCOMING:
            raise SandboxRangeError(f"{key!r:.100} is no blob key: {_INCOMING} is taken")
        return self._root / key

    def _get(self, key: str) -> bytes | None:
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def _head(self, key: str) -> BlobInfo | None:
        try:
            found = self._path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return BlobInfo(key, found.st_size, found.st_mtime_ns / 1e6)

    def _put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        aside = self._incoming / secrets.token_hex(12)
        try:
            with aside.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _make_folders(path.parent)
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def _keys(self, prefix: str) -> builtins.list[str]:
        base = self._root / prefix.rpartition("/")[0]
        found: builtins.list[str] = []
        for folder, folders, files in os.walk(base):
            if _INCOMING in folders:
                folders.remove(_INCOMING)
            below = Path(folder).relative_to(self._root)
            found += [(below / name).as_posix() for name in files]
        return sorted(key for key in found if key.startswith(prefix))

    def _clean(self) -> None:
        for path in self._incoming.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _ABANDONED_S:
                    path.unlink()


def _make_folders(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
