"""
Files of token ids that other programs wrote, opened in place: rows of ids, those of llm.c, ``.npy``, Megatron's.

Megatron's ``.bin`` is one long row of ids. The ``.idx`` beside it, little endian, n sequences in m - 1 documents::

    0   9 bytes      4d 4d 49 44 49 44 58 00 00, "MMIDIDX" and two zeros
    9   uint64       1, the version
    17  uint8        type of an id: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16
    18  uint64       n
    26  uint64       m
    34  int32 (n,)   ids of each sequence
        int64 (n,)   the byte of the .bin at which it begins
        int64 (m,)   the first sequence of each document, and n
        int8 (n,)    the mode of each sequence; mostly left out

llm.c's ``.bin`` has a header of 256 int32 before its ids: a magic number, the version, and how many ids follow.
"""

from __future__ import annotations

import ast
import glob
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError, StoreCorrupt, StoreError, StoreNotFound
from fastio.store.files import ByteSource, Read, open_file
from fastio.store.files.local import is_local
from fastio.types.spans import distinct

__all__ = [
    "CONTINUES",
    "ID_DTYPES",
    "MEGATRON_CODES",
    "RUN_BYTES",
    "STREAM",
    "TokenFile",
    "check_ids",
    "find_token_files",
    "id_dtype",
    "is_row_of_ids",
    "keeps_stream",
    "megatron_index",
    "not_found",
    "open_token_file",
]

ID_DTYPES: Final = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")
MEGATRON_MAGIC: Final = b"MMIDIDX\x00\x00"
MEGATRON_VERSION: Final = 1
MEGATRON_CODES: Final = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
_MEGATRON_FLOATS: Final = {6: "float64", 7: "float32"}
_MEGATRON_HEAD = 34
# Magic number and version in the header of llm.c's files, and the type of their ids.
_LLM_C: Final = {(20240520, 1): "uint16", (20240801, 7): "uint32"}
_LLM_C_HEAD = 1024
_SUFFIXES = (".bin", ".npy")

# Of a stream that is sealed in a store: a record in its metadata, and the column that is 1 where a sample goes on with
# the document of the one before.
STREAM: Final = "stream"
CONTINUES: Final = "continues"
# The most bytes of ids in a sample of a stream. Whoever reads a window compares whole samples with their checksums, so
# they are small; the index has some 50 bytes for each, so they are not smaller.
RUN_BYTES: Final = 8192


def keeps_stream(metadata: Mapping[str, Any]) -> bool:
    """Return whether a store is a stream: ids that were sealed, or text that was packed as one (``--concat``)."""
    options = (metadata.get("tokenizer") or {}).get("options") or {}
    return isinstance(metadata.get(STREAM), Mapping) or options.get("over") == "concat"


@dataclass(frozen=True, slots=True)
class TokenFile:
    """
    A file of ``count`` ids from byte ``start`` on. ``documents`` are the ids at which documents begin, int64,
    ascending, without empty ones; None: the file does not say.
    """

    source: ByteSource
    start: int
    count: int
    dtype: np.dtype[Any]
    documents: NDArray[np.int64] | None = None


def id_dtype(wish: object) -> np.dtype[Any]:
    """Return the dtype of ids that a user named. Raises TypeError or ValueError for one that holds none."""
    dtype: np.dtype[Any] | None = None
    with suppress(TypeError):
        dtype = np.dtype(wish)  # type: ignore[call-overload] # whatever the user passes
    if dtype is None or dtype.name not in ID_DTYPES or dtype.byteorder == ">":
        raise ValueError(f"dtype={wish!r}: expected one of {', '.join(map(repr, ID_DTYPES))}, little endian")
    return dtype


