"""Recognises datasets in formats of other libraries; of those that fastio does not read, says how to pack them."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["INDEX_NAME", "ShardEntry", "indexed_format", "library_of", "shards_in"]

INDEX_NAME = "index.json"


_RECORD_IO = struct.pack("<I", 0xCED7230A)  # before every record
_MATLAB = b"MATLAB 5.0 MAT-file"
_ORC, _AVRO = b"ORC", b"Obj\x01"
_HEAD_BYTES = 128
_LARGEST_INDEX = 1 << 30  # of index.json that is read
_MDS, _LITDATA = "mds", "litdata"
_READ = (_MDS, _LITDATA)  # formats that fastio reads, given the folder

_BY_SUFFIX = {
    ".beton": ("a dataset of FFCV", "its Loader"),
    ".rec": ("a RecordIO file of MXNet", "mxnet.recordio.MXIndexedRecordIO"),
    ".mds": ("a shard of MosaicML streaming", ""),
    ".mat": ("a file of MATLAB", "scipy.io.loadmat, or h5py from version 7.3 on"),
    ".array_record": ("an ArrayRecord file", "grain's ArrayRecordDataSource"),
    ".arrayrecord": ("an ArrayRecord file", "grain's ArrayRecordDataSource"),
    ".orc": ("an ORC table", "pyarrow.orc; written as Parquet, fastio packs it"),
    ".avro": ("an Avro file", "fastavro"),
    ".pt": ("a file of torch.save", "torch.load"),
    ".pth": ("a file of torch.save", "torch.load"),
    ".safetensors": ("tensors of safetensors", "safetensors.numpy.load_file"),
}
_BY_CONTENT = ((_RECORD_IO, ".rec"), (_MATLAB, ".mat"), (_ORC, ".orc"), (_AVRO, ".avro"))


def library_of(path: str) -> str:
    """
    Return what the file or folder ``path`` is and what to do, in words that follow "is"; "" if it is not known.

    Folders are told by their ``index.json``, files by their first bytes or their names.
    """
    if Path(path).is_dir():
        return _of_energon(path) or _of_index(indexed_format(path))
    if not Path(path).is_file():
        return ""
    if Path(path).name == INDEX_NAME:
        return _of_index(indexed_format(str(Path(path).parent)))
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return ""
    suffix = next((suffix for mark, suffix in _BY_CONTENT if head.startswith(mark)), Path(path).suffix.lower())
    return _words(*_BY_SUFFIX[suffix]) if suffix in _BY_SUFFIX else ""


def indexed_format(folder: str) -> str:
    """
    Return whose shards the ``index.json`` in a folder lists: "mds", or another format of MosaicML Streaming, or
    "litdata"; "" if there is none, or none that can be read. One beside shards of MDS is that of MDS, also if it is
    damaged, which whoever opens it says.
    """
    path = Path(folder, INDEX_NAME)
    try:
        index = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= _LARGEST_INDEX else None
    except OSError:
        return ""
    except (ValueError, RecursionError):
        index = None
    found = _format_of(index) if isinstance(index, dict) else ""
    return found or (_MDS if any(Path(folder).glob(f"*.{_MDS}")) else "")


def _format_of(index: dict[str, Any]) -> str:
    shards, chunks = index.get("shards"), index.get("chunks")
    if isinstance(shards, list) and all(isinstance(each, dict) and "format" in each for each in shards) and shards:
        return str(shards[0]["format"])
    return _LITDATA if isinstance(chunks, list) and isinstance(index.get("config"), dict) else ""


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A shard in a list: ``name``, and ``index``, an ``index.json`` that lists it alone; "" where there is none."""

    name: str
    index: str = ""
    is_empty: bool = False


def shards_in(raw: bytes) -> list[ShardEntry]:
    """Return the shards that the bytes of an ``index.json`` list, if it is of a format that is read; else none."""
    try:
        index = json.loads(raw)
    except (ValueError, RecursionError):
        return []
    found = _format_of(index) if isinstance(index, dict) else ""
    if found not in _READ:
        return []
    is_chunk = found == _LITDATA
    listed, count, title = ("chunks", "chunk_size", "filename") if is_chunk else ("shards", "samples", "basename")
    entries = list[ShardEntry]()
    for each in index[listed]:
        file = each if is_chunk else each.get("raw_data")
        name = file.get(title) if isinstance(file, dict) else None
        if not isinstance(name, str):
            return []
        entries.append(ShardEntry(name, json.dumps({**index, listed: [each]}), each.get(count) == 0))
    return entries


def _of_energon(folder: str) -> str:
    """What a folder with Energon's notes is: shards of tar below it, which are stores by themselves."""
    if not Path(folder, ".nv-meta").is_dir():
        return ""
    first = min((str(each) for each in Path(folder).rglob("*.tar")), default="")
    if not first:
        return "a dataset of Energon without tar shards, of which fastio reads none but these"
    return (
        f"a dataset of Energon, whose tar shards are read where they lie: name their folder, {Path(first).parent}, or "
        "the shards of one part, as .nv-meta/split.yaml lists them, by a pattern: 'NAME-{000000..000009}.tar'"
    )


def _of_index(found: str) -> str:
    return (
        _words(f"a dataset of MosaicML streaming ({found})", "streaming.LocalDataset")
        if found and found not in _READ
        else ""
    )


def _words(what: str, reader: str) -> str:
    if not reader:
        return f"{what}, which its folder holds with the others: name that"
    return (
        f"{what}, which fastio does not read: read its samples with {reader}, and write them with fastio.pack or "
        "fastio.Writer, or pack the files that it was made from"
    )
