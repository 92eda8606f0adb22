"""The native JPEG decoder against Pillow, and against damage."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio.types.spans import Spans
from tests.codec.test_png import CHANNELS, by_pillow, decode

SUBSAMPLINGS = ["4:4:4", "4:2:2", "4:2:0"]  # what Pillow can write


def write_jpeg(pixels: NDArray[np.uint8], mode: str = "RGB", *, subsampling: str = "4:2:0", **how: int) -> bytes:
    """A JPEG by Pillow; ``how`` is quality, progressive, restart_marker_blocks, optimize."""
    buffer = io.BytesIO()
    options = {} if mode == "L" else {"subsampling": subsampling}
    Image.fromarray(pixels).convert(mode).save(buffer, "JPEG", **options, **how)
    return buffer.getvalue()


def smooth(height: int, width: int, seed: int) -> NDArray[np.uint8]:
    """Something between noise and a photograph: blocks of colour with noise on top."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (height // 5 + 1, width // 5 + 1, 3)).repeat(5, 0).repeat(5, 1)
    return np.clip(blocks[:height, :width] + random.integers(-20, 20, (height, width, 3)), 0, 255).astype(np.uint8)


@settings(max_examples=150, deadline=None)
@given(
    size=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    source=st.sampled_from(["RGB", "L"]),
    subsampling=st.sampled_from(SUBSAMPLINGS),
    quality=st.integers(1, 100),
    progressive=st.booleans(),
    restart=st.sampled_from([0, 1, 3]),
    seed=st.integers(0, 99),
)
def test_pixels_are_pillows(
    size: tuple[int, int], source: str, subsampling: str, quality: int, progressive: bool, restart: int, seed: int
) -> None:
    """Every subsampling, quality and size gives Pillow's pixels to the bit, in every mode."""
    file = write_jpeg(
        smooth(*size, seed),
        source,
        subsampling=subsampling,
        quality=quality,
        progressive=progressive,
        restart_marker_blocks=restart,
    )
    for mode, channels in CHANNELS.items():
        status, pixels = decode(file, size, channels)
        assert status == _native.OK
        np.testing.assert_array_equal(by_pillow(file, mode), pixels)


@pytest.mark.parametrize(("written", "as_byte"), [("4:2:2", 0x12), ("4:2:0", 0x41), ("4:2:0", 0x14)])
@pytest.mark.parametrize("progressive", [False, True])
def test_rare_subsamplings(written: str, as_byte: int, progressive: bool) -> None:
    """
    4:4:0, 4:1:1 and four rows to one give Pillow's pixels too.

    Pillow cannot write them. A common file of 64 x 64 has as many blocks, so that the
    sampling factors in its header may be replaced: another picture, but a valid file.
    """
    file = bytearray(write_jpeg(smooth(64, 64, 2), subsampling=written, progressive=progressive, quality=80))
    at = file.index(b"\xff\xc2" if progressive else b"\xff\xc0")
    file[at + 11] = as_byte
    for mode, channels in CHANNELS.items():
        status, pixels = decode(bytes(file), (64, 64), channels)
        assert status == _native.OK
        np.testing.assert_array_equal(by_pillow(bytes(file), mode), pixels)


def test_golden_pixels() -> None:
    """Decoding a file gives the same pixels as when they were first compared with Pillow's."""
    status, pixels = decode(bytes.fromhex(TINY), (8, 8), 3)
    assert status == _native.OK
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == GOLDEN


def test_sampling_by_a_fraction_is_left_to_pillow() -> None:
    """Chroma of 2 samples where luma has 3 is no damage, though libjpeg-turbo cannot do it: UNSUPPORTED."""
    file = bytearray(write_jpeg(smooth(24, 24, 0), subsampling="4:4:4"))
    frame = file.index(b"\xff\xc0")
    file[frame + 11], file[frame + 14] = 0x31, 0x21  # 3 and 2 samples in a row, in one column

    assert decode(bytes(file), (24, 24), 3)[0] == _native.UNSUPPORTED


SMALL = [
    write_jpeg(smooth(17, 19, 1), subsampling="4:2:0"),
    write_jpeg(smooth(17, 19, 1), progressive=1),
    write_jpeg(smooth(17, 19, 1), "L", restart_marker_blocks=1),
]


@pytest.mark.parametrize("file", SMALL)
def test_every_prefix_is_seen(file: bytes) -> None:
    """A file cut anywhere is never OK: a missing end is never filled with grey."""
    found = {decode(file[:size], (17, 19), 3)[0] for size in range(len(file) - 2)}
    assert found <= {_native.TRUNCATED, _native.CORRUPT}
    lacks_end = {decode(file[:size], (17, 19), 3)[0] for size in (len(file) - 2, len(file) - 1)}
    assert lacks_end == {_native.TRUNCATED if b"\xff\xc2" in file else _native.UNSUPPORTED}