def find_token_files(path: str) -> list[str] | None:
    """
    Return the files that a path stands for: a file, Megatron's prefix, a pattern with ``*``, or the files of a folder
    in the order of their names; None where it names none of them. Of Megatron's, the ``.bin`` is returned.

    Raises SchemaError for a folder of several kinds.
    """
    if not is_local(path):
        return [path] if path.endswith(_SUFFIXES) else None
    if glob.has_magic(path) and not os.path.lexists(path):
        found = sorted(each for each in glob.glob(path) if each.endswith(_SUFFIXES))  # noqa: PTH207 - as the user wrote it
        return _of_one_kind(path, found) if found else None
    if Path(path).is_dir():
        found = sorted(str(each) for each in Path(path).iterdir() if each.suffix in _SUFFIXES)
        return _of_one_kind(path, found) if found else None
    if path.endswith(".idx"):
        return [path.removesuffix(".idx") + ".bin"]
    if path.endswith(_SUFFIXES):
        return [path]
    return [path + ".bin"] if all(Path(path + suffix).is_file() for suffix in (".bin", ".idx")) else None


def _of_one_kind(path: str, files: list[str]) -> list[str]:
    kinds = {_kind(file): file for file in reversed(files)}
    if len(kinds) > 1:
        named = " and ".join(f"{name} ({Path(file).name})" for name, file in sorted(kinds.items()))
        raise SchemaError(
            f"{path}: has {named}: expected files of one kind: name some by a pattern such as 'train-*.bin'"
        )
    return files


def _kind(file: str) -> str:
    if file.endswith(".npy"):
        return ".npy"
    return "Megatron's .bin and .idx" if Path(_index_of(file)).is_file() else ".bin without .idx"


def _index_of(file: str) -> str:
    return file.removesuffix(".bin") + ".idx"


def open_token_file(path: str, *, dtype: object = None, read: Read = "auto") -> TokenFile:
    """
    Open one file, and compare it with its own index: size, type, documents.

    ``dtype`` is that of a ``.bin`` that says nothing about its ids; of others, what is expected. Raises StoreNotFound,
    StoreCorrupt for a file that is cut short or contradicts its index, and SchemaError for one that holds no row of
    ids or ids of another type.
    """
    wish = None if dtype is None else id_dtype(dtype)
    source = open_file(path, read)
    if path.endswith(".npy"):
        opened = _npy(source)
    elif is_local(path) and Path(_index_of(path)).is_file():
        opened = _megatron(source, open_file(_index_of(path), read))
    else:
        return _with_header(source, wish) or _plain(source, wish)
    return _as_wished(opened, wish)


def _as_wished(file: TokenFile, wish: np.dtype[Any] | None) -> TokenFile:
    if wish is not None and wish != file.dtype:
        raise SchemaError(f"{file.source.path}: its ids are {file.dtype}, not {wish}: leave dtype= out")
    return file


def _plain(source: ByteSource, dtype: np.dtype[Any] | None) -> TokenFile:
    path = source.path
    if dtype is None:
        raise SchemaError(
            f"{path}: a .bin does not say what its ids are: pass dtype='uint16' (--dtype uint16), for up to "
            "65,536 different ids, as nanoGPT's for GPT-2, or 'uint32'"
        )
    count, rest = divmod(source.size, dtype.itemsize)
    if rest:
        raise StoreCorrupt(
            f"{path}: {source.size} bytes are no whole ids of {dtype}: it is cut short, or dtype= is another"
        )
    return _checked(TokenFile(source, 0, count, dtype))


def _with_header(source: ByteSource, wish: np.dtype[Any] | None) -> TokenFile | None:
    """Return a file of llm.c; None if it is none."""
    if source.size < _LLM_C_HEAD:
        return None
    magic, version, count = (int(each) for each in source.read(0, 12).view("<i4"))
    name = _LLM_C.get((magic, version))
    if name is None:
        return None
    dtype = np.dtype(name)
    expected = _LLM_C_HEAD + count * dtype.itemsize
    if source.size != expected:
        raise StoreCorrupt(
            f"{source.path}: its header says {count} ids of {dtype}, {expected} bytes, but the file has {source.size}: "
            "copy it again"
        )
    return _as_wished(_checked(TokenFile(source, _LLM_C_HEAD, count, dtype)), wish)


