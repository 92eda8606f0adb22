"""The client for a URL: one for each bucket of a process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from fastio.errors import StoreError
from fastio.store.files.remote.client import Client, split_url
from fastio.store.files.remote.forked import claim_process
from fastio.store.files.remote.hugging_face import hub_url, with_token
from fastio.store.files.remote.schemes import OBSTORE_SCHEMES
from fastio.store.files.remote_options import RemoteOptions

__all__ = ["client_of"]

_clients: dict[tuple[str, str, float], Client] = {}
_opening = threading.Lock()


def client_of(url: str, options: RemoteOptions) -> tuple[Client, str]:
    """
    Return the client for a URL, shared by all who ask for the same bucket with the same options, and the key.

    Raises StoreError in a process that was forked from one that had a client, and for a scheme in capitals.
    """
    claim_process()
    storage = options.storage_options
    if url.startswith("hf://"):
        url, storage = hub_url(url), with_token(storage)
    bucket, key = split_url(url)
    scheme = bucket.partition("://")[0]
    if scheme != scheme.lower():
        raise StoreError(f"{url}: write the beginning of a URL in small letters: {scheme.lower()}://")
    wanted = bucket, repr(sorted(storage.items())), options.download_timeout
    client = _clients.get(wanted)
    if client is None:
        with _opening:
            client = _clients[wanted] = _clients.get(wanted) or _opened(bucket, storage, options.download_timeout)
    return client, key


def _opened(bucket: str, storage: Mapping[str, Any], timeout: float) -> Client:
    # Imported here: with asyncio, ssl and urllib they import more than the rest of fastio.store does.
    if bucket.partition("://")[0] in OBSTORE_SCHEMES:
        from fastio.store.files.remote.obstore_client import ObstoreClient

        return ObstoreClient(bucket, storage, timeout=timeout)
    from fastio.store.files.remote.fsspec_client import FsspecClient

    return FsspecClient(bucket, storage, timeout=timeout)
