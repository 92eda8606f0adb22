"""
Writes zip archives of stored members, which zipfile, numpy and every file manager read: the index is members too.

    dog/0001.jpg                a local header, then the bytes: the member is called as the sample's key
    dog/0001.jpg.mask.png       any further picture: its field's name, and the extension of its content
    dog/0001.jpg.depth.npy      RAW, RAGGED: an npy file, the span points behind its header; ARRAY: the whole file
    dog/0001.jpg.images.0.jpg   the elements of a field of lists, ``images.0.jpg``, ``images.1.jpg`` and so on
    dog/0001.jpg.caption        BYTES, by the name of the field; .caption.txt: TEXT; .objects.json: JSON; .ids.npy:
                                TOKENS beside others
    ...                         all samples, each a run of members, in order
    __fastio__/<array>.npy      the index arrays, columns such as ``label`` among them
    __fastio__/header.json
    __fastio__/seal             128 bytes; they end where the central directory begins
    central directory           an entry for each member
    end record                  22 bytes: where the central directory begins

The first IMAGE, without one the first MASK or TEXT, keeps its key as its name. Keys that would be another path when
extracted, or no name at all, are replaced by ``__odd__/`` and the sample's number; the original keys are in the index.
Token ids that are the only payload are one flat array in pieces, as in LMDB: members ``tokens/<number of the first
sample>.npy`` of up to 1 MiB.

Sizes and offsets from 4 GiB and more than 65534 members have ZIP64 records. Arrays begin at a multiple of 64, by the
extra field of Android's zipalign. The directory's entry of the seal needs the CRC-32 of the seal, which holds that of
the directory: bytes that end with their own CRC-32 all have the CRC-32 2144df1c. All times are 1 January 1980.

A store of two samples with labels 0 and 1, "a.png" with the bytes "first" and "b.png" with "2nd" (abridged):

    0000  50 4b 03 04 14 00 00 00  00 00 00 00 21 00         local header: version 2.0, stored, 1980-01-01
    000e  57 ee 71 92 05 00 00 00  05 00 00 00 05 00 00 00   CRC-32, 5 bytes, name of 5, no extra field
    001e  61 2e 70 6e 67 66 69 72  73 74                     "a.png" "first"
    0028  50 4b 03 04 14 00 00 00  00 00 00 00 21 00         local header
    0046  62 2e 70 6e 67 32 6e 64                            "b.png" "2nd"
    004e  50 4b 03 04 14 00 00 00  00 00 00 00 21 00         local header
    005c  d4 7b 51 4f 90 00 00 00  90 00 00 00 1b 00 39 00   144 bytes, name of 27, extra field of 57
    006c  5f 5f 66 61 73 74 69 6f  5f 5f 2f 69 6d 61 67 65   "__fastio__/image_starts.npy"
    0087  35 d9 35 00 40 00 00 00  00 00 00 00 00 00 00 00   zipalign: 53 bytes, aligned to 64, zeros
    00c0  93 4e 55 4d 50 59 01 00  76 00 7b 27 64 65 73 63   npy header of 128 bytes
    0140  23 00 00 00 00 00 00 00  4b 00 00 00 00 00 00 00   image_starts: 23, 4b
    08bf  1c df 44 21 80 00 00 00  80 00 00 00 0f 00 00 00   CRC-32 of any seal, 128 bytes, name of 15
    08cf  5f 5f 66 61 73 74 69 6f  5f 5f 2f 73 65 61 6c      "__fastio__/seal"
    08de  89 66 61 73 74 69 6f 0a  01 00 00 00 7a 69 70 00   the seal, see seal.py
    095e  50 4b 01 02 14 03 14 00  00 00 00 00 00 00 21 00   entry of the central directory, by Unix
    096e  57 ee 71 92 05 00 00 00  05 00 00 00 05 00 00 00   as in the local header
    097e  00 00 00 00 00 00 00 00  a4 81 00 00 00 00         a file of mode 644; its local header lies at 0
    098c  61 2e 70 6e 67                                     "a.png"
    0bea  50 4b 05 06 00 00 00 00  0a 00 0a 00 8c 02 00 00   end record: 10 entries, 28c bytes
    0bfa  5e 09 00 00 00 00                                  from 95e on; no comment
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import add

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32, image_kind
from fastio.errors import SchemaError
from fastio.store.formats.format import (
    NPY,
    Columns,
    Ending,
    Format,
    Lists,
    TokenPieces,
    Values,
    all_values,
    element_suffix,
    has_many_fields,
    imports,
    listed_names,
    main_picture,
    npy_prefix,
    readers,
)
from fastio.store.index.arrays import IndexArray
from fastio.store.index.seal import SEAL_SIZE, Place, ReadBytes, counts_name
from fastio.store.write.atomic import PartialFile
from fastio.store.write.keys import UniqueNames, key_pieces
from fastio.store.write.spool import Rows, Spool, array_bytes, crc_of, write_array
from fastio.types.npy import npy_header
from fastio.types.picture_kinds import PICTURE_KINDS
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "FORMAT",
    "ZipWriter",
    "cut_zip",
]


INDEX_FOLDER = "__fastio__/"
_SEAL_NAME = (INDEX_FOLDER + "seal").encode("ascii")
_SEAL_CRC = 0x2144DF1C  # of anything that ends with its own CRC-32
_ALIGNMENT = 64
_ELSEWHERE_32, _ELSEWHERE_16 = 0xFFFFFFFF, 0xFFFF  # in the place of a number: the ZIP64 record has it
_WIDE, _MANY = _ELSEWHERE_32, _ELSEWHERE_16  # sizes, offsets and counts from which on there is one
_KEYS_BYTES = 1 << 18  # of the samples whose directory entries are made at a time
_MAX_NAME = 65535

_LOCAL = struct.Struct("<4s5H3I2H")  # needed, flags, method, time, date | CRC, sizes | lengths of name and extra
_ENTRY = struct.Struct("<4s6H3I5H2I")  # made by, ... as above ... | comment, disk, attributes 2, 4 | local header
_END = struct.Struct("<4s4H2IH")  # disks, entries here and in all | size and offset of the directory | comment
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR_64 = struct.Struct("<4sIQI")
_LOCAL_MAGIC, _ENTRY_MAGIC, _END_MAGIC = b"PK\3\4", b"PK\1\2", b"PK\5\6"
_END_64_MAGIC, _LOCATOR_64_MAGIC = b"PK\6\6", b"PK\6\7"
_MOST_END = _END.size + 65535  # bytes of an end record with its comment
_DATE = 1 << 5 | 1
_UNIX, _REGULAR = 3 << 8, 0o100644 << 16
_UTF8 = 1 << 11
_ALIGN_ID = 0xD935

# A path that is absolute, leaves its folder, or is not the same everywhere; folders of our own.
_ODD = re.compile(r"[\x00-\x1f\x7f\\]|(?:^|/)\.{0,2}(?:/|$)|^__(?:fastio|odd)__/")
_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,8}\Z")


def _extension(kind: int) -> str:
    """Return the extension of a picture of this kind; "" for what is not one."""
    return PICTURE_KINDS[kind].suffix if kind else ""


@dataclass(frozen=True, slots=True)
class _Member:
    """What the central directory says about a member."""

    name: bytes
    start: int  # of the local header
    size: int
    crc: int


class ZipWriter:
    """Writes each sample as members; the central directory is made from the index and little more."""

    base = 0

    def __init__(self, file: PartialFile, schema: Schema) -> None:
        self._file = file
        self._flat = None if schema.flat is None else TokenPieces(schema.flat.name, self._write_piece, page=1, header=0)
        self._id_dtype = "" if schema.flat is None else schema.flat.dtype
        self._fields = [field for field in schema.payload if field is not schema.flat]
        self._suffixes = _Suffixes(self._fields)
        self._names = _Names(is_alone=self._suffixes.is_alone, beside=file.path)
        self._starts: dict[str, list[int]] = {field.name: [] for field in self._fields}
        self._kinds = {name: Spool(np.uint8, beside=file.path) for name in self._suffixes.pictures}
        # CRC-32s of members that begin with a header, which are not those of values
        self._crcs = {f.name: Spool(np.uint32, beside=file.path) for f in self._fields if npy_prefix(f, 0)}
        self._pieces: list[_Member] = []

    def append(self, keys: Sequence[str], values: Values, columns: Columns, lists: Lists) -> None:
        """Write samples: payload fields in the schema's order, of lists the elements."""
        if self._flat is not None:
            self._flat.append(values[self._flat.name])
        if not self._fields:
            return
        every = all_values(self._fields, values, lists)
        kinds_of = {}
        for name, kinds in self._kinds.items():
            views = every[name].views()
            kinds_of[name] = np.fromiter(map(image_kind, views), np.uint8, len(views))
            kinds.append(kinds_of[name])
        suffixes = self._suffixes.of(len(keys), kinds_of, {name: each.counts for name, each in lists.items()})
        names = iter(self._names.of(keys, suffixes))
        contents = {field.name: iter(self._contents(field, every[field.name])) for field in self._fields}
        counts = {name: each.counts.tolist() for name, each in lists.items()}
        for row in range(len(keys)):
            for field in self._fields:
                for _ in range(counts[field.name][row] if field.is_list else 1):
                    prefix, value, crc = next(contents[field.name])
                    size = len(prefix) + len(value)
                    head = _local_header(next(names), size, crc)
                    self._starts[field.name].append(self._file.size + len(head) + len(prefix))
                    self._file.write_parts((head, prefix, value), len(head) + size)

    def _contents(self, field: Field, spans: Spans) -> list[tuple[bytes, NDArray[np.uint8], int]]:
        """Return what precedes each value of a batch in its member, the value, and the CRC-32 of both."""
        views = spans.views()
        if field.name not in self._crcs:
            checksums = [crc32(view) for view in views] if spans.checksums is None else spans.checksums.tolist()
            return [(b"", view, crc) for view, crc in zip(views, checksums, strict=True)]
        prefixes = [npy_prefix(field, len(view)) for view in views]
        crcs = [crc32(view, crc32(prefix)) for prefix, view in zip(prefixes, views, strict=True)]
        self._crcs[field.name].append(np.array(crcs, np.uint32))
        return list(zip(prefixes, views, crcs, strict=True))

    def take_starts(self) -> dict[str, NDArray[np.int64]]:
        """Return where values lie: known for flat pieces when they are written, for others when they are appended."""
        if self._flat is not None:
            return {self._flat.name: self._flat.take_starts()}
        taken = {name: np.array(starts, np.int64) for name, starts in self._starts.items()}
        self._starts = {name: [] for name in taken}
        return taken

    def end_payload(self) -> None:
        """Write the last piece."""
        if self._flat is not None:
            self._flat.finish()

    def finish(self, arrays: Mapping[str, Rows], header: Callable[[Mapping[str, Place]], bytes]) -> Ending:
        """
        Write the index members, the space for the seal, the central directory and the end record. Raises SchemaError if
        two members have one name.
        """
        self._names.check(self._file.path)
        members: list[_Member] = []
        places: dict[str, Place] = {}
        for name, array in arrays.items():
            self._array(f"{INDEX_FOLDER}{name}.npy", npy_header(array.dtype.str, array.shape), array, members)
            places[name] = write_array(self._file, array)
        encoded = header(places)
        self._array(INDEX_FOLDER + "header.json", b"", _in_memory(encoded), members)
        header_start = self._file.size
        self._file.write(encoded)
        members.append(_Member(_SEAL_NAME, self._file.size, SEAL_SIZE, _SEAL_CRC))
        self._file.write(_local_header(_SEAL_NAME, SEAL_SIZE, _SEAL_CRC))
        seal_start = self._file.size
        self._file.skip(SEAL_SIZE)
        count = 0
        for entries in self._entries(arrays, members):
            self._file.write(b"".join(entries))
            count += len(entries)
        self._file.write(_end_records(count, seal_start + SEAL_SIZE, self._file.size))
        self._file.flush()
        return Ending(
            file_size=self._file.size,
            seal_start=seal_start,
            head_size=0,
            header_start=header_start,
            header_size=len(encoded),
            header_crc=crc32(encoded),
            head_crc=0,
            file_crc=self._file.crc,
        )

    def _entries(self, arrays: Mapping[str, Rows], members: Sequence[_Member]) -> Iterator[list[bytes]]:
        """Yield the central directory, some entries at a time."""
        yield from self._sample_entries(arrays)
        yield [_entry(member) for member in (*self._pieces, *members)]

    def _sample_entries(self, arrays: Mapping[str, Rows]) -> Iterator[list[bytes]]:
        """Yield entries of the samples' members from the index, some at a time; their names are computed again."""
        if not self._fields:
            return
        first = 0
        done = {field.name: 0 for field in self._fields if field.is_list}  # elements of the samples before
        for piece in key_pieces(arrays["keys"], _KEYS_BYTES):
            keys = piece.decode("utf-8", "surrogateescape").split("\0")
            stop = first + len(keys)
            counts = {name: arrays[counts_name(name)].part(first, stop).astype(np.int64) for name in done}
            values = {field.name: (first, stop) for field in self._fields}
            values |= {name: (start, start + int(counts[name].sum())) for name, start in done.items()}
            members = {}
            for field in self._fields:
                own = values[field.name]
                sizes = arrays[f"{field.name}_sizes"].part(*own).tolist()
                prefixes = [len(npy_prefix(field, size)) for size in sizes]
                starts = arrays[f"{field.name}_starts"].part(*own) - prefixes  # of the members' bytes
                known = self._crcs.get(field.name, arrays[f"{field.name}_checksums"]).part(*own).tolist()
                members[field.name] = zip(starts.tolist(), map(add, prefixes, sizes), known, strict=True)
            contents = _in_order(self._fields, members, len(keys), counts)
            kinds = {name: spool.part(*values[name]) for name, spool in self._kinds.items()}
            suffixes = self._suffixes.of(len(keys), kinds, counts)
            yield [
                _entry(_Member(name, start - _local_size(name, size), size, crc))
                for name, (start, size, crc) in zip(self._names.again(first, keys, suffixes), contents, strict=True)
            ]
            first, done = stop, {name: values[name][1] for name in done}

    def _write_piece(self, value: bytearray, size: int) -> int:
        """Write a piece of a flat array, and return where its ids begin."""
        assert self._flat is not None
        name = f"{self._flat.name}/{self._flat.first:010d}.npy"
        count = size // np.dtype(self._id_dtype).itemsize
        self._array(name, npy_header(self._id_dtype, (count,)), _in_memory(value), self._pieces)
        start = self._file.size
        self._file.write(value)
        return start

    def _array(self, name: str, prefix: bytes, value: Rows, members: list[_Member]) -> None:
        """Write a member but for its value, so that this will be aligned, and add it to ``members``."""
        encoded, size, crc = name.encode("ascii"), len(prefix) + array_bytes(value), crc_of(value, crc32(prefix))
        members.append(_Member(encoded, self._file.size, size, crc))
        end = self._file.size + _local_size(encoded, size) + 6 + len(prefix)
        self._file.write(_local_header(encoded, size, crc, padding=-end % _ALIGNMENT) + prefix)

    def release(self) -> None:
        """See ``ShardWriter``."""
        self._names.release()
        for spool in (*self._kinds.values(), *self._crcs.values()):
            spool.close()


