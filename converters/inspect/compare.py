"""Compares a store with the source it was packed from: keys, and every field that both have."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import ThreadPool
from fastio.converters.labels.columns import ALL_OTHERS
from fastio.converters.packing.pipeline import chunks_through, is_lossless, recorded, stages_of
from fastio.converters.packing.record import chunk_bytes
from fastio.converters.pictures.probe import probe
from fastio.converters.pictures.transcode import Transcode
from fastio.converters.sources.listed import Indices
from fastio.converters.sources.record import origin_of, recorded_kind
from fastio.converters.sources.source import Chunk, Source
from fastio.converters.text import Encoder, Sequences, TextOptions
from fastio.converters.text.decode import tokenizer_of
from fastio.converters.text.huggingface import HuggingFaceTokenizer
from fastio.converters.text.samples import TextSamples
from fastio.errors import SourceError
from fastio.store import SampleStore
from fastio.store.kinds.scan import Problem
from fastio.store.protocol import SampleBatch, read_lists, read_values
from fastio.types.field_types import type_of
from fastio.types.spans import Spans

__all__ = [
    "Comparison",
    "compare",
    "compare_chunks",
    "read_again",
]


_CHUNK_BYTES = 8 << 20
_CHUNK_SAMPLES = 512


@dataclass(slots=True)
class Comparison:
    """How many samples were compared, which of their fields were, and all differences."""

    samples: int = 0
    labels: bool = False
    columns: Sequence[str] = ()  # other than labels
    payload: Sequence[str] = ()
    only_in_store: Sequence[str] = ()  # fields that the source lacks, and the other way round: not compared
    only_in_source: Sequence[str] = ()
    pixels: int = 0  # of the samples, those that have other bytes and the same pixels
    again: bool = False  # compared with what packing the source again gives
    problems: list[Problem] = field(default_factory=list)


def compare(
    store: SampleStore, source: Source, *, pool: ThreadPool, progress: Callable[[int, int], object] | None = None
) -> Comparison:
    """
    Read the source again and compare each sample with the store, by its key.

    Fields are compared if both have them, labels by class name if both have names; the result names those that one side
    lacks. What the source cannot provide must be in the store's ledger of skipped samples.

    If the store's pictures were rewritten, those with restart markers are compared by their pixels, and those with
    other pixels with the result of packing the source again with the store's recorded options.
    """
    pictures = recorded(store)
    stage = None if pictures is None or is_lossless(pictures) else stages_of(pictures, source)()
    was_rewritten = _was_rewritten_before(store, source, has_stage=stage is not None)
    fields = [f.name for f in source.schema.payload if f.name in store.schema]
    if not fields:
        raise SourceError(
            f"{source.path}: has the fields {[f.name for f in source.schema.payload]}, "
            f"{store.path} has {[f.name for f in store.schema.payload]}: nothing to compare"
        )
    for name in fields:
        ours, theirs = store.schema[name], source.schema[name]
        if (ours.is_list, ours.is_optional) != (theirs.is_list, theirs.is_optional):
            raise SourceError(
                f"{source.path}: has {type_of(theirs)} in the field {name!r}, {store.path} has {type_of(ours)}: name "
                f"the type as it was when the store was packed, --field {name}=COLUMN:{type_of(ours)}"
            )
    columns = [f.name for f in source.schema.columns if f.name in store.schema]
    pieces = source.chunks(_CHUNK_BYTES, _CHUNK_SAMPLES)
    with closing(chunks_through(source, pieces, stage, pool)) as chunks:
        return compare_chunks(
            store,
            chunks,
            fields=fields,
            problems=source.problems,
            classes=source.metadata.get("classes"),
            result=Comparison(
                labels="label" in columns,
                columns=[name for name in columns if name != "label"],
                payload=fields,
                only_in_store=[f.name for f in store.schema.fields if f.name not in source.schema],
                only_in_source=[f.name for f in source.schema.fields if f.name not in store.schema],
                again=stage is not None,
            ),
            pixels=pool if was_rewritten or (pictures is not None and stage is None) else None,
            progress=progress,
        )


def _was_rewritten_before(store: SampleStore, source: Source, *, has_stage: bool) -> bool:
    """Whether restart markers were put in on the way from the source to the store that this one was packed from."""
    packings = list(store.metadata.get("packing_before") or ())
    known = list(source.metadata.get("packing_before") or ())
    if packings == known:
        return False
    between = packings[len(known) :]
    keeps_pixels = all(not said.get("raw") and Transcode.from_json(said).is_lossless for said in between)
    if packings[: len(known)] != known or has_stage or not keeps_pixels:
        name = (store.metadata.get("source") or {}).get("name")
        raise SourceError(
            f"{store.path}: its pictures were changed when the store was packed that it was packed from ({name}); "
            f"compare it with that store instead of {source.path}"
        )
    return True


def compare_chunks(
    store: SampleStore,
    chunks: Iterable[Chunk],
    *,
    fields: Sequence[str],
    problems: Sequence[Problem],
    classes: list[str] | None,
    result: Comparison,
    pixels: ThreadPool | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Comparison:
    """
    ``compare`` for what a source gives, with the ``problems`` and ``classes`` that it knows of already.

    On the threads of ``pixels`` pictures are decoded whose bytes differ: the same pixels are as good.
    """
    problems = list(problems)
    keys = store.keys(np.arange(len(store)))
    places = {key: i for i, key in enumerate(keys)}
    skipped = _skipped(store)
    for chunk in chunks:
        problems += chunk.problems
        _compare_chunk(store, chunk, classes, (fields, places, result, pixels))
        if progress is not None:
            progress(len(chunk.batch.keys), chunk_bytes(chunk))
    for problem in problems:
        if places.pop(problem.key, None) is not None:
            result.problems.append(Problem(problem.key, f"is in the store, but the source's {problem.problem}"))
        elif problem.key not in skipped:
            result.problems.append(
                Problem(
                    problem.key, f"is neither in the store nor listed as skipped; in the source it {problem.problem}"
                )
            )
    result.problems += [Problem(key, "is in the store, but not in the source") for key in places]
    return result


def _compare_chunk(
    store: SampleStore,
    chunk: Chunk,
    classes: list[str] | None,
    state: tuple[Sequence[str], dict[str, int], Comparison, ThreadPool | None],
) -> None:
    """Take the chunk's keys out of ``places`` and note every difference."""
    fields, places, result, pixels = state
    # What a stage could not decode is on record; its bytes are still there.
    undecodable = set() if pixels is None else _skipped(store)
    found = [places.pop(key, -1) for key in chunk.batch.keys]
    there = np.array([i for i, place in enumerate(found) if place >= 0], np.int64)
    result.problems += [
        Problem(key, "is in the source, but not in the store")
        for key, place in zip(chunk.batch.keys, found, strict=True)
        if place < 0 and key not in undecodable
    ]
    result.samples += len(there)
    indices = np.array(found, np.int64)[there] if len(there) else np.empty(0, np.int64)
    for name in fields:
        if store.schema[name].is_list:
            result.problems += _other_lists(store, name, indices, chunk.batch, there)
            continue
        pairs = list(
            zip(read_values(store, name, indices).views(), chunk.batch.spans[name].at(there).views(), strict=True)
        )
        other = [row for row, (ours, theirs) in enumerate(pairs) if not np.array_equal(ours, theirs)]
        if pixels is not None and other and not store.schema[name].traits.is_mask:  # masks keep their bytes
            same = same_pixels([pairs[row] for row in other], pixels)
            result.pixels += sum(same)
            other = [row for row, is_same in zip(other, same, strict=True) if not is_same]
        result.problems += [
            Problem(chunk.batch.keys[int(there[row])], f"{_other(result, pixels)} (field {name!r})") for row in other
        ]
    keys = [chunk.batch.keys[i] for i in there.tolist()]
    if result.labels:
        stored = _named(store.column("label")[indices], store.metadata.get("classes"))
        expected = _named(chunk.batch.columns["label"][there], classes)
        result.problems += [
            Problem(keys[row], f"has label {stored[row]!s} in the store, {expected[row]!s} in the source")
            for row in _rows(stored != expected)
        ]
    for name in result.columns:
        ours, theirs = store.column(name)[indices], chunk.batch.columns[name][there]
        is_other = (ours != theirs) & ((ours == ours) | (theirs == theirs))  # noqa: PLR0124 - NaN is like NaN
        sentence = f"has other values in the store than in the source (column {name!r})"
        result.problems += [Problem(keys[row], sentence) for row in _rows(is_other)]


