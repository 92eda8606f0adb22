"""Stores decoded pixels instead of encoded pictures: larger, but read without decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.pictures.probe import decode_problem, header_problems, probe
from fastio.converters.pictures.resize import DEEP_MODES, has_16_bits, plan_to
from fastio.converters.pictures.transcode import check_size
from fastio.converters.sources.source import Chunk, Source, split_by_bytes
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem
from fastio.store.protocol import SampleBatch
from fastio.types.picture_kinds import JPEG
from fastio.types.schema import RAW, Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "FirstPicture",
    "Raw",
    "RawStage",
]


PART_BYTES = 8 << 20  # of pixels that are decoded, held and written as one piece of work
_PILLOW_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_FEW = 64  # samples that are read to find the first good one
_BILINEAR = 0  # the native core's number for it

_Shape = tuple[int, int, int]


FirstPicture = tuple[str, _Shape]  # its key, and the shape of its pixels


@dataclass(frozen=True, slots=True)
class Raw:
    """
    Store decoded uint8 pixels ``(H, W, C)``, those of ``FastDataset(mode=None)``.

    All pictures have one size and the same channels; or they become RGB and are resized to ``resize``, a height and a
    width, with the antialiased bilinear filter.
    """

    resize: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.resize is not None:
            check_size(self.resize)

    def to_json(self) -> dict[str, Any]:
        """Return the options as the store keeps them."""
        return {"raw": True} | ({} if self.resize is None else {"resize": list(self.resize)})

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Raw:
        """Read what ``to_json`` wrote."""
        return cls(tuple(said["resize"]) if "resize" in said else None)

    def stage(self, firsts: Mapping[str, FirstPicture] | None = None) -> RawStage:
        """
        Return the stage that does the work, for one run. ``firsts`` are the ``first_pictures`` of the source, if it is
        not read from its beginning.
        """
        return RawStage(self, _firsts=dict(firsts or {}))

    def first_pictures(self, source: Source) -> dict[str, FirstPicture]:
        """Return the first picture of each field, which says what all others must be; none if no picture is good."""
        stage = self.stage()
        for piece in source.chunks(PART_BYTES, _FEW):
            chunk = _with_sizes(source.begin(piece)(), source.schema)
            if chunk.batch.keys:
                for name in (each.name for each in source.schema.payload if each.traits.is_image):
                    stage.misfits(chunk.batch, name)
                return stage.firsts
        return {}


@dataclass(slots=True)
class RawStage:
    """Decodes the pictures of chunks on native threads. Satisfies ``fastio.converters.sources.source.Stage``."""

    options: Raw
    source_bytes: int = 0
    _pictures: int = 0
    _without_alpha: int = 0  # pictures whose transparency was lost
    _firsts: dict[str, FirstPicture] = field(default_factory=dict)  # what all others must be like, by field
    _ring: _native.BufferRing = field(default_factory=lambda: _native.BufferRing(2))

    @property
    def firsts(self) -> dict[str, FirstPicture]:
        """The first picture of each field."""
        return self._firsts

    def schema(self, source: Schema) -> Schema:
        """Return the schema: each picture's field becomes raw, with the shape of its first picture."""
        return Schema(
            tuple(
                Field(each.name, RAW, "|u1", self._firsts[each.name][1])
                if each.traits.is_image and each.name in self._firsts
                else each
                for each in source.fields
            )
        )

    @property
    def record(self) -> Mapping[str, Any]:
        """The record: pixels are kept, and of how many pictures."""
        pictures = {"decoded": self._pictures}
        pictures |= {"without_alpha": self._without_alpha} if self._without_alpha else {}
        return {**self.options.to_json(), "source_bytes": self.source_bytes, "pictures": pictures}

    def parts(self, chunk: Chunk, schema: Schema) -> Sequence[Chunk]:
        """Return the chunk, cut by what its rows take: a small file may hold a large picture, or become one."""
        chunk = _with_sizes(chunk, schema)
        size_bytes = np.zeros(len(chunk.batch.keys), np.int64)
        for each in schema.payload:
            if each.traits.is_image:
                size_bytes += self._row_bytes(chunk.batch.shapes[each.name])
        pieces = split_by_bytes(size_bytes, PART_BYTES, max(len(size_bytes), 1))
        if len(pieces) < 2:
            return [chunk]
        parts = [Chunk(chunk.batch.at(np.arange(piece.start, piece.stop)), ()) for piece in pieces]
        return [replace(parts[0], problems=chunk.problems, texts=chunk.texts), *parts[1:]]

    def begin(self, chunk: Chunk, schema: Schema, pool: _native.ThreadPool) -> Callable[[], Chunk]:
        """Begin to decode the pictures of one chunk."""
        chunk = _with_sizes(chunk, schema)
        fields = [each.name for each in schema.payload if each.traits.is_image]
        if not chunk.batch.keys or not fields:
            return lambda: chunk
        problems: dict[int, str] = {}
        for name in fields:
            problems |= self.misfits(chunk.batch, name)
        good = np.array([i for i in range(len(chunk.batch.keys)) if i not in problems], np.int64)
        batch = chunk.batch.at(good)
        begun = {
            name: self._submit(batch.spans[name], batch.shapes[name], self._firsts[name][1], pool) for name in fields
        }
        found = [*chunk.problems, *(Problem(chunk.batch.keys[i], problems[i]) for i in sorted(problems))]

        def finish() -> Chunk:
            for job, _, _ in begun.values():
                job.wait()
            return self._chunk(
                Chunk(batch, found, texts=chunk.texts),
                {name: (out, status) for name, (_, out, status) in begun.items()},
            )

        return finish

    def _row_bytes(self, shapes: NDArray[np.int32]) -> NDArray[np.int64]:
        """What each picture's pixels take in the store."""
        if self.options.resize is not None:
            return np.full(len(shapes), 3 * self.options.resize[0] * self.options.resize[1], np.int64)
        sizes: NDArray[np.int64] = shapes.astype(np.int64).prod(axis=1)
        return sizes

    def misfits(self, batch: SampleBatch, name: str) -> dict[int, str]:
        """The pictures that raw pixels cannot hold beside the first one, by position."""
        shapes = batch.shapes[name].copy()
        shapes[shapes[:, 2] == 2, 2] = 4  # grey with alpha: RGBA keeps both
        if self.options.resize is not None:
            shapes[:] = *self.options.resize, 3
        if name not in self._firsts:
            self._firsts[name] = batch.keys[0], _as_shape(shapes[0])
        key, shape = self._firsts[name]
        problems = {
            int(i): f"is {_shown(_as_shape(shapes[i]))}, but {key!r} is {_shown(shape)} (height x width x channels): "
            "raw pixels need one size for all: pack without --raw"
            for i in np.flatnonzero((shapes != shape).any(axis=1))
        }
        for i, value in enumerate(batch.spans[name].views()):
            if has_16_bits(value):
                problems[i] = "has 16 bits per channel, but raw pixels have 8: pack without --raw"
        return problems

    def _submit(
        self, spans: Spans, shapes: NDArray[np.int32], shape: _Shape, pool: _native.ThreadPool
    ) -> tuple[_native.Job, NDArray[np.uint8], NDArray[np.int32]]:
        size = len(spans) * shape[0] * shape[1] * shape[2]
        try:
            memory = self._ring.acquire(max(size, 1))
        except MemoryError as exc:
            raise SourceError(
                f"there is not enough memory for the pixels of {len(spans)} pictures of {_shown(shape)} ({size:,} "
                "bytes): pack without --raw"
            ) from exc
        out = memory[:size].reshape(len(spans), *shape)
        status = np.zeros(len(spans), np.int32)
        if self.options.resize is None:
            return _native.decode_images(spans, out, status, pool, verify=False), out, status
        from fastio.codec.codec import Geometry  # imports Pillow

        geometry = Geometry(plan_to(self.options.resize, shapes), filter=_BILINEAR, fill=bytes(shape[2]))
        job = _native.decode_transformed(spans, geometry.plan, out, status, pool, verify=False, **geometry.options)
        return job, out, status

    def _chunk(self, chunk: Chunk, done: Mapping[str, tuple[NDArray[np.uint8], NDArray[np.int32]]]) -> Chunk:
        """The chunk with pixels for pictures; those that could not be decoded are problems."""
        batch = chunk.batch
        problems: dict[int, str] = {}
        for name, (out, status) in done.items():
            for i in np.flatnonzero(status).tolist():
                if status[i] == _native.UNSUPPORTED:
                    problem = _decode_with_pillow(batch.spans[name].view(i), out[i], self.options.resize)
                else:
                    problem = decode_problem(int(status[i]))
                if problem:
                    problems[i] = problem
        good = np.array([i for i in range(len(batch.keys)) if i not in problems], np.int64)
        self._pictures += len(good)
        if self.options.resize is not None:
            self._without_alpha += sum(_have_alpha(batch, name, good) for name in done)
        self.source_bytes += sum(int(batch.spans[name].sizes[good].sum()) for name in done)
        pixels = {name: _rows(out) for name, (out, _) in done.items()}
        new = SampleBatch(batch.keys, {**batch.spans, **pixels}, batch.columns, {})
        found = [Problem(batch.keys[i], problems[i]) for i in sorted(problems)]
        # Pixels: no name can be wrong.
        return Chunk(new.at(good) if problems else new, [*chunk.problems, *found], texts=chunk.texts)