class _Names:
    """
    Names the members of samples, each once. Of many names, those of the last million and more are compared at once, and
    ``check`` compares all. Methods may raise OSError.
    """

    def __init__(self, *, is_alone: bool, beside: str) -> None:
        """``is_alone``: samples have one member each, and keys are unique already."""
        self._taken = None if is_alone else UniqueNames(beside=beside)
        self._is_odd = Spool(np.bool_, beside=beside)  # whether the members of a sample are named by its number

    def of(self, keys: Sequence[str], suffixes: Sequence[Sequence[str]]) -> list[bytes]:
        """Return the names of the members of the next samples, sample by sample: of each its key with its suffixes."""
        names: list[bytes] = []
        is_odd = np.zeros(len(keys), np.bool_)
        for row, (key, own) in enumerate(zip(keys, suffixes, strict=True)):
            sample = [] if _ODD.search(key) else _encoded(key, own)
            if own and not (sample and self._are_free(sample)):
                is_odd[row] = True
                sample = _numbered(len(self._is_odd) + row, key, own)
            names += sample
        self._is_odd.append(is_odd)
        return names

    def again(self, first: int, keys: Sequence[str], suffixes: Sequence[Sequence[str]]) -> list[bytes]:
        """Return the names that the samples from this one on have got."""
        names: list[bytes] = []
        is_odd = self._is_odd.part(first, first + len(keys)).tolist()
        for row, (key, own, is_numbered) in enumerate(zip(keys, suffixes, is_odd, strict=True)):
            names += _numbered(first + row, key, own) if is_numbered else _encoded(key, own)
        return names

    def check(self, path: str) -> None:
        """Raise SchemaError if two members have one name."""
        if self._taken is not None and self._taken.repeated() is not None:
            raise SchemaError(
                f"{path}: a key equals that of another sample with the name of a field behind it, such as "
                "a.jpg.mask.png beside a.jpg, and both lie too far apart for fastio to give the second another name: "
                "rename such keys, or pack another format than zip"
            )

    def release(self) -> None:
        """Let temporary files go."""
        self._is_odd.close()
        if self._taken is not None:
            self._taken.close()

    def _are_free(self, names: Sequence[bytes]) -> bool:
        return self._taken is None or self._taken.insert(b"\0".join(names)) is None