def is_row_of_ids(path: str) -> bool:
    """Whether a .npy has one axis of whole numbers; False for what cannot be read."""
    try:
        return open_token_file(path).count > 0
    except StoreError:
        return False
    except SchemaError:
        return False


def _npy(source: ByteSource) -> TokenFile:
    """Open a .npy of NumPy's format 1.0 to 3.0: magic, version, length of the header, header, array."""
    path, head = source.path, source.read(0, min(12, source.size)).tobytes()
    if head[:6] != b"\x93NUMPY" or len(head) < 12 or head[6] not in (1, 2, 3):
        raise StoreCorrupt(f"{path}: is no .npy file of NumPy: it does not begin as one")
    first = 10 if head[6] == 1 else 12
    start = first + int.from_bytes(head[8:first], "little")
    if start > source.size:
        raise StoreCorrupt(f"{path}: is cut short within its header, at {source.size} bytes: copy it again")
    try:
        header = ast.literal_eval(source.read(first, start).tobytes().decode())
        descr, shape = np.dtype(header["descr"]), tuple(map(int, header["shape"]))
    except (ValueError, SyntaxError, TypeError, KeyError) as exc:
        raise StoreCorrupt(f"{path}: has no header of NumPy's ({exc}): copy it again") from exc
    if len(shape) != 1 or descr.name not in ID_DTYPES or descr.byteorder == ">":
        raise SchemaError(
            f"{path}: holds {descr} of shape {shape}: expected one axis of ids, of {', '.join(ID_DTYPES)}: rows of "
            "one length are one axis after reshape(-1)"
        )
    expected = start + shape[0] * descr.itemsize
    if source.size != expected:
        raise StoreCorrupt(
            f"{path}: its header says {shape[0]} ids of {descr}, {expected} bytes, but the file has {source.size}: "
            "copy it again"
        )
    return _checked(TokenFile(source, start, shape[0], descr))