def _other_lists(
    store: SampleStore, name: str, indices: Indices, batch: SampleBatch, positions: Indices
) -> list[Problem]:
    """Samples whose lists in a field have other elements in the store than in a batch; a sentence for the first."""
    ours, theirs = read_lists(store, name, indices), batch.lists[name].at(positions)
    problems = []
    for row, place in enumerate(positions.tolist()):
        pairs = zip(ours.part(row, row + 1).spans.views(), theirs.part(row, row + 1).spans.views(), strict=False)
        counts = int(ours.counts[row]), int(theirs.counts[row])
        other = next((i for i, pair in enumerate(pairs, 1) if not np.array_equal(*pair)), None)
        sentence = f"has other bytes in the store than in the source (field {name!r}, element {other} of {counts[0]})"
        if counts[0] != counts[1]:
            sentence = f"has {counts[0]} elements in the store, {counts[1]} in the source (field {name!r})"
        if other is not None or counts[0] != counts[1]:
            problems.append(Problem(batch.keys[place], sentence))
    return problems


def _rows(is_other: NDArray[Any]) -> list[int]:
    """The samples with a number that differs, where each has one number or an array of them."""
    return np.flatnonzero(is_other.any(axis=tuple(range(1, is_other.ndim)))).tolist()


def _skipped(store: SampleStore) -> set[str]:
    return {str(entry.get("key")) for entry in store.metadata.get("skipped") or ()}