def _numbered(number: int, key: str, suffixes: Sequence[str]) -> list[bytes]:
    """Return the names of the members of a sample whose key cannot be theirs."""
    extension = _EXTENSION.search(key)
    return _encoded(f"__odd__/{number:010d}{extension[0] if extension else ''}", suffixes)


def _in_memory(data: bytes | bytearray) -> IndexArray:
    return IndexArray(np.frombuffer(data, np.uint8))


_Value = tuple[int, int, int]  # start, size and CRC-32


def _in_order(
    fields: Sequence[Field],
    values: Mapping[str, Iterator[_Value]],
    count: int,
    counts: Mapping[str, NDArray[np.int64]],
) -> Iterator[_Value]:
    """Yield the values of samples, sample by sample; ``counts`` are those of the elements of lists."""
    if not counts:
        yield from chain.from_iterable(zip(*values.values(), strict=True))
        return
    for row in range(count):
        for field in fields:
            yield from islice(values[field.name], int(counts[field.name][row]) if field.is_list else 1)


def _encoded(stem: str, suffixes: Sequence[str]) -> list[bytes]:
    """Return names with this stem; none if it is not a possible name."""
    try:
        names = [f"{stem}{suffix}".encode() for suffix in suffixes]
    except UnicodeEncodeError:  # a file name that is not UTF-8
        return []
    return names if max(map(len, names), default=0) <= _MAX_NAME else []


