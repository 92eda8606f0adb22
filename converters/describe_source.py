"""What ``fastio info`` says about a source that is not packed yet: its fields, its first samples, how to pack it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from fastio.codec.headers import read_headers
from fastio.converters.source import Chunk, Problem, Source
from fastio.types.field_types import type_of
from fastio.types.picture_kinds import PICTURE_KINDS
from fastio.types.schema import Field

__all__ = ["describe_source", "field_places", "pack_command"]

_FIRST_BYTES, _FIRST_SAMPLES = 8 << 20, 512  # what is read to describe values
_SHOWN = 5  # problems


def describe_source(source: Source, what: str) -> dict[str, Any]:
    """
    Return what ``fastio info PATH --json`` prints: all counts, each field with its type, and what its first values are.

    ``what`` is its kind in words. The first samples are read, at most 512.
    """
    pieces = source.chunks(_FIRST_BYTES, _FIRST_SAMPLES)
    chunk = source.begin(pieces[0])() if pieces else None
    places = field_places(source.metadata)
    classes = source.metadata.get("classes")
    return {
        "path": source.path,
        "is": "source",
        "kind": source.kind,
        "what": what,
        "samples": len(source),
        "files": source.files_opened,
        "size_bytes": source.size_bytes,
        "disk_bytes": source.disk_bytes,
        "fields": [
            {
                **stored,  # name, codec, dtype, shape, role
                "from": places.get(field.name),
                "type": type_of(field),
                "first": {} if chunk is None else _first(field, chunk),
            }
            for field, stored in zip(source.schema.fields, source.schema.to_json()["fields"], strict=True)
        ],
        "first_samples": 0 if chunk is None else len(chunk.batch.keys),
        "classes": classes,
        "field_classes": source.metadata.get("field_classes") or {},
        "problems": len(source.problems),
        "problems_shown": [
            {"key": problem.key, "problem": problem.problem} for problem in _problems(source, chunk)[:_SHOWN]
        ],
        "left_out": len(source.left_out),
        "left_out_columns": (source.metadata.get("source") or {}).get("left_out") or [],
    }


def pack_command(path: str, *options: str) -> str:
    """
    Return a command that packs a source into a file that does not exist yet.

    >>> pack_command("data/train.parquet", "--text-field", "body")
    'fastio pack data/train.parquet train.lmdb --text-field body'
    """
    stem = Path(path.rstrip("/")).name.partition(".")[0].strip("*?-_") or "out"
    out = next(name for name in (f"{stem}{'-' * bool(i)}{i or ''}.lmdb" for i in count()) if not Path(name).exists())
    return shlex.join(["fastio", "pack", path, out, *options])


def field_places(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return where a source has each field, in the words of ``--field``, as far as its record says."""
    columns = (metadata.get("table") or {}).get("columns") or ()
    titles = {each["field"]: ".".join(each["path"]) for each in columns if "field" in each}
    choices = [str(words).partition("=") for words in (metadata.get("source") or {}).get("fields") or ()]
    return {**titles, **{name: where.rpartition(":")[0] or where for name, _, where in choices}}


def _problems(source: Source, chunk: Chunk | None) -> list[Problem]:
    return [*source.problems, *(() if chunk is None else chunk.problems)]


def _first(field: Field, chunk: Chunk) -> dict[str, Any]:
    """What the values of a field are in the first samples."""
    if not chunk.batch.keys:
        return {}
    if field.is_column:
        column = chunk.batch.columns[field.name]
        numbers = np.abs(column) if column.dtype.kind == "c" else column
        return {"min": numbers.min().item(), "max": numbers.max().item()} if numbers.size else {}
    spans = chunk.batch.spans[field.name]
    sizes = spans.sizes
    found: dict[str, Any] = {"bytes": {"min": int(sizes.min()), "mean": float(sizes.mean()), "max": int(sizes.max())}}
    if field.traits.is_picture:
        shapes, kinds = chunk.batch.shapes[field.name], np.unique(read_headers(spans).kind)
        found["kinds"] = [PICTURE_KINDS[kind].name for kind in kinds.tolist()]
        found["heights"] = [int(shapes[:, 0].min()), int(shapes[:, 0].max())]
        found["widths"] = [int(shapes[:, 1].min()), int(shapes[:, 1].max())]
    elif field.traits.is_ragged and field.unit_bytes:
        lengths = sizes // field.unit_bytes
        found["lengths"] = [int(lengths.min()), int(lengths.max())]
    return found
