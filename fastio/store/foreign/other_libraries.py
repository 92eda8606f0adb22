"""Recognises datasets in formats of other libraries that fastio does not read, and says how to pack them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

__all__ = [
    "library_of",
]


_RECORD_IO = struct.pack("<I", 0xCED7230A)  # before every record
_MATLAB = b"MATLAB 5.0 MAT-file"
_ORC, _AVRO = b"ORC", b"Obj\x01"
_HEAD_BYTES = 128
_LARGEST_INDEX = 64 << 20  # of index.json that is read

_BY_SUFFIX = {
    ".beton": ("a dataset of FFCV", "its Loader"),
    ".rec": ("a RecordIO file of MXNet", "mxnet.recordio.MXIndexedRecordIO"),
    ".mds": ("a shard of MosaicML streaming", "streaming.LocalDataset, given its folder"),
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
        return _of_index(_index(Path(path, "index.json")))
    if not Path(path).is_file():
        return ""
    if Path(path).name == "index.json":
        return _of_index(_index(Path(path)))
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return ""
    suffix = next((suffix for mark, suffix in _BY_CONTENT if head.startswith(mark)), Path(path).suffix.lower())
    return _words(*_BY_SUFFIX[suffix]) if suffix in _BY_SUFFIX else ""


def _index(path: Path) -> Any:
    """The object in an ``index.json``; None if there is none that can be read."""
    try:
        if path.stat().st_size > _LARGEST_INDEX:
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _of_index(index: Any) -> str:
    if not isinstance(index, dict):
        return ""
    shards, chunks = index.get("shards"), index.get("chunks")
    if isinstance(shards, list) and all(isinstance(each, dict) and "format" in each for each in shards) and shards:
        return _words(f"a dataset of MosaicML streaming ({shards[0]['format']})", "streaming.LocalDataset")
    if isinstance(chunks, list) and isinstance(index.get("config"), dict):
        return _words("a dataset of LitData", "litdata.StreamingDataset")
    return ""


def _words(what: str, reader: str) -> str:
    return (
        f"{what}, which fastio does not read: read its samples with {reader}, and write them with fastio.pack or "
        "fastio.Writer, or pack the files that it was made from"
    )
