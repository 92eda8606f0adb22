"""Packed containers. Each name is imported when it is first used: reading needs no writer, and no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastio.lazy import lazy_names

if TYPE_CHECKING:
    from fastio.store.address import format_of
    from fastio.store.formats import FORMATS, holds_shards
    from fastio.store.formats.format import Format
    from fastio.store.opening import open_store
    from fastio.store.protocol import SampleBatch, SampleStore, SampleWriter
    from fastio.store.write.output import check_target, create_shard, create_store

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
        "Format": "fastio.store.formats.format",
        "SampleBatch": "fastio.store.protocol",
        "SampleStore": "fastio.store.protocol",
        "SampleWriter": "fastio.store.protocol",
        "check_target": "fastio.store.write.output",
        "create_shard": "fastio.store.write.output",
        "create_store": "fastio.store.write.output",
        "format_of": "fastio.store.address",
        "holds_shards": "fastio.store.formats",
        "open_store": "fastio.store.opening",
    },
)