def _with_sizes(chunk: Chunk, schema: Schema) -> Chunk:
    """The chunk with the sizes of pictures that its source does not tell; those without a header are problems."""
    batch = chunk.batch
    unsized = [each.name for each in schema.payload if each.traits.is_image and each.name not in batch.shapes]
    if not unsized:
        return chunk
    headers = {name: probe(batch.spans[name], schema[name]) for name in unsized}
    problems = {
        i: sentence for name, each in headers.items() for i, sentence in header_problems(each, schema[name]).items()
    }
    shapes = {name: np.ascontiguousarray(each.shapes) for name, each in headers.items()}
    sized = SampleBatch(batch.keys, batch.spans, batch.columns, {**batch.shapes, **shapes})
    good = np.setdiff1d(np.arange(len(batch.keys)), np.fromiter(problems, np.int64, len(problems)))
    found = [Problem(batch.keys[i], problems[i]) for i in sorted(problems)]
    return replace(chunk, batch=sized.at(good) if problems else sized, problems=[*chunk.problems, *found])


def _as_shape(shape: NDArray[np.int32]) -> _Shape:
    height, width, channels = shape.tolist()
    return height, width, channels


def _shown(shape: _Shape) -> str:
    return "x".join(map(str, shape))


def _rows(out: NDArray[np.uint8]) -> Spans:
    """Pictures of one size, one after the other."""
    size = out[0].size if len(out) else 0
    return Spans.joined(out.reshape(-1), np.full(len(out), size, np.int64))