class _Suffixes:
    """What the members of samples add to their keys."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        self._plain = _suffixes(fields)
        self._completed = [number for number, suffix in enumerate(self._plain) if suffix.endswith(".")]
        self._has_lists = any(field.is_list for field in fields)
        lists = [field.name for field in fields if field.is_list and field.element.traits.is_picture]
        self.pictures = [*(fields[number].name for number in self._completed), *lists]
        self.is_alone = len(fields) == 1 and not self._has_lists

    def of(
        self, count: int, kinds: Mapping[str, NDArray[np.uint8]], counts: Mapping[str, NDArray[np.int64]]
    ) -> list[list[str]]:
        """
        Return the suffixes of each of ``count`` samples.

        ``kinds`` has the kind of each value of a field in ``pictures``, as ``PICTURE_KINDS`` numbers it, and
        ``counts`` how many elements each sample has in a field of lists.
        """
        every: list[list[str]] = []
        done = dict.fromkeys(counts, 0)
        for row in range(count):
            own = list(self._plain)
            for number in self._completed:
                own[number] = own[number].removesuffix(".") + _extension(int(kinds[self._fields[number].name][row]))
            every.append(self._with_elements(own, row, kinds, counts, done) if self._has_lists else own)
        return every

    def _with_elements(
        self,
        plain: Sequence[str],
        row: int,
        kinds: Mapping[str, NDArray[np.uint8]],
        counts: Mapping[str, NDArray[np.int64]],
        done: dict[str, int],
    ) -> list[str]:
        """Return the suffixes of one sample with those of elements; ``done`` counts the elements before it."""
        suffixes: list[str] = []
        for field, suffix in zip(self._fields, plain, strict=True):
            if not field.is_list:
                suffixes.append(suffix)
                continue
            for position in range(int(counts[field.name][row])):
                kind = int(kinds[field.name][done[field.name]]) if field.name in kinds else 0
                suffixes.append("." + element_suffix(field, position, _extension(kind).removeprefix(".")))
                done[field.name] += 1
        return suffixes


def _suffixes(fields: Sequence[Field]) -> list[str]:
    """
    Return what the members of a sample add to its key: nothing for its main picture or, without pictures, its text.

    Those of further pictures end with a dot.
    """
    plain = main_picture(fields) or next((field for field in fields if field.traits.is_text), None)
    extensions = [
        "." if field.traits.is_picture else f".{field.traits.extension}" if field.traits.extension else ""
        for field in fields
    ]
    return [
        "" if field is plain else f".{field.name}{extension}"  # of lists not used: see ``element_suffix``
        for field, extension in zip(fields, extensions, strict=True)
    ]


def _is_wide(number: int) -> bool:
    return number >= _WIDE


def _narrow(number: int) -> int:
    """Return the number, or the mark for ZIP64, in 32 bits."""
    return _ELSEWHERE_32 if _is_wide(number) else number


def _local_size(name: bytes, size: int) -> int:
    """Return the bytes of a local header without padding."""
    return _LOCAL.size + len(name) + (20 if _is_wide(size) else 0)


def _local_header(name: bytes, size: int, crc: int, *, padding: int | None = None) -> bytes:
    """Return a member's local header; with ``padding``, it has an extra field of 6 bytes and this many zeros."""
    extra = struct.pack("<2H2Q", 1, 16, size, size) if _is_wide(size) else b""
    if padding is not None:
        extra += struct.pack("<3H", _ALIGN_ID, 2 + padding, _ALIGNMENT) + bytes(padding)
    needed, flags = 45 if _is_wide(size) else 20, 0 if name.isascii() else _UTF8
    fields = (needed, flags, 0, 0, _DATE, crc, _narrow(size), _narrow(size), len(name), len(extra))
    return _LOCAL.pack(_LOCAL_MAGIC, *fields) + name + extra


