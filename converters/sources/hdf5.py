"""Reads HDF5 files of other programs: datasets with a row for each sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.arrays import ArraysOf, RowArray, array_source
from fastio.converters.sources.hdf5_places import Located, rows_at, values_at
from fastio.converters.sources.listed import Indices, ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.converters.sources.source import LARGE_BYTES, check_memory, size_problem
from fastio.errors import SourceError, StoreError
from fastio.store.files import ByteSource, open_file
from fastio.store.kinds.scan import Problem, SourcePath

if TYPE_CHECKING:
    import h5py

__all__ = [
    "open_hdf5",
]


_KIND = "hdf5"  # of sources
_SEAL_MAGIC = b"\x89fastio\n"

_Rows = Callable[[Indices], NDArray[Any]]


def open_hdf5(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open the datasets of a file as arrays, called by their paths: ``train/x``.

    Those that are contiguous and little endian are read where they lie, others by h5py. Chunks that nothing has
    compressed, and values of any length, can be read in place as well: see ``hdf5_places``. Links to other files are
    not followed.
    """
    import h5py

    path = place.path
    with _named(path, "cannot be read as HDF5"):
        file = open_file(path)
        h5 = h5py.File(path, "r")
    arrays: list[RowArray] = []
    left_out: list[Problem] = []

    def add(name: str | bytes, item: object) -> None:
        if isinstance(name, bytes):  # not UTF-8
            name = name.decode("utf-8", "backslashreplace")
        if isinstance(item, h5py.Dataset):
            reason = _reason_to_leave_out(file, item)
            heap = values_at(file, item) if not reason and item.dtype.kind == "O" else None
            if not reason and item.dtype.kind == "O" and item.size and heap is None and item.shape[1:] == ():
                reason = "holds values of any length whose places cannot be checked: write them anew with h5py"
            if reason:
                left_out.append(Problem(name, reason))
            else:
                arrays.append(_array(file, name, item, heap))

    with _named(path, "is damaged"):
        if "header" in h5 and "metadata" in h5 and file.read(0, 8).tobytes()[1:5] in (b"fast", _SEAL_MAGIC[1:5]):
            raise SourceError(f"{path}: was packed by fastio, but is damaged: pack its source again")
        h5.visititems(add)
    found = ArraysOf(_KIND, arrays, left_out, Path(path).stat().st_blocks * 512, [path])
    with _named(path, "is damaged"):  # values are read that tell types and names of classes
        return array_source(place, found, options)


@contextmanager
def _named(path: str, sentence: str) -> Iterator[None]:
    """Turn what h5py raises for damaged files, which is of many types, into a SourceError that names the file."""
    try:
        yield
    except SourceError:
        raise
    except (ArithmeticError, LookupError, OSError, RuntimeError, StoreError, TypeError, ValueError) as exc:
        reason = " ".join(str(exc).split())[:200] or type(exc).__name__
        raise SourceError(f"{path}: {sentence} ({reason}): copy or download it again") from exc


def _reason_to_leave_out(file: ByteSource, dataset: h5py.Dataset) -> str:
    """Why a dataset is no array of samples; "" if it may be one."""
    import h5py

    if dataset.shape is None or not dataset.shape:
        return "is a single value, not one per sample"
    if dataset.is_virtual or dataset.external:
        return "has its values in other files: copy them into this one"
    if dataset.dtype.kind == "V":
        return f"holds {dataset.dtype}, which is neither numbers nor strings"
    if dataset.dtype.kind == "O" and dataset.dtype.metadata and "ref" in dataset.dtype.metadata:
        return "holds references"
    base = h5py.check_vlen_dtype(dataset.dtype)
    if base is not None and np.dtype(base).str.startswith(">"):
        return (
            "holds big-endian numbers of any length, whose bytes h5py returns swapped: save them as little-endian ones"
        )
    size = _unit_bytes(dataset)
    if size > LARGE_BYTES and (problem := size_problem(size, min(dataset.id.get_storage_size(), file.size))):
        return f"{problem}: it was never written"
    return ""


def _unit_bytes(dataset: h5py.Dataset) -> int:
    """The bytes that reading one row takes: those of the row, or of the chunk that it lies in."""
    row, chunk = math.prod(dataset.shape[1:]), math.prod(dataset.chunks or ())
    return int(max(row, chunk) * dataset.dtype.itemsize)


def _array(file: ByteSource, name: str, dataset: h5py.Dataset, heap: Located | None) -> RowArray:
    """The array of a dataset; ``heap`` says where its values lie, if they are of any length."""
    import h5py

    shape, dtype = tuple(map(int, dataset.shape)), np.dtype(dataset.dtype)
    is_string = h5py.check_string_dtype(dtype) is not None
    plain = np.dtype(dtype.str) if dtype.kind != "O" else np.dtype("O")
    rows = _reader(file.path, name, dataset)
    start = _start(file, dataset, shape, plain)
    if start is not None:
        return RowArray(name, shape, plain, rows, file, start)
    located = heap
    if heap is not None:
        rows = _checked(rows, heap)
        located = None if _unfit(dataset) else heap
    elif dtype.kind not in "SU" and not dtype.str.startswith(">"):
        located = rows_at(file, dataset)
    return RowArray(
        name, shape, plain, rows, is_string=is_string, containers=[file.path], located=located, unfit=_unfit(dataset)
    )


def _unfit(dataset: h5py.Dataset) -> str:
    """Why rows do not lie in the file as they are, in words that follow "its values"; "" for other reasons."""
    if dataset.id.get_create_plist().get_nfilters():
        return f"are {'compressed' if dataset.compression else 'filtered'} in chunks"
    return "are cut into chunks" if dataset.chunks and dataset.chunks[1:] != dataset.shape[1:] else ""


def _start(file: ByteSource, dataset: h5py.Dataset, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int | None:
    """Where the rows lie in the file, if they lie there one after the other and whole."""
    if dataset.chunks is not None or dtype.kind not in "biufc" or dtype.str.startswith(">"):
        return None
    start, size = dataset.id.get_offset(), int(np.prod(shape)) * dtype.itemsize
    return int(start) if start is not None and size and start + size <= file.size else None


def _checked(rows: _Rows, located: Located) -> _Rows:
    """
    Return a function that reads rows of any length if the heap that holds them is sound. It raises ValueError if not:
    HDF5 does not return from reading a heap whose objects have sizes that make no sense.
    """

    def checked(indices: Indices) -> NDArray[Any]:
        if located(indices) is None:
            raise ValueError("the file's heap does not hold it: the file is damaged")
        return rows(indices)

    return checked


def _reader(path: str, name: str, dataset: h5py.Dataset) -> _Rows:
    """
    How to read rows: a slice at once, other rows in ascending order, as h5py wants them. What h5py raises for damaged
    ones is left to the caller; SourceError means that memory cannot hold them.
    """

    def rows(indices: Indices) -> NDArray[Any]:
        if not len(indices):
            return np.empty((0, *dataset.shape[1:]), dataset.dtype)
        first, count = int(indices[0]), len(indices)
        size = count * math.prod(dataset.shape[1:]) * int(dataset.dtype.itemsize)
        try:
            check_memory(max(size, _unit_bytes(dataset)))
            if np.array_equal(indices, np.arange(first, first + count)):
                return np.asarray(dataset[first : first + count])
            ascending, positions = np.unique(indices, return_inverse=True)
            return np.asarray(dataset[ascending])[positions]
        except MemoryError as exc:
            raise SourceError(
                f"{path}: there is not enough memory for {count:,} rows of {name} ({size:,} bytes): free some, or "
                "choose other arrays by --field"
            ) from exc

    return rows
