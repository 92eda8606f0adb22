"""Tables of pictures as people have them: Hugging Face's structs, Parquet and Arrow files, saved datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fastio.codec.copied import parse_json
from fastio.store import open_store
from tests.converters.trees import picture

CLASSES = ("bee", "cat", "dog")
FEATURES = {"image": {"_type": "Image"}, "label": {"names": list(CLASSES), "_type": "ClassLabel"}}


def picture_table(count: int = 7, /, **columns: Any) -> pa.Table:
    """Pictures as Hugging Face keeps them, with labels that have names; and further columns."""
    images = [{"bytes": picture(i), "path": f"{i}.png"} for i in range(count)]
    table = pa.table({"image": images, "label": [i % 3 for i in range(count)], **columns})
    return with_features(table, FEATURES)


def with_features(table: pa.Table, features: Mapping[str, Any]) -> pa.Table:
    """The notes that ``datasets`` leaves in a schema."""
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def write_parquet(path: Path, table: pa.Table, rows: int = 3, **options: Any) -> Path:
    """A Parquet file with so many rows a group."""
    pq.write_table(table, path, row_group_size=rows, **options)
    return path


def write_stream(path: Path, table: pa.Table, rows: int = 3, **options: Any) -> Path:
    """An Arrow stream, as ``datasets`` writes them."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema, **options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def write_file(path: Path, table: pa.Table, rows: int = 3, **options: Any) -> Path:
    """An Arrow file, as Feather is one."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, **options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def write_saved(folder: Path, tables: Sequence[pa.Table], **state: Any) -> Path:
    """A folder as ``datasets.Dataset.save_to_disk`` leaves it, with a file for each table."""
    folder.mkdir()
    names = [f"data-{i:05d}-of-{len(tables):05d}.arrow" for i in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        write_stream(folder / name, table)
    listed = {"_data_files": [{"filename": name} for name in names], "_split": None, **state}
    (folder / "state.json").write_text(json.dumps(listed))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    return folder


def stored(path: Path) -> dict[str, dict[str, Any]]:
    """Every sample of a store by its key: bytes and text as bytes, JSON as objects, arrays and columns as lists."""
    with open_store(path) as store:
        every = np.arange(len(store))
        samples: dict[str, dict[str, Any]] = {key: {} for key in store.keys(every)}
        for field in store.schema.fields:
            if field.is_column:
                values = store.column(field.name).tolist()
            else:
                values = [_value(field, view.tobytes()) for view in store.spans(field.name, every).views()]
            for sample, value in zip(samples.values(), values, strict=True):
                sample[field.name] = value
        return samples


def _value(field: Any, data: bytes) -> Any:
    if field.traits.is_json:
        return parse_json(data)
    if field.traits.is_array or field.traits.is_ragged:
        return np.frombuffer(data, field.dtype).reshape([-1 if n is None else n for n in field.shape]).tolist()
    return data
