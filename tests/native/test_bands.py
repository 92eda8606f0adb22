"""A large photo decoded by several threads: the pixels and errors of one thread."""

from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio.store.jump_tables import JumpRule, begin_jump_tables
from fastio.types.spans import Spans

SIZE = 1300, 1000  # more than the million pixels from which on bands are worth it


def photo(seed: int, **options: object) -> bytes:
    """A JPEG of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (125, 163, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    file = io.BytesIO()
    Image.fromarray(pixels[: SIZE[1], : SIZE[0]]).save(file, "JPEG", **options)
    return file.getvalue()


PHOTOS = [photo(0), photo(1, subsampling=0), photo(2, progressive=True)]


def noted(files: list[bytes]) -> Spans:
    """Spans of these files, with their jump tables and checksums."""
    arrays = [np.frombuffer(file, np.uint8) for file in files]
    spans = begin_jump_tables(
        Spans.joined(np.concatenate(arrays), np.array([len(file) for file in files])), rule=JumpRule(0)
    )()[0]
    sums = np.array([_native.crc32(array) for array in arrays], np.uint32)
    return Spans(spans.buffers, spans.shard, spans.starts, spans.sizes, sums, spans.intervals)


def resized(spans: Spans, threads: int | None, **options: object) -> tuple[NDArray[np.uint8], list[int]]:
    """Everything but the edges of each photo at 97x64, mirrored, and status."""
    plan = np.array([(3, 5, 1290, 990, 97, 64, 0, 0, 97, 64, 0, 0, 1)] * len(spans), np.int32)
    out, status = np.zeros((len(spans), 64, 97, 3), np.uint8), np.full(len(spans), -1, np.int32)
    pool = None if threads is None else _native.ThreadPool(threads)
    job = _native.decode_transformed(spans, plan, out, status, pool, filter=0, fill=b"\0\0\0", **options)
    job.wait()
    if pool is not None:
        pool.close()
    return out, status.tolist()


@pytest.mark.parametrize("options", [{}, {"fast": True}, {"grey": True}], ids=str)
def test_pixels_are_those_of_one_thread(options: dict[str, bool]) -> None:
    """Also beside photos that cannot be shared out."""
    spans = noted(PHOTOS)
    expected, status = resized(spans, None, **options)

    assert [0, 0, 0] == status
    for threads in (4, 7, 60):
        pixels, status = resized(spans, threads, **options)
        assert [0, 0, 0] == status
        assert expected.tobytes() == pixels.tobytes()


def test_damage_is_that_of_one_thread() -> None:
    """A wrong checksum, and damage where only one band lies; the other photo is whole."""
    files = [photo(0), photo(1, subsampling=0)]
    middle = len(files[0]) // 2
    spans = noted(files)
    assert spans.checksums is not None
    damaged = files[0][:middle] + b"\xff\xd9" * 8 + files[0][middle + 16 :]
    data = np.frombuffer(damaged + files[1], np.uint8)
    for checksums in (spans.checksums, None):
        wrong = Spans.of(data, spans.starts, spans.sizes, checksums=checksums, intervals=spans.intervals)
        expected = resized(wrong, None)

        assert (
            [_native.CORRUPT if checksums is None else _native.BAD_CHECKSUM, 0] == expected[1] == resized(wrong, 5)[1]
        )
        assert expected[0][1].tobytes() == resized(wrong, 5)[0][1].tobytes()
