"""JPEGs of four components: native pixels are those of Pillow's ``convert``, whole and in parts."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from tests.codec.test_jpeg import smooth
from tests.codec.test_png import CHANNELS, by_pillow, decode

SAMPLINGS = {"4:4:4": 0x11, "4:2:2": 0x21, "4:2:0": 0x22, "4:4:0": 0x12}  # of luma and black


def write_inks(pixels: NDArray[np.uint8], **options: int) -> bytes:
    """A CMYK JPEG by Pillow with as much black as colour, of ``(H, W, 3)`` pixels."""
    inks = np.asarray(Image.fromarray(pixels).convert("CMYK")).copy()
    inks[..., 3] = inks[..., :3].min(axis=-1)
    inks[..., :3] -= inks[..., 3:] // 2
    file = io.BytesIO()
    Image.fromarray(inks, "CMYK").save(file, "JPEG", **options)
    return file.getvalue()


def as_ycck(file: bytes) -> bytes:
    """The same components, of which the first three are now luma and chroma: another picture, but a valid file."""
    transform = file.index(b"Adobe") + 11
    assert file[transform] == 0
    return file[:transform] + b"\2" + file[transform + 1 :]


def sampled(size: tuple[int, int], sampling: int, seed: int, **options: int) -> bytes:
    """A file with fewer samples of the second and third component. Pillow writes enough blocks, and another header."""
    height, width = size
    down, right = sampling & 15, sampling >> 4
    count = -(-height // (8 * down)) * -(-width // (8 * right)) * (2 * down * right + 2)
    file = bytearray(write_inks(smooth(8, 8 * -(-count // 4), seed), **options))
    frame = file.index(b"\xff\xc2" if options.get("progressive") else b"\xff\xc0")
    file[frame + 5 : frame + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    file[frame + 11] = file[frame + 20] = sampling
    return bytes(file)


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    quality=st.integers(1, 100),
    progressive=st.booleans(),
    restart=st.sampled_from([0, 1, 3]),
    ycck=st.booleans(),
    seed=st.integers(0, 99),
)
def test_pixels_are_pillows(
    size: tuple[int, int], quality: int, progressive: bool, restart: int, ycck: bool, seed: int
) -> None:
    """CMYK and YCCK of every quality and size give Pillow's pixels to the bit, in every mode."""
    file = write_inks(smooth(*size, seed), quality=quality, progressive=progressive, restart_marker_blocks=restart)
    file = as_ycck(file) if ycck else file
    for mode, channels in CHANNELS.items():
        status, pixels = decode(file, size, channels)
        assert status == _native.OK
        np.testing.assert_array_equal(by_pillow(file, mode), pixels)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("size", [(1, 1), (33, 47), (64, 80)])
def test_subsampled_chroma(size: tuple[int, int], sampling: int) -> None:
    """YCCK with fewer samples of chroma, as Photoshop writes it, gives Pillow's pixels."""
    file = as_ycck(sampled(size, sampling, 5))
    for mode, channels in CHANNELS.items():
        status, pixels = decode(file, size, channels)
        assert status == _native.OK
        np.testing.assert_array_equal(by_pillow(file, mode), pixels)


def test_without_adobe_marker() -> None:
    """Four components of a file that does not say what they are: CMYK, inverted all the same, as Pillow takes them."""
    file = write_inks(smooth(20, 30, 1))
    marker = file.index(b"\xff\xee")
    file = file[:marker] + file[marker + 2 + int.from_bytes(file[marker + 2 : marker + 4], "big") :]
    status, pixels = decode(file, (20, 30), 3)
    assert status == _native.OK
    np.testing.assert_array_equal(by_pillow(file, "RGB"), pixels)


FILES = [write_inks(smooth(17, 19, 1)), as_ycck(write_inks(smooth(17, 19, 2), progressive=1))]


@pytest.mark.parametrize("file", FILES, ids=["CMYK", "progressive YCCK"])
def test_damage_is_seen_or_pillow_agrees(file: bytes) -> None:
    """Cut anywhere a file is never OK; with a flipped bit it is refused, or Pillow reads the same."""
    cut = {decode(file[:size], (17, 19), 3)[0] for size in range(0, len(file) - 2, 3)}
    assert cut <= {_native.TRUNCATED, _native.CORRUPT}
    random = np.random.default_rng(0)
    for bit in random.choice(8 * len(file), 300, replace=False).tolist():
        flipped = bytearray(file)
        flipped[bit // 8] ^= 1 << bit % 8
        status, pixels = decode(bytes(flipped), (17, 19), 3)
        if status == _native.OK:
            np.testing.assert_array_equal(by_pillow(bytes(flipped), "RGB"), pixels, err_msg=f"bit {bit}")
