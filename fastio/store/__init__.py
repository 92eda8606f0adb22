"""Packed containers. Each name is imported when it is first used: reading needs no writer, and no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastio.lazy import lazy_names

if TYPE_CHECKING:
    from fastio.store.creating import check_target, create_shard, create_store
    from fastio.store.format import Format
    from fastio.store.formats import FORMATS, holds_shards
    from fastio.store.opening import open_store
    from fastio.store.sample_store import SampleBatch, SampleStore, SampleWriter
    from fastio.store.target import format_of

__all__ = [
    "FORMATS",
    "Format",
    "SampleBatch",
    "SampleStore",
    "SampleWriter",
    "check_target",
    "create_shard",
    "create_store",
    "format_of",
    "holds_shards",
    "open_store",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "FORMATS": "fastio.store.formats",
        "Format": "fastio.store.format",
        "SampleBatch": "fastio.store.sample_store",
        "SampleStore": "fastio.store.sample_store",
        "SampleWriter": "fastio.store.sample_store",
        "check_target": "fastio.store.creating",
        "create_shard": "fastio.store.creating",
        "create_store": "fastio.store.creating",
        "format_of": "fastio.store.target",
        "holds_shards": "fastio.store.formats",
        "open_store": "fastio.store.opening",
    },
)
