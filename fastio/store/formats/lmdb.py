r"""
Writes the LMDB 0.9 file format, in one pass, with every offset known.

The file, in pages of 4096 bytes, integers unsigned and little endian:

    0        meta page: txnid 0, an empty database        \ as liblmdb leaves them after
    1        meta page: txnid 1, the database below       /  its first transaction
    2...     leaf pages, and overflow pages of long values, in key order as the samples come
    ...      the same for the index arrays and the header
    ...      branch pages, lowest level first, the root last
    last     overflow page of the value of ``_seal``: the seal, then zeros

    page     pgno 8 | pad 2 | flags 2 | lower 2 | upper 2      branch 1, leaf 2, meta 8
             pgno 8 | pad 2 | flags 2 (overflow 4) | pages 4, then the value without a break over the run of pages
    leaf     ``lower`` ends an array of u16, one node's place each, in key order; nodes fill the page from its end
    node     size 4 | flags 2 | key size 2 | key | value       flag 1: the value is the pgno (8) of an overflow run
    branch   pgno's low 32 bits 4 | its high 16 bits 2 | key size 2 | key; the first key of a page is empty

A node whose header, key and value exceed 2038 bytes goes to overflow pages. Keys: ``%010d/field`` for the samples,
such as ``0000000007/mask`` (B-tree order is sample order), then, sorted behind the digits, ``_`` and the name of each
index array, ``_header`` and ``_seal``.

The value of a field of lists has all elements of a sample, one behind the other; ``_<field>_counts`` says how many
these are, and ``_<field>_sizes``, ``_<field>_starts`` and the other index arrays have an entry per element.

Token ids that are the only payload are one flat array in pieces: the values of ``tokens/%010d``, each of samples one
behind the other up to 1 MiB (one longer sample aside), the number that of its first sample. No sample is cut, every
piece begins 16 bytes behind a page's begin, and ``_tokens_starts`` and ``_tokens_sizes`` count ids. Anybody reads it:

    with lmdb.open(path, subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        for key, value in txn.cursor().iternext(key=b"0"): ...

A store of two samples with labels 0 and 1, "a.png" with the bytes "first" and "b.png" with "2nd"; what is left out
here are zeros, the index arrays on pages 4 to 8, and the rest of the header on page 9:

    1000  01 00 00 00 00 00 00 00  00 00 08 00 00 00 00 00   page 1, meta
    1010  de c0 ef be 01 00 00 00  00 00 00 00 00 00 00 00   magic, data version 1, address
    1020  00 d0 00 00 00 00 00 00  00 10 00 00 08 00 00 00   map size; free database: page size, integer keys
    1050  ff ff ff ff ff ff ff ff  00 00 00 00 00 00 02 00   it has no root; main database: depth 2
    1060  01 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00   1 branch page, 2 leaf pages
    1070  08 00 00 00 00 00 00 00  0a 00 00 00 00 00 00 00   8 overflow pages, 10 entries
    1080  0b 00 00 00 00 00 00 00  0c 00 00 00 00 00 00 00   root is page 11, the last page is 12
    1090  01 00 00 00 00 00 00 00                            txnid 1
    2000  02 00 00 00 00 00 00 00  00 00 02 00 14 00 c6 0f   page 2, leaf; free from 14 to fc6
    2010  e2 0f c6 0f                                        nodes at fe2 and fc6
    2fc6  03 00 00 00 00 00 10 00                            value of 3 bytes, key of 16
    2fce  30 30 30 30 30 30 30 30  30 31 2f 69 6d 61 67 65   "0000000001/image"
    2fde  32 6e 64 00                                        "2nd", padded to an even size
    2fe2  05 00 00 00 00 00 10 00                            value of 5 bytes, key of 16
    2fea  30 30 30 30 30 30 30 30  30 30 2f 69 6d 61 67 65   "0000000000/image"
    2ffa  66 69 72 73 74 00                                  "first"
    3000  03 00 00 00 00 00 00 00  00 00 04 00 01 00 00 00   page 3, overflow run of 1 page
    3010  fa 2f 00 00 00 00 00 00  de 2f 00 00 00 00 00 00   image_starts: 2ffa, 2fde
    9010  7b 22 66 61 73 74 69 6f  22 3a 31 2c 22 73 63 68   header: {"fastio":1,"sch...
    a000  0a 00 00 00 00 00 00 00  00 00 02 00 20 00 32 0f   page 10, leaf of the index, 8 nodes
    af32  f0 0f 00 00 01 00 05 00  5f 73 65 61 6c 0c         "_seal": 4080 bytes on page 12
    b000  0b 00 00 00 00 00 00 00  00 00 01 00 14 00 e8 0f   page 11, branch, the root
    bfe8  0a 00 00 00 00 00 07 00  5f 68 65 61 64 65 72 00   page 10 from "_header" on
    bff8  02 00 00 00 00 00 00 00                            page 2 before that
    c000  0c 00 00 00 00 00 00 00  00 00 04 00 01 00 00 00   page 12, overflow
    c010  89 66 61 73 74 69 6f 0a  01 00 00 00 6c 6d 64 62   the seal, see seal.py
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import LmdbPages, crc32
from fastio.errors import SchemaError
from fastio.store.formats.format import (
    Columns,
    Ending,
    Format,
    Lists,
    TokenPieces,
    Values,
    has_many_fields,
    imports,
    listed_names,
    of_bytes,
    readers,
)
from fastio.store.index.seal import SEAL_SIZE, Place, ReadBytes, always_at
from fastio.store.write.atomic import PartialFile
from fastio.store.write.spool import Rows, Spool, array_bytes, blocks_of, write_array
from fastio.types.schema import Field, Schema
from fastio.types.spans import ListSpans, Spans, firsts_of

__all__ = [
    "FORMAT",
    "LmdbMeta",
    "LmdbWriter",
    "cut_lmdb",
    "newest_meta",
]


PAGE = 4096
PAGE_HEADER = 16
NODE_HEADER = 8
KEY_MAX = 511
VALUE_MAX = (1 << 32) - 1
MAX_SAMPLES = 10**10
BRANCH, LEAF, OVERFLOW, META = 1, 2, 4, 8
INTEGER_KEY = 8
NO_PAGE = (1 << 64) - 1
PIECE_BYTES = 4 << 20

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_MOST_DEPTH = 32  # of a tree that is believed
_PAGE = struct.Struct("<QHHHH")
_OVERFLOW = struct.Struct("<QHHI")
_NODE = struct.Struct("<IHH")
_BRANCH = struct.Struct("<IHH")
_PGNO = struct.Struct("<Q")
_META = struct.Struct("<IIQQ")  # magic, version, address, map size
_DB = struct.Struct("<IHHQQQQQ")  # page size, flags, depth, branch, leaf and overflow pages, entries, root
_LAST = struct.Struct("<QQ")  # last page, txnid
_META_BYTES = _PAGE.size + _META.size + 2 * _DB.size + _LAST.size
_ZEROS = bytes(PAGE)


# The meta pages of an LMDB file: which version of its tree is the newest, and how many bytes the file must have.


@dataclass(frozen=True, slots=True)
class LmdbMeta:
    """What a meta page says."""

    page_size: int
    depth: int
    entries: int
    root: int
    last_page: int
    txnid: int
    flags: int  # of the main database

    @property
    def file_size(self) -> int:
        """How many bytes the file has at least."""
        return (self.last_page + 1) * self.page_size


def newest_meta(read: ReadBytes) -> LmdbMeta | None:
    """
    Return the meta page of the last transaction; None if this is no LMDB file, or one of its two meta pages is damaged:
    the other may be that of the transaction before, whose samples are older.
    """
    first = _meta(read(0, _META_BYTES))
    if first is None:
        return None
    data = read(first.page_size, _META_BYTES)
    second = _meta(data)
    if len(data) < _META_BYTES:  # cut off there
        return first
    return None if second is None else max(first, second, key=lambda meta: meta.txnid)


def cut_lmdb(file_size: int, read: ReadBytes) -> str:
    """Say at which byte an LMDB file is cut off, and what to do; "" if it is as long as it should be."""
    meta = newest_meta(read)
    if meta is None or meta.file_size <= file_size:
        return ""
    return f"is cut off at {file_size:,} of {meta.file_size:,} bytes: copy it again"


def _meta(data: bytes) -> LmdbMeta | None:
    if len(data) < _META_BYTES:
        return None
    _, _, kind, _, _ = _PAGE.unpack_from(data)
    magic, version, _, _ = _META.unpack_from(data, _PAGE.size)
    if magic != _MAGIC or version != _VERSION or not kind & META:
        return None
    databases = _PAGE.size + _META.size
    page_size, *_ = _DB.unpack_from(data, databases)
    _, flags, depth, _, _, _, entries, root = _DB.unpack_from(data, databases + _DB.size)
    last_page, txnid = _LAST.unpack_from(data, _META_BYTES - _LAST.size)
    if page_size & (page_size - 1) or not 256 <= page_size <= 65536 or depth > _MOST_DEPTH:
        return None
    return LmdbMeta(page_size, depth, entries, root, last_page, txnid, flags)


class LmdbWriter:
    """
    Lets native code fill the pages of the samples; the index and the branch levels are built at the end.

    No byte is written twice, and what is kept of each leaf, its first entry, goes to a spool.
    """

    base = 0

    def __init__(self, file: PartialFile, schema: Schema) -> None:
        longest = max((len(f.name) for f in schema.fields), default=0)
        if longest > KEY_MAX - 16:
            raise SchemaError(
                f"{file.path}: field names may have at most {KEY_MAX - 16} characters in LMDB, got {longest}"
            )
        self._file = file
        self._flat: TokenPieces | None = None
        if schema.flat is not None:
            self._flat = TokenPieces(schema.flat.name, self._write_run, page=PAGE, header=PAGE_HEADER)
        self._names = sorted(f.name for f in schema.payload if f is not schema.flat)  # the order of their keys
        self._suffixes = [b"/" + name.encode("ascii") for name in self._names]
        self._pages = LmdbPages(self._suffixes)
        self._count = self._overflow_pages = 0
        self._leaves = Spool(np.int64, (2,), beside=file.path)  # first entry and page of each
        self._lists: dict[str, _Elements] = {field.name: _Elements() for field in schema.lists}
        file.skip(2 * PAGE)

    def append(self, keys: Sequence[str], values: Values, columns: Columns, lists: Lists) -> None:
        """Write samples: one value per key of every payload field, of lists the elements one behind the other."""
        if self._count + len(keys) > MAX_SAMPLES:
            raise SchemaError(f"{self._file.path}: an LMDB store holds at most {MAX_SAMPLES} samples: pack tar shards")
        fields = [values[name] if name in values else lists[name].joined() for name in self._names]
        for name, each in lists.items():
            self._lists[name].append(each)
        for spans in fields:
            self._check_size(int(spans.sizes.max(initial=0)))
        if self._flat is not None:
            self._flat.append(values[self._flat.name])
        for start, stop in _pieces(fields):
            self._file.write(self._pages.append([spans.part(start, stop) for spans in fields]))
        self._count += len(keys)

    def take_starts(self) -> dict[str, NDArray[np.int64]]:
        """Return where values lie: known when their page or piece is written."""
        if self._flat is not None:
            return {self._flat.name: self._flat.take_starts()}
        starts, leaves = self._pages.take()
        self._leaves.append(leaves)
        taken = {name: np.ascontiguousarray(starts[:, i]) for i, name in enumerate(self._names)}
        return taken | {name: each.take_starts(taken[name]) for name, each in self._lists.items()}

    def end_payload(self) -> None:
        """Write the last page and the last piece."""
        self._file.write(self._pages.finish())
        if self._flat is not None:
            self._flat.finish()
        else:
            self._overflow_pages = self._pages.overflow_pages

    def finish(self, arrays: Mapping[str, Rows], header: Callable[[Mapping[str, Place]], bytes]) -> Ending:
        """Write the index after the payload, the branch pages, the seal's page and the meta pages."""
        places: dict[str, Place] = {}
        # Page and size of each value: all are on overflow pages, so aligned.
        nodes: dict[bytes, tuple[int, int]] = {} if self._flat is None else dict(self._flat.nodes)
        for name, each in arrays.items():
            page, size = self._file.size // PAGE, array_bytes(each)
            pages = self._begin_run(page, size)
            places[name] = write_array(self._file, each)
            self._file.write(_ZEROS[: pages * PAGE - PAGE_HEADER - size])
            nodes[b"_" + name.encode("ascii")] = page, size
        encoded = header(places)
        header_page = self._write_run(encoded, len(encoded))
        nodes[b"_header"] = header_page, len(encoded)
        entries = self._count * len(self._names) + len(nodes) + 1
        tail = self._write_tail(nodes, self._file.size // PAGE)
        seal_page = self._file.size // PAGE
        self._file.write(_OVERFLOW.pack(seal_page, 0, OVERFLOW, 1))
        seal_start = self._file.size
        self._file.skip(SEAL_SIZE)
        self._file.write(bytes(PAGE - PAGE_HEADER - SEAL_SIZE))
        self._file.flush()
        self._overflow_pages += 1
        meta = _meta_pages(tail, entries=entries, overflow_pages=self._overflow_pages, last_page=seal_page)
        self._file.overwrite(0, meta)
        return Ending(
            file_size=self._file.size,
            seal_start=seal_start,
            head_size=len(meta),
            header_start=header_page * PAGE + PAGE_HEADER,
            header_size=len(encoded),
            header_crc=crc32(encoded),
            head_crc=crc32(meta),
            file_crc=crc32(meta, self._file.crc),
        )

    def _write_run(self, value: Any, size: int) -> int:
        """Write a value to its own run of overflow pages, and return its first page."""
        page = self._file.size // PAGE
        pages = self._begin_run(page, size)
        self._file.write_parts((value, _ZEROS[: pages * PAGE - PAGE_HEADER - size]), pages * PAGE - PAGE_HEADER)
        return page

    def _begin_run(self, page: int, size: int) -> int:
        """Write the head of a run of overflow pages for so many bytes, and return how many pages it has."""
        self._check_size(size)
        pages = (PAGE_HEADER - 1 + size) // PAGE + 1
        self._file.write(_OVERFLOW.pack(page, 0, OVERFLOW, pages))
        self._overflow_pages += pages
        return pages

    def _check_size(self, size: int) -> None:
        if size > VALUE_MAX:
            raise SchemaError(
                f"{self._file.path}: expected values up to {VALUE_MAX} bytes in LMDB, got {size}: pack tar"
            )

    def _write_tail(self, nodes: Mapping[bytes, tuple[int, int]], first: int) -> _Tail:
        """Write the leaves of the index and all branch pages, from page ``first`` on; the seal's page comes next."""
        keys = sorted([*nodes, b"_seal"])
        groups = _groups(len(_big_node(key, 0, 0)) + 2 for key in keys)
        of_index = [(keys[group.start], first + i) for i, group in enumerate(groups)]
        leaves = len(self._leaves) + len(of_index)
        levels: list[tuple[Callable[[], Iterable[_Child]], list[slice]]] = []
        level: Callable[[], Iterable[_Child]] = partial(self._all_leaves, of_index)
        page, count, root = first + len(groups), leaves, of_index[0][1]
        while count > 1:
            cut = _groups(_even(NODE_HEADER + len(key)) + 2 for key, _ in level())
            levels.append((level, cut))
            upper = [(children[0][0], page + i) for i, children in enumerate(_in_groups(level(), cut))]
            level = partial(iter, upper)
            page, count, root = page + len(cut), len(cut), upper[0][1]
        runs = {**nodes, b"_seal": (page, PAGE - PAGE_HEADER)}
        entries = [_big_node(key, runs[key][1], runs[key][0]) for key in keys]
        for (_, own), group in zip(of_index, groups, strict=True):
            self._file.write(_node_page(own, LEAF, entries[group]))
        for children_of, cut in levels:
            for children in _in_groups(children_of(), cut):
                below = [_branch_node(key if i else b"", child) for i, (key, child) in enumerate(children)]
                self._file.write(_node_page(self._file.size // PAGE, BRANCH, below))
        branches = sum(len(cut) for _, cut in levels)
        return _Tail(root, depth=len(levels) + 1, branches=branches, leaves=leaves)

    def _all_leaves(self, of_index: Iterable[_Child]) -> Iterator[_Child]:
        """Yield the first key and the page of each leaf, those of samples before those of the index."""
        for block in blocks_of(self._leaves):
            for entry, page in block.tolist():
                number, field = divmod(entry, len(self._suffixes))
                yield b"%010d" % number + self._suffixes[field], page
        yield from of_index

    def release(self) -> None:
        """See ``ShardWriter``."""
        self._leaves.close()


_Child = tuple[bytes, int]  # of a branch: the first key of a page, and its number


@dataclass(frozen=True, slots=True)
class _Tail:
    root: int
    depth: int
    branches: int
    leaves: int


class _Elements:
    """The sizes of the elements of lists, each list one value: where elements begin follows from where values do."""

    def __init__(self) -> None:
        self._counts = np.empty(0, np.int64)  # of lists whose place is not known yet
        self._sizes = np.empty(0, np.int64)

    def append(self, lists: ListSpans) -> None:
        """Take lists that were written."""
        self._counts = np.concatenate((self._counts, lists.counts))
        self._sizes = np.concatenate((self._sizes, lists.spans.sizes))

    def take_starts(self, of_lists: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the elements of the next lists begin, whose values begin at these places."""
        counts, self._counts = np.split(self._counts, [len(of_lists)])
        sizes, self._sizes = np.split(self._sizes, [int(counts.sum())])
        before = np.cumsum(sizes) - sizes
        firsts = firsts_of(counts)[:-1]
        filled = counts > 0
        starts: NDArray[np.int64] = before + np.repeat(of_lists[filled] - before[firsts[filled]], counts[filled])
        return starts


def _pieces(fields: Sequence[Spans]) -> list[tuple[int, int]]:
    """Cut a batch into runs of samples of about PIECE_BYTES, so that their pages take bounded memory."""
    if not fields:
        return []
    sizes = np.sum([spans.sizes + NODE_HEADER for spans in fields], axis=0)
    filled = np.cumsum(sizes) // PIECE_BYTES
    cuts = (np.flatnonzero(np.diff(filled)) + 1).tolist()
    return list(pairwise([0, *cuts, len(sizes)]))


def _groups(sizes: Iterable[int]) -> list[slice]:
    """Cut nodes into full pages, but the last never with a single node: liblmdb wants two in a branch."""
    groups: list[slice] = []
    start = count = 0
    free = PAGE - PAGE_HEADER
    for size in sizes:
        if size > free:
            groups.append(slice(start, count))
            start, free = count, PAGE - PAGE_HEADER
        free -= size
        count += 1
    if groups and start == count - 1:
        groups[-1] = slice(groups[-1].start, start - 1)
        start -= 1
    return [*groups, slice(start, count)]


def _in_groups(children: Iterable[_Child], groups: Sequence[slice]) -> Iterator[list[_Child]]:
    """Yield the children of each group."""
    left = iter(children)
    for group in groups:
        yield list(islice(left, group.stop - group.start))


def _node_page(page: int, flags: int, nodes: Sequence[bytes]) -> bytes:
    """Return a branch or leaf page."""
    places, upper = [], PAGE
    for node in nodes:
        upper -= len(node)
        places.append(upper)
    lower = PAGE_HEADER + 2 * len(nodes)
    head = _PAGE.pack(page, 0, flags, lower, upper) + struct.pack(f"<{len(nodes)}H", *places)
    return b"".join((head, _ZEROS[: upper - lower], *reversed(nodes)))


def _big_node(key: bytes, size: int, page: int) -> bytes:
    node = _NODE.pack(size, 1, len(key)) + key + _PGNO.pack(page)
    return node + b"\0" * (len(node) & 1)


def _branch_node(key: bytes, child: int) -> bytes:
    node = _BRANCH.pack(child & 0xFFFFFFFF, child >> 32, len(key)) + key
    return node + b"\0" * (len(node) & 1)


def _even(size: int) -> int:
    return size + (size & 1)


def _meta_pages(tail: _Tail, *, entries: int, overflow_pages: int, last_page: int) -> bytes:
    """Return both meta pages: liblmdb uses the one with the higher txnid."""
    free = _DB.pack(PAGE, INTEGER_KEY, 0, 0, 0, 0, 0, NO_PAGE)
    empty = _DB.pack(0, 0, 0, 0, 0, 0, 0, NO_PAGE)
    main = _DB.pack(0, 0, tail.depth, tail.branches, tail.leaves, overflow_pages, entries, tail.root)
    pages = []
    for txnid, (database, last) in enumerate(((empty, 1), (main, last_page))):
        head = _PAGE.pack(txnid, 0, META, 0, 0) + _META.pack(_MAGIC, _VERSION, 0, (last_page + 1) * PAGE)
        pages.append((head + free + database + _LAST.pack(last, txnid)).ljust(PAGE, b"\0"))
    return b"".join(pages)


def _overhead(schema: Schema) -> str:
    if schema.flat is not None:
        return "index and key of each sample; LMDB keeps the ids in pieces of 1 MiB"
    return "LMDB rounds values of more than about 2 kB up to pages of 4 KiB"


def _column_code(field: Field) -> str:
    reshaped = f".reshape({(-1, *field.shape)})" if field.shape else ""
    return f'np.frombuffer(txn.get(b"_{field.name}"), "{field.dtype}"){reshaped}'


# Lines that define ``index``: numbers of the index, whose type the header has.
_INDEX = [
    '    kinds = json.loads(txn.get(b"_header"))["arrays"]',
    '    index = lambda name: np.frombuffer(txn.get(f"_{name}".encode()), kinds[name]["dtype"])',
]


def _count_code(field: Field) -> str:
    """Python for the number of samples, by a payload field."""
    return f'len(index("{field.name}_{"counts" if field.is_list else "sizes"}"))'


def _lines_of_lists(schema: Schema) -> list[str]:
    """Lines that define ``sample``, which cuts the values of lists into their elements."""
    return [
        '    cuts = lambda name: np.cumsum(index(name + "_counts"))[:-1]',
        f'    sizes = {{name: np.split(index(name + "_sizes"), cuts(name)) for name in {listed_names(schema)}}}',
        "    cut = lambda value, sizes: [value[stop - size : stop] for size, stop in zip(sizes, np.cumsum(sizes))]",
        "    listed = lambda i, name: list(map(read[name], cut(value(i, name), sizes[name][i])))",
        "    sample = lambda i: {n: listed(i, n) if n in sizes else read[n](value(i, n)) for n in read}",
    ]


def _reader_of_many(schema: Schema) -> str:
    columns = ", ".join(f'"{field.name}": {_column_code(field)}' for field in schema.columns)
    sample = "sample(i)" if schema.lists else "{name: parse(value(i, name)) for name, parse in read.items()}"
    lines = [
        *readers(schema, {field.name: of_bytes(field) for field in schema.payload}),
        "with lmdb.open(path, subdir=False, readonly=True, lock=False) as env, env.begin() as txn:",
        *_INDEX,
        f"    count = {_count_code(schema.payload[0])}",
        '    value = lambda index, name: txn.get(b"%010d/%s" % (index, name.encode()))',
        *(_lines_of_lists(schema) if schema.lists else []),
        f"    samples = [{sample} for i in range(count)]",
        *([f"    columns = {{{columns}}}"] if columns else []),
    ]
    return "\n".join([imports(lines, "lmdb"), *lines, ""])


def _plain_reader(schema: Schema) -> str:
    if has_many_fields(schema):
        return _reader_of_many(schema)
    field = schema.payload[0]
    lines = ["with lmdb.open(path, subdir=False, readonly=True, lock=False) as env, env.begin() as txn:"]
    if schema.flat is not None:
        pieces = f'np.frombuffer(v, "{field.dtype}") for k, v in txn.cursor() if k.startswith(b"{field.name}/")'
        lines += [
            *(line.strip() for line in _INDEX),
            f"flat = np.concatenate([{pieces}])",
            f'samples = np.split(flat, np.cumsum(index("{field.name}_sizes"))[:-1])',
        ]
    elif schema.is_text:
        lines.append(f'samples = [value.decode() for key, value in txn.cursor() if key.endswith(b"/{field.name}")]')
    else:
        values = f'value for key, value in txn.cursor() if key.endswith(b"/{field.name}")'
        lines.append(f'images = [{values}]  # or txn.get(b"%010d/{field.name}" % index)')
    if "label" in schema:
        lines.append(f"labels = {_column_code(schema['label'])}")
    return imports(lines, "lmdb", "numpy as np") + "\n" + "\n    ".join(lines) + "\n"


FORMAT = Format(
    name="lmdb",
    suffixes=(".lmdb",),
    file="an LMDB file",
    good_for="many readers, random access by key",
    writer=LmdbWriter,
    seal_at=always_at(PAGE_HEADER - PAGE),
    overhead=_overhead,
    plain_reader=_plain_reader,
    marks=((PAGE_HEADER, _MAGIC.to_bytes(4, "little")),),
    cut_off=cut_lmdb,
    numbered_keys=lambda schema: True,
)