def _entry(member: _Member) -> bytes:
    """Return a member's entry in the central directory."""
    size, start = member.size, member.start
    wide = [*([size, size] if _is_wide(size) else []), *([start] if _is_wide(start) else [])]
    extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    needed, flags = 45 if wide else 20, 0 if member.name.isascii() else _UTF8
    sizes = _narrow(size), _narrow(size), len(member.name), len(extra)
    fields = (_UNIX | needed, needed, flags, 0, 0, _DATE, member.crc, *sizes)
    return _ENTRY.pack(_ENTRY_MAGIC, *fields, 0, 0, 0, _REGULAR, _narrow(start)) + member.name + extra


def _end_records(count: int, start: int, stop: int) -> bytes:
    """Return what follows a central directory of ``count`` entries from ``start`` to ``stop``."""
    size, wide = stop - start, b""
    if count >= _MANY or _is_wide(start) or _is_wide(size):
        wide = _END_64.pack(_END_64_MAGIC, _END_64.size - 12, _UNIX | 45, 45, 0, 0, count, count, size, start)
        wide += _LOCATOR_64.pack(_LOCATOR_64_MAGIC, 0, stop, 1)
    few = _ELSEWHERE_16 if count >= _MANY else count
    return wide + _END.pack(_END_MAGIC, 0, 0, few, few, _narrow(size), _narrow(start), 0)


