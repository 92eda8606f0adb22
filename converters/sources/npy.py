"""Reads arrays of NumPy: an .npy file, an .npz archive, or a folder of .npy files with as many rows."""

from __future__ import annotations

import io
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.arrays import ArraysOf, RowArray, array_source
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.converters.sources.zip_members import ZipMember, ZipMembers, inflated, open_members
from fastio.errors import SourceError, StoreError
from fastio.store.files import ByteSource, open_file
from fastio.store.kinds.scan import Problem, SourcePath
from fastio.types.bfloat16 import is_bfloat16
from fastio.types.npy import read_npy_header

__all__ = [
    "array_lengths",
    "open_npy",
    "parse_npy",
    "read_numbers_header",
]


_KIND = "npy"  # of sources
_MOST_HEADER = 1 << 17  # bytes of an array's header


def open_npy(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open arrays with a row for each sample, called by the names of their files: ``x`` and ``y``.

    ``--field`` may name further .npy files, relative to ``--root`` or to the folder. Nothing is unpickled.
    """
    path = place.path
    if path.lower().endswith(".npz"):
        return array_source(place, _npz(path), options)
    folder = options.root or (path if place.is_folder else str(Path(path).parent))
    files = _files(path) if place.is_folder else [path]
    for choice in options.fields:
        further = os.path.join(folder, choice.where.removesuffix(".npy") + ".npy")  # noqa: PTH118 - as the user wrote it
        if not any(os.path.samefile(further, each) for each in files if Path(further).exists()):  # noqa: PTH121
            files.append(further)
    fields = tuple(replace(choice, where=choice.where.removesuffix(".npy")) for choice in options.fields)
    arrays, left_out, disk_bytes = [], [], 0
    for each in files:
        file = _opened(each)
        name = os.path.relpath(each, folder).removesuffix(".npy")
        array = _in_file(file, name)
        disk_bytes += Path(each).stat().st_blocks * 512
        if isinstance(array, Problem):
            left_out.append(array)
        else:
            arrays.append(array)
    found = ArraysOf(_KIND, arrays, left_out, disk_bytes, files)
    return array_source(place, found, replace(options, fields=fields))


def array_lengths(folder: str, names: Sequence[str]) -> set[int]:
    """Return the numbers of rows of these files; -1 for one that has none."""
    lengths = set()
    for name in names:
        try:
            with Path(folder, name).open("rb") as file:
                shape, _, _ = read_numbers_header(file)
            lengths.add(shape[0] if shape else -1)
        except (OSError, ValueError):
            lengths.add(-1)
    return lengths


def _files(folder: str) -> list[str]:
    found = sorted(str(each) for each in Path(folder).iterdir() if each.suffix == ".npy" and each.is_file())
    if not found:
        raise SourceError(f"{folder}: holds no .npy file")
    return found


def _opened(path: str) -> ByteSource:
    try:
        return open_file(path)
    except StoreError as exc:
        raise SourceError(str(exc)) from exc


def _in_file(file: ByteSource, name: str) -> RowArray | Problem:
    with Path(file.path).open("rb") as handle:
        shape, is_fortran, dtype, start = _header(file.path, handle, file.size)
    return _row_array(file, name, shape, dtype, start, is_fortran=is_fortran)


def _header(path: str, handle: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    try:
        shape, is_fortran, dtype = read_numbers_header(handle)
    except ValueError as exc:
        raise SourceError(f"{path}: cannot be read as .npy: {' '.join(str(exc).split())[:200]}") from exc
    start = handle.tell()
    expected = start + math.prod(shape) * dtype.itemsize
    if expected != size:
        raise SourceError(
            f"{path}: its header promises {dtype} {shape}, which ends at byte {expected:,}, but it has {size:,}: copy "
            "or save it again"
        )
    return shape, is_fortran, dtype, start


def _row_array(
    file: ByteSource, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], start: int, *, is_fortran: bool
) -> RowArray | Problem:
    if not shape:
        return Problem(name, "is a single value, not one per sample")
    raw = file.read(start, start + math.prod(shape) * dtype.itemsize)
    rows = raw.view(dtype).reshape(shape, order="F" if is_fortran else "C")
    is_plain = not is_fortran or len(shape) == 1
    if is_plain and not dtype.str.startswith(">"):
        return RowArray(name, shape, dtype, rows.__getitem__, file, start)
    return RowArray(name, shape, dtype, rows.__getitem__, unfit="" if is_plain else "are in Fortran order")


def _npz(path: str) -> ArraysOf:
    members = open_members(path)
    arrays, left_out = [], []
    names = [each.name for each in members.files]
    if len(set(names)) < len(names):
        raise SourceError(f"{path}: has a member twice: save it again")
    for member in members.files:
        name = member.name.removesuffix(".npy")
        if not member.name.endswith(".npy"):
            left_out.append(Problem(member.name, "is not a .npy file"))
            continue
        if member.problem:
            raise SourceError(f"{path}: {member.name}: {member.problem}")
        array = _in_member(path, members, member, name)
        if isinstance(array, Problem):
            left_out.append(array)
        else:
            arrays.append(array)
    return ArraysOf(_KIND, arrays, left_out, Path(path).stat().st_blocks * 512, [path])


def _in_member(path: str, members: ZipMembers, member: ZipMember, name: str) -> RowArray | Problem:
    """An array of an archive: in place if it is stored, otherwise inflated into an unnamed file on disk."""
    file, start, unfit = members.file, member.start, ""
    title = f"{path}: {member.name}"
    if not member.is_stored:
        file, start, unfit = _unpacked(title, members.file, member), 0, "are compressed"
    head = file.read(start, start + min(member.size, _MOST_HEADER)).tobytes()
    shape, is_fortran, dtype, header = _header(title, io.BytesIO(head), member.size)
    array = _row_array(file, name, shape, dtype, start + header, is_fortran=is_fortran)
    if member.is_stored and not isinstance(array, Problem):
        _check(title, members.file, member)
    return array if isinstance(array, Problem) else replace(array, unfit=array.unfit or unfit)


def _check(title: str, file: ByteSource, member: ZipMember) -> None:
    """Compare a stored member with its checksum: its rows are read one by one afterwards, which compares nothing."""
    try:
        for _ in inflated(file, member):
            pass
    except ValueError as exc:
        raise SourceError(f"{title}: {exc}: save or copy it again") from exc


def _unpacked(title: str, file: ByteSource, member: ZipMember) -> ByteSource:
    with tempfile.NamedTemporaryFile(prefix="fastio-") as spool:
        try:
            for piece in inflated(file, member):
                spool.write(piece)
            spool.flush()
        except ValueError as exc:
            raise SourceError(f"{title}: {exc}") from exc
        except OSError as exc:
            raise SourceError(f"{title}: cannot be inflated in {Path(spool.name).parent}: {exc.strerror}") from exc
        return open_file(spool.name, "map")  # the mapping outlives the name


# Reads .npy files: headers without their data, and data that must have the size that the header says.


def read_numbers_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """As ``read_npy_header``, which raises ValueError, too, for arrays of anything but numbers."""
    shape, is_fortran, dtype = read_npy_header(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects: save numbers instead")
    if dtype.kind not in "biufc" and not is_bfloat16(dtype):
        raise ValueError(f"it holds {dtype}, expected numbers")
    return shape, is_fortran, dtype


def parse_npy(data: bytes) -> NDArray[Any]:
    """Return the array in the bytes of a .npy file, little endian. Raises ValueError that says what is wrong."""
    file = io.BytesIO(data)
    shape, is_fortran, dtype = read_numbers_header(file)
    start, size = file.tell(), math.prod(shape) * dtype.itemsize
    if len(data) - start != size:
        raise ValueError(f"its header promises {size:,} bytes of {dtype} {shape}, but {len(data) - start:,} follow")
    array = np.frombuffer(data, dtype, offset=start).reshape(shape, order="F" if is_fortran else "C")
    return np.ascontiguousarray(array.astype(dtype.newbyteorder("<"), copy=False)).reshape(shape)