@pytest.mark.parametrize("file", SMALL)
def test_a_flipped_bit_is_seen_or_pillow_agrees(file: bytes) -> None:
    """
    JPEG has no checksum: some flips give another valid file. Then we read what Pillow reads.

    What Pillow patches over we may refuse; we never give pixels that Pillow would not give.
    """
    random = np.random.default_rng(0)
    for bit in random.choice(8 * len(file), 1000, replace=False).tolist():
        flipped = bytearray(file)
        flipped[bit // 8] ^= 1 << bit % 8
        status, pixels = decode(bytes(flipped), (17, 19), 3)
        if status == _native.OK:
            np.testing.assert_array_equal(by_pillow(bytes(flipped), "RGB"), pixels, err_msg=f"bit {bit}")


@pytest.mark.parametrize("file", SMALL)
def test_a_flipped_bit_is_always_seen_with_checksums(file: bytes) -> None:
    """With the index's checksum no flip goes unseen."""
    from tests.codec.conformance import spans_of

    spans = spans_of([file] * 50, checksums=True)
    data = np.frombuffer(b"".join([file] * 50), np.uint8).copy().reshape(50, -1)
    bits = np.random.default_rng(0).choice(8 * len(file), 50, replace=False)
    data[np.arange(50), bits // 8] ^= (1 << bits % 8).astype(np.uint8)
    damaged = Spans.of(data.reshape(-1), np.arange(50) * len(file), spans.sizes, checksums=spans.checksums)
    out, status = np.zeros((50, 17, 19, 3), np.uint8), np.zeros(50, np.int32)
    _native.decode_images(damaged, out, status).wait()
    assert (status == _native.BAD_CHECKSUM).all()


def test_tables_of_one_file_are_not_used_for_the_next() -> None:
    """A file without its tables is refused, also right after one that had them (libjpeg would keep them)."""
    file = write_jpeg(smooth(8, 8, 0), progressive=1, optimize=1)
    at = file.index(b"\xff\xdb")
    size = int.from_bytes(file[at + 2 : at + 4], "big")
    without = file[:at] + file[at + 2 + size :]
    assert decode(file, (8, 8), 3)[0] == _native.OK
    assert decode(without, (8, 8), 3)[0] == _native.CORRUPT


def test_harmless_oddities_pass() -> None:
    """Bytes behind the end, and between the segments, leave the pixels as they are."""
    file = write_jpeg(smooth(8, 8, 0))
    expected = by_pillow(file, "RGB")
    for odd in (file + b"trailing", file[:2] + b"\xff\xff\xff" + file[3:]):
        status, pixels = decode(odd, (8, 8), 3)
        assert status == _native.OK
        np.testing.assert_array_equal(expected, pixels)


TINY = (
    "ffd8ffe000104a46494600010100000100010000ffdb0043000d090a0b0a080d0b0a0b0e0e0d0f13201513121213271c1e17"
    "202e2931302e292d2c333a4a3e333646372c2d405741464c4e525352323e5a615a50604a51524fffdb0043010e0e0e131113"
    "261515264f352d354f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f"
    "4f4f4f4f4f4f4f4fffc00011080008000803012200021101031101ffc4001f00000105010101010101000000000000000001"
    "02030405060708090a0bffc400b5100002010303020403050504040000017d01020300041105122131410613516107227114"
    "328191a1082342b1c11552d1f02433627282090a161718191a25262728292a3435363738393a434445464748494a53545556"
    "5758595a636465666768696a737475767778797a838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5"
    "b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9faffc4001f010003"
    "0101010101010101010000000000000102030405060708090a0bffc400b51100020102040403040705040400010277000102"
    "031104052131061241510761711322328108144291a1b1c109233352f0156272d10a162434e125f11718191a262728292a35"
    "363738393a434445464748494a535455565758595a636465666768696a737475767778797a82838485868788898a92939495"
    "969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae2e3e4e5e6e7e8e9ea"
    "f2f3f4f5f6f7f8f9faffda000c03010002110311003f00cabfd3e4b58564768c82c170a4e49c1f6f6a28a2af2cc6d55875af"
    "563ccebcbdbfc8ffd9"
)
GOLDEN = "384f078a8e18998b5acdd3bebc8669e9ef31a1868453a101ee83835df2f5ecd4"
