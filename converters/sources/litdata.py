"""
Reads folders of LitData's chunks. What a chunk is, ``sample_shards.py`` draws; nothing comes before its samples, every
value has a size, and ``index.json`` lists the chunks and says what a sample is: a tree, whose leaves are columns.

    {"chunks": [{"filename": "chunk-0-0.bin", "chunk_size": 1000, "chunk_bytes": ..., "dim": null}],
     "config": {"data_format": ["jpeg", "int"], "data_spec": "[1, {\"type\": \"builtins.dict\", \"context\":
     \"[\\\"image\\\", \\\"class\\\"]\", \"children_spec\": [...]}]", "compression": null, "encryption": null,
     "item_loader": "PyTreeLoader", ...}}

Columns of dictionaries are called by their keys, those of tuples and lists by their positions, with dots between where
one lies in the other. An array of any shape begins with the number of its dtype, how many sizes it has, and the sizes,
as uint32: little endian from NumPy, big endian from torch. Chunks of token ids (``TokensLoader``) hold a row of ids a
sample, without its size.

Dictionaries of plain Python values lie in tables instead, where the writer has pyarrow: all offsets are then that of
the first sample, and an Arrow file follows, its size (uint32) and the mark ``LDARW01\\0``. Its columns are those of
the samples.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from fastio.converters.labels.columns import ALL_OTHERS, LABEL_TITLES
from fastio.converters.sources.arrow.reading import reading
from fastio.converters.sources.arrow.source import table_source
from fastio.converters.sources.file_set import FileSet
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.converters.sources.sample_shards import (
    ArrayHead,
    Encoding,
    SampleShard,
    SampleShards,
    ShardColumn,
    beside_index,
    check_listed_once,
    only_folder,
    read_index,
)
from fastio.converters.sources.shard_source import shard_source
from fastio.errors import SourceError
from fastio.store.files.mapped import MappedSource
from fastio.store.kinds.scan import SourcePath, is_utf8

__all__ = ["open_litdata"]

_KIND: Final = "litdata"  # of sources
_SUFFIX: Final = ".bin"
_ROOT: Final = "value"  # the column of samples that are one value
_DEEPEST: Final = 32
_MARK: Final = b"LDARW01\0"  # at the end of a chunk that is a table
_OF_NUMPY: Final = dict(
    enumerate(("|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16", "|b1"))
)
_OF_TORCH: Final = {
    1: "<f4",
    3: "<f8",
    5: "<c8",
    7: "<c16",
    9: "<f2",
    11: "|u1",
    12: "|i1",
    14: "<i2",
    16: "<i4",
    18: "<i8",
    19: "|b1",
    20: "<u2",
}
_PLAIN: Final = {
    **{words: Encoding(words) for words in ("bytes", "jpeg")},
    **{words: Encoding(words, "text") for words in ("str", "text")},
    "int": Encoding("int", "number", "<i8"),
    "float": Encoding("float", "number", "<f8"),
    "bool": Encoding("bool", "number", "|b1"),
    "json": Encoding("json", "json"),
    "pil": Encoding("pil", "pixels"),
}
_FILES: Final = re.compile(r"(?:image|video|audio|file|pdf|tifffile)(?::\w*)?\Z")  # whose bytes are those of a file
_BARE: Final = re.compile(r"no_header_(?P<of>numpy|tensor):(?P<code>\d+)\Z")
_REFUSED: Final = {
    "pickle": "is a pickle, which may run code when it is read: optimize again with str, int, bytes or arrays",
    "jpeg_array": "holds several pictures a sample: optimize again with one value for each",
}


def open_litdata(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open the chunks that the ``index.json`` in a folder lists, or in the only folder below that has one.

    Raises SourceError for chunks that are compressed, encrypted, missing or not what the index says, and for formats of
    values that no field takes (``pickle``, lists of pictures).
    """
    folder = only_folder(place, _KIND)
    index = read_index(folder)
    config, chunks = (index.get(name) if isinstance(index, dict) else None for name in ("config", "chunks"))
    if (
        not isinstance(config, dict)
        or not isinstance(chunks, list)
        or not all(isinstance(each, dict) for each in chunks)
    ):
        raise SourceError(f"{folder}/index.json: expected a config and a list of chunks, as of litdata.optimize")
    for what in ("compression", "encryption"):
        if config.get(what):
            raise SourceError(
                f"{folder}: its chunks have the {what} {config[what]!s:.60}, which fastio does not read: read samples "
                "with litdata.StreamingDataset, and write them with fastio.pack, or optimize them again without"
            )
    loader = config.get("item_loader", "PyTreeLoader")
    if loader not in ("PyTreeLoader", "TokensLoader"):
        raise SourceError(
            f"{folder}: its chunks are those of {loader!r:.60}, not of optimize: pack the files that they list"
        )
    if chunks and _is_table(folder, chunks[0]):
        return _tables(place, folder, chunks, config, options)
    columns = _columns(folder, config)
    is_bare = loader == "TokensLoader"
    if is_bare and len(columns) != 1:
        raise SourceError(
            f"{folder}/index.json: chunks of TokensLoader hold one row of ids a sample, got {len(columns)} values"
        )
    shards = SampleShards([_chunk(folder, each) for each in chunks], columns, is_bare=is_bare)
    return shard_source(_KIND, place, folder, shards, options, _SUFFIX)


