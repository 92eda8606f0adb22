"""Requests by obstore: S3, Google Cloud Storage, Azure and plain HTTP servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastio.errors import FastioError, StoreError
from fastio.store.files.remote.client import Answer, ObjectEntry, RequestFailed
from fastio.store.files.remote.obstore_errors import translated
from fastio.store.files.remote.obstore_upload import put_mode, upload
from fastio.store.files.remote.request_thread import answer_of
from fastio.store.files.remote.retry_after import RetryAfter
from fastio.store.files.remote.storage_options import client_config

__all__ = ["ObstoreClient"]

# Instead of an ETag, which a server need not send: no quoted ETag begins so.
_MODIFIED = "modified "
_RENEWED_S = 5.0  # so long after credentials were looked for, others are not expected


class ObstoreClient:
    """
    See Client.

    obstore itself sends no request for reading a second time: ``download_retry`` would not be what it says. Parts of
    uploads it does, so that one that fails does not cost the others.
    """

    def __init__(self, bucket: str, options: Mapping[str, Any], *, timeout: float) -> None:
        try:
            import obstore
        except ImportError as exc:
            raise StoreError(f"{bucket}: object stores need obstore: pip install 'fastio[remote]'") from exc
        self._obstore: Any = obstore
        self._bucket = bucket
        self._timeout = timeout
        self._options = options
        self._opened_at = 0.0
        self._open()

    def _open(self) -> None:
        """Open the bucket, with the credentials that are there now."""
        self._opened_at = time.monotonic()
        with self._translating(""):
            config = client_config(self._bucket, self._options)
            common = {"allow_http": True, "timeout": timedelta(seconds=self._timeout)}
            config["client_options"] = {**common, **config.get("client_options", {})}
            bucket = self._bucket.replace("gcs://", "gs://", 1)  # which obstore does not know by gcsfs's name
            opened = partial(self._obstore.store.from_url, bucket, **config)
            headers = config["client_options"].get("default_headers", {})
            self._retry_after = RetryAfter(self._signed, headers)
            self._store: Any = opened(retry_config={"max_retries": 0})
            self._writer: Any = opened(retry_config={"max_retries": 2})

    def get(self, key: str, start: int, stop: int, *, etag: str | None = None) -> Answer:
        """See Client."""
        return answer_of(self.fetch(key, start, stop, etag=etag))

    async def fetch(self, key: str, start: int, stop: int, *, etag: str | None = None) -> Answer:
        """See Client."""
        return await self._answer(key, _options(start, stop, etag))

    def get_end(self, key: str, size: int) -> Answer:
        """See Client. An empty object has no range: some servers answer with an error, some with the whole object."""
        try:
            return answer_of(self._answer(key, {"range": {"suffix": size}}))
        except RequestFailed as exc:
            if exc.cause != "range":
                raise
            with self._translating(key):
                meta = answer_of(self._awaited("head_async", key))
            if meta["size"] != 0:
                raise
            return Answer(b"", 0, 0, _version(meta))

    async def _answer(self, key: str, options: Mapping[str, Any]) -> Answer:
        with self._translating(key):
            began = time.monotonic()
            result = await self._obstore.get_async(self._store, key, options=options)
            latency_s = time.monotonic() - began
            data = await result.bytes_async()
        return Answer(data, result.range[0], result.meta["size"], _version(result.meta), latency_s)

    async def _awaited(self, name: str, key: str) -> Any:
        """Await a function of obstore, which has to be called where the event loop runs."""
        return await getattr(self._obstore, name)(self._store, key)

    def entries(self, prefix: str) -> list[ObjectEntry]:
        """See Client."""
        with self._translating(prefix):
            listed = answer_of(self._awaited("list_with_delimiter_async", prefix))["objects"]
            entries = [ObjectEntry(meta["path"][len(prefix) :], meta["size"], meta["e_tag"] or "") for meta in listed]
        return sorted(entries, key=lambda entry: entry.name)

    def put(self, key: str, data: Any, *, if_absent: bool = False, etag: str | None = None) -> None:
        """See Client."""
        with self._translating(key):
            mode = put_mode(self._obstore, self._writer, key, if_absent=if_absent, etag=etag)
            if isinstance(data, Path):
                upload(self._obstore, self._writer, key, data, mode)
            else:
                self._obstore.put(self._writer, key, data, mode=mode)

    def remove(self, key: str) -> None:
        """See Client."""
        with self._translating(key):
            try:
                self._obstore.delete(self._writer, key)
            except FileNotFoundError:
                return

    @contextmanager
    def _translating(self, key: str) -> Iterator[None]:
        """Turn obstore's errors into ours, which name the URL."""
        try:
            yield
        except (FastioError, asyncio.CancelledError):
            raise
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as exc:
            url = f"{self._bucket}/{key}" if key else self._bucket
            error = translated(exc, url, self._obstore.exceptions, self._timeout)
            if isinstance(error, RequestFailed) and error.cause == "expired":
                self._renew(error)
            elif isinstance(error, RequestFailed) and error.cause == "busy":
                error.retry_after_s = partial(self._retry_after.seconds, key)
            raise error from None

    def _signed(self, key: str) -> str | None:
        """Return an address of an object that any client may read; None if there is none."""
        if self._bucket.startswith(("http://", "https://")):
            return f"{self._bucket}/{quote(key)}"
        try:
            return str(self._obstore.sign(self._store, "GET", key, timedelta(minutes=1)))
        except (self._obstore.exceptions.BaseError, OSError, ValueError):
            return None

    def _renew(self, error: RequestFailed) -> None:
        """Look for credentials again, for the next attempt. Raises StoreError if that was done just now."""
        if time.monotonic() < self._opened_at + _RENEWED_S:
            raise StoreError(f"{error.url}: {error.reason}: {error.advice}") from None
        self._open()


def _options(start: int, stop: int, etag: str | None) -> dict[str, Any]:
    """Return the options of a GET. A weak ETag or a time is no condition that servers compare: the reader does."""
    options: dict[str, Any] = {"range": (start, stop)}
    if etag and not etag.startswith((_MODIFIED, "W/")):
        options["if_match"] = etag
    return options


def _version(meta: Mapping[str, Any]) -> str:
    return str(meta["e_tag"] or f"{_MODIFIED}{meta['last_modified'].isoformat()}")