def _seal_at(file_size: int, read: ReadBytes) -> int:
    """
    Return the position of the seal, just before the central directory that the end record locates; 0 if it is not
    such a file.
    """
    tail_size = _END_64.size + _LOCATOR_64.size + _END.size
    tail = read(max(0, file_size - tail_size), tail_size).rjust(tail_size, b"\0")
    magic, *_, start, _comment = _END.unpack(tail[-_END.size :])
    if magic != _END_MAGIC:
        return 0
    if tail.startswith(_END_64_MAGIC) and tail[_END_64.size :].startswith(_LOCATOR_64_MAGIC):
        start = _END_64.unpack_from(tail)[-1]
    return int(start) - SEAL_SIZE


def cut_zip(file_size: int, read: ReadBytes) -> str:
    """Say that an archive is cut off, and what to do; "" if it ends as it should, perhaps with a comment."""
    tail = read(max(0, file_size - _MOST_END), _MOST_END)
    end = tail[tail.rfind(_END_MAGIC) :] if _END_MAGIC in tail else b""
    is_whole = len(end) >= _END.size and len(end) >= _END.size + _END.unpack_from(end)[-1]
    if is_whole or read(0, len(_LOCAL_MAGIC)) != _LOCAL_MAGIC:
        return ""
    return f"is cut off at {file_size:,} bytes, within the list of its members or before it: copy it again"


