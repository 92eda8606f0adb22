"""Data sets on the Hugging Face hub: which address a path has, and the user's token."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastio.errors import StoreError

__all__ = ["hub_url", "with_token"]

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
    Return the options with the token as a header: theirs, or that of HF_TOKEN or ``hf auth login``, if there is one.

    ``{"token": False}`` or ``{"anon": True}`` sends none.
    """
    options = dict(options)
    token = options.pop("token", None)
    if options.pop("anon", False) or token is False:
        return options
    if token is None or token is True:
        token = os.environ.get("HF_TOKEN") or _stored_token()
    if token:
        options["headers"] = {"authorization": f"Bearer {token}", **options.get("headers", {})}
    return options


def _stored_token() -> str | None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    path = Path(os.environ.get("HF_TOKEN_PATH") or home / "token").expanduser()
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
