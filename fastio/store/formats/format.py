"""What a packed container brings to become an entry of FORMATS, and what several containers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.store.files import ByteSource
from fastio.store.index.seal import Place, ReadBytes, SealAt
from fastio.store.index.sealed import Shard
from fastio.store.write.atomic import PartialFile
from fastio.store.write.spool import Rows
from fastio.types.npy import npy_header
from fastio.types.schema import Field, Schema
from fastio.types.spans import ListSpans, Spans

__all__ = [
    "HEAD_BYTES",
    "NPY",
    "PIECE_BYTES",
    "Columns",
    "Ending",
    "ForeignFiles",
    "Format",
    "Lists",
    "SampleBytes",
    "ShardWriter",
    "Sizes",
    "TokenPieces",
    "Values",
    "all_values",
    "element_suffix",
    "has_many_fields",
    "imports",
    "listed_names",
    "main_picture",
    "npy_prefix",
    "of_bytes",
    "readers",
    "sample_order",
]


HEAD_BYTES = 8192  # of a file, in which the marks of every format lie

Values = Mapping[str, Spans]  # per payload field, one value per sample, with checksums
Columns = Mapping[str, NDArray[Any]]
CutOff = Callable[[int, ReadBytes], str]  # what is wrong with a file of this size without its end; "": nothing
Lists = Mapping[str, ListSpans]  # per field of lists, one list per sample, with checksums of its elements
Sizes = Mapping[str, NDArray[np.int64]]  # bytes of every sample's value, per payload field
SampleBytes = Callable[[Schema, Sizes, int], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Ending:
    """What a finished file reports for the seal; ``store/index/seal.py`` explains each field."""

    file_size: int
    seal_start: int
    head_size: int
    header_start: int
    header_size: int
    header_crc: int
    head_crc: int
    file_crc: int


class ShardWriter(Protocol):
    """
    Writes samples to one file, in order, and the index after them.

    The writer has already checked keys, sizes and checksums; a shard writer only decides where bytes go.
    """

    def append(self, keys: Sequence[str], values: Values, columns: Columns, lists: Lists) -> None:
        """
        Write samples: for each key, a value of every payload field, or the elements of its list.

        ``columns`` is for formats that repeat them.
        """
        ...

    def take_starts(self) -> dict[str, NDArray[np.int64]]:
        """
        Return the offsets, from ``base``, of those values whose position became known since the last call; of fields of
        lists those of elements.
        """
        ...

    def end_payload(self) -> None:
        """Write what is still in memory; then ``take_starts`` returns the rest."""
        ...

    @property
    def base(self) -> int:
        """The byte of the file that ``starts`` count from."""
        ...

    def finish(self, arrays: Mapping[str, Rows], header: Callable[[Mapping[str, Place]], bytes]) -> Ending:
        """
        Write the index arrays, a block at a time, then ``header(places)``, and leave 128 bytes for the seal.

        Raises SchemaError for samples that cannot be told apart in this container.
        """
        ...

    def release(self) -> None:
        """Let temporary files go; twice does no harm. May raise OSError."""
        ...


@dataclass(frozen=True, slots=True)
class ForeignFiles:
    """How to open files of a container that other tools wrote."""

    open: Callable[[ByteSource], Shard]
    check_set: Callable[[str, Sequence[Shard]], list[Shard]]  # the shards in order; StoreError unless they are one set


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """
    One packed container and everything that fastio knows about it. As an entry of FORMATS it works in all commands.

    Only ``writer`` writes files. Reading them takes only ``seal_at``: it finds the seal, which leads to the index.

    ``plain_reader`` returns Python that reads a store of this schema without fastio: given ``path``, it leaves the
    values of the first payload field in ``images`` (of text and tokens alone in ``samples``), and ``labels`` if the
    schema has them, in order. Of many fields it leaves ``samples``, a dict of the payload fields each, pictures as
    bytes, and the columns either in these dicts or in ``columns``, a dict of arrays.
    """

    name: str  # ASCII, as ``fastio info`` shows it
    suffixes: tuple[str, ...]  # of file names, with the dot; the first is the usual one
    file: str  # what one file is called, with its article: "an LMDB file"
    good_for: str  # when to choose it, a few words
    writer: Callable[[PartialFile, Schema], ShardWriter]
    seal_at: SealAt
    overhead: Callable[[Schema], str]  # why a file takes more bytes than the samples of this schema
    plain_reader: Callable[[Schema], str]
    # What that code takes for several shards; None: it takes them one by one.
    plain_path: Callable[[Schema, Sequence[str]], object] = lambda schema, paths: None
    marks: tuple[tuple[int, bytes], ...] = ()  # offset and bytes: any of them tells a file of this container
    cut_off: CutOff = lambda file_size, read: ""
    # None: a store is always one file. Asked for samples without lists.
    sample_bytes: SampleBytes | None = None
    foreign: ForeignFiles | None = None  # None: only what fastio packed can be opened
    # What else a plan of shards depends on: another word where a newer version writes the same samples as other bytes.
    layout: Callable[[Schema], str] = lambda schema: ""
    fixed_keys: bool = False  # keys as an array of strings of one width, where that wastes little
    # Whether keys that count up are kept as a rule, in a large index: nothing else of the file has them. By default of
    # samples that are no members of their own.
    numbered_keys: Callable[[Schema], bool] = lambda schema: schema.flat is not None

    @property
    def has_shards(self) -> bool:
        """
        Whether a store may consist of several files, ``name-%06d`` and a suffix; a folder of them is then a store.
        """
        return self.sample_bytes is not None

    @property
    def names(self) -> tuple[str, ...]:
        """How files may be named, for help and guides: ``x.tar``, ``x-%06d.tar``."""
        shards = (f"x-%06d{self.suffixes[0]}",) if self.has_shards else ()
        return (*(f"x{suffix}" for suffix in self.suffixes), *shards)

    def is_name(self, name: str) -> bool:
        """Whether a file of this name is one of this format."""
        return name.endswith(self.suffixes)

    def is_content(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes is one of this container; ``HEAD_BYTES`` are enough."""
        return any(head[start:].startswith(mark) for start, mark in self.marks)


