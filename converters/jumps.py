"""Notes where MCUs of JPEGs begin while they are packed, and finds the damaged ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.jump_fields import jump_fields
from fastio.converters.probe import decode_problem
from fastio.converters.source import Chunk, Problem
from fastio.errors import SourceError
from fastio.store.jump_tables import JumpRule, begin_jump_tables
from fastio.types.schema import Schema
from fastio.types.spans import Spans

__all__ = ["UNCHECKED", "begin_jumps", "damage"]

UNCHECKED = ", or pack them unchecked, without start points: --no-jump (jump=False)"


def begin_jumps(
    chunk: Chunk, schema: Schema, pool: _native.ThreadPool, rule: JumpRule, *, is_stored: bool
) -> Callable[[], Chunk]:
    """
    Begin to note where MCUs of a chunk's JPEGs begin; the result waits for it and returns the new chunk.

    JPEGs that are found to be damaged become problems of the chunk; if it ``is_stored`` (see ``Source``), they stay.
    """
    begun = {
        field.name: begin_jump_tables(chunk.batch.spans[field.name], pool, rule=rule)
        for field in jump_fields(schema)
        if chunk.batch.keys
    }
    if not begun:
        return lambda: chunk

    def finish() -> Chunk:
        done = {name: finish_tables() for name, finish_tables in begun.items()}
        problems = damage(done.values(), chunk.batch.keys)
        if is_stored:
            problems = {}
        batch = replace(chunk.batch, spans={**chunk.batch.spans, **{name: spans for name, (spans, _) in done.items()}})
        if not problems:
            return replace(chunk, batch=batch)
        good = np.setdiff1d(np.arange(len(batch.keys)), np.fromiter(problems, np.int64, len(problems)))
        listed = [Problem(batch.keys[i], problems[i], UNCHECKED) for i in sorted(problems)]
        return replace(chunk, batch=batch.at(good), problems=[*chunk.problems, *listed])

    return finish


def damage(found: Iterable[tuple[Spans, NDArray[np.int32]]], keys: Iterable[str]) -> dict[int, str]:
    """
    Return what is wrong with damaged pictures, and where, by position: of the pictures of each field and their status.

    Raises SourceError if there was not enough memory for one, which says nothing of the picture.
    """
    names, problems = list(keys), dict[int, str]()
    for spans, status in found:
        for i in np.flatnonzero(status).tolist():
            if status[i] == _native.NO_MEMORY:
                raise SourceError(
                    f"{names[i]}: there is not enough memory to read this picture: free some, or pack with fewer "
                    "threads (--jobs)"
                )
            problems.setdefault(i, decode_problem(int(status[i])) + _where(spans.view(i)))
    return problems


def _where(file: NDArray[np.uint8]) -> str:
    """Where a JPEG is damaged, in words that follow what is wrong; nothing if that is not known."""
    place = _native.damage_place(file)
    if place is None:
        return ""
    byte, row, rows = place
    if row == rows:
        return f", from byte {byte:,} of {len(file):,} on, behind all of its picture"
    return f", from byte {byte:,} of {len(file):,} on, in row {row + 1} of {rows} of its blocks"
