"""What a file is that cannot be packed, by its first bytes and its name, and what to do instead."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

__all__ = ["container_of_others", "folder_kind", "kind_of"]

_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".rar")
_BY_SUFFIX = {
    ".tfrecord": "a TFRecord file",
    ".tfrecords": "a TFRecord file",
    ".beton": "a store of FFCV",
    ".rec": "a RecordIO file of MXNet",
    ".mds": "a shard of MosaicML streaming",
    ".npy": "an array of NumPy",
    ".npz": "an archive of NumPy",
    ".mat": "a file of MATLAB",
    ".mdb": "an LMDB file",
    ".lmdb": "a file with the name of an LMDB file that is none",
    ".h5": "a file with the name of an HDF5 file that is none",
    ".hdf5": "a file with the name of an HDF5 file that is none",
}
_LMDB_MAGIC, _LMDB_MAGIC_AT = b"\xde\xc0\xef\xbe", 16
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_HDF5_PLACES = (0, 512, 1024, 2048, 4096)
_INSTEAD = "write its samples to files or to tar shards with the library that made it, and pack those"


def kind_of(path: str) -> str:
    """What lies under ``path``, which is no folder, and what to do; words that follow "found"."""
    if not Path(path).exists():
        return "nothing"
    return container_of_others(path) or "a file"


def container_of_others(path: str) -> str:
    """The same of a file that another program packed or compressed; "" for what is not known to be one."""
    if not Path(path).is_file():
        return ""
    if path.endswith(_COMPRESSED):
        return "a compressed file: decompress it first, then pack the .tar or the folder in it"
    known = _by_content(path) or _BY_SUFFIX.get(Path(path).suffix.lower())
    return f"{known}, which fastio did not pack: {_INSTEAD}" if known else ""


def folder_kind(names: Collection[str]) -> str:
    """What a folder with these files is, if it is none of a data set's; words that follow "found"."""
    if "data.mdb" in names:
        return f"an LMDB environment, which fastio did not pack: {_INSTEAD}"
    return ""


def _by_content(path: str) -> str:
    with Path(path).open("rb") as file:
        head = file.read(_HDF5_PLACES[-1] + len(_HDF5_MAGIC))
    if head[_LMDB_MAGIC_AT:].startswith(_LMDB_MAGIC):
        return "an LMDB file"
    return "an HDF5 file" if any(head[place:].startswith(_HDF5_MAGIC) for place in _HDF5_PLACES) else ""