def _overhead(schema: Schema) -> str:
    if schema.flat is not None:
        return "index and key of each sample; zip keeps the ids in pieces of 1 MiB"
    return "each member has a header and an entry in the directory, of 76 bytes and twice its name"


def _lines_of_lists(schema: Schema) -> list[str]:
    """Lines that read samples whose members differ in number, one member after the other."""
    counts = f'np.load(archive.open(f"{INDEX_FOLDER}{{name}}_counts.npy"))'
    return [
        f"    counts = {{name: {counts} for name in {listed_names(schema)}}}",
        "    left = map(archive.open, members)",
        "    value = lambda name: next(map(read[name], left))",
        "    listed = lambda name, i: [value(name) for _ in range(counts[name][i])]",
        "    sample = lambda i: {name: listed(name, i) if name in counts else value(name) for name in read}",
        f'    samples = [sample(i) for i in range(len(counts["{schema.lists[0].name}"]))]',
    ]


def _reader_of_many(schema: Schema) -> str:
    functions = {
        field.name: "np.load"
        if field.element.traits.extension == NPY
        else "lambda file: file.read().decode()"
        if field.element.traits.is_text
        else "json.load"
        if field.traits.is_json
        else "lambda file: file.read()"
        for field in schema.payload
    }
    columns = ", ".join(
        f'"{field.name}": np.load(archive.open("{INDEX_FOLDER}{field.name}.npy"))' for field in schema.columns
    )
    if schema.lists:
        samples = _lines_of_lists(schema)
    else:
        samples = [
            "    runs = zip(*(members[number :: len(read)] for number in range(len(read))))",
            "    pairs = [zip(read.items(), run) for run in runs]",
            "    samples = [{name: parse(archive.open(m)) for (name, parse), m in sample} for sample in pairs]",
        ]
    lines = [
        *readers(schema, functions),
        "with zipfile.ZipFile(path) as archive:",
        f'    members = [name for name in archive.namelist() if not name.startswith("{INDEX_FOLDER}")]',
        *samples,
        *([f"    columns = {{{columns}}}"] if columns else []),
    ]
    return "\n".join([imports(lines, "zipfile"), *lines, ""])


def _plain_reader(schema: Schema) -> str:
    if has_many_fields(schema):
        return _reader_of_many(schema)
    field, lines = schema.payload[0], ["with zipfile.ZipFile(path) as archive:"]
    members = f'for name in archive.namelist() if not name.startswith("{INDEX_FOLDER}")'
    load = "np.load(archive.open({}))".format
    if schema.flat is not None:
        sizes = load(f'"{INDEX_FOLDER}{field.name}_sizes.npy"')
        lines += [
            f"pieces = [{load('name')} {members}]",
            f"samples = np.split(np.concatenate(pieces), np.cumsum({sizes})[:-1])",
        ]
    else:
        value = load("name") if field.traits.extension == NPY else "archive.read(name)"
        value += ".decode()" if schema.is_text else ""
        lines.append(f"{'samples' if schema.is_text else 'images'} = [{value} {members}]")
    if "label" in schema:
        lines.append("labels = " + load(f'"{INDEX_FOLDER}label.npy"'))
    modules = "numpy as np, zipfile" if any("np." in line for line in lines) else "zipfile"
    return f"import {modules}\n" + "\n    ".join(lines) + "\n"


FORMAT = Format(
    name="zip",
    suffixes=(".zip",),
    file="a zip archive",
    good_for="file managers, Python's zipfile, random access by name",
    writer=ZipWriter,
    seal_at=_seal_at,
    overhead=_overhead,
    plain_reader=_plain_reader,
    marks=((0, _LOCAL_MAGIC),),
    cut_off=cut_zip,
)