# Python that reads samples of many fields without fastio: what the snippets of all formats share.


def has_many_fields(schema: Schema) -> bool:
    """Whether snippets leave a dict for each sample: of several payload fields, and of values that need parsing."""
    return (
        len(schema.payload) > 1
        or schema.is_per_sample
        or bool(schema.lists)
        or any(f.traits.is_json or f.traits.is_ragged or f.traits.is_npy for f in schema.payload)
    )


def sample_order(fields: Sequence[Field], values: Values, lists: Lists) -> list[tuple[Field, int, int]]:
    """
    Return the values of samples in the order in which formats write them: a sample's fields, and of lists the elements.

    Each is named by its field, its position among the field's values, and the position of its sample. This takes a
    Python object per value: samples without lists have faster ways.
    """
    rows = [np.arange(len(values[f.name])) if f.name in values else lists[f.name].owners for f in fields]
    which = np.repeat(np.arange(len(fields)), [len(each) for each in rows])
    row = np.concatenate([np.empty(0, np.int64), *rows])
    position = np.concatenate([np.empty(0, np.int64), *(np.arange(len(each)) for each in rows)])
    order = np.lexsort((position, which, row))
    named = zip(which[order].tolist(), position[order].tolist(), row[order].tolist(), strict=True)
    return [(fields[number], at, of) for number, at, of in named]


def all_values(fields: Sequence[Field], values: Values, lists: Lists) -> dict[str, Spans]:
    """Return the spans of all values of each field: of lists those of their elements."""
    return {f.name: values[f.name] if f.name in values else lists[f.name].spans for f in fields}


def main_picture(fields: Iterable[Field]) -> Field | None:
    """The picture that a sample's key names: the first that is not a mask, else the first; None without pictures."""
    pictures = [field for field in fields if field.traits.is_picture]
    return next((field for field in pictures if not field.traits.is_mask), pictures[0] if pictures else None)


def of_bytes(field: Field) -> str:
    """
    Return Python for a function that takes the stored bytes of a value, or of an element. Pictures stay encoded.

    >>> of_bytes(Field("boxes", "ragged", "<f4", (None, 4), "xywh"))
    'lambda value: np.frombuffer(value, "<f4").reshape(-1, 4)'
    """
    field = field.element
    traits = field.traits
    if traits.is_text:
        return "bytes.decode"
    if traits.is_json:
        return "json.loads"
    if traits.is_npy:
        return "lambda value: np.load(io.BytesIO(value))"
    if not traits.is_plain:
        return "bytes"
    shape = ", ".join("-1" if size is None else str(size) for size in field.shape)
    return f'lambda value: np.frombuffer(value, "{field.dtype}").reshape({shape})'