def _is_table(folder: str, entry: Mapping[str, Any]) -> bool:
    """Whether the values of a chunk are a table of Arrow."""
    name = entry.get("filename")
    try:
        with Path(folder, name if isinstance(name, str) else "").open("rb") as file:
            file.seek(-len(_MARK), os.SEEK_END)
            return file.read() == _MARK
    except OSError:  # what is not there, or too small, is refused later
        return False


def _tables(
    place: SourcePath,
    folder: str,
    chunks: Sequence[Mapping[str, Any]],
    config: Mapping[str, Any],
    options: SourceOptions,
) -> ListedSource:
    """Open chunks that are tables, as those of Arrow files are opened. Raises SourceError."""
    files = list[MappedSource]()
    for each in chunks:
        file = SampleShard.mapped(folder, each.get("filename"), each.get("chunk_size"))
        if file.size != each.get("chunk_bytes") or not _is_table(folder, each):
            raise SourceError(
                f"{file.path}: has {file.size:,} bytes and {'a' if _is_table(folder, each) else 'no'} table, index.json"
                f" says {each.get('chunk_bytes')!r:.40} and the first chunk has one: get the chunk again"
            )
        with reading(_KIND, file.path, []) as table:
            rows = sum(batch.num_rows for batch in table.batches)
        if rows != each.get("chunk_size"):
            raise SourceError(f"{file.path}: its table has {rows} rows, index.json says {each.get('chunk_size')}")
        files.append(file)
    check_listed_once([file.path for file in files])
    disk = sum(Path(file.path).stat().st_blocks * 512 for file in files)
    names = [str(each["filename"]) for each in chunks]
    found = FileSet(folder, names, sum(file.size for file in files), disk)
    source = table_source(_KIND, _KIND, place, found, _with_label(options, config.get("types")))
    paths = [*(file.path for file in files), f"{folder}/index.json"]
    unlisted, beside = beside_index(folder, names, _SUFFIX)
    return replace(
        source,
        paths=lambda: paths,
        files_opened=len(paths),
        problems=[*source.problems, *unlisted],
        left_out=[*source.left_out, *beside],
    )


def _with_label(options: SourceOptions, types: Any) -> SourceOptions:
    """The options with the column that is the label by its title, if they name none."""
    columns = options.columns
    if not isinstance(types, dict) or columns.label_columns or ALL_OTHERS in columns.ignore_columns:
        return options
    if any(choice.name == "label" for choice in options.fields):
        return options
    taken = {*columns.ignore_columns, *(choice.where for choice in options.fields)}
    title = next((each for each in LABEL_TITLES if each not in taken and types.get(each) in ("int", "str")), None)
    if title is None:
        return options
    return replace(options, columns=replace(columns, label_columns=(title,)))


