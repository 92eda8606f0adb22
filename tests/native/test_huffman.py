"""Our entropy decoder from Python: the same pixels as libjpeg-turbo's through Pillow, and its switch."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio.types.spans import Spans

Array = NDArray[np.uint8]


def decode(file: bytes, shape: tuple[int, ...]) -> tuple[int, Array]:
    """Status and pixels."""
    out = np.full((1, *shape), 0xA5, np.uint8)
    status = np.full(1, -1, np.int32)
    spans = Spans.of(np.frombuffer(file, np.uint8), np.zeros(1, np.int64), np.array([len(file)]))
    _native.decode_images(spans, out, status).wait()
    return int(status[0]), out[0]


def picture(seed: int, height: int, width: int) -> Image.Image:
    """Half a pattern, half noise: short and long codes."""
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([5 * x, 3 * y, x * y], axis=-1).astype(np.uint8)
    noise = np.random.default_rng(seed).integers(0, 256, pixels.shape, np.uint8)
    return Image.fromarray(np.where(x[..., None] < width // 2, pixels, noise))


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(1, 80),
    st.integers(1, 80),
    st.integers(1, 100),
    st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
    st.integers(0, 5),
    st.booleans(),
)
def test_pixels_equal_pillows(
    seed: int, height: int, width: int, quality: int, subsampling: str, restart: int, optimize: bool
) -> None:
    """Whatever the size, the quality, the tables and the restart markers, pixels are Pillow's."""
    file = io.BytesIO()
    picture(seed, height, width).save(
        file, "JPEG", quality=quality, subsampling=subsampling, restart_marker_blocks=restart, optimize=optimize
    )

    status, found = decode(file.getvalue(), (height, width, 3))

    assert _native.OK == status
    np.testing.assert_array_equal(np.asarray(Image.open(file)), found)


@pytest.mark.parametrize("restart", [0, 3])
def test_no_cut_is_overlooked(restart: int) -> None:
    """A file cut anywhere in its scan is truncated; with an end marker in the place of the rest it is corrupt."""
    buffer = io.BytesIO()
    picture(0, 40, 40).save(buffer, "JPEG", quality=90, restart_marker_blocks=restart)
    file = buffer.getvalue()
    scan = file.index(b"\xff\xda") + 14

    for size in range(scan, len(file) - 4, 7):
        cut = file[:size].rstrip(b"\xff")
        assert _native.TRUNCATED == decode(cut, (40, 40, 3))[0]
        assert _native.CORRUPT == decode(cut + b"\xff\xd9", (40, 40, 3))[0]


@pytest.mark.parametrize(("wish", "expected"), [("turbo", "libjpeg-turbo"), ("", "fastio")])
def test_the_environment_chooses(wish: str, expected: str) -> None:
    """FASTIO_ENTROPY=turbo leaves the bits to libjpeg-turbo; the build information says who has them."""
    script = "from fastio import _native; print(_native.build_info()['entropy'])"
    environment = os.environ | {"FASTIO_ENTROPY": wish}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)

    assert expected == done.stdout.strip()
