"""Checks a store: every checksum, on request every image, on request against the source it came from."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.ahead import in_order
from fastio.converters.base import Problem, Source
from fastio.converters.checksum import damaged
from fastio.converters.compare import compare
from fastio.converters.cut import cut
from fastio.converters.probe import image_problem, probe
from fastio.machine import available_cpus
from fastio.schema import IMAGE
from fastio.spans import Spans
from fastio.store import SampleStore, open_store

__all__ = ["VerifyReport", "verify"]

_CHUNK_BYTES = 8 << 20
_CHUNK_SAMPLES = 256
_PIXEL_BYTES = 64 << 20  # of images decoded by one call
_IMAGE_BYTES = 4 << 30  # a header that announces more pixels is taken for damage

_Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked, and everything that is wrong; no problems, no damage."""

    path: str
    samples: int
    size_bytes: int
    decoded: int
    compared: int
    labels_compared: bool
    problems: Sequence[Problem]
    seconds: float


def verify(
    path: str | os.PathLike[str],
    *,
    decode: bool = False,
    against: Source | None = None,
    jobs: int | None = None,
    progress: _Progress | None = None,
) -> VerifyReport:
    """
    Check every checksum of a store, and the index as opening does.

    ``decode`` also decodes every image, natively, by Pillow where the native decoders pass. ``against`` also
    compares keys, bytes and labels with the source. ``progress(samples, bytes)`` counts each of the passes. An index
    that cannot be trusted raises StoreCorrupt: there is nothing to name samples by.
    """
    begun = time.perf_counter()
    jobs = jobs or available_cpus()
    problems: list[Problem] = []
    size_bytes = decoded = compared = 0
    with open_store(path) as store:
        for field in store.schema.payload:
            every = np.arange(len(store))
            sizes = store.spans(field.name, every).sizes
            size_bytes += int(sizes.sum())
            pieces = cut(sizes, _CHUNK_BYTES, _CHUNK_SAMPLES)
            passes = [partial(_check_sums, store, field.name)]
            if decode and field.codec == IMAGE:
                passes.append(partial(_decode, store, field.name))
                decoded += len(store)
            for work in passes:
                with closing(in_order(work, pieces, jobs=jobs)) as results:
                    for piece, found in zip(pieces, results, strict=True):
                        problems += found
                        if progress is not None:
                            progress(len(piece), int(sizes[piece.start : piece.stop].sum()))
        labels_compared = False
        if against is not None:
            result = compare(store, against, jobs=jobs, progress=progress)
            problems += result.problems
            compared, labels_compared = result.samples, result.labels
        count = len(store)
    seconds = time.perf_counter() - begun
    return VerifyReport(
        os.fspath(path), count, size_bytes, decoded, compared, labels_compared, _once(problems), seconds
    )


def _once(problems: Sequence[Problem]) -> list[Problem]:
    """Each problem once: a damaged sample shows in several passes, the first says it best."""
    by_key: dict[str, Problem] = {}
    for problem in problems:
        by_key.setdefault(problem.key, problem)
    return list(by_key.values())


def _check_sums(store: SampleStore, field: str, piece: range) -> list[Problem]:
    spans = store.spans(field, np.arange(piece.start, piece.stop))
    bad = damaged(spans)
    keys = store.keys(bad + piece.start)
    return [Problem(key, f"field {field!r} differs from its checksum: the bytes are damaged") for key in keys]


def _decode(store: SampleStore, field: str, piece: range) -> list[Problem]:
    """Decode one piece, images of one shape a call."""
    spans = store.spans(field, np.arange(piece.start, piece.stop))
    seen = probe(spans)
    problems = {int(i): image_problem(seen[i]) for i in np.flatnonzero(seen[:, 0] != _native.OK)}
    shapes, group_of = np.unique(seen[:, 1:3], axis=0, return_inverse=True)
    group_of = group_of.reshape(-1)
    for group, (height, width) in enumerate(shapes.tolist()):
        members = np.array([i for i in np.flatnonzero(group_of == group) if int(i) not in problems], np.int64)
        pixel_bytes = height * width * 3
        if pixel_bytes > _IMAGE_BYTES:
            problems |= {int(i): f"announces {height} x {width} pixels, too many to be decoded" for i in members}
            continue
        rows = max(1, _PIXEL_BYTES // max(1, pixel_bytes))
        for start in range(0, len(members), rows):
            part = members[start : start + rows]
            problems |= {int(part[i]): text for i, text in _decode_equal(spans, part, (height, width)).items()}
    keys = store.keys([piece[i] for i in problems])
    return [Problem(key, f"field {field!r} {text}") for key, text in zip(keys, problems.values(), strict=True)]


def _decode_equal(spans: Spans, part: NDArray[np.int64], size: tuple[int, int]) -> dict[int, str]:
    """Decode images of one size; what is wrong, by position in ``part``."""
    out = np.empty((len(part), *size, 3), np.uint8)
    status = np.zeros(len(part), np.int32)
    _native.decode_images(spans.buffers, spans.shard[part], spans.starts[part], spans.sizes[part], None, out, status).wait()
    wrong: dict[int, str] = {}
    for i in np.flatnonzero(status):
        if status[i] == _native.UNSUPPORTED:
            text = _pillow_problem(spans.view(int(part[i])))
            if text:
                wrong[int(i)] = text
        else:
            wrong[int(i)] = _DECODE_PROBLEMS.get(int(status[i]), f"cannot be decoded (status {status[i]})")
    return wrong


_DECODE_PROBLEMS = {
    _native.TRUNCATED: "is truncated: the data end before the image does",
    _native.CORRUPT: "cannot be decoded: its data are damaged",
    _native.BAD_SHAPE: "decodes to another size than its header announces",
    _native.NOT_IMAGE: "is not an image",
}


def _pillow_problem(data: NDArray[np.uint8]) -> str:
    """Whether Pillow can decode what the native decoders leave to it."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data.tobytes())) as image:
            image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as exc:
        return f"cannot be decoded: {exc}"
    return ""
