"""Requests by obstore: S3, Google Cloud Storage, Azure and plain HTTP servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from fastio.errors import FastioError, StoreError, StoreNotFound
from fastio.store.files.remote.client import Answer, ObjectEntry, Precondition
from fastio.store.files.remote.obstore_upload import put_mode, upload

__all__ = ["ObstoreClient"]


class ObstoreClient:
    """See Client."""

    def __init__(self, bucket: str, options: Mapping[str, Any], *, timeout: float) -> None:
        try:
            import obstore
        except ImportError as exc:
            raise StoreError(f"{bucket}: object stores need obstore: pip install 'fastio[remote]'") from exc
        self._obstore: Any = obstore
        self._bucket = bucket
        client_options = {"allow_http": True, "timeout": timedelta(seconds=timeout)}
        if bucket.startswith(("s3://", "s3a://")):
            options = {"copy_if_not_exists": "multipart", **options}
        with self._told(""):
            self._store = self._obstore.store.from_url(bucket, client_options=client_options, **options)

    def get(self, key: str, start: int, stop: int, *, etag: str | None = None) -> Answer:
        """See Client."""
        options: dict[str, Any] = {"range": (start, stop)}
        if etag is not None:
            options["if_match"] = etag
        return self._answer(key, options)

    def get_end(self, key: str, size: int) -> Answer:
        """See Client."""
        return self._answer(key, {"range": {"suffix": size}})

    def _answer(self, key: str, options: Mapping[str, Any]) -> Answer:
        with self._told(key):
            result = self._obstore.get(self._store, key, options=options)
            return Answer(result.bytes(), result.range[0], result.meta["size"], result.meta["e_tag"] or "")

    def entries(self, prefix: str) -> list[ObjectEntry]:
        """See Client."""
        with self._told(prefix):
            listed = self._obstore.list_with_delimiter(self._store, prefix)["objects"]
            found = [ObjectEntry(each["path"][len(prefix) :], each["size"], each["e_tag"] or "") for each in listed]
        return sorted(found, key=lambda entry: entry.name)

    def put(self, key: str, data: Any, *, if_absent: bool = False, etag: str | None = None) -> None:
        """See Client."""
        with self._told(key):
            mode = put_mode(self._obstore, self._store, key, if_absent=if_absent, etag=etag)
            if isinstance(data, Path):
                upload(self._obstore, self._store, key, data, mode)
            else:
                self._obstore.put(self._store, key, data, mode=mode)

    def remove(self, key: str) -> None:
        """See Client."""
        with self._told(key):
            try:
                self._obstore.delete(self._store, key)
            except FileNotFoundError:
                return

    @contextmanager
    def _told(self, key: str) -> Iterator[None]:
        """Turn obstore's errors into ours, which name the URL."""
        url = f"{self._bucket}/{key}" if key else self._bucket
        errors = self._obstore.exceptions
        try:
            yield
        except FastioError:
            raise
        except FileNotFoundError as exc:
            raise StoreNotFound(f"{url}: no such object; check the name, or pack the dataset first") from exc
        except (errors.PreconditionError, errors.AlreadyExistsError) as exc:
            raise Precondition(f"{url}: is another version than expected: open the store again") from exc
        except (errors.BaseError, OSError, ValueError) as exc:
            first = (str(exc).splitlines() or [type(exc).__name__])[0]
            raise StoreError(f"{url}: cannot be read or written ({first}): check address and credentials") from exc