def _megatron(source: ByteSource, index: ByteSource) -> TokenFile:
    path = index.path
    head = index.read(0, min(_MEGATRON_HEAD, index.size)).tobytes()
    if head[:9] != MEGATRON_MAGIC or len(head) < _MEGATRON_HEAD:
        raise StoreCorrupt(f"{path}: is no index of Megatron's: it does not begin with MMIDIDX, or is cut short")
    version = int.from_bytes(head[9:17], "little")
    if version != MEGATRON_VERSION:
        raise StoreError(f"{path}: an index of version {version}: expected {MEGATRON_VERSION}")
    code = head[17]
    if code not in MEGATRON_CODES:
        words = _MEGATRON_FLOATS.get(code, f"an unknown type ({code})")
        raise SchemaError(f"{path}: its values are {words}: expected ids, such as uint16 (8) or int32 (4)")
    dtype = np.dtype(MEGATRON_CODES[code])
    sequences, bounds = (int.from_bytes(head[at : at + 8], "little") for at in (18, 26))
    expected = _MEGATRON_HEAD + 12 * sequences + 8 * bounds
    if index.size not in (expected, expected + sequences):
        raise StoreCorrupt(
            f"{path}: says {sequences} sequences and {bounds} borders of documents, {expected} bytes, but has "
            f"{index.size}: copy it again"
        )
    at = _MEGATRON_HEAD
    sizes = index.read(at, at + 4 * sequences).view("<i4")
    pointers = index.read(at + 4 * sequences, at + 12 * sequences).view("<i8")
    borders = index.read(at + 12 * sequences, expected).view("<i8")
    _check_sequences(source, path, dtype, sizes, pointers)
    firsts = np.append(pointers // dtype.itemsize, source.size // dtype.itemsize)
    if len(borders) == 0 or borders[0] != 0 or borders[-1] != sequences or (np.diff(borders) < 0).any():
        raise StoreCorrupt(
            f"{path}: its documents do not begin with sequence 0, ascend and end with {sequences}: write it again"
        )
    starts = firsts[borders]
    documents = starts[:-1][np.diff(starts) > 0]
    return _checked(TokenFile(source, 0, source.size // dtype.itemsize, dtype, documents))


def megatron_index(lengths: NDArray[np.int64], dtype: np.dtype[Any]) -> list[bytes]:
    """
    Return the index of documents of these lengths, each of one sequence, in parts.

    >>> b"".join(megatron_index(np.array([3]), np.dtype("uint16")))[:18]
    b'MMIDIDX\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x08'
    """
    if len(lengths) and int(lengths.max()) > np.iinfo(np.int32).max:
        raise SchemaError(
            f"a document of {lengths.max()} ids: Megatron's index counts in int32: write a .bin without it"
        )
    code = next(code for code, name in MEGATRON_CODES.items() if name == dtype.name)
    numbers = np.array([MEGATRON_VERSION], "<u8").tobytes(), np.array([len(lengths), len(lengths) + 1], "<u8").tobytes()
    ends = np.cumsum(lengths, dtype=np.int64) * dtype.itemsize
    return [
        MEGATRON_MAGIC + numbers[0] + bytes([code]) + numbers[1],
        lengths.astype("<i4").tobytes(),
        np.append(0, ends[:-1])[: len(lengths)].astype("<i8").tobytes(),
        np.arange(len(lengths) + 1, dtype="<i8").tobytes(),
    ]


def _check_sequences(
    source: ByteSource, path: str, dtype: np.dtype[Any], sizes: NDArray[np.int32], pointers: NDArray[np.int64]
) -> None:
    """Raise StoreCorrupt unless the sequences fill the .bin, one after the other."""
    ends = np.cumsum(sizes, dtype=np.int64) * dtype.itemsize
    wrong = np.flatnonzero((sizes < 0) | (pointers != np.append(0, ends[:-1])[: len(ends)]))
    if len(wrong):
        number = int(wrong[0])
        expected = int(ends[number - 1]) if number else 0
        raise StoreCorrupt(
            f"{path}: sequence {number} has {sizes[number]} ids from byte {pointers[number]} on: expected 0 or more "
            f"from byte {expected} on, where the one before ends: write it again"
        )
    total = int(ends[-1]) if len(ends) else 0
    if total != source.size:
        state = "is cut short" if source.size < total else "is longer"
        raise StoreCorrupt(
            f"{source.path}: {state}: has {source.size} bytes, but {Path(path).name} says {total}, of "
            f"{len(sizes)} sequences of {dtype}: copy both again"
        )


def _checked(file: TokenFile) -> TokenFile:
    if file.count == 0:
        raise StoreCorrupt(f"{file.source.path}: has no ids: leave it out, or write it again")
    return file


def check_ids(files: Sequence[TokenFile], vocab_size: int) -> None:
    """
    Raise SchemaError, with file and position, if an id among some from all over each file is not below ``vocab_size``.

    The others are compared when they are read. Ids of another dtype are mostly noticed here.
    """
    for file in files:
        for first in distinct(np.linspace(0, max(0, file.count - _LOOKED_AT), _PLACES).astype(np.int64)).tolist():
            stop = min(first + _LOOKED_AT, file.count)
            size = file.dtype.itemsize
            ids = file.source.read(file.start + first * size, file.start + stop * size).view(file.dtype)
            wrong = np.flatnonzero((ids < 0) | (ids.astype(np.int64) >= vocab_size))
            if len(wrong):
                place = int(wrong[0])
                raise SchemaError(
                    f"{file.source.path}: token {first + place} is {ids[place]}, read as {file.dtype}, but "
                    f"vocab_size={vocab_size} has ids 0 to {vocab_size - 1}: is dtype= another, or the tokenizer?"
                )


_LOOKED_AT = 4096  # ids at each place
_PLACES = 16


def not_found(path: str) -> StoreNotFound:
    """Return what is raised for a path that names nothing."""
    return StoreNotFound(
        f"{path}: no tokens there: expected a .bin, a .npy, the prefix of Megatron's .bin and .idx, a folder of these, "
        "or a store that fastio packed"
    )
