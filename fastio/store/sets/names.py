"""How set objects are named after their shards, and how they name the shards."""

from __future__ import annotations

import os
import re

from fastio.errors import StoreError
from fastio.store.files.local import is_local

__all__ = [
    "SET_SUFFIX",
    "listed_name",
    "set_path",
]


SET_SUFFIX = ".fastio-set"

_NUMBER = re.compile(r"[-._]?(?:%(?:0\d+)?d|\{\d+\.\.\d+\}|\*)")


def set_path(path: str) -> str:
    """
    Return the path of the set object for shards named by a pattern; a set object's own path stays.

    >>> set_path("s3://bucket/in-%06d.tar"), set_path("data/%06d.tar"), set_path("in.fastio-set")
    ('s3://bucket/in.fastio-set', 'data/shards.fastio-set', 'in.fastio-set')
    """
    if path.endswith(SET_SUFFIX):
        return path
    folder, slash, name = path.rpartition("/")
    stem = _NUMBER.sub("", name, count=1).rpartition(".")[0]
    return f"{folder}{slash}{stem or 'shards'}{SET_SUFFIX}"


def listed_name(path: str, out: str) -> str:
    """Return how the set ``out`` lists the shard at this path or URL: by name in its own folder, else by all of it."""
    folder, _, name = path.rpartition("/")
    out_folder = out.rpartition("/")[0]
    if not is_local(path):
        return name if folder == out_folder else path
    if not is_local(out):
        raise StoreError(f"{path}: lies on this machine, where nobody who reads {out} finds it: copy the shards first")
    if os.path.realpath(folder or ".") == os.path.realpath(out_folder or "."):
        return name
    return os.path.abspath(path)  # noqa: PTH100 - a link stays one
