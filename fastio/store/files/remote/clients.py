"""The client for a URL: one for each bucket of a process."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from typing import Any

from fastio.errors import StoreError
from fastio.store.files.remote.client import OBSTORE_SCHEMES, Client, claim_process, split_url
from fastio.store.files.remote_options import Remote

__all__ = [
    "client_of",
    "hub_url",
    "with_token",
]


_clients: dict[tuple[str, str, float], Client] = {}
_opening = threading.Lock()


def client_of(url: str, options: Remote) -> tuple[Client, str]:
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


# Data sets on the Hugging Face hub: which address a path has, and the user's token.

_PATH = re.compile(r"hf://(datasets/|spaces/)?([^/@]+/[^/@]+)(?:@([^/]+))?/(.*)")


def hub_url(url: str) -> str:
    """
    Return the address of a file on the hub. Raises StoreError for a path of another form.

    >>> hub_url("hf://datasets/org/name@v1/data/train.tar")
    'https://huggingface.co/datasets/org/name/resolve/v1/data/train.tar'
    """
    match = _PATH.match(url)
    if match is None:
        raise StoreError(f"{url}: expected hf://datasets/ORGANISATION/NAME[@REVISION]/PATH")
    kind, name, revision, path = match.groups()
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return f"{endpoint}/{kind or ''}{name}/resolve/{revision or 'main'}/{path}"


def with_token(options: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the options with the token as a header: theirs, HF_TOKEN, or, if huggingface_hub is installed, its login.

    ``{"token": False}`` or ``{"anon": True}`` sends none.
    """
    options = dict(options)
    token = options.pop("token", None)
    if options.pop("anon", False) or token is False:
        return options
    if token is None or token is True:
        token = _stored_token()
    if token:
        options["headers"] = {"authorization": f"Bearer {token}", **options.get("headers", {})}
    return options


def _stored_token() -> str | None:
    try:
        from huggingface_hub import get_token
    except ImportError:
        return os.environ.get("HF_TOKEN")
    return get_token()
