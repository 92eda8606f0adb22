"""Checks a store: every checksum, and on request every image, text and JSON document, and the source it came from."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.headers import Headers, read_headers
from fastio.converters.fields.problems import count_problems, mask_size_problems
from fastio.converters.fields.values import document_problems, is_document
from fastio.converters.inspect.compare import Comparison, compare, compare_chunks
from fastio.converters.packing.pipeline import in_order
from fastio.converters.pictures.probe import decode_problem, header_problems, probe
from fastio.converters.sources.source import Source, StreamedSource, is_streamed, split_by_bytes
from fastio.errors import SourceError
from fastio.machine import available_cpus
from fastio.store import SampleStore
from fastio.store.beside.joined import open_with_fields, stores_of
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.index.verify import Damage, verify_store
from fastio.store.kinds.scan import Problem
from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked
from fastio.store.protocol import read_values
from fastio.types.spans import Spans

__all__ = [
    "VerifyReport",
    "verify",
]


_CHUNK_BYTES = 8 << 20
_CHUNK_SAMPLES = 256
_PIXEL_BYTES = 64 << 20  # of images decoded by one call

_Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked, and everything that is wrong; without problems, there is no damage."""

    path: str
    samples: int
    size_bytes: int
    checksums: bool  # tar shards of others have none until they are indexed
    decoded: int  # pictures and masks
    parsed: int  # texts and JSON documents
    compared: int
    labels_compared: bool
    fields_compared: Sequence[str]  # payload fields and columns, in the store's order
    only_in_store: Sequence[str]  # fields that the source lacks: not compared
    only_in_source: Sequence[str]
    pixels_compared: int  # of those compared: other bytes, the same pixels
    packed_again: bool  # compared with what packing the source again gives
    problems: Sequence[Problem]
    seconds: float


def verify(
    path: str | os.PathLike[str],
    *,
    decode: bool = False,
    against: Source | StreamedSource | None = None,
    jobs: int | None = None,
    progress: _Progress | None = None,
    remote: Remote = DEFAULT,
    unpacked: Unpacked = AS_IT_IS,
) -> VerifyReport:
    """
    Check every checksum of a store and of fields that were added to it, its index as opening does, that fields have a
    row for each row of their owner, and that masks are as large as their pictures.

    ``decode`` also decodes every image, natively, or by Pillow if the native decoders do not handle it, and parses
    every text and JSON document. ``against`` also compares keys and all common fields with the source, see ``compare``.
    ``progress(samples, bytes)`` counts each pass; ``remote`` is for URLs, ``unpacked`` for files that are not
    packed. Raises StoreCorrupt for an index that cannot be trusted, since it could not name samples.
    """
    begun = time.perf_counter()
    jobs = jobs or available_cpus()
    opened = open_with_fields(path, remote=remote, unpacked=unpacked)
    with opened as store, closing(_native.ThreadPool(jobs)) as pool:
        problems = [_named(damage) for each in stores_of(store) for damage in verify_store(each, pool=pool)]
        if progress is not None:
            progress(len(store), store.size_bytes)
        problems += _other_counts(store)
        problems += _other_mask_sizes(store, range(len(store)), {})
        decoded = parsed = 0
        for field in store.schema.payload if decode else ():
            values: SampleStore = store.elements(field.name) if field.is_list else store
            if field.element.traits.is_picture:
                problems += _decode_all(_decode, values, field.name, jobs, progress)
                decoded += len(values)
            elif is_document(field.element):
                problems += _decode_all(_parse, values, field.name, jobs, progress)
                parsed += len(values)
        result = Comparison()
        if against is not None:
            result = _compare(store, against, pool, jobs, progress)
            problems += result.problems
        compared = {*result.payload, *result.columns, *(["label"] if result.labels else [])}
        return VerifyReport(
            path=os.fspath(path),
            samples=len(store),
            size_bytes=store.size_bytes,
            checksums=all(shard.is_sealed or shard.checksums for each in stores_of(store) for shard in each.shards),
            decoded=decoded,
            parsed=parsed,
            compared=result.samples,
            labels_compared=result.labels,
            fields_compared=[f.name for f in store.schema.fields if f.name in compared],
            only_in_store=result.only_in_store,
            only_in_source=result.only_in_source,
            pixels_compared=result.pixels,
            packed_again=result.again,
            problems=_once(problems),
            seconds=time.perf_counter() - begun,
        )


def _compare(
    store: SampleStore,
    against: Source | StreamedSource,
    pool: _native.ThreadPool,
    jobs: int,
    progress: _Progress | None,
) -> Comparison:
    if not is_streamed(against):
        return compare(store, against, pool=pool, progress=progress)
    if against.schema != store.schema:
        packed, there = (", ".join(map(str, schema.fields)) for schema in (against.schema, store.schema))
        raise SourceError(f"{against.path}: would be packed as {packed}, but {store.path} has {there}")
    with closing(against.samples(pool, jobs)) as chunks:
        return compare_chunks(
            store,
            chunks,
            fields=[field.name for field in store.schema.payload],
            problems=against.problems,
            classes=against.metadata.get("classes"),
            result=Comparison(labels="label" in store.schema, payload=[field.name for field in store.schema.payload]),
            progress=progress,
        )


def _named(damage: Damage) -> Problem:
    return Problem(damage.key or damage.shard, f"is damaged: {damage}")


def _other_counts(store: SampleStore) -> list[Problem]:
    """Samples in which a field has other counts of rows than its owner, by the sizes in the index."""
    tied = {name for field in store.schema.payload if field.owner for name in (field.name, field.owner)}
    wrong = count_problems(store.schema, {name: store.value_bytes(name) for name in tied})
    keys = store.keys(list(wrong))
    return [Problem(key, sentence) for key, (_, sentence) in zip(keys, wrong.values(), strict=True)]


