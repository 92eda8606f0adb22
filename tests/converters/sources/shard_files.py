"""Shards of MDS and chunks of LitData, written byte for byte: a table of offsets, and samples of values."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.converters.trees import picture

__all__ = ["KINDS", "dictionary", "pairs_of_kind", "write_litdata", "write_mds"]

Sample = Mapping[str, bytes]  # values by column, as they lie in a shard


def _shard(head: bytes, samples: Sequence[bytes]) -> bytes:
    """The count, the offsets from the beginning of the file on, what comes before the samples, and these."""
    start = 4 * (len(samples) + 2) + len(head)
    offsets = [start]
    for each in samples:
        offsets.append(offsets[-1] + len(each))
    return struct.pack(f"<{len(samples) + 2}I", len(samples), *offsets) + head + b"".join(samples)


def write_mds(
    folder: Path,
    encodings: Mapping[str, str],
    samples: Sequence[Sample],
    *,
    sizes: Mapping[str, int] | None = None,
    per_shard: int = 4,
    hashes: Sequence[str] = (),
) -> Path:
    """
    Shards of MosaicML Streaming, as its MDSWriter leaves them: columns sorted by name, ``sizes`` those of all values.
    """
    folder.mkdir(parents=True)
    names = sorted(encodings)
    sizes = sizes or {}
    config = {
        "column_encodings": [encodings[name] for name in names],
        "column_names": names,
        "column_sizes": [sizes.get(name) for name in names],
        "compression": None,
        "format": "mds",
        "hashes": list(hashes),
        "size_limit": 1 << 26,
        "version": 2,
    }
    entries = []
    for number, start in enumerate(range(0, len(samples), per_shard)):
        joined = []
        for sample in samples[start : start + per_shard]:
            values = [sample[name] for name in names]
            heads = [struct.pack("<I", len(sample[name])) for name in names if name not in sizes]
            joined.append(b"".join((*heads, *values)))
        data, name = _shard(json.dumps(config).encode(), joined), f"shard.{number:05d}.mds"
        (folder / name).write_bytes(data)
        raw = {
            "basename": name,
            "bytes": len(data),
            "hashes": {each: hashlib.new(each, data).hexdigest() for each in hashes},
        }
        entries.append({**config, "raw_data": raw, "samples": len(joined), "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"shards": entries, "version": 2}))
    return folder


def write_litdata(
    folder: Path,
    formats: Sequence[str],
    tree: Any,
    samples: Sequence[Sequence[bytes]],
    *,
    per_chunk: int = 4,
    **config: Any,
) -> Path:
    """Chunks of LitData, as ``optimize`` leaves them; ``tree`` is the spec of a sample, ``formats`` are its leaves'."""
    folder.mkdir(parents=True)
    is_bare = config.get("item_loader") == "TokensLoader"
    chunks = []
    for number, start in enumerate(range(0, len(samples), per_chunk)):
        joined = []
        for values in samples[start : start + per_chunk]:
            heads = [] if is_bare else [struct.pack("<I", len(each)) for each in values]
            joined.append(b"".join((*heads, *values)))
        data, name = _shard(b"", joined), f"chunk-0-{number}.bin"
        (folder / name).write_bytes(data)
        dim = len(joined[0]) // 8 if is_bare else None
        chunks.append({"chunk_bytes": len(data), "chunk_size": len(joined), "dim": dim, "filename": name})
    said = {
        "chunk_bytes": 64_000_000,
        "chunk_size": None,
        "compression": None,
        "data_format": list(formats),
        "data_spec": json.dumps([1, tree]),
        "encryption": None,
        "item_loader": "PyTreeLoader",
        **config,
    }
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": said, "updated_at": "1795815993.5"}))
    return folder


def write_tables(
    folder: Path, rows: Sequence[Mapping[str, Any]], types: Mapping[str, str], *, per_chunk: int = 4
) -> Path:
    """Chunks of LitData whose samples are rows of an Arrow file, as it writes them where pyarrow is installed."""
    write_litdata(folder, ["bytes"] * len(types), dictionary(**dict.fromkeys(types)), [], types=dict(types))
    index, chunks = json.loads((folder / "index.json").read_text()), []
    for number, start in enumerate(range(0, len(rows), per_chunk)):
        table, sink = pa.Table.from_pylist(list(rows[start : start + per_chunk])), pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
        inner, header = sink.getvalue().to_pybytes(), 4 * (table.num_rows + 2)
        head = struct.pack(f"<{table.num_rows + 2}I", table.num_rows, *[header] * (table.num_rows + 1))
        data, name = head + inner + struct.pack("<I", len(inner)) + b"LDARW01\0", f"chunk-0-{number}.bin"
        (folder / name).write_bytes(data)
        chunks.append({"chunk_bytes": len(data), "chunk_size": table.num_rows, "dim": None, "filename": name})
    (folder / "index.json").write_text(json.dumps({**index, "chunks": chunks}))
    return folder


LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}


def dictionary(**children: Any) -> dict[str, Any]:
    """The spec of a dictionary; a leaf for each value that is None."""
    specs = [LEAF if each is None else each for each in children.values()]
    return {"type": "builtins.dict", "context": json.dumps([*children]), "children_spec": specs}


def row(*children: Any) -> dict[str, Any]:
    """The spec of a tuple."""
    specs = [LEAF if each is None else each for each in children]
    return {"type": "builtins.tuple", "context": "null", "children_spec": specs}


def _mds_pairs(folder: Path, photos: Sequence[bytes]) -> Path:
    samples = [{"image": photo, "class": struct.pack("<q", i % 3)} for i, photo in enumerate(photos)]
    return write_mds(folder, {"image": "bytes", "class": "int"}, samples, sizes={"class": 8})


def _litdata_pairs(folder: Path, photos: Sequence[bytes]) -> Path:
    samples = [(photo, struct.pack("<q", i % 3)) for i, photo in enumerate(photos)]
    return write_litdata(folder, ["bytes", "int"], dictionary(image=None, **{"class": None}), samples)


def _table_pairs(folder: Path, photos: Sequence[bytes]) -> Path:
    rows = [{"image": photo, "class": i % 3} for i, photo in enumerate(photos)]
    return write_tables(folder, rows, {"image": "bytes", "class": "int"})


KINDS = {
    "mds": _mds_pairs,
    "litdata": _litdata_pairs,
    "tables": _table_pairs,
}  # pictures as bytes, and whole numbers as "class"


def pairs_of_kind(kind: str, folder: Path, count: int = 10) -> Path:
    """So many pictures with labels 0, 1 and 2."""
    return KINDS[kind](folder, [picture(i) for i in range(count)])
