"""Objects behind a URL: read by ranges, never mapped."""

from __future__ import annotations

from fastio.store.files.byte_source import Kind
from fastio.store.files.local import is_local
from fastio.store.files.remote.remote_files import RemoteFiles
from fastio.store.files.remote.remote_source import RemoteSource

__all__ = ["KIND"]

_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https"})


def _claims(path: str) -> bool:
    return not is_local(path) and path.partition("://")[0] in _SCHEMES


KIND = Kind("remote", claims=_claims, open=RemoteSource.open, files=RemoteFiles)