def _columns(folder: str, config: Mapping[str, Any]) -> list[ShardColumn]:
    """The leaves of a sample and their formats. Raises SourceError."""
    formats, spec = config.get("data_format"), config.get("data_spec")
    if not isinstance(formats, list) or not formats or not all(isinstance(each, str) for each in formats):
        raise SourceError(
            f"{folder}/index.json: expected the data_format of each value of a sample, got {formats!r:.80}"
        )
    try:
        version, tree = json.loads(spec if isinstance(spec, str) else "null")
        if version != 1:
            raise ValueError(f"it has the version {version!r:.20}")
        names = [".".join(path) or _ROOT for path in _leaves(tree, ())]
    except (TypeError, ValueError, KeyError, RecursionError) as exc:
        raise SourceError(
            f"{folder}/index.json: data_spec is no tree of dictionaries, lists and tuples in JSON ({exc}); pickles "
            "of older versions are not read: optimize again with a newer litdata"
        ) from exc
    if len(names) != len(formats) or len(set(names)) < len(names):
        raise SourceError(
            f"{folder}/index.json: data_spec has the values {', '.join(names):.200}, but data_format {len(formats)}"
        )
    return [ShardColumn(name, _encoding(words)) for name, words in zip(names, formats, strict=True)]


def _leaves(tree: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield where each leaf of a tree is. Raises ValueError, TypeError or KeyError for trees of other things."""
    type_, children = tree["type"], tree["children_spec"]
    if type_ is None:
        yield path
        return
    if len(path) > _DEEPEST:
        raise ValueError("it is too deep")
    if type_ in ("builtins.dict", "collections.OrderedDict"):
        names = json.loads(tree["context"])
        if not all(isinstance(name, str) and name and is_utf8(name) for name in names):
            raise ValueError(f"its keys are no names: {names!r:.80}")
    elif type_ in ("builtins.list", "builtins.tuple"):
        names = list(map(str, range(len(children))))
    else:
        raise ValueError(f"it holds {type_!r:.60}")
    for name, child in zip(names, children, strict=True):
        yield from _leaves(child, (*path, name))


def _encoding(words: str) -> Encoding:
    if words in _PLAIN:
        return _PLAIN[words]
    if _FILES.match(words):
        return Encoding(words)
    if words in ("numpy", "tensor"):
        return Encoding(words, "array", head=partial(_array_head, words))
    match = _BARE.match(words)
    dtype = (_OF_NUMPY if match["of"] == "numpy" else _OF_TORCH).get(int(match["code"])) if match else None
    if dtype is not None:
        return Encoding(words, "array", dtype, head=partial(_bare_head, dtype))
    return Encoding(words, refusal=_REFUSED.get(words, "fastio does not know: optimize again with values of bytes"))


def _array_head(of: str, data: memoryview) -> ArrayHead:
    order, dtypes = ("<", _OF_NUMPY) if of == "numpy" else (">", _OF_TORCH)
    if len(data) < 8:
        raise ValueError("has an array without a dtype or sizes: the chunk is damaged")
    code, count = struct.unpack_from(f"{order}2I", data)
    if code not in dtypes:
        raise ValueError(f"has an array of the dtype number {code}, which NumPy has not, or the chunk is damaged")
    stop = 8 + 4 * count
    if stop > len(data):
        raise ValueError("has an array that ends within its sizes: the chunk is damaged")
    return ArrayHead(stop, dtypes[code], struct.unpack_from(f"{order}{count}I", data, 8))


def _bare_head(dtype: str, data: memoryview) -> ArrayHead:
    return ArrayHead(0, dtype, (len(data) // int(dtype[2:]),))


def _chunk(folder: str, entry: Mapping[str, Any]) -> SampleShard:
    """Open a chunk, and compare it with its entry. Raises SourceError."""
    chunk = SampleShard.open(folder, entry.get("filename"), entry.get("chunk_size"))
    begin, end = int(chunk.offsets[0]), int(chunk.offsets[-1])
    if chunk.head:
        raise SourceError(
            f"{chunk.file.path}: has {len(chunk.head)} bytes before its first sample: get the chunk again"
        )
    if entry.get("chunk_bytes") not in (end, end - begin):  # older versions counted the samples alone
        raise SourceError(
            f"{chunk.file.path}: has {end:,} bytes, index.json says {entry.get('chunk_bytes')!r:.40}: get the chunk "
            "again"
        )
    return chunk
