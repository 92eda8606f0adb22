"""Notes where MCUs of JPEGs begin while they are packed, and finds the damaged ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.probe import decode_problem
from fastio.converters.source import Chunk, Problem
from fastio.errors import SourceError
from fastio.store.files.local import is_local
from fastio.store.jump_tables import begin_jump_tables
from fastio.store.sample_store import SampleStore
from fastio.store.values import read_values
from fastio.types.schema import Field, Schema
from fastio.types.units import size

__all__ = ["begin_jumps", "damage", "jump_advice", "jump_fields", "jump_lines", "unread_lines"]

_LOOKED_AT = 16  # pictures, for advice
_PHOTO_SIDE = 256  # pixels of the short side; smaller pictures were not measured


def jump_fields(schema: Schema) -> list[Field]:
    """Return the fields whose pictures may have jump tables: encoded ones that are not masks."""
    return [field for field in schema.payload if field.traits.is_image]


def begin_jumps(chunk: Chunk, schema: Schema, pool: _native.ThreadPool) -> Callable[[], Chunk]:
    """
    Begin to note where MCUs of a chunk's JPEGs begin; the result waits for it and returns the new chunk.

    JPEGs that are found to be damaged become problems of the chunk.
    """
    begun = {
        field.name: begin_jump_tables(chunk.batch.spans[field.name], pool)
        for field in jump_fields(schema)
        if chunk.batch.keys
    }
    if not begun:
        return lambda: chunk

    def finish() -> Chunk:
        done = {name: finish_tables() for name, finish_tables in begun.items()}
        problems = damage((status for _, status in done.values()), chunk.batch.keys)
        batch = replace(chunk.batch, spans={**chunk.batch.spans, **{name: spans for name, (spans, _) in done.items()}})
        if not problems:
            return replace(chunk, batch=batch)
        good = np.setdiff1d(np.arange(len(batch.keys)), np.fromiter(problems, np.int64, len(problems)))
        listed = [Problem(batch.keys[i], problems[i]) for i in sorted(problems)]
        return replace(chunk, batch=batch.at(good), problems=[*chunk.problems, *listed])

    return finish


def damage(statuses: Iterable[NDArray[np.int32]], keys: Iterable[str]) -> dict[int, str]:
    """
    Return what is wrong with damaged pictures, by position, from their status in each field.

    Raises SourceError if there was not enough memory for one, which says nothing of the picture.
    """
    names, problems = list(keys), dict[int, str]()
    for status in statuses:
        for i in np.flatnonzero(status).tolist():
            if status[i] == _native.NO_MEMORY:
                raise SourceError(
                    f"{names[i]}: there is not enough memory to read this picture: free some, or pack with fewer "
                    "threads (--jobs)"
                )
            problems.setdefault(i, decode_problem(int(status[i])))
    return problems


def jump_lines(store: SampleStore) -> list[str]:
    """
    Return a line for each field whose JPEGs can be decoded from the middle, by jump tables or restart markers.

    None for a store behind a URL, where this part of the index is not read.
    """
    lines = []
    for field in jump_fields(store.schema):
        spans = store.spans(field.name, np.arange(len(store)))
        if spans.intervals is None or not spans.intervals.sizes.any():
            continue
        count, nbytes = np.count_nonzero(spans.intervals.sizes), int(spans.intervals.sizes.sum())
        share = 100 * nbytes / int(spans.sizes.sum())
        lines.append(
            f"start points within {count:,} of {len(spans):,} pictures of {field.name!r}, for faster crops: "
            f"{size(nbytes)} of the index, {share:.2f} % of the pictures' bytes"
        )
    return lines


def jump_advice(store: SampleStore) -> list[str]:
    """
    Return a line for each field whose pictures would decode faster with jump tables, by some of them: photos, most of
    them baseline JPEGs without restart markers.

    None for a store behind a URL, where this part of the index is not read.
    """
    lines = []
    rows = np.unique(np.linspace(0, len(store) - 1, _LOOKED_AT).astype(np.int64))
    for field in jump_fields(store.schema) if len(store) and is_local(store.path) else ():
        spans = store.spans(field.name, rows)  # these alone: stores may have billions of samples
        if spans.intervals is not None and spans.intervals.sizes.any():
            continue
        if np.median(store.shapes(field.name)[rows, :2].min(axis=1)) < _PHOTO_SIDE:
            continue
        noted = begin_jump_tables(read_values(store, field.name, rows))()[0].intervals
        if noted is None or 2 * np.count_nonzero(noted.sizes) < len(rows):
            continue
        share = 100 * int(noted.sizes.sum()) / int(spans.sizes.sum())
        # Measured on 300 photos of ImageNet, RandomResizedCrop(224): benchmarks/README.md.
        lines.append(
            f"tip for the pictures of {field.name!r}: packed with --jump, random crops decode about 1.4 times as fast; "
            f"the files keep their bytes, the store grows by {share:.1f} %"
        )
    return lines


def unread_lines(path: str) -> list[str]:
    """Return a line that says what becomes of the jump tables of a store behind a URL; none for one on disk."""
    line = (
        "start points within pictures: noted in the index of each file, but not used behind URLs, so crops decode as "
        "without --jump; a set object made there has none: seal a copy of the shards on disk to have them used"
    )
    return [] if is_local(path) else [line]
