"""The native PNG reader against Pillow, and against damage."""

from __future__ import annotations

import hashlib
import io
import struct
import warnings
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio.codec import CODECS
from tests.codec.conformance import spans_of
from tests.codec.png_writer import SIGNATURE, PngRecipe, chunk, write_png

CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}


def decode(
    file: bytes, size: tuple[int, int], channels: int, *, checksums: bool = False
) -> tuple[int, NDArray[np.uint8]]:
    """Status and pixels of one file, ``size`` is (height, width)."""
    out = np.zeros((1, *size, channels), np.uint8)
    status = np.full(1, -1, np.int32)
    CODECS["image"].decode(spans_of([file], checksums=checksums), out, status).wait()
    return int(status[0]), out[0]


def by_pillow(file: bytes, mode: str) -> NDArray[np.uint8]:
    """What Pillow makes of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about transparent palettes
        pixels = np.asarray(Image.open(io.BytesIO(file)).convert(mode))
    return pixels.reshape(*pixels.shape[:2], -1)


@st.composite
def recipes(draw: st.DrawFn) -> PngRecipe:
    """Any valid kind of PNG, small."""
    color = draw(st.sampled_from(sorted(DEPTHS)))
    depth = draw(st.sampled_from(DEPTHS[color]))
    entries = draw(st.integers(1, 1 << depth)) if color == 3 else 0
    transparency = b""
    if draw(st.booleans()):
        transparency = {0: draw(st.binary(min_size=2, max_size=2)), 2: draw(st.binary(min_size=6, max_size=6))}.get(
            color, draw(st.binary(min_size=1, max_size=entries)) if color == 3 else b""
        )
    return PngRecipe(
        width=draw(st.integers(1, 20)),
        height=draw(st.integers(1, 20)),
        depth=depth,
        color=color,
        interlaced=draw(st.booleans()),
        palette=draw(st.binary(min_size=3 * entries, max_size=3 * entries)),
        transparency=transparency,
        pieces=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 1 << 32)),
    )


@settings(max_examples=300, deadline=None)
@given(recipes(), st.sampled_from(sorted(CHANNELS)), st.booleans())
def test_pixels_are_pillows(recipe: PngRecipe, mode: str, checksums: bool) -> None:
    """Every kind of PNG gives Pillow's pixels to the bit."""
    file = write_png(recipe)
    status, pixels = decode(file, (recipe.height, recipe.width), CHANNELS[mode], checksums=checksums)
    assert status == _native.OK
    np.testing.assert_array_equal(by_pillow(file, mode), pixels)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 40), st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA"]), st.integers(0, 99)
)
def test_pillows_own_files(width: int, height: int, mode: str, seed: int) -> None:
    """What Pillow writes we read as Pillow does."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 4), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert("RGB" if mode in ("1", "P") else "RGBA").convert(mode).save(buffer, "PNG")
    for wanted, channels in CHANNELS.items():
        status, found = decode(buffer.getvalue(), (height, width), channels)
        assert status == _native.OK
        np.testing.assert_array_equal(by_pillow(buffer.getvalue(), wanted), found)


@pytest.mark.parametrize("key", [b"", b"\0\5", b"\1\0", b"\0\xff"])
def test_grey_of_16_bits(key: bytes) -> None:
    """16-bit grey is clipped, and its transparent colour compared afterwards, as Pillow does both."""
    header = struct.pack(">IIBBBBB", 5, 1, 16, 0, 0, 0, 0)
    row = b"\0" + struct.pack(">5H", 0, 5, 255, 256, 65535)
    transparency = chunk(b"tRNS", key) if key else b""
    file = SIGNATURE + chunk(b"IHDR", header) + transparency + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")
    for mode, channels in CHANNELS.items():
        status, pixels = decode(file, (1, 5), channels)
        assert status == _native.OK
        np.testing.assert_array_equal(by_pillow(file, mode), pixels)


def test_golden_pixels() -> None:
    """Interlaced, filtered pixels have not changed since they were first compared with Pillow's."""
    file = write_png(PngRecipe(13, 11, interlaced=True, color=6, seed=5))
    status, pixels = decode(file, (11, 13), 4)
    assert status == _native.OK
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == GOLDEN


GOLDEN = "f91dbda43064358df9d71925c930e96521088b161de46099b1cee39c451af763"


SMALL = [
    write_png(PngRecipe(3, 3)),
    write_png(PngRecipe(3, 3, interlaced=True, pieces=2)),
    write_png(PngRecipe(3, 3, depth=2, color=3, palette=bytes(range(9)), transparency=b"\x80")),
]


def between(file: bytes) -> bytes:
    """The file with a chunk of another kind before its palette, and one behind its data."""
    palette, end = file.index(b"PLTE") - 4, file.index(b"IEND") - 4
    gamma, text = chunk(b"gAMA", struct.pack(">I", 45455)), chunk(b"tEXt", b"a\0b")
    return file[:palette] + gamma + file[palette:end] + text + file[end:]


WITH_CHUNKS = [between(SMALL[2])]


@pytest.mark.parametrize("file", SMALL)
def test_no_prefix_is_decoded(file: bytes) -> None:
    """A file cut before its pixels is TRUNCATED; one cut later is Pillow's, which reads it whole or not at all."""
    pixels = file.index(b"IDAT") + 4
    assert {_native.TRUNCATED} == {decode(file[:size], (3, 3), 3)[0] for size in range(pixels)}

    for size in range(pixels, len(file)):
        assert _native.UNSUPPORTED == decode(file[:size], (3, 3), 3)[0]
        with suppress(OSError, SyntaxError):
            assert np.array_equal(by_pillow(file, "RGB"), by_pillow(file[:size], "RGB"))


