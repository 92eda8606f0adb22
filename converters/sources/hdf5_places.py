"""
Where the rows of HDF5 datasets lie in their file: in chunks without filters, and, of any length, in the global heap.
Filters of values of any length change their references alone, which are read through a copy of each chunk in memory.

A dataset of values of any length holds a reference for each, little endian:

    uint32 elements | address of a heap collection (8 bytes) | uint32 object

A collection is "GCOL", version 1, three bytes, uint64 size; then objects of uint16 number, uint16 references, four
bytes, uint64 size and their bytes up to a multiple of eight. The object 0 is free space, whose size counts its header.
Nothing here is trusted: a row cannot be located if an address or a size leaves the file, or if objects do not fill
their collection.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastio.store.files import ByteSource

if TYPE_CHECKING:
    import h5py

__all__ = ["Located", "rows_at", "values_at"]

Located = Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], NDArray[np.int64]] | None]

_ADDRESS_BYTES = 8
_REFERENCE = np.dtype([("count", "<u4"), ("address", "<u8"), ("object", "<u4")])
_BYTES = f"|V{_REFERENCE.itemsize}"
_COLLECTION = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HH4xQ")
_NO_ADDRESS = (1 << 64) - 1


def rows_at(file: ByteSource, dataset: h5py.Dataset) -> Located | None:
    """
    Return where rows of a fixed size lie, if each lies whole in a chunk that no filter has changed.

    The function returns starts and sizes. None: they do not, or some chunk was never written.
    """
    row_bytes = math.prod(dataset.shape[1:]) * int(dataset.dtype.itemsize)
    starts = _row_starts(file, dataset, row_bytes)
    if starts is None:
        return None
    return lambda indices: (starts[indices], np.full(len(indices), row_bytes, np.int64))


def values_at(file: ByteSource, dataset: h5py.Dataset) -> Located | None:
    """
    Return where the values of any length of a dataset lie, if its references can be read.

    The function returns starts and sizes; None if one of these values cannot be located. It raises OSError for chunks
    whose filters refuse them.
    """
    sizes = tuple(dataset.file.id.get_create_plist().get_sizes())
    if sizes != (_ADDRESS_BYTES, _ADDRESS_BYTES) or len(dataset.shape) != 1:
        return None
    starts, element_bytes = _row_starts(file, dataset, _REFERENCE.itemsize), _element_bytes(dataset)
    if not element_bytes or (starts is None and dataset.chunks is None and not _is_unwritten(dataset)):
        return None
    heap = _Heap(file, int(dataset.file.userblock_size), element_bytes)

    def located(indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        if starts is None:
            return heap.places(_references(dataset, indices))
        raw = b"".join(file.read(at, at + _REFERENCE.itemsize).tobytes() for at in starts[indices].tolist())
        return heap.places(np.frombuffer(raw, _REFERENCE))

    return located


def _is_unwritten(dataset: h5py.Dataset) -> bool:
    """Whether nothing was ever written to a dataset without chunks."""
    import h5py

    is_apart = dataset.id.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS
    return is_apart and dataset.id.get_offset() is None


def _references(dataset: h5py.Dataset, indices: NDArray[np.int64]) -> NDArray[np.void]:
    """The references of rows in chunks that are filtered, or not all there: those never written have no elements."""
    found = np.zeros(len(indices), _REFERENCE)
    if dataset.chunks is None:
        return found
    rows = dataset.chunks[0]
    for number in np.unique(indices // rows).tolist():
        first = (number * rows,)
        if dataset.id.get_chunk_info_by_coord(first).byte_offset is not None:
            here = indices // rows == number
            found[here] = _unfiltered(dataset, first)[indices[here] - first[0]]
    return found


def _unfiltered(dataset: h5py.Dataset, first: tuple[int]) -> NDArray[np.void]:
    """
    The references of the chunk that begins at a row, behind its filters: as bytes of a dataset in memory, whose values
    HDF5 does not follow.
    """
    import h5py

    given, made = dataset.id.get_create_plist(), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk(dataset.chunks)
    skipped, raw = dataset.id.read_direct_chunk(first)
    for i in range(given.get_nfilters()):
        if not skipped >> i & 1:  # as shuffle and szip are, which take no values of any length
            code, flags, values, _ = given.get_filter(i)
            made.set_filter(code, flags, values)
    with h5py.File("references", "w", driver="core", backing_store=False) as memory:
        space, opaque = h5py.h5s.create_simple(dataset.chunks), h5py.h5t.py_create(np.dtype(_BYTES))
        copy = h5py.h5d.create(memory.id, b"x", opaque, space, made)
        copy.write_direct_chunk((0,), raw)
        read = np.empty(dataset.chunks, _BYTES)
        copy.read(h5py.h5s.ALL, h5py.h5s.ALL, read, opaque)
    return read.view(_REFERENCE)


def _element_bytes(dataset: h5py.Dataset) -> int:
    """The bytes of one element of a value of any length; 0 if elements are of any length themselves."""
    import h5py

    base = h5py.check_vlen_dtype(dataset.dtype)
    if base is None or base in (str, bytes):  # of strings
        return 1
    return 0 if np.dtype(base).hasobject else int(np.dtype(base).itemsize)


def _row_starts(file: ByteSource, dataset: h5py.Dataset, row_bytes: int) -> NDArray[np.int64] | None:
    """Where each row begins; None if rows are cut, filtered, or not all there."""
    count = int(dataset.shape[0])
    if dataset.id.get_create_plist().get_nfilters():
        return None
    if dataset.chunks is None:
        start = dataset.id.get_offset()
        starts = None if start is None else int(start) + row_bytes * np.arange(count)
    else:
        starts = _chunked(dataset, count, row_bytes)
    if starts is None or not count or (starts < 0).any() or int(starts.max()) > file.size - row_bytes:
        return None
    return starts


def _chunked(dataset: h5py.Dataset, count: int, row_bytes: int) -> NDArray[np.int64] | None:
    rows, *rest = dataset.chunks
    if tuple(rest) != tuple(dataset.shape[1:]):
        return None
    found = dataset.id.get_num_chunks()
    if found != -(-count // rows):
        return None
    chunk_starts = np.full(found, -1, np.int64)
    for number in range(found):
        info = dataset.id.get_chunk_info(number)
        if info.byte_offset is None or info.filter_mask:
            return None
        chunk_starts[info.chunk_offset[0] // rows] = info.byte_offset
    at = np.arange(count)
    starts: NDArray[np.int64] = chunk_starts[at // rows] + at % rows * row_bytes
    return None if (chunk_starts < 0).any() else starts


@dataclass(frozen=True, slots=True)
class _Heap:
    """The global heap of a file, whose addresses begin at ``base``; elements of values have ``element_bytes``."""

    file: ByteSource
    base: int
    element_bytes: int

    def places(self, references: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Return starts and sizes of the values that these refer to; None if one is not there."""
        starts = np.zeros(len(references), np.int64)
        sizes = references["count"].astype(np.int64) * self.element_bytes
        collections: dict[int, dict[int, tuple[int, int]]] = {}
        for i, (count, address, number) in enumerate(references.tolist()):
            if not count:
                continue
            if address not in collections:
                collections[address] = {} if address == _NO_ADDRESS else self._objects(self.base + address)
            start, size = collections[address].get(number, (0, -1))
            if size != sizes[i]:
                return None
            starts[i] = start
        return starts, sizes

    def _objects(self, at: int) -> dict[int, tuple[int, int]]:
        """
        Start and size of each object of a collection, by its number; nothing if there is no collection, or if its
        objects do not fill it.
        """
        found: dict[int, tuple[int, int]] = {}
        if at + _COLLECTION.size > self.file.size:
            return found
        magic, version, size = _COLLECTION.unpack(self.file.read(at, at + _COLLECTION.size).tobytes())
        end = at + size
        if magic != b"GCOL" or version != 1 or end > self.file.size:
            return found
        at += _COLLECTION.size
        while at + _OBJECT.size <= end:
            number, _, size = _OBJECT.unpack(self.file.read(at, at + _OBJECT.size).tobytes())
            if number:
                found[number] = at + _OBJECT.size, size
                at += _OBJECT.size + -(-size // 8) * 8
            elif size >= _OBJECT.size:  # of free space, which counts this header
                at += size
            else:
                return {}
        return found if at <= end else {}
