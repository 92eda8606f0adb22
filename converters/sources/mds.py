"""
Reads folders of MosaicML Streaming's MDS shards. What a shard is, ``sample_shards.py`` draws; before its samples lies a
JSON with their columns, and ``index.json`` lists the shards:

    {"version": 2, "shards": [{"format": "mds", "samples": 1000, "raw_data": {"basename": "shard.00000.mds",
     "bytes": ..., "hashes": {"sha1": ...}}, "zip_data": null, "compression": null, "column_names": ["image", "label"],
     "column_encodings": ["jpeg", "int"], "column_sizes": [null, 8], ...}]}

An array of any shape begins with its dtype (one byte, unless the encoding names it), one byte that is 4 times the
number of its sizes plus 0 to 3 for sizes of 1, 2, 4 or 8 bytes, and the sizes.
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.converters.sources.sample_shards import (
    ArrayHead,
    Encoding,
    SampleShard,
    SampleShards,
    ShardColumn,
    only_folder,
    read_index,
)
from fastio.converters.sources.shard_source import shard_source
from fastio.errors import SourceError
from fastio.store.kinds.scan import SourcePath, is_utf8

__all__ = ["open_mds"]

_KIND: Final = "mds"  # of sources
_SUFFIX: Final = ".mds"
_DTYPES: Final = {
    **{f"u{8 * n}": f"<u{n}" for n in (2, 4, 8)},
    **{f"i{8 * n}": f"<i{n}" for n in (2, 4, 8)},
    "u8": "|u1",
    "i8": "|i1",
    **{f"f{8 * n}": f"<f{n}" for n in (2, 4, 8)},
}
_NAMES: Final = {"u": "uint", "i": "int", "f": "float"}
_BY_NAME: Final = {f"{_NAMES[words[0]]}{words[1:]}": dtype for words, dtype in _DTYPES.items()}
_CODES: Final = {8: "|u1", 9: "|i1", **{8 * n + k: f"<{'uif'[k]}{n}" for n in (2, 4, 8) for k in range(3)}}
_ARRAY: Final = re.compile(r"ndarray(?::(?P<dtype>\w+)(?::(?P<shape>\d+(?:,\d+)*))?)?\Z")
_PLAIN: Final = {
    "bytes": Encoding("bytes"),
    "jpeg": Encoding("jpeg"),
    "png": Encoding("png"),
    "str": Encoding("str", "text"),
    "str_decimal": Encoding("str_decimal", "text"),
    "str_int": Encoding("str_int", "integer text"),
    "str_float": Encoding("str_float", "float text"),
    "json": Encoding("json", "json"),
    "int": Encoding("int", "number", "<i8"),
    "pil": Encoding("pil", "pixels"),
}
_REFUSED: Final = {
    "pkl": "is a pickle, which may run code when it is read: write its values as json, str or arrays",
    **dict.fromkeys(
        ("jpegarray", "jpeg_array", "list[jpeg]", "list[png]", "list[pil]"),
        "holds several pictures a sample: write each as a column of its own",
    ),
}
_DECOMPRESS: Final = {
    "zstd": "zstd -d",
    "gz": "gunzip -k",
    "bz2": "bunzip2 -k",
    "br": "brotli -d",
    "snappy": "snzip -dk",
}


def open_mds(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open the MDS shards that the ``index.json`` in a folder lists, or in the only folder below that has one.

    Raises SourceError for shards that are compressed, missing or not what the index says, and for encodings that no
    field takes (``pkl``, lists of pictures).
    """
    folder = only_folder(place, _KIND)
    index = read_index(folder)
    entries = index.get("shards") if isinstance(index, dict) else None
    if not isinstance(entries, list) or not entries or not all(isinstance(each, dict) for each in entries):
        raise SourceError(f"{folder}/index.json: is damaged: expected a list of shards, as of MDSWriter: get it again")
    said = _columns(folder, entries[0])
    for entry in entries:
        if entry.get("format") != _KIND:
            raise SourceError(
                f"{folder}/index.json: lists a shard of the format {entry.get('format')!r:.40}, expected mds"
            )
        if (own := _columns(folder, entry)) != said:
            raise SourceError(f"{folder}/index.json: lists shards of different columns: {own}, {said}")
    columns = [ShardColumn(name, _encoding(words), size) for name, words, size in said]
    for each in columns:
        if not each.encoding.refusal and each.encoding.nbytes != each.nbytes:
            raise SourceError(
                f"{folder}/index.json: column {each.name!r} ({each.encoding.words}) has values of {each.nbytes} bytes, "
                f"expected {each.encoding.nbytes}"
            )
    shards = SampleShards([_shard(folder, each, said) for each in entries], columns)
    return shard_source(_KIND, place, folder, shards, options, _SUFFIX)


