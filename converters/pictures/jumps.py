"""Start points of JPEGs: made while packing, which finds damage; which fields have them, in words."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import count_jpegs, image_kind
from fastio.codec.headers import read_headers
from fastio.converters.fields.problems import list_problems
from fastio.converters.pictures.probe import decode_problem
from fastio.errors import SourceError
from fastio.store.files.local import is_local
from fastio.store.jump_tables import PHOTO_SIDE, JumpRule, begin_jump_tables
from fastio.store.protocol import IN_PLACE, SampleBatch, SampleStore, read_values
from fastio.types.picture_kinds import JPEG
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans
from fastio.types.units import size

if TYPE_CHECKING:
    from fastio.converters.sources.source import Chunk

__all__ = [
    "begin_jumps",
    "begin_noting",
    "evenly_spaced",
    "has_jumps",
    "jump_advice",
    "jump_fields",
    "jump_growth",
    "jump_lines",
    "picture_sizes",
]


UNCHECKED = ", or pack them unchecked, without start points: --no-jump (jump=False)"


def begin_jumps(
    chunk: Chunk, schema: Schema, pool: _native.ThreadPool, rule: JumpRule, *, is_stored: bool
) -> Callable[[], Chunk]:
    """
    Begin to note where MCUs of a chunk's JPEGs begin; the result waits for it and returns the new chunk.

    JPEGs that are found to be damaged become problems of the chunk; if it ``is_stored`` (see ``Source``), they stay.
    """
    if not chunk.batch.keys or not has_jumps(schema):
        return lambda: chunk
    noted = begin_noting(chunk.batch, schema, pool, rule=rule)

    def finish() -> Chunk:
        batch, found = noted()
        problems = {} if is_stored else found
        if not problems:
            return replace(chunk, batch=batch)
        from fastio.store.kinds.scan import Problem

        good = np.setdiff1d(np.arange(len(batch.keys)), np.fromiter(problems, np.int64, len(problems)))
        listed = [Problem(batch.keys[i], problems[i][1], UNCHECKED) for i in sorted(problems)]
        return replace(chunk, batch=batch.at(good), problems=[*chunk.problems, *listed])

    return finish


def begin_noting(
    batch: SampleBatch, schema: Schema, pool: _native.ThreadPool, *, rule: JumpRule | None = None
) -> Callable[[], tuple[SampleBatch, dict[int, tuple[str, str]]]]:
    """
    Begin to note where MCUs begin in the pictures of a batch, also in those of lists.

    The result waits for it, and returns the batch with start points; and, by position, the field and what is wrong with
    its JPEG, one of its list included.
    """
    fields = [field for field in schema.payload if field.element.traits.is_image]
    spans = {each.name: batch.lists[each.name].spans if each.is_list else batch.spans[each.name] for each in fields}
    begun = {name: begin_jump_tables(each, pool, rule=rule) for name, each in spans.items()}

    def finish() -> tuple[SampleBatch, dict[int, tuple[str, str]]]:
        single, lists, problems = dict(batch.spans), dict(batch.lists), dict[int, tuple[str, str]]()
        for field in fields:
            noted, status = begun[field.name]()
            if field.is_list:
                owners = lists[field.name].owners.tolist()
                bad = damage([(noted, status)], [batch.keys[row] for row in owners])
                lists[field.name] = replace(lists[field.name], spans=noted)
                bad = list_problems(lists[field.name].counts, bad, is_optional=field.is_optional)
                bad = {i: f"has a field {field.name!r} that {words}" for i, words in bad.items()}
            else:
                single[field.name] = noted
                bad = damage([(noted, status)], batch.keys)
            for i, words in bad.items():
                problems.setdefault(i, (field.name, words))
        return replace(batch, spans=single, lists=lists), problems

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


# Which fields may have jump tables, and what is said of those of a store.

_LOOKED_AT = 16  # pictures, for advice
_EXPLAINED = 1000  # pictures without start points whose headers are looked at
_HEAD_BYTES = 1 << 18  # of a JPEG, in which its scan begins


def has_jumps(schema: Schema) -> bool:
    """Return whether pictures of a field, or of its lists, may have jump tables."""
    return any(field.element.traits.is_image for field in schema.payload)


def jump_fields(schema: Schema) -> list[Field]:
    """Return the fields whose pictures may have jump tables: encoded ones that are not masks."""
    return [field for field in schema.payload if field.traits.is_image]


def _stored_pictures(store: SampleStore) -> list[tuple[SampleStore, Field]]:
    """Return what may have jump tables: the store with such a field, or the elements of its lists."""
    lists = [field for field in store.schema.lists if field.element.traits.is_image]
    return [
        *((store, field) for field in jump_fields(store.schema)),
        *((store.elements(field.name), field.element) for field in lists),
    ]


def jump_lines(store: SampleStore) -> list[str]:
    """
    Return a line for each field whose JPEGs can be decoded from the middle, by jump tables or restart markers.

    Behind a URL, it does not say why other pictures cannot, for which some would be fetched.
    """
    lines = []
    files = {shard.points_file.path for shard in getattr(store, "shards", ()) if shard.points_file is not None}
    beside = "" if not files else f" (in {Path(min(files)).name}{', ...' if len(files) > 1 else ''} beside it)"
    for pictures, field in _stored_pictures(store):
        spans = pictures.spans(field.name, np.arange(len(pictures)))
        far = pictures.far_points(field.name, np.arange(len(pictures)))
        points = spans.intervals if far is None else far.spans
        if points is None or not points.sizes.any():
            continue
        count, nbytes = np.count_nonzero(points.sizes), int(points.sizes.sum())
        share = 100 * nbytes / int(spans.sizes.sum())
        lines.append(
            f"start points within {count:,} of {len(spans):,} pictures of {field.name!r}, for faster crops: "
            f"{size(nbytes)} of the index{beside}, {share:.2f} % of the pictures' bytes"
            + ("" if far is not None else _others(pictures, field.name, np.flatnonzero(points.sizes == 0)))
        )
    return lines


def _others(store: SampleStore, name: str, rows: NDArray[np.int64]) -> str:
    """Say why other pictures have none; by some of them if they are many. Nothing if all have some."""
    if not len(rows):
        return ""
    some = rows if len(rows) <= _EXPLAINED else rows[evenly_spaced(len(rows), _EXPLAINED)]
    spans = read_values(store, name, some)
    views = spans.views()
    is_jpeg = np.array([image_kind(view) == JPEG for view in views])
    is_small = is_jpeg & (spans.sizes < JumpRule().least_bytes)
    is_large = is_jpeg & ~is_small
    _, progressive, _ = count_jpegs(spans.at(np.flatnonzero(is_large)))
    marked = sum(_has_restart_markers(views[i]) for i in np.flatnonzero(is_large).tolist())
    counts = {
        "progressive": progressive,
        f"below {JumpRule().least_bytes >> 10} KiB": int(is_small.sum()),
        "no JPEGs": int((~is_jpeg).sum()),
        "with restart markers": marked,
        "damaged or of a rare kind": int(is_large.sum()) - progressive - marked,
    }
    about = "" if some is rows else "about "
    parts = [f"{about}{round(n * len(rows) / len(some)):,} {what}" for what, n in counts.items() if n > 0]
    return f"; the others: {', '.join(parts)}"


def _has_restart_markers(file: NDArray[np.uint8]) -> bool:
    """Whether a baseline JPEG says so before its scan begins."""
    before, found, _ = file[:_HEAD_BYTES].tobytes().partition(b"\xff\xda")
    return bool(found) and b"\xff\xdd\x00\x04" in before and b"\xff\xc2" not in before


def jump_advice(store: SampleStore) -> list[str]:
    """Return a line for each field whose pictures would decode faster with jump tables."""
    # Measured on 300 photos of ImageNet, RandomResizedCrop(224): benchmarks/README.md.
    return [
        f"tip for the pictures of {name!r}: with start points, random crops decode 1.3 to 1.4 times as fast: "
        f"`fastio index {shlex.quote(store.path)}` adds them beside it, {percent:.1f} % of the pictures' bytes"
        for name, percent in jump_growth(store).items()
    ]


def jump_growth(store: SampleStore) -> dict[str, float]:
    """
    Return by how many percent jump tables would make the values of a field larger, for each field whose pictures would
    decode faster with them, by some of them: photos, most of them baseline JPEGs without restart markers.

    Empty for a store behind a URL, where this part of the index is not read.
    """
    growth = {}
    for field in jump_fields(store.schema) if len(store) and is_local(store.path) else ():
        rows = evenly_spaced(len(store), _LOOKED_AT)
        spans = store.spans(field.name, rows)  # these alone: stores may have billions of samples
        if spans.intervals is not None and spans.intervals.sizes.any():
            continue
        if np.median(picture_sizes(store, field.name, rows).min(axis=1)) < PHOTO_SIDE:
            continue
        noted = begin_jump_tables(read_values(store, field.name, rows))()[0].intervals
        if noted is None or 2 * np.count_nonzero(noted.sizes) < len(rows):
            continue
        growth[field.name] = 100 * int(noted.sizes.sum()) / int(spans.sizes.sum())
    return growth


def picture_sizes(store: SampleStore, name: str, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """
    Return height and width ``(n, 2)`` of the pictures of some rows: by the index, or, of files in place of which it
    knows none, by their headers; 0 where these do not tell.
    """
    sizes = np.array(store.shapes(name)[rows, :2])
    if store.format == IN_PLACE and not sizes.all():
        sizes = np.where(sizes == 0, read_headers(read_values(store, name, rows)).sizes, sizes)
    return sizes


# Rows at even distances, for looks at a part of a store.


def evenly_spaced(count: int, most: int) -> NDArray[np.int64]:
    """
    Return at most ``most`` (2 or more) of ``count`` rows, from the first to the last.

    >>> evenly_spaced(10, 4).tolist(), evenly_spaced(2, 4).tolist()
    ([0, 3, 6, 9], [0, 1])
    """
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.arange(most, dtype=np.int64) * (count - 1) // (most - 1)