def _other_mask_sizes(store: SampleStore, piece: range, headers: Mapping[str, Headers]) -> list[Problem]:
    """
    Samples whose masks are not as large as their pictures, by the sizes in the index.

    ``headers`` are those of masks of this piece; the index of shards of others has no sizes, so those of pictures are
    then read too.
    """
    shapes = {
        f.name: store.shapes(f.name)[piece.start : piece.stop] for f in store.schema.payload if f.traits.is_picture
    }
    picture = store.schema.picture
    if headers and picture is not None and not shapes[picture.name].all():
        pictures = read_values(store, picture.name, np.arange(piece.start, piece.stop))
        shapes |= {name: each.shapes for name, each in (*headers.items(), (picture.name, read_headers(pictures)))}
    wrong = mask_size_problems(store.schema, shapes)
    keys = store.keys([piece[i] for i in wrong])
    return [Problem(key, sentence) for key, (_, sentence) in zip(keys, wrong.values(), strict=True)]


def _decode_all(
    decode: Callable[[SampleStore, str, range], list[Problem]],
    store: SampleStore,
    field: str,
    jobs: int,
    progress: _Progress | None,
) -> list[Problem]:
    sizes = store.value_bytes(field)
    pieces = split_by_bytes(sizes, _CHUNK_BYTES, _CHUNK_SAMPLES)
    problems: list[Problem] = []
    with closing(in_order(partial(decode, store, field), pieces, jobs=jobs)) as results:
        for piece, found in zip(pieces, results, strict=True):
            problems += found
            if progress is not None:
                progress(len(piece), int(sizes[piece.start : piece.stop].sum()))
    return problems


def _once(problems: Sequence[Problem]) -> list[Problem]:
    """Each problem once: a damaged sample shows in several passes, the first says it best."""
    by_key: dict[str, Problem] = {}
    for problem in problems:
        by_key.setdefault(problem.key, problem)
    return list(by_key.values())


def _parse(store: SampleStore, field: str, piece: range) -> list[Problem]:
    """Parse one piece of texts or JSON documents."""
    problems = document_problems(read_values(store, field, np.arange(piece.start, piece.stop)), store.schema[field])
    keys = store.keys([piece[i] for i in problems])
    return [Problem(key, f"field {field!r} {text}") for key, text in zip(keys, problems.values(), strict=True)]


def _decode(store: SampleStore, field: str, piece: range) -> list[Problem]:
    """Decode one piece, images of one shape a call."""
    is_mask = store.schema[field].traits.is_mask
    spans = read_values(store, field, np.arange(piece.start, piece.stop))
    headers = probe(spans, store.schema[field])
    problems = header_problems(headers, store.schema[field])
    indexed = store.shapes(field)[piece.start : piece.stop]
    for i in np.flatnonzero((indexed > 0).all(axis=1) & (indexed[:, :2] != headers.sizes).any(axis=1)).tolist():
        problems.setdefault(i, _other_size(indexed[i, :2], headers.sizes[i]))
    shapes, group_of = np.unique(headers.shapes if is_mask else headers.sizes, axis=0, return_inverse=True)
    group_of = group_of.reshape(-1)
    for group, (height, width, *channels) in enumerate(shapes.tolist()):
        members = np.array([i for i in np.flatnonzero(group_of == group) if int(i) not in problems], np.int64)
        rows = max(1, _PIXEL_BYTES // max(1, height * width * 3))
        for start in range(0, len(members), rows):
            part = members[start : start + rows]
            shape = (height, width, *(each for each in channels if each > 1)) if is_mask else (height, width, 3)
            wrong = _decode_equal(spans.at(part), shape, is_mask=is_mask)
            problems |= {int(part[i]): text for i, text in wrong.items()}
    keys = store.keys([piece[i] for i in problems])
    named = [Problem(key, f"field {field!r} {text}") for key, text in zip(keys, problems.values(), strict=True)]
    return [*named, *_other_mask_sizes(store, piece, {field: headers})] if is_mask else named


def _other_size(indexed: NDArray[np.int32], actual: NDArray[np.int32]) -> str:
    """A picture that cannot be read: its row would have the size that the index says."""
    expected, got = ("x".join(map(str, size.tolist())) for size in (indexed, actual))
    return f"is {got} (height x width), but the index says {expected}; pack it again"


def _decode_equal(spans: Spans, shape: tuple[int, ...], *, is_mask: bool) -> dict[int, str]:
    """Decode images, or masks, of one shape; what is wrong, by position."""
    status = np.zeros(len(spans), np.int32)
    if is_mask:
        from fastio.codec.mask import MaskCodec  # imports Pillow

        out = np.empty((len(spans), *shape), np.uint16)  # holds masks of 8 bits too
        MaskCodec().decode(spans, out, status, verify=False).wait()
    else:
        _native.decode_images(spans, np.empty((len(spans), *shape), np.uint8), status, verify=False).wait()
    wrong: dict[int, str] = {}
    for i in np.flatnonzero(status).tolist():
        if status[i] == _native.UNSUPPORTED:
            text = _pillow_problem(spans.view(i), is_mask=is_mask)
            if text:
                wrong[i] = text
        else:
            wrong[i] = decode_problem(int(status[i]))
    return wrong


def _pillow_problem(data: NDArray[np.uint8], *, is_mask: bool) -> str:
    """Whether Pillow can decode what the native decoders leave to it."""
    from fastio.codec.pillow import decode_mask_with_pillow, decode_with_pillow  # imports Pillow, for rare kinds only

    try:
        if is_mask:
            decode_mask_with_pillow(data)
        else:
            decode_with_pillow(data, "RGB")
    except ValueError as exc:
        return f"is damaged: {exc}"
    return ""