def _columns(folder: str, entry: dict[str, Any]) -> list[tuple[str, str, int | None]]:
    """Name, encoding and size of each column, as an index or a shard says. Raises SourceError."""
    names, encodings, sizes = (entry.get(f"column_{what}") for what in ("names", "encodings", "sizes"))
    if (
        not (isinstance(names, list) and isinstance(encodings, list) and isinstance(sizes, list))
        or not names
        or not len(names) == len(encodings) == len(sizes)
        or not all(isinstance(name, str) and is_utf8(name) for name in names)
        or not all(isinstance(words, str) for words in encodings)
        or not all(size is None or (type(size) is int and size >= 0) for size in sizes)
        or len(set(names)) < len(names)
    ):
        raise SourceError(
            f"{folder}: column_names, column_encodings and column_sizes are not those of MDS: "
            f"{[names, encodings, sizes]!r:.200}"
        )
    return list(zip(names, encodings, sizes, strict=True))


def _encoding(words: str) -> Encoding:
    if words in _PLAIN:
        return _PLAIN[words]
    if words in _BY_NAME:
        return Encoding(words, "number", _BY_NAME[words])
    match = _ARRAY.match(words)
    if match is not None and match["dtype"] in (None, *_BY_NAME):
        dtype = _BY_NAME.get(match["dtype"] or "", "")
        if match["shape"] is None:
            return Encoding(words, "array", dtype, head=partial(_array_head, dtype))
        return Encoding(words, "array", dtype, tuple(map(int, match["shape"].split(","))))
    return Encoding(words, refusal=_REFUSED.get(words, "fastio does not know: write its values as bytes"))


def _array_head(dtype: str, data: memoryview) -> ArrayHead:
    """What is before the numbers of an array of any shape; see the drawing at the top."""
    at = 0
    if not dtype:
        dtype, at = _CODES.get(data[0] if len(data) else -1, ""), 1
    if not dtype or len(data) <= at:
        raise ValueError("has an array without a dtype or sizes: the shard is damaged")
    count, width = data[at] // 4, 1 << data[at] % 4
    stop = at + 1 + count * width
    if stop > len(data):
        raise ValueError("has an array that ends within its sizes: the shard is damaged")
    return ArrayHead(stop, dtype, tuple(np.frombuffer(data[at + 1 : stop], f"<u{width}").tolist()))


def _shard(folder: str, entry: dict[str, Any], said: list[tuple[str, str, int | None]]) -> SampleShard:
    """Open a shard, and compare it with its entry. Raises SourceError."""
    raw = entry.get("raw_data")
    raw = raw if isinstance(raw, dict) else {}
    name, hashes = raw.get("basename"), raw.get("hashes")
    if isinstance(name, str) and entry.get("zip_data") and not Path(folder, name).exists():
        packed, by = entry["zip_data"], str(entry.get("compression"))
        file = packed.get("basename") if isinstance(packed, dict) else packed
        command = _DECOMPRESS.get(by.partition(":")[0], "decompress")
        raise SourceError(
            f"{folder}: its shards are compressed with {by} ({file}): decompress them beside their index first: "
            f"{command} {folder}/{Path(str(file)).name}"
        )
    hashes = {str(k): str(v) for k, v in hashes.items()} if isinstance(hashes, dict) else {}
    shard = SampleShard.open(folder, name, entry.get("samples"), hashes)
    if shard.file.size != raw.get("bytes"):
        raise SourceError(
            f"{shard.file.path}: has {shard.file.size:,} bytes, index.json says {raw.get('bytes')!r:.40}: get the "
            "shard again"
        )
    try:
        own = json.loads(shard.head)
    except (ValueError, RecursionError) as exc:
        raise SourceError(
            f"{shard.file.path}: the JSON before its samples is damaged: {exc}: get the shard again"
        ) from exc
    if _columns(shard.file.path, own if isinstance(own, dict) else {}) != said:
        raise SourceError(f"{shard.file.path}: has other columns than index.json says: get the shard again")
    return shard
