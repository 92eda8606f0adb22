"""Uploads by obstore: a whole file appears under its key at once, or not at all, on a condition or without one."""

from __future__ import annotations

import logging
import mmap
import secrets
from pathlib import Path
from typing import Any

from fastio.errors import StoreError
from fastio.types.units import size

__all__ = ["put_mode", "upload"]

_ONE_REQUEST = 32 << 20  # bytes; a larger file goes in parts, each of which is tried again alone
_PART_BYTES = 16 << 20  # S3 allows 10,000 parts
_PARTS_AT_ONCE = 4
_MAX_COPY = 5 << 30  # bytes that S3 copies with one request
_LOG = logging.getLogger(__name__)


def put_mode(obstore: Any, store: Any, key: str, *, if_absent: bool, etag: str | None) -> Any:
    """
    Return the ``mode`` of ``obstore.put`` for these conditions.

    Google's store compares a number, not the ETag: the number is asked for. Raises obstore's errors.
    """
    if etag is None:
        return "create" if if_absent else "overwrite"
    known = obstore.head(store, key)
    version = {"version": known["version"]} if known["e_tag"] == etag and known["version"] is not None else {}
    return {"e_tag": etag, **version}


def upload(obstore: Any, store: Any, key: str, file: Path, mode: Any) -> None:
    """
    Store a local file. ``mode`` is that of ``obstore.put``: "create", "overwrite" or the version to replace.

    Conditions and parts exclude each other in obstore: a large file that must not replace another is uploaded in
    parts under a hidden key beside it, then copied within the store on the condition, and the hidden one removed.
    Raises obstore's errors, and StoreError for a file that is too large for that.
    """
    size_bytes = file.stat().st_size
    if size_bytes > _ONE_REQUEST and mode == "create":
        _create(obstore, store, key, file, size_bytes)
    elif size_bytes > _ONE_REQUEST and mode == "overwrite":
        _put_parts(obstore, store, key, file)
    else:
        obstore.put(store, key, _mapped(file, size_bytes), mode=mode)


def _create(obstore: Any, store: Any, key: str, file: Path, size_bytes: int) -> None:
    if size_bytes > _MAX_COPY:
        raise StoreError(f"{key}: {size(size_bytes)}, object stores take {size(_MAX_COPY)}: use a smaller shard size")
    folder, slash, name = key.rpartition("/")
    hidden = f"{folder}{slash}.{name}.partial-{secrets.token_hex(8)}"
    try:
        _put_parts(obstore, store, hidden, file)
        obstore.copy(store, hidden, key, overwrite=False)
    finally:
        try:
            obstore.delete(store, hidden)
        except FileNotFoundError:
            pass  # the upload failed before
        except (obstore.exceptions.BaseError, OSError) as exc:
            _LOG.warning("%s: could not be removed (%s); it is a copy that nobody needs", hidden, exc)


def _put_parts(obstore: Any, store: Any, key: str, file: Path) -> None:
    obstore.put(store, key, file, use_multipart=True, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)


def _mapped(file: Path, size_bytes: int) -> Any:
    """The content of a file, of which the system keeps in memory what it likes to."""
    if size_bytes == 0:
        return b""
    with file.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
