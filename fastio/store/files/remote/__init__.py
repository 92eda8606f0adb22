"""Objects behind a URL: read by ranges, never mapped. Clients and their event loop are imported for a URL only."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fastio.store.files.byte_source import ByteSource, Kind, StoreFiles
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import Remote

if TYPE_CHECKING:
    from fastio.store.files.remote.remote_source import RemoteSource

__all__ = ["KIND"]


def _claims(path: str) -> bool:
    """Whether a path is a URL of a scheme that obstore or fsspec knows; fsspec is asked for the others alone."""
    if is_local(path):
        return False
    from fastio.store.files.remote.client import OBSTORE_SCHEMES

    scheme = path.partition("://")[0].lower()
    if scheme in OBSTORE_SCHEMES or scheme == "hf":
        return True
    if find_spec("fsspec") is None:
        return False
    from fsspec.registry import known_implementations, registry

    return scheme in known_implementations or scheme in registry


def _open(path: str, options: Remote) -> ByteSource:
    from fastio.store.files.remote.remote_source import RemoteSource

    return RemoteSource.open(path, options)


def _files(sources: Sequence[RemoteSource]) -> StoreFiles:
    from fastio.store.files.remote.remote_files import RemoteFiles

    return RemoteFiles(sources)


KIND = Kind("remote", claims=_claims, open=_open, files=_files)
