"""The client for a URL: one for each bucket and each process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from fastio.store.files.remote.client import Client, split_url
from fastio.store.files.remote.forked import claim_process
from fastio.store.files.remote.obstore_client import ObstoreClient
from fastio.store.files.remote_options import RemoteOptions

__all__ = ["client_of"]


def client_of(url: str, options: RemoteOptions) -> tuple[Client, str]:
    """
    Return the client for a URL, shared by all who ask for the same bucket with the same options, and the key.

    Raises StoreError in a process that was forked from one that had a client.
    """
    claim_process()
    bucket, key = split_url(url)
    return _client(bucket, _frozen(options.storage_options), options.download_timeout), key


@cache
def _client(bucket: str, storage: tuple[tuple[str, Any], ...], timeout: float) -> Client:
    return ObstoreClient(bucket, dict(storage), timeout=timeout)


def _frozen(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(options.items()))