def _other(result: Comparison, pixels: ThreadPool | None) -> str:
    if result.again:
        return "has other bytes in the store than packing its source again gives"
    return f"has other {'bytes' if pixels is None else 'pixels'} in the store than in the source"


def _named(labels: NDArray[np.int64], classes: list[str] | None) -> NDArray[np.object_]:
    """Labels by class name where there are names."""
    if not classes:
        return labels.astype(object)
    return np.array([classes[i] if 0 <= i < len(classes) else i for i in labels.tolist()] or [None], object)[
        : len(labels)
    ]


# Decides whether encoded pictures with different bytes show the same pixels.

Pair = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # two encoded pictures

_PIXEL_BYTES = 64 << 20  # decoded at a time, one larger pair aside


def same_pixels(pairs: Sequence[Pair], pool: _native.ThreadPool) -> list[bool]:
    """
    Return for each pair whether both decode natively to the same size and pixels; False for what only Pillow decodes.
    """
    spans = [_both(pair) for pair in pairs]
    shapes = [_common_shape(both) for both in spans]
    same: list[bool] = []
    for part in _parts([2 * height * width * channels for height, width, channels in shapes]):
        begun = []
        for i in part:
            out, status = np.empty((2, *shapes[i]), np.uint8), np.zeros(2, np.int32)
            each = spans[i] if out.size else spans[i].part(0, 0)
            job = _native.decode_images(each, out[: len(each)], status[: len(each)], pool, verify=False)
            begun.append((job, out, status))
        for job, out, status in begun:
            job.wait()
            same.append(bool(out.size and not status.any() and np.array_equal(out[0], out[1])))
    return same


def _both(pair: Pair) -> Spans:
    sizes = np.array([len(each) for each in pair], np.int64)
    return Spans(_native.Buffers(pair), np.arange(2, dtype=np.int32), np.zeros(2, np.int64), sizes)


def _common_shape(both: Spans) -> tuple[int, int, int]:
    """Height, width and channels that both have; zeros where they differ."""
    headers = probe(both)
    first, second = headers
    if len(headers.bad) or first[1:4] != second[1:4] or first.channels == 2:
        return 0, 0, 0
    return first.height, first.width, first.channels


def _parts(sizes: Sequence[int]) -> Iterator[range]:
    """Neighbours that are decoded together."""
    start, total = 0, 0
    for i, size in enumerate(sizes):
        if i > start and total + size > _PIXEL_BYTES:
            yield range(start, i)
            start, total = i, 0
        total += size
    yield range(start, len(sizes))


# Reads and encodes the source of a text store once more, as the store says it was, for comparison.


def read_again(store: SampleStore, path: str | os.PathLike[str]) -> TextSamples:
    """Open ``path`` as the source of ``store``. Raises SourceError if the store does not say how it was made."""
    from fastio.converters.text import open_text
    from fastio.store.kinds.registry import SOURCES

    metadata = store.metadata
    origin = origin_of(metadata)
    said: dict[str, Any] = metadata.get("tokenizer") or {}
    kind = SOURCES.get(recorded_kind(origin))
    if kind is None or kind.open_text is None:
        raise SourceError(f"{store.path}: does not say how its text was packed, so {path} cannot be compared")
    options = TextOptions(
        split=origin.get("split"),
        text_field=origin.get("text_field"),
        label_field=origin.get("label_field"),
        max_document_bytes=origin["max_document_bytes"],
        # Decided when it was packed; a column of these would change the form of chats.
        without=(*origin.get("left_out", ()), ALL_OTHERS) if {"text_field", "chat"} & origin.keys() else (),
        chat=origin.get("chat"),
    )
    source = open_text(path, kind=recorded_kind(origin), options=options)
    rule = said.get("options") or {}
    sequences = Sequences.from_json(rule) if rule else Sequences()
    tokenizer = tokenizer_of(metadata)
    if "chat" in metadata:
        from fastio.converters.text.chat_template import ChatTemplate
        from fastio.converters.text.preference import encoder_of

        assert isinstance(tokenizer, HuggingFaceTokenizer)
        chat, is_per_sample = metadata["chat"], store.schema.is_per_sample
        template = ChatTemplate.from_json(chat)
        form, loss = origin["form"], chat["loss"]
        chats = encoder_of(form, tokenizer, template, loss, sequences, is_per_sample=is_per_sample)
        return TextSamples(source, chats)
    encoder = Encoder(
        tokenizer,
        sequences,
        is_ids=source.is_ids,
        has_labels=source.has_labels,
        vocab_size=said.get("vocab_size"),
        is_per_sample=store.schema.is_per_sample,
    )
    return TextSamples(source, encoder)
