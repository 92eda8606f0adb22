"""
Writes tar shards that WebDataset, GNU tar and everybody else reads: plain members, the index behind them.

A shard, in blocks of 512 bytes (a member is its ustar header, its bytes, zeros up to a whole block):

    __fastio__/about            says that a seal must follow: without one the file is a torso, not a foreign tar
    dog/0001.jpg                the image as it came; the stem is the key without its last extension
    dog/0001.cls                the column ``label``, ASCII
    dog/0001.mask.png           any further picture: its field's name, and the extension of its content
    dog/0001.weight.json        any other column: "NaN", "Infinity", "-Infinity" as strings, complex numbers as
                                [real, imaginary]; fastio itself reads columns from the index, bit by bit
    dog/0001.depth.npy          RAW, RAGGED: an npy file, the span points behind its header; ARRAY: the whole file
    dog/0001.tokens.npy         TOKENS: the same, one dimension, as long as the sample (alone: see ``tar.py``)
    dog/0001.txt                TEXT of the name ``text``, UTF-8; others are called .caption.txt
    dog/0001.json               JSON of the name ``json``; others are called .objects.json
    dog/0001.caption            BYTES, by the name of the field
    dog/0001.images.0.jpg       the elements of a field of lists, ``images.0.jpg``, ``images.1.jpg`` as webdataset has
                                them; a sample without any value has no member
    ...                         all samples
    __fastio__/<array>.npy      the index arrays (WebDataset skips what lies below ``__x__/``)
    __fastio__/header.json
    __fastio__/seal             128 bytes; its place is 1536 bytes before the end of the file
    (2 blocks of zeros)

WebDataset ends a stem at the first dot of the name: dots and percent signs in it are written %2E and %25, so is
whatever else would break a member's name. Two keys with one stem (a.jpg beside a.png): the second keeps its
extension in the stem (a%2Epng). A picture whose key has no extension of pictures gets that of its
content. The original keys are in the index. Names above 100 bytes or outside ASCII, and sizes from 8 GiB, have a PAX
header. All times, owners and groups are 0.

A shard of two samples with labels 0 and 1, "a.png" with the bytes "first" and "b.png" with "2nd" (headers abridged):

    0000  5f 5f 66 61 73 74 69 6f  5f 5f 2f 61 62 6f 75 74   "__fastio__/about"
    0400  61 2e 70 6e 67 00                                  "a.png"
    0464  30 30 30 30 36 34 34 00  30 30 30 30 30 30 30 00   mode 644, uid 0
    047c  30 30 30 30 30 30 30 30  30 30 35 00               5 bytes
    0494  30 31 30 31 32 36 00 20  30 00                     sum of the header, a regular file
    0501  75 73 74 61 72 00 30 30                            "ustar", version 00
    0600  66 69 72 73 74 00                                  "first"
    0800  61 2e 63 6c 73 00                                  "a.cls"
    0a00  30 00                                              "0"
    0c00  62 2e 70 6e 67 00                                  "b.png"
    0e00  32 6e 64 00                                        "2nd"
    1000  62 2e 63 6c 73 00                                  "b.cls"
    1200  31 00                                              "1"
    1400  5f 5f 66 61 73 74 69 6f  5f 5f 2f 69 6d 61 67 65   "__fastio__/image_starts.npy"
    1680  00 06 00 00 00 00 00 00  00 0e 00 00 00 00 00 00   image_starts: 600, e00
    3200  5f 5f 66 61 73 74 69 6f  5f 5f 2f 73 65 61 6c 00   "__fastio__/seal"
    3400  89 66 61 73 74 69 6f 0a  01 00 00 00 74 61 72 00   the seal, see seal.py
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import tar_members
from fastio.errors import SchemaError
from fastio.store.files import ByteSource
from fastio.store.formats.format import (
    NPY,
    Columns,
    Ending,
    ForeignFiles,
    Format,
    Lists,
    ShardWriter,
    Sizes,
    Values,
    all_values,
    element_suffix,
    has_many_fields,
    listed_names,
    main_picture,
    npy_prefix,
    sample_order,
)
from fastio.store.formats.tar_file import (
    ABOUT,
    ABOUT_TEXT,
    BLOCK,
    INDEX_FOLDER,
    MAX_NAME,
    MAX_SIZE,
    MemberFile,
    MemberNames,
    member_header,
)
from fastio.store.index.seal import Place, always_at
from fastio.store.index.sealed import Shard
from fastio.store.write.atomic import PartialFile
from fastio.store.write.spool import Rows
from fastio.types.npy import npy_header
from fastio.types.picture_kinds import extension_of, picture_extensions
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "FORMAT",
    "TarWriter",
    "sample_bytes",
]


_PIECE_BYTES = 4 << 20  # bytes of members made at a time
_LABEL = "label"


class TarWriter:
    """Writes each sample as a run of members with one stem."""

    base = 0

    def __init__(self, file: PartialFile, schema: Schema) -> None:
        self._file = file
        self._payload = schema.payload
        self._columns = [(f.name, _column_suffix(f)) for f in schema.columns]
        main = main_picture(schema.payload)
        self._image = None if main is None else main.name
        self._suffixes = {f.name: _suffix(f) for f in schema.payload}
        taken = [*(s.removesuffix(".") for s in self._suffixes.values()), *(suffix for _, suffix in self._columns)]
        if len(set(taken)) < len(taken):
            raise SchemaError(f"{file.path}: fields would share an extension, got {sorted(taken)}: rename a field")
        others = ["" if f is main else self._suffixes[f.name] for f in schema.payload]
        self._names = MemberNames(
            [*others, *(suffix for _, suffix in self._columns)], taken, image=self._image or "", beside=file.path
        )
        self._starts: dict[str, list[NDArray[np.int64]]] = {f.name: [] for f in schema.payload}
        self._members = MemberFile(file)
        self._members.write(ABOUT, ABOUT_TEXT)

    def append(self, keys: Sequence[str], values: Values, columns: Columns, lists: Lists) -> None:
        """Write samples: payload fields in the schema's order, of lists the elements, then the columns as text."""
        names = self._names.of(keys, lambda row, column: extension_of(values[self._payload[column].name].view(row)))
        if lists:
            self._append_with_lists(names, values, columns, lists)
            return
        contents = [(_prefixes(field, values[field.name].sizes), values[field.name]) for field in self._payload]
        for name, suffix in self._columns:
            texts = _texts(columns[name], suffix)
            contents.append((_joined([b""] * len(keys)), _joined(texts)))
        for start, stop in _pieces(contents):
            part = [(prefixes.part(start, stop), spans.part(start, stop)) for prefixes, spans in contents]
            self._write(names[start * len(contents) : stop * len(contents)], part)

    def _append_with_lists(self, names: list[str], values: Values, columns: Columns, lists: Lists) -> None:
        """Write samples whose members differ in number; those of a list begin with what its field is called."""
        width = len(self._payload) + len(self._columns)
        place = {field.name: number for number, field in enumerate(self._payload)}
        every = all_values(self._payload, values, lists)
        views = {name: spans.views() for name, spans in every.items()}
        firsts = {name: each.firsts for name, each in lists.items()}
        starts = {name: np.empty(len(spans), np.int64) for name, spans in every.items()}
        texts = [_texts(columns[name], suffix) for name, suffix in self._columns]
        by_row: list[list[tuple[Field, int]]] = [[] for _ in range(len(names) // width)]
        for field, position, row in sample_order(self._payload, values, lists):
            by_row[row].append((field, position))
        for row, own in enumerate(by_row):
            for field, position in own:
                name, value = names[row * width + place[field.name]], views[field.name][position]
                if field.is_list:
                    stem = name.removesuffix(field.name)
                    name = stem + element_suffix(field, position - int(firsts[field.name][row]), extension_of(value))
                prefix = npy_prefix(field, len(value))
                starts[field.name][position] = self._members.write(name, value, prefix=prefix) + len(prefix)
            for number, text in enumerate(texts):
                self._members.write(names[row * width + len(self._payload) + number], text[row])
        for name, each in starts.items():
            self._starts[name].append(each)

    def _write(self, names: list[str], contents: Sequence[tuple[Spans, Spans]]) -> None:
        """Write members; natively, if ustar headers are enough for all of them."""
        sizes = np.stack([prefixes.sizes + spans.sizes for prefixes, spans in contents], axis=1)
        joined = "\0".join(names)
        if max(map(len, names)) > MAX_NAME or not joined.isascii() or sizes.max(initial=0) >= MAX_SIZE:
            starts = self._write_one_by_one(names, contents)
        else:
            ends = np.cumsum(BLOCK + -(-sizes // BLOCK) * BLOCK).reshape(sizes.shape)
            places = np.concatenate(([0], ends.ravel()[:-1]))
            out = np.empty(int(ends[-1, -1]), np.uint8)
            tar_members(joined.encode("ascii"), contents, places, out)
            starts = self._file.size + BLOCK + places.reshape(sizes.shape)
            self._file.write(out)
        for field, column, (prefixes, _) in zip(self._payload, starts.T, contents, strict=False):
            self._starts[field.name].append(column + prefixes.sizes)

    def _write_one_by_one(self, names: list[str], contents: Sequence[tuple[Spans, Spans]]) -> NDArray[np.int64]:
        """Write members with extended headers where needed, and return where their contents begin."""
        views = [(prefixes.views(), spans.views()) for prefixes, spans in contents]
        starts = np.empty((len(names) // len(contents), len(contents)), np.int64)
        for at, name in enumerate(names):
            row, column = divmod(at, len(contents))
            prefix, value = views[column][0][row], views[column][1][row]
            starts[row, column] = self._members.write(name, value, prefix=prefix.tobytes())
        return starts

    def take_starts(self) -> dict[str, NDArray[np.int64]]:
        """Return where values lie: known when they are appended."""
        none = np.empty(0, np.int64)
        taken = {name: np.concatenate([none, *starts]) for name, starts in self._starts.items()}
        self._starts = {name: [] for name in taken}
        return taken

    def end_payload(self) -> None:
        """Do nothing: nothing is gathered."""

    def finish(self, arrays: Mapping[str, Rows], header: Callable[[Mapping[str, Place]], bytes]) -> Ending:
        """Write the index members and the end of the archive. Raises SchemaError if two samples have one name."""
        self._names.check(self._file.path, arrays["keys"])
        return self._members.finish(arrays, header)

    def release(self) -> None:
        """See ``ShardWriter``."""
        self._names.release()


def _writer(file: PartialFile, schema: Schema) -> ShardWriter:
    return TarWriter(file, schema) if schema.flat is None else FlatTarWriter(file, schema.flat)


def sample_bytes(schema: Schema, sizes: Sizes, count: int) -> NDArray[np.int64]:
    """Return the bytes that each sample takes in a shard, without PAX headers."""
    if schema.flat is not None:
        return sizes[schema.flat.name]
    total = np.full(count, 2 * BLOCK * len(schema.columns), np.int64)
    for field in schema.payload:
        prefix = len(npy_prefix(field, 0))
        total += BLOCK + (sizes[field.name] + prefix + BLOCK - 1) // BLOCK * BLOCK
    return total


def _suffix(field: Field) -> str:
    """Return what follows a stem and a dot; of a picture without its extension."""
    if field.is_list:  # of its elements, see ``element_suffix``
        return field.name
    extension = field.traits.extension
    if (field.traits.is_text and field.name == "text") or (field.traits.is_json and field.name == "json"):
        return extension
    if field.traits.is_picture:
        return f"{field.name}."
    return f"{field.name}.{extension}" if extension else field.name


def _prefixes(field: Field, sizes: NDArray[np.int64]) -> Spans:
    """Return what precedes values of these sizes."""
    if field.traits.extension != NPY or field.traits.is_npy:
        return _joined([b""] * len(sizes))
    kinds, which = np.unique(sizes, return_inverse=True)
    of_kinds = _joined([npy_prefix(field, size) for size in kinds.tolist()])
    return of_kinds.at(which)


def _joined(values: list[bytes]) -> Spans:
    """Return values as spans of one buffer."""
    sizes = np.array([len(value) for value in values], np.int64)
    data = np.frombuffer(b"".join(values), np.uint8)
    return Spans.joined(data, sizes)


def _pieces(contents: Sequence[tuple[Spans, Spans]]) -> list[tuple[int, int]]:
    """Cut a batch into runs of samples whose members take about ``_PIECE_BYTES``."""
    sizes = sum((BLOCK + prefixes.sizes + spans.sizes for prefixes, spans in contents), np.int64(0))
    if np.size(sizes) == 0 or not contents:
        return []
    cuts = (np.flatnonzero(np.diff(np.cumsum(sizes) // _PIECE_BYTES)) + 1).tolist()
    return list(pairwise([0, *cuts, np.size(sizes)]))


def _column_suffix(field: Field) -> str:
    is_label = field.name == _LABEL and field.shape == () and np.dtype(field.dtype).kind in "iu"
    return "cls" if is_label else f"{field.name}.json"


def _texts(column: NDArray[Any], suffix: str) -> list[bytes]:
    if column.dtype.kind == "S":
        column = np.char.decode(column, "utf-8", "surrogateescape")
    if column.dtype.kind == "c":
        column = np.stack([column.real, column.imag], axis=-1)
    values = column.tolist()
    if suffix == "cls":
        return [b"%d" % value for value in values]
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        values = _named(values)
    return [json.dumps(value, allow_nan=False).encode("ascii") for value in values]


def _named(value: Any) -> Any:
    """Return the names of numbers that JSON lacks, as in Protocol Buffers: ``float`` reads each."""
    if isinstance(value, list):
        return [_named(each) for each in value]
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _overhead(schema: Schema) -> str:
    if schema.flat is not None:
        return "index and key of each sample; tar keeps the ids as one member"
    return "each member has a header of 512 bytes and is padded to 512"


def _reader_of_many(schema: Schema) -> str:
    """Snippet for many fields: webdataset decodes all but pictures, and extensions become names of fields again."""
    lines = [
        "import webdataset",
        "dataset = webdataset.WebDataset(path, shardshuffle=False, empty_check=False).decode()",
    ]
    names = {_suffix(f): f.name for f in schema.payload if not (f.traits.is_picture or f.is_list)}
    names |= {_column_suffix(f): f.name for f in schema.columns}
    odd = ", ".join(f'"{suffix}": "{name}"' for suffix, name in names.items() if suffix.split(".")[0] != name)
    main = main_picture(schema.payload)
    if main is not None:
        kinds = f"{picture_extensions()!r}".replace("'", '"')
        odd = f'**dict.fromkeys({kinds}, "{main.name}")' + (f", {odd}" if odd else "")
    lines += [
        f"names = {{{odd}}}",
        "samples = [",
        '    {names.get(end, end.split(".")[0]): value for end, value in sample.items() if end[0] != "_"}',
    ]
    if schema.lists:
        elements = '[sample[end] for end in sample if end.split(".")[0] == name]'
        lines.append(f"    | {{name: {elements} for name in {listed_names(schema)}}}")
    return "\n".join([*lines, "    for sample in dataset", "]", ""])


def _reader_of_flat(schema: Schema, field: Field) -> str:
    lines = [
        "with tarfile.open(path) as tar:",
        "    load = lambda name: np.load(io.BytesIO(tar.extractfile(name).read()))",
        f'    ids, sizes = load("{field.name}.npy"), load("{INDEX_FOLDER}{field.name}_sizes.npy")',
        *([f'    labels = load("{INDEX_FOLDER}{_LABEL}.npy")'] if _LABEL in schema else []),
        "samples = np.split(ids, np.cumsum(sizes)[:-1])",
    ]
    return "\n".join(["import io, numpy as np, tarfile", *lines, ""])


def _plain_reader(schema: Schema) -> str:
    if has_many_fields(schema):
        return _reader_of_many(schema)
    if schema.flat is not None:
        return _reader_of_flat(schema, schema.flat)
    field, modules = schema.payload[0], ["webdataset"]
    is_sequence = schema.is_text or field.traits.is_tokens
    name = "samples" if is_sequence else "images"
    dataset = "webdataset.WebDataset(path, shardshuffle=False, empty_check=False)"
    lines = [f"dataset = {dataset}"] if is_sequence else [f"samples = list({dataset})"]
    value = f'sample["{_suffix(field)}"]'
    if field.traits.is_picture:
        lines.append(f"kinds = {picture_extensions()!r}".replace("'", '"'))
        value = "next(sample[kind] for kind in kinds if kind in sample)"
    elif field.traits.extension == NPY:
        modules += ["io", "numpy as np"]
        value = f"np.load(io.BytesIO({value}))"
    elif schema.is_text:
        value += ".decode()"
    members = "dataset" if is_sequence else "samples"
    lines.append(f"{name} = [{value} for sample in {members}]")
    if _LABEL in schema:
        is_integer = _column_suffix(schema[_LABEL]) == "cls"
        modules += [] if is_integer else ["json"]
        label = 'int(sample["cls"])' if is_integer else f'json.loads(sample["{_LABEL}.json"])'
        lines.append(f"labels = [{label} for sample in {members}]")
    return "\n".join([f"import {', '.join(sorted(modules))}", *lines]) + "\n"


def _plain_path(schema: Schema, paths: Sequence[str]) -> object:
    """
    Return shards as webdataset takes them: by the range of their numbers if they have one, else all of them.

    Those of token ids are read one by one.
    """
    if schema.flat is not None:
        return None
    first, last = (re.match(r"(.*?)(\d+)(\D*)\Z", path, re.DOTALL) for path in (paths[0], paths[-1]))
    if first is not None and last is not None:
        low, high, width = int(first[2]), int(last[2]), len(first[2])
        numbers = range(low, min(high + 1, low + len(paths)))
        if list(paths) == [f"{first[1]}{i:0{width}d}{first[3]}" for i in numbers]:
            return f"{first[1]}{{{first[2]}..{last[2]}}}{first[3]}"
    return list(paths)


def _layout(schema: Schema) -> str:
    return "" if schema.flat is None else "flat"


def _open_foreign(file: ByteSource) -> Shard:
    from fastio.store.foreign.tar import open_foreign

    return open_foreign(file)


def _check_foreign_set(path: str, shards: Sequence[Shard]) -> list[Shard]:
    from fastio.store.foreign.tar import check_foreign_set

    return check_foreign_set(path, shards)


FORMAT = Format(
    name="tar",
    suffixes=(".tar",),
    file="an uncompressed tar file",
    good_for="WebDataset, object stores, streaming, `tar xf`",
    writer=_writer,
    seal_at=always_at(-3 * BLOCK),
    overhead=_overhead,
    plain_reader=_plain_reader,
    plain_path=_plain_path,
    marks=((257, b"ustar"),),
    sample_bytes=sample_bytes,
    layout=_layout,
    foreign=ForeignFiles(_open_foreign, _check_foreign_set),
)


# Writes token ids that are the only payload as one member of a tar shard, an npy file of the ids of all samples.
#
#     __fastio__/about
#     tokens.npy                  the ids, sample after sample; the member is called as the field
#     (zeros up to a whole block)
#     __fastio__/tokens_sizes.npy and the other index arrays, columns such as ``label`` among them
#     __fastio__/header.json, __fastio__/seal, the end of the archive, as in any shard (see ``tar.py``)
#
# ``__fastio__/tokens_starts.npy`` and ``tokens_sizes.npy`` count ids: starts from the beginning of the file, of which
# the header of tokens.npy takes the first 1664 bytes. Those are written last, when the number of ids is known. From 8
# GiB on, the size of the member is in base 256, as GNU tar writes it.


class FlatTarWriter:
    """Writes the ids of one field as they come; ``field`` is the only payload."""

    base = 0

    def __init__(self, file: PartialFile, field: Field) -> None:
        self._file = file
        self._field = field
        self._starts: list[NDArray[np.int64]] = []
        self._first = len(self._head(0))
        self._end = self._first
        file.skip(self._first)

    def append(self, keys: Sequence[str], values: Values, columns: Columns, lists: Lists) -> None:
        """Write the ids of some samples."""
        spans = values[self._field.name]
        self._starts.append(self._file.size + np.cumsum(spans.sizes) - spans.sizes)
        runs = spans.runs().views()
        if runs:  # none: the shard before took all samples of the batch
            self._file.write(runs[0] if len(runs) == 1 else np.concatenate(runs))

    def take_starts(self) -> dict[str, NDArray[np.int64]]:
        """Return where values lie: known when they are appended."""
        taken, self._starts = self._starts, []
        return {self._field.name: np.concatenate([np.empty(0, np.int64), *taken])}

    def end_payload(self) -> None:
        """Write what fills the last block of the member."""
        self._end = self._file.size
        self._file.write(bytes(-self._end % BLOCK))

    def finish(self, arrays: Mapping[str, Rows], header: Callable[[Mapping[str, Place]], bytes]) -> Ending:
        """Write the index members and the end of the archive, then its beginning."""
        head = self._head(self._end - self._first)
        assert len(head) == self._first, "the ids begin where they were said to"
        return MemberFile(self._file).finish(arrays, header, head=head)

    def release(self) -> None:
        """There are no temporary files."""

    def _head(self, size: int) -> bytes:
        """Return what precedes ``size`` bytes of ids: as many bytes whatever the size."""
        prefix = npy_header(self._field.dtype, (size // self._field.unit_bytes,))
        about = member_header(ABOUT, len(ABOUT_TEXT)) + ABOUT_TEXT.ljust(BLOCK, b"\0")
        return about + _header(f"{self._field.name}.{NPY}", len(prefix) + size) + prefix


def _header(name: str, size: int) -> bytes:
    """Return the header of a member, one block whatever its size."""
    if size < MAX_SIZE:
        return member_header(name, size)
    import tarfile

    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT, "ascii", "strict")
