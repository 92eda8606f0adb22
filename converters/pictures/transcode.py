"""Rewrites JPEGs while packing: losslessly with restart markers, or smaller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import image_kind
from fastio.converters.pictures.probe import decode_problem
from fastio.converters.pictures.resize import Subsampling, replaced, resize_all
from fastio.converters.sources.source import Chunk
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem
from fastio.store.protocol import SampleBatch
from fastio.types.picture_kinds import PICTURE_KINDS, PNG, UNKNOWN, kind_by_name
from fastio.types.schema import Schema
from fastio.types.spans import Spans

__all__ = [
    "KEPT",
    "Transcode",
    "check_size",
]


_RESIZED = int(_native.Transcoded.RESIZED)
_LONGEST_SIDE = 65_500  # of a JPEG, as libjpeg writes them
_MOST_MCUS = 65_535

_OUTCOMES = {
    _native.Transcoded.RESIZED: "resized",
    _native.Transcoded.REWRITTEN: "rewritten",
    _native.Transcoded.FITTING: "fitting",
    _native.Transcoded.OTHER: "other",
    _native.Transcoded.UNUSUAL: "unusual",
    _native.Transcoded.RICH: "rich",
}


@dataclass(frozen=True, slots=True)
class Transcode:
    """
    How to change the pictures of a source on their way into a store. Masks stay as they are.

    ``restart`` puts a marker into JPEGs every so many MCUs (blocks of 8x8 to 16x16 pixels) without touching a pixel:
    the loader then decodes only the blocks that a crop needs. ``short_side`` or ``max_side`` limits a side in pixels:
    larger JPEGs and PNGs are resized (antialiased, bilinear, as in ``Resize``) and become JPEGs of ``quality``, with
    markers every ``resized_restart`` MCUs unless ``restart`` is given; smaller ones keep their pixels. EXIF, ICC
    profiles and comments of JPEGs stay. What cannot be rewritten is kept unchanged.

    ``resize`` is one exact size, height and width, for all pictures: JPEGs stay JPEGs, everything else becomes PNG,
    without further loss. Pictures of that size keep their bytes; pictures that cannot be resized are problems.
    """

    restart: int = 0
    resized_restart: int = 8
    short_side: int | None = None
    max_side: int | None = None
    resize: tuple[int, int] | None = None
    quality: int = 90
    subsampling: Subsampling = "4:2:0"

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("short_side", "max_side", "resize")}
        given = [f"{name}={value}" for name, value in sizes.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)}: expected one of them")
        _check("restart", self.restart, 0, _MOST_MCUS)
        _check("resized_restart", self.resized_restart, 0, _MOST_MCUS)
        _check("quality", self.quality, 1, 100)
        if self.side is not None:
            _check("short_side" if self.max_side is None else "max_side", self.side, 1, _LONGEST_SIDE)
        elif self.resize is not None:
            check_size(self.resize)
        elif self.restart == 0:
            raise ValueError("nothing to do: expected restart, short_side, max_side or resize")
        if self.subsampling not in get_args(Subsampling):
            raise ValueError(f"subsampling={self.subsampling!r}: expected one of {', '.join(get_args(Subsampling))}")

    @property
    def side(self) -> int | None:
        """The side that is limited, if there is one."""
        return self.max_side if self.short_side is None else self.short_side

    @property
    def is_lossless(self) -> bool:
        """Whether all pictures keep their pixels."""
        return self.side is None and self.resize is None

    def to_json(self) -> dict[str, Any]:
        """Return the options that have an effect, as the store keeps them."""
        said: dict[str, Any] = {"restart": self.restart} if self.restart else {}
        if self.side is not None:
            said["max_side" if self.short_side is None else "short_side"] = self.side
        if self.resize is not None:
            said["resize"] = list(self.resize)
        if not self.is_lossless:
            said |= {
                "quality": self.quality,
                "subsampling": self.subsampling,
                "resized_restart": self.restart or self.resized_restart,
            }
        return said

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Transcode:
        """Read what ``to_json`` wrote. Raises TypeError or ValueError for anything else."""
        before = {"resized_restart": 0}  # until a release that had no markers of its own accord
        found = before | {each.name: said[each.name] for each in fields(cls) if each.name in said}
        if "resize" in found:
            found["resize"] = tuple(found["resize"])
        return cls(**found)

    def stage(self, stems: Mapping[str, Sequence[str]]) -> TranscodeStage:
        """
        Return the stage that does the work, for one run.

        ``stems`` are the ``shared_stems`` of the source, where pictures may get another extension.
        """
        return TranscodeStage(self, stems)


@dataclass(slots=True)
class TranscodeStage:
    """Rewrites the pictures of chunks on native threads. Satisfies ``fastio.converters.sources.source.Stage``."""

    options: Transcode
    stems: Mapping[str, Sequence[str]]
    source_bytes: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # by outcome
    firsts: dict[str, str] = field(default_factory=dict)  # the first key of each outcome
    as_png: int = 0  # of the resized ones
    _ring: _native.BufferRing = field(default_factory=lambda: _native.BufferRing(2))

    def schema(self, source: Schema) -> Schema:
        """Return the schema unchanged: pictures stay pictures."""
        return source

    @property
    def record(self) -> Mapping[str, Any]:
        """The options, and what became of the pictures, with the first one that was kept."""
        kept = {
            name: {"samples": self.counts[name], "first": self.firsts[name]} for name in KEPT if name in self.counts
        }
        done = {name: count for name, count in self.counts.items() if name not in KEPT}
        done |= {"as_png": self.as_png} if self.as_png else {}
        return {**self.options.to_json(), "source_bytes": self.source_bytes, "pictures": done, "kept": kept}

    def parts(self, chunk: Chunk, schema: Schema) -> Sequence[Chunk]:
        """Return the chunk itself: rewritten pictures are about as large as before."""
        del schema
        return [chunk]

    def begin(self, chunk: Chunk, schema: Schema, pool: _native.ThreadPool) -> Callable[[], Chunk]:
        """Begin to rewrite the pictures of one chunk."""
        names = [each.name for each in schema.payload if each.traits.is_image]
        batch = chunk.batch
        if not batch.keys or not names:
            return lambda: chunk
        begun = {name: self._submit(batch.spans[name], pool) for name in names}

        def finish() -> Chunk:
            done = {name: self._finish(job, out) for name, (job, out) in begun.items()}
            for name, (_, facts) in done.items():  # native code does not read the headers of all kinds
                is_kept = (facts[:, 0] == _native.OK) & (facts[:, 2] == 0)
                facts[is_kept, 2:5] = batch.shapes[name][is_kept]
            problems: dict[int, str] = {}
            if self.options.resize is not None:
                for name, (spans, facts) in done.items():
                    done[name] = self._resize_others(spans, facts, problems), facts
            return self._chunk(chunk, done, problems)

        return finish

    def _submit(self, spans: Spans, pool: _native.ThreadPool) -> tuple[_native.Job, _native.Transcoded]:
        options, out = self.options, _native.Transcoded(len(spans))
        bound = 1 if options.short_side is not None else 2 if options.max_side is not None else 0
        height, width = (options.side or 0, 0) if options.resize is None else options.resize
        job = _native.transcode_images(
            spans,
            out,
            pool,
            bound=bound if options.resize is None else 3,
            side=height,
            width=width,
            quality=options.quality,
            subsampling=get_args(Subsampling).index(options.subsampling),
            restart=options.restart,
            resized_restart=options.restart or options.resized_restart,
        )
        return job, out

    def _finish(self, job: _native.Job, out: _native.Transcoded) -> tuple[Spans, NDArray[np.int32]]:
        """The new bytes, and status, outcome, height, width and channels of each."""
        job.wait()
        data, sizes, facts, places, counts = out.take(self._ring)
        intervals = None
        if len(places):
            place_bytes = 4 * counts.astype(np.int64)
            intervals = Spans.joined(places.view(np.uint8), place_bytes)
        return Spans.joined(data, sizes, intervals=intervals), facts

    def _resize_others(self, spans: Spans, facts: NDArray[np.int32], problems: dict[int, str]) -> Spans:
        """Resize what the native core has left as it is, by Pillow; ``facts`` and ``problems`` learn of it."""
        assert self.options.resize is not None
        is_other = (facts[:, 2:4] != self.options.resize).any(axis=1) & (facts[:, 0] == _native.OK)
        rows = np.flatnonzero(is_other).tolist()
        values = [spans.view(row) for row in rows]
        quality, subsampling = self.options.quality, self.options.subsampling
        pictures = resize_all(values, self.options.resize, quality=quality, subsampling=subsampling)
        made = dict(zip(rows, pictures, strict=True))
        for row, picture in made.items():
            if picture.problem:
                problems[row] = picture.problem
            else:
                facts[row, 1:] = _RESIZED, *self.options.resize, picture.channels
        return replaced(spans, made) if made else spans

    def _chunk(
        self, chunk: Chunk, done: Mapping[str, tuple[Spans, NDArray[np.int32]]], problems: dict[int, str]
    ) -> Chunk:
        """The chunk with its new pictures; damaged ones are problems."""
        batch = chunk.batch
        for _, facts in done.values():
            for i in np.flatnonzero(facts[:, 0]).tolist():
                if facts[i, 0] == _native.NO_MEMORY:  # says nothing of the picture: no sample is left out for it
                    raise SourceError(
                        f"{batch.keys[i]}: there is not enough memory to rewrite this picture: free some, or pack with "
                        "fewer threads (--jobs)"
                    )
                problems[i] = decode_problem(int(facts[i, 0]))
        keys = batch.keys if self.options.is_lossless else self._new_keys(batch.keys, done, problems)
        new = SampleBatch(
            keys=keys,
            spans={name: done[name][0] if name in done else spans for name, spans in batch.spans.items()},
            columns=batch.columns,
            shapes={name: np.ascontiguousarray(facts[:, 2:5]) for name, (_, facts) in done.items()},
        )
        good = np.array([i for i in range(len(keys)) if i not in problems], np.int64)
        for name, (spans, facts) in done.items():
            resized = good[facts[good, 1] == _RESIZED].tolist()
            self.as_png += sum(image_kind(spans.view(i)) == PNG for i in resized)
            self.source_bytes += int(batch.spans[name].sizes[good].sum())
            self._count(facts[good, 1], [batch.keys[i] for i in good])
        found = [Problem(batch.keys[i], problems[i]) for i in sorted(problems)]
        resized = {
            batch.keys[i] for _, facts in done.values() for i in np.flatnonzero(facts[:, 1] == _RESIZED).tolist()
        }
        misnamed = [each for each in chunk.misnamed if each.key not in resized]  # these have the name of what they are
        return Chunk(new.at(good) if problems else new, [*chunk.problems, *found], misnamed, chunk.texts)

    def _count(self, outcomes: NDArray[np.int32], keys: Sequence[str]) -> None:
        for outcome, first, count in zip(*np.unique(outcomes, return_index=True, return_counts=True), strict=True):
            name = _OUTCOMES[int(outcome)]
            self.counts[name] = self.counts.get(name, 0) + int(count)
            self.firsts.setdefault(name, keys[int(first)])

    def _new_keys(
        self, keys: Sequence[str], done: Mapping[str, tuple[Spans, NDArray[np.int32]]], problems: dict[int, str]
    ) -> list[str]:
        """
        A PNG that has become a JPEG, or the reverse, is called so; a name that is taken is a problem.

        That depends on the names in the source alone, not on what was packed before, so that any part of a source gives
        the same samples, whoever packs it.
        """
        (spans, facts), *_ = done.values()
        resized = (facts[:, 1] == _native.Transcoded.RESIZED) & (facts[:, 0] == _native.OK)
        new_keys = []
        for i, key in enumerate(keys):
            new = key
            if resized[i] and i not in problems and kind_by_name(key) not in (UNKNOWN, image_kind(spans.view(i))):
                kind = PICTURE_KINDS[image_kind(spans.view(i))]
                new = str(PurePosixPath(key).with_suffix(kind.suffix))
                namesakes = self.stems.get(new.removesuffix(kind.suffix), [key])
                if new in namesakes:
                    problems[i] = f"becomes {kind}, but {new!r} already exists: rename one of them"
                elif key != namesakes[0]:
                    other = namesakes[0]
                    problems[i] = f"becomes {new!r}, which is the name that {other!r} may get: rename one of them"
            new_keys.append(new)
        return new_keys


def check_size(size: tuple[int, int]) -> None:
    """Raise ValueError unless this is a valid height and width of a picture."""
    for name, value in zip(("height", "width"), size, strict=True):
        _check(name, value, 1, _LONGEST_SIDE)


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name}={value}: expected {low} to {high}")


# Why pictures are kept byte for byte although something was to be done to them.

# In words that follow the number of pictures.
KEPT = {
    "other": "of a kind that is not rewritten",
    "unusual": "not rewritten: CMYK, 12 bits, no end marker, or bytes after the picture",
    "rich": "PNG with transparency, 16 bits, a colour profile, EXIF or an animation, which a JPEG would lose",
}