def _have_alpha(batch: SampleBatch, name: str, rows: NDArray[np.int64]) -> int:
    """How many of these pictures have transparency by their headers; four channels of a JPEG are inks."""
    candidates = rows[np.isin(batch.shapes[name][rows, 2], (2, 4))]
    return sum(_native.image_kind(batch.spans[name].view(i)) != JPEG for i in candidates.tolist())


def _decode_with_pillow(data: NDArray[np.uint8], out: NDArray[np.uint8], size: tuple[int, int] | None) -> str:
    """Decode into ``out`` what the native decoders leave to Pillow; what is wrong, in words that follow a name."""
    from PIL import Image  # needed for rare kinds only

    from fastio.codec.pillow import decode_with_pillow, mode_of

    try:
        mode = mode_of(data)
        if mode in DEEP_MODES:
            return f"has more than 8 bits per channel (Pillow's mode {mode}), but raw pixels have 8: pack without --raw"
        pixels = decode_with_pillow(data, _PILLOW_MODES[out.shape[2]]).pixels
    except ValueError as exc:
        return f"is damaged: {exc}"
    if size is not None:
        pixels = np.asarray(Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BILINEAR))
    if pixels.shape != out.shape:
        return decode_problem(_native.BAD_SHAPE)
    out[:] = pixels
    return ""