def readers(schema: Schema, functions: Mapping[str, str]) -> list[str]:
    """Return the lines that define ``read``, a function for each payload field."""
    return ["read = {", *(f'    "{field.name}": {functions[field.name]},' for field in schema.payload), "}"]


def listed_names(schema: Schema) -> str:
    """Return Python for the names of the fields of lists, a tuple."""
    names = ", ".join(f'"{field.name}"' for field in schema.lists)
    return f"({names},)" if len(schema.lists) == 1 else f"({names})"


def imports(lines: Iterable[str], *always: str) -> str:
    """Return the import that these lines need, of NumPy, json and io besides what is always imported."""
    text = "\n".join(lines)
    needed = [name for name in ("io", "itertools", "json") if f"{name}." in text] + (
        ["numpy as np"] if "np." in text else []
    )
    return f"import {', '.join(sorted({*needed, *always}))}"


def element_suffix(field: Field, position: int, picture: str) -> str:
    """
    Return what files that hold one element of a list are called behind the sample's name: "images.0.jpg".

    ``position`` counts the elements of the sample; ``picture`` is the extension that a picture's content tells.
    """
    element = field.element
    extension = picture if element.traits.is_picture else element.traits.extension
    return f"{field.name}.{position}" + (f".{extension}" if extension else "")


# Values and arrays as npy files: the header that stands before their bytes.

NPY = "npy"  # the extension


def npy_prefix(field: Field, size: int) -> bytes:
    """Return what stands before a field's value of ``size`` bytes in a file of its own: a header, or nothing."""
    field = field.element
    if field.traits.extension != NPY or field.traits.is_npy:
        return b""
    if field.traits.is_ragged:
        return npy_header(field.dtype, (size // field.unit_bytes if field.unit_bytes else 0, *field.shape[1:]))
    return npy_header(field.dtype, (size // field.unit_bytes,) if field.traits.is_sequence else field.shape)


# Token ids as one flat array, in pieces that a container keeps as one value each.

PIECE_BYTES = 1 << 20  # the last page of a piece is half empty on average: 0.2 % of this


class TokenPieces:
    """
    Gathers samples into pieces and writes each one when the next sample does not fit.

    ``write(value, size)`` writes one piece and returns its page; its bytes begin ``header`` bytes after that page's
    start. ``nodes`` are the pieces by key: page and size; ``first`` is the number of the first sample of the next
    one. What is written depends only on the samples, not on how they came in batches.
    """

    def __init__(self, name: str, write: Callable[[bytearray, int], int], *, page: int, header: int) -> None:
        self.name = name
        self.nodes: dict[bytes, tuple[int, int]] = {}
        self._write = write
        self._page, self._header = page, header
        self._pending = bytearray()
        self._offsets: list[NDArray[np.int64]] = []  # positions of the samples in ``_pending``, from its start
        self._starts: list[NDArray[np.int64]] = []
        self.first = self._count = 0

    def append(self, spans: Spans) -> None:
        """Take the samples of a batch; only copies of them are kept."""
        ends = np.cumsum(spans.sizes)
        data = b"".join(view.data for view in spans.runs().views())
        start = done = 0
        while start < len(spans):
            room = PIECE_BYTES - len(self._pending)
            stop = int(np.searchsorted(ends, done + room, side="right"))
            if stop == start and self._count == self.first:
                stop += 1  # a sample longer than a piece
            if stop > start:
                end = int(ends[stop - 1])
                self._offsets.append(ends[start:stop] - spans.sizes[start:stop] + (len(self._pending) - done))
                self._pending += memoryview(data)[done:end]
                self._count += stop - start
                start, done = stop, end
            if start < len(spans):
                self._flush()

    def take_starts(self) -> NDArray[np.int64]:
        """Return where the samples lie in the file whose pieces were written since the last call."""
        taken, self._starts = self._starts, []
        return np.concatenate(taken) if taken else np.empty(0, np.int64)

    def finish(self) -> None:
        """Write the last piece."""
        if self._count > self.first:
            self._flush()

    def _flush(self) -> None:
        size = len(self._pending)
        page = self._write(self._pending, size)
        self.nodes[b"%s/%010d" % (self.name.encode("ascii"), self.first)] = page, size
        self._starts += [offsets + (page * self._page + self._header) for offsets in self._offsets]
        self._pending, self._offsets, self.first = bytearray(), [], self._count
