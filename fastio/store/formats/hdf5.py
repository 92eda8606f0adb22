"""
Writes HDF5 files whose payload lies in one contiguous dataset, and the seal in the user block.

    0       user block of 4096 bytes: the seal (128 bytes), then zeros
    4096    superblock 3, root group (checksummed metadata, as of HDF5 1.10)
    O       dataset ``data``: uint8, the payload of all samples and fields, one after the other
    ...     datasets ``<field>_starts`` and ``_sizes`` (within ``data``), ``_checksums``, ``_shapes``, ``_intervals``,
            the columns (``label``), ``keys``, ``metadata`` and ``header`` (JSON), all contiguous, little endian,
            aligned to 8

When the only payload field is raw, of a fixed shape, ``data`` gives way to the classical dataset of that name,
``(count, *shape)``. When it is token ids, ``data`` is called as the field is (``tokens``), a dataset of uint16 or
uint32, and ``tokens_starts`` and ``tokens_sizes`` count ids: sample i is ``f["tokens"][start : start + size]``.
Strings of numpy's kind ``U`` are uint32 code points in one axis more, zeros at the end: ``(count, 3)`` for ``<U3``.
Fields of lists have ``<field>_counts``, how many elements a sample has; ``<field>_starts`` and ``_sizes`` are then
those of all elements, sample after sample.
``keys`` are strings of fixed width, unless a few long ones would make that wasteful: then UTF-8 joined by NUL.
Anybody reads it:

    with h5py.File(path) as f:
        start, size = f["image_starts"][i], f["image_sizes"][i]
        image, label, key = f["data"][start : start + size].tobytes(), f["label"][i], f["keys"].asstr()[i]
        mask = f["data"][f["mask_starts"][i] :][: f["mask_sizes"][i]].tobytes()  # any further field likewise

The payload is written before its size is known: from O on, straight to the file. At the end h5py writes the
metadata around it, through a file object, with a dataset that is allocated at once and never filled. O is learned
from a rehearsal in memory and compared with where the dataset really came to lie.

A store of two samples with labels 0 and 1, "a.png" with the bytes "first" and "b.png" with "2nd", as HDF5 2.0
writes it (here O is 11c8; other versions may place it elsewhere):

    0000  89 66 61 73 74 69 6f 0a  01 00 00 00 68 64 66 35   the seal, see seal.py: version 1, "hdf5",
    0010  02 00 00 00 00 00 00 00  e1 1c 00 00 00 00 00 00   2 samples, 1ce1 bytes,
    0020  00 00 00 00 00 00 00 00  c8 11 00 00 00 00 00 00   seal at 0, head of 11c8 bytes
    1000  89 48 44 46 0d 0a 1a 0a  03 08 08 00 00 10 00 00   superblock 3; base address 1000
    1030  4f 48 44 52 02 00 78 02                            object header of the root group
    1057  01 00 04 64 61 74 61 b8  00                        link "data", at b8 from the base address on
    10b8  4f 48 44 52 02                                     object header of "data"
    10f2  03 01 c8 01 00 00 00 00  00 00 08 00 00 00         contiguous, at 1c8 from the base on, 8 bytes
    11c8  66 69 72 73 74 32 6e 64                            "first" "2nd"
    11d0  4f 48 44 52 02                                     object header of "image_starts"
    12e0  00 00 00 00 00 00 00 00  05 00 00 00 00 00 00 00   image_starts: 0, 5
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.errors import StoreError
from fastio.store.formats.format import (
    Columns,
    Ending,
    Format,
    Lists,
    Values,
    all_values,
    has_many_fields,
    imports,
    listed_names,
    of_bytes,
    readers,
    sample_order,
)
from fastio.store.index.arrays import IndexArray
from fastio.store.index.seal import SEAL_SIZE, Place, always_at, byte_view, unsealed_regions
from fastio.store.write.atomic import PartialFile, pwrite_all
from fastio.store.write.spool import Rows, array_bytes, blocks_of
from fastio.types.schema import Schema
from fastio.types.spans import Spans

if TYPE_CHECKING:
    import h5py
    from h5py import h5p

__all__ = [
    "FORMAT",
    "Hdf5Writer",
]


USER_BLOCK = 4096
_ALIGNMENT = 8
_READ_BYTES = 4 << 20
_MAGIC = b"\x89HDF\r\n\x1a\n"


class Hdf5Writer:
    """Streams values after the space for the metadata; h5py describes them at the end."""

    def __init__(self, file: PartialFile, schema: Schema) -> None:
        payload = schema.payload
        raw = payload[0] if len(payload) == 1 and payload[0].traits.is_array else None
        typed = raw or schema.flat
        self._file = file
        self._name = typed.name if typed else "data"
        shape = tuple(int(size or 0) for size in raw.shape) if raw else ()
        self._dtype, self._shape = _described(np.dtype(typed.dtype if typed else "|u1"), shape)
        self._is_flat = raw is None
        self._fields = payload
        self._starts: dict[str, list[NDArray[np.int64]]] = {field.name: [] for field in payload}
        self._count = 0
        self._base = _rehearse(self._name, self._dtype.str, self._shape)
        file.skip(self._base)

    @property
    def base(self) -> int:
        """Where the payload begins: O of the module's docstring."""
        return self._base

    def append(self, keys: Sequence[str], values: Values, columns: Columns, lists: Lists) -> None:
        """Write samples: the payload fields one after the other, of lists the elements."""
        every = all_values(self._fields, values, lists)
        self._count += len(keys)
        if not every or not keys:
            return
        if lists and len(every) > 1:
            self._append_in_order(every, values, lists)
            return
        fields = list(every.values())
        sizes = np.stack([spans.sizes for spans in fields], axis=1)
        ends = self._file.size - self._base + np.cumsum(sizes).reshape(sizes.shape)
        for name, starts in zip(every, (ends - sizes).T, strict=True):
            self._starts[name].append(starts)
        if len(fields) == 1:
            views = fields[0].runs().views()
        else:
            views = [value for sample in zip(*(spans.views() for spans in fields), strict=True) for value in sample]
        for value in views:
            self._file.write(value)

    def _append_in_order(self, every: Mapping[str, Spans], values: Values, lists: Lists) -> None:
        """Write samples whose values differ in number."""
        views = {name: spans.views() for name, spans in every.items()}
        starts = {name: np.empty(len(spans), np.int64) for name, spans in every.items()}
        for field, position, _ in sample_order(self._fields, values, lists):
            starts[field.name][position] = self._file.size - self._base
            self._file.write(views[field.name][position])
        for name, each in starts.items():
            self._starts[name].append(each)

    def take_starts(self) -> dict[str, NDArray[np.int64]]:
        """Return where values lie within ``data``: known when they are appended."""
        none = np.empty(0, np.int64)
        taken = {name: np.concatenate([none, *starts]) for name, starts in self._starts.items()}
        self._starts = {name: [] for name in taken}
        return taken

    def end_payload(self) -> None:
        """Do nothing: nothing is gathered."""

    def finish(self, arrays: Mapping[str, Rows], header: Callable[[Mapping[str, Place]], bytes]) -> Ending:
        """Let h5py write its metadata and the index around the payload."""
        self._file.flush()
        stop = self._file.size
        around = _AroundPayload(self._file.fd, self._base, stop)
        size = stop - self._base
        shape = (size // self._dtype.itemsize,) if self._is_flat else (self._count, *self._shape)
        places: dict[str, Place] = {}
        try:
            with _create(around) as h5:
                self._describe(h5, shape, size)
                for name, each in arrays.items():
                    places[name] = _dataset(h5, name, each)
                encoded = header(places)
                header_start = _dataset(h5, "header", IndexArray(np.frombuffer(encoded, np.uint8))).start
        except (RuntimeError, ValueError) as exc:  # what h5py raises for libhdf5's failures
            raise StoreError(f"{self._file.path}: libhdf5 failed to write metadata ({exc}); nothing was kept") from exc
        except SystemError as exc:
            raise _failed_write(exc) from exc
        file_size = os.fstat(self._file.fd).st_size
        regions = unsealed_regions(file_size=file_size, seal_start=0, head_size=self._base)
        file_crc = self._file.crc
        for start, stop_ in ((max(start, stop), stop_) for start, stop_ in regions if start >= self._base):
            for part in _read(self._file.fd, start, stop_):
                file_crc = crc32(part, file_crc)
        head = b"".join(_read(self._file.fd, SEAL_SIZE, self._base))
        return Ending(
            file_size=file_size,
            seal_start=0,
            head_size=self._base,
            header_start=header_start,
            header_size=len(encoded),
            header_crc=crc32(encoded),
            head_crc=crc32(head),
            file_crc=crc32(head, file_crc),
        )

    def release(self) -> None:
        """There are no temporary files."""

    def _describe(self, h5: h5py.File, shape: tuple[int, ...], size: int) -> None:
        start = _payload(h5, self._name, shape=shape, dtype=self._dtype)
        if size and start != self._base:
            import h5py

            raise StoreError(
                f"{self._file.path}: expected HDF5 to place the payload at byte {self._base}, got {start}; nothing "
                f"was kept; please report this with the version of libhdf5, {h5py.version.hdf5_version}"
            )


def _failed_write(error: SystemError) -> BaseException:
    """
    Return the OSError behind what Python 3.13 raises where h5py calls back once more after a failed write.

    Return ``error`` itself if there is none.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return error if cause is None else cause


class _AroundPayload(io.RawIOBase):
    """
    A file as libhdf5 sees it: empty at first (it would look for a superblock otherwise), the payload out of reach.
    """

    def __init__(self, fd: int, start: int, stop: int) -> None:
        self._fd, self._start, self._stop = fd, start, stop
        self._at = self._end = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}
        self._at = bases[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._fd, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def write(self, data: Any) -> int:
        size = len(data)
        if self._at < self._stop and self._at + size > self._start:
            raise RuntimeError(f"libhdf5 writes {size} bytes at {self._at}, into the payload")
        pwrite_all(self._fd, data, self._at)
        self._at += size
        self._end = max(self._end, self._at)
        return size

    def truncate(self, size: int | None = None) -> int:
        size = self._at if size is None else size
        if size < self._stop:
            raise RuntimeError(f"libhdf5 cuts the file to {size} bytes, the payload ends at {self._stop}")
        os.ftruncate(self._fd, size)
        self._end = size
        return size

    # Spelled out, not inherited: h5py asks for it while an error is pending; Python then finds only names of the
    # class itself, and the user would see an error about this name.
    def flush(self) -> None:
        pass

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


@cache
def _rehearse(name: str, dtype: str, shape: tuple[int, ...]) -> int:
    """Return where the first dataset will lie; it does not depend on the number of samples."""
    with _create(io.BytesIO()) as h5:
        return _payload(h5, name, shape=(1, *shape), dtype=np.dtype(dtype))


def _create(target: Any) -> h5py.File:
    """Create an HDF5 file on a Python file object: no times, metadata with checksums, arrays aligned."""
    import h5py
    from h5py import h5f, h5fd, h5p

    creation = h5p.create(h5p.FILE_CREATE)
    creation.set_userblock(USER_BLOCK)
    creation.set_obj_track_times(False)
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fileobj_driver(h5fd.fileobj_driver, target)
    access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
    access.set_alignment(1, _ALIGNMENT)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    return h5py.File(h5f.create(b"fastio", h5f.ACC_TRUNC, creation, access))


def _payload(h5: h5py.File, name: str, *, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Describe bytes that are already there, and return where libhdf5 expects them."""
    from h5py import h5d, h5s, h5t

    space = h5s.create_simple(shape)
    dataset = h5d.create(h5.id, name.encode("ascii"), h5t.py_create(dtype), space, _contiguous())
    return int(dataset.get_offset() or 0)


def _dataset(h5: h5py.File, name: str, values: Rows) -> Place:
    """Write an index array, and return where it lies."""
    from h5py import h5d, h5s, h5t

    dtype, shape = _described(values.dtype, values.shape)
    kind = h5t.py_create(dtype)
    if name == "keys" and dtype.kind == "S":
        kind.set_cset(h5t.CSET_UTF8)
    space = h5s.create_simple(shape)
    dataset = h5d.create(h5.id, name.encode("ascii"), kind, space, _contiguous())
    first = crc = 0
    for block in blocks_of(values):
        raw = byte_view(block)
        crc = crc32(raw, crc)
        part = raw.view(dtype).reshape(len(block), *shape[1:])
        space.select_hyperslab((first, *(0 for _ in shape[1:])), part.shape)
        dataset.write(h5s.create_simple(part.shape), space, part, mtype=kind)
        first += len(block)
    start = int(dataset.get_offset()) if array_bytes(values) else 0
    return Place(start, values.dtype.str, values.shape, crc)


def _described(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """
    Return how to describe an array to HDF5: it has no strings of UTF-32, so they become code points in one more axis.
    """
    if dtype.kind != "U":
        return dtype, shape
    return np.dtype("<u4"), (*shape, dtype.itemsize // 4)


def _contiguous() -> h5p.PropDCID:
    from h5py import h5d, h5p

    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_layout(h5d.CONTIGUOUS)
    creation.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5d.FILL_TIME_NEVER)
    creation.set_obj_track_times(False)
    return creation


def _read(fd: int, start: int, stop: int) -> Iterator[bytes]:
    while start < stop:
        part = os.pread(fd, min(_READ_BYTES, stop - start), start)
        if not part:
            raise OSError(f"file ends at {start}, expected {stop}")
        yield part
        start += len(part)


def _overhead(_schema: Schema) -> str:
    return "index and key of each sample; HDF5 keeps the bytes themselves without gaps"


def _lines_of_lists(schema: Schema) -> list[str]:
    """Lines that make lists of the elements of fields of lists."""
    if not schema.lists:
        return []
    return [
        f"    for name in {listed_names(schema)}:",
        '        counts, left = f[name + "_counts"][:].tolist(), iter(fields[name])',
        "        fields[name] = [list(itertools.islice(left, count)) for count in counts]",
    ]


def _reader_of_many(schema: Schema) -> str:
    columns = ", ".join(f'"{field.name}": f["{field.name}"][:]' for field in schema.columns)
    lines = [
        *readers(schema, {field.name: of_bytes(field) for field in schema.payload}),
        "with h5py.File(path) as f:",
        '    spans = {name: zip(f[name + "_starts"][:], f[name + "_sizes"][:]) for name in read}',
        '    bytes_of = lambda name: (f["data"][start : start + size].tobytes() for start, size in spans[name])',
        "    fields = {name: list(map(read[name], bytes_of(name))) for name in read}",
        *_lines_of_lists(schema),
        *([f"    columns = {{{columns}}}"] if columns else []),
        "samples = [dict(zip(fields, values)) for values in zip(*fields.values())]",
    ]
    return "\n".join([imports(lines, "h5py"), *lines, ""])


def _plain_reader(schema: Schema) -> str:
    if has_many_fields(schema):
        return _reader_of_many(schema)
    field = schema.payload[0]
    spans = f'spans = zip(f["{field.name}_starts"][:], f["{field.name}_sizes"][:])'
    data = 'f["data"][start : start + size].tobytes()'
    lines = ["with h5py.File(path) as f:"]
    if schema.flat is not None:
        lines += [spans, f'samples = [f["{field.name}"][start : start + size] for start, size in spans]']
    elif schema.is_text:
        lines += [spans, f"samples = [{data}.decode() for start, size in spans]"]
    elif len(schema.payload) == 1 and field.traits.is_array:
        lines.append(f'images = f["{field.name}"][:]')
    else:
        lines += [spans, f"images = [{data} for start, size in spans]"]
    if "label" in schema:
        lines.append('labels = f["label"][:]')
    return "import h5py\n" + "\n    ".join(lines) + "\n"


FORMAT = Format(
    name="hdf5",
    suffixes=(".h5", ".hdf5"),
    file="an HDF5 file",
    good_for="least overhead on disk, scientific tools",
    writer=Hdf5Writer,
    seal_at=always_at(0),
    overhead=_overhead,
    plain_reader=_plain_reader,
    marks=tuple((start, _MAGIC) for start in (0, 512, 1024, 2048, USER_BLOCK)),  # behind user blocks
    fixed_keys=True,
    numbered_keys=lambda schema: True,
)