@pytest.mark.parametrize("file", SMALL)
def test_every_flipped_bit_is_seen(file: bytes) -> None:
    """No bit of a PNG can flip unseen, without any checksum but PNG's own."""
    for bit in range(8 * len(file)):
        flipped = bytearray(file)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode(bytes(flipped), (3, 3), 3)[0] != _native.OK, f"bit {bit}"


def png(*chunks: bytes, size: tuple[int, int] = (1, 1), color: int = 0) -> bytes:
    """A file of these chunks behind a header."""
    width, height = size
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    return SIGNATURE + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IEND", b"")


DATA = chunk(b"IDAT", zlib.compress(b"\0\7"))
HOSTILE = {
    "no data": (png(), _native.CORRUPT),
    "empty data": (png(chunk(b"IDAT", b"")), _native.CORRUPT),
    "too little data": (png(chunk(b"IDAT", zlib.compress(b"\0"))), _native.CORRUPT),
    "too much data": (png(chunk(b"IDAT", zlib.compress(b"\0\7\0\7"))), _native.CORRUPT),
    "wrong Adler-32": (png(chunk(b"IDAT", zlib.compress(b"\0\7")[:-1] + b"\0")), _native.CORRUPT),
    "unknown filter": (png(chunk(b"IDAT", zlib.compress(b"\5\7"))), _native.CORRUPT),
    "a huge width": (png(DATA, size=(0x7FFFFFFF, 1)), _native.BAD_SHAPE),
    "a width beyond PNG's limit": (png(DATA, size=(0xFFFFFFFF, 1)), _native.CORRUPT),
    "no width": (png(DATA, size=(0, 1)), _native.CORRUPT),
    "no palette": (png(DATA, color=3), _native.CORRUPT),
    "a palette of odd size": (png(chunk(b"PLTE", b"abcd"), DATA, color=3), _native.CORRUPT),
    "an index beyond the palette": (png(chunk(b"PLTE", b"abc"), DATA, color=3), _native.UNSUPPORTED),
    "two headers": (png(chunk(b"IHDR", bytes(13)), DATA), _native.CORRUPT),
    "data in two places": (png(DATA, chunk(b"tEXt", b"a\0b"), DATA), _native.CORRUPT),
    "an animation": (png(chunk(b"acTL", bytes(8)), DATA), _native.UNSUPPORTED),
    "an unknown critical chunk": (png(chunk(b"ABCD", b""), DATA), _native.UNSUPPORTED),
    "a length beyond the file": (png()[:33] + b"\x7f\xff\xff\xffIDAT", _native.UNSUPPORTED),
    "a length beyond PNG's limit": (png()[:33] + b"\xff\xff\xff\xffIDAT" + bytes(8), _native.UNSUPPORTED),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name: str) -> None:
    """Files that break PNG's rules get the status that says so."""
    file, expected = HOSTILE[name]
    assert decode(file, (1, 1), 3)[0] == expected


def test_chunks_may_come_between() -> None:
    """Chunks that do not concern pixels are passed over."""
    file = png(chunk(b"gAMA", struct.pack(">I", 45455)), DATA, chunk(b"tEXt", b"a\0b"))
    status, pixels = decode(file, (1, 1), 1)
    assert (status, pixels.tolist()) == (_native.OK, [[[7]]])


def damage_crc(file: bytearray, name: bytes) -> None:
    """Flip a bit in the CRC of the first chunk of this name."""
    at = file.index(name)
    file[at + 4 + int.from_bytes(file[at - 4 : at], "big")] ^= 1


def test_chunks_damaged_before_packing() -> None:
    """
    Whatever byte was changed before a checksum of the whole was taken: nothing comes that Pillow does not give.

    What Pillow refuses is refused, what it lets pass has its pixels, or is refused too.
    """
    for file in (*SMALL, *WITH_CHUNKS):
        for place in range(len(file)):
            for mask in (1, 0x80, 0xFF):
                changed = bytearray(file)
                changed[place] ^= mask
                status, pixels = decode(bytes(changed), (3, 3), 3, checksums=True)
                if status == _native.OK:
                    np.testing.assert_array_equal(by_pillow(bytes(changed), "RGB"), pixels, f"{place}, {mask}")


@pytest.mark.parametrize("name", [b"IHDR", b"PLTE", b"tRNS", b"gAMA"])
def test_a_damaged_chunk_before_the_data(name: bytes) -> None:
    """Its own CRC is compared even where the whole file has a checksum; Pillow refuses it too."""
    file = bytearray(WITH_CHUNKS[0])
    damage_crc(file, name)

    assert decode(bytes(file), (3, 3), 3, checksums=True)[0] == _native.CORRUPT
    with pytest.raises(OSError, match="cannot identify"):
        by_pillow(bytes(file), "RGB")


@pytest.mark.parametrize("name", [b"IHDR", b"PLTE", b"tRNS", b"gAMA", b"IDAT", b"tEXt", b"IEND"])
def test_probing_finds_every_damaged_chunk(name: bytes) -> None:
    """With ``verify`` every chunk's CRC is compared, without only the header is read."""
    file = bytearray(WITH_CHUNKS[0])
    damage_crc(file, name)
    spans, found = spans_of([bytes(file), WITH_CHUNKS[0]]), np.zeros((2, 5), np.int32)

    for verify, expected in ((True, _native.BAD_CHECKSUM), (False, _native.OK)):
        _native.probe_images(spans, found, verify=verify).wait()
        assert found[:, 0].tolist() == [expected, _native.OK]
