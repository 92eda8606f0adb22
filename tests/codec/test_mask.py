"""Masks: the numbers that Pillow's arrays have, and torch's rule of the nearest pixel."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio.codec import CODECS, Codec
from fastio.codec.codec import Geometry
from fastio.codec.mask import misfits, nearest_positions, nearest_row
from fastio.codec.pillow import decode_mask_with_pillow, mask_form
from fastio.errors import SchemaError
from fastio.types.field_types import field_of
from tests.codec.conformance import CodecTests, spans_of
from tests.codec.png_writer import PngRecipe, write_png
from tests.codec.test_png import DEPTHS, recipes

MASK = CODECS["mask"]
PALETTE = bytes(range(30, 60))
KINDS = [(color, depth, is_interlaced) for color in DEPTHS for depth in DEPTHS[color] for is_interlaced in (0, 1)]


class TestMaskCodec(CodecTests):
    """Masks."""

    @pytest.fixture
    def codec(self) -> Codec:
        return MASK

    @pytest.fixture(params=["|u1", "<u2", 3, 4])
    def values(self, request: pytest.FixtureRequest) -> list[NDArray[Any]]:
        random = np.random.default_rng(0)
        if isinstance(request.param, int):
            return list(random.integers(0, 256, (9, 5, 7, request.param), np.uint8))
        dtype = np.dtype(request.param)
        return list(random.integers(0, 256**dtype.itemsize, (9, 5, 7), dtype.type))


def of_kind(color: int, depth: int, is_interlaced: int) -> bytes:
    """A PNG of this colour type and depth."""
    palette = PALETTE[: 3 * min(1 << depth, 10)] if color == 3 else b""
    return write_png(PngRecipe(23, 11, depth, color, bool(is_interlaced), palette))


def by_pillow(file: bytes) -> NDArray[Any]:
    """The array that Pillow gives; bool as numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = np.asarray(Image.open(io.BytesIO(file)))
    return numbers.astype(np.uint8) if numbers.dtype == np.bool_ else numbers


def decode(file: bytes, shape: tuple[int, ...], dtype: str) -> tuple[int, NDArray[Any]]:
    """Status and numbers of one file."""
    out, status = np.zeros((1, *shape), dtype), np.full(1, -1, np.int32)
    MASK.decode(spans_of([file]), out, status).wait()
    return int(status[0]), out[0]


@pytest.mark.parametrize("dtype", ["|u1", "<u2"])
@pytest.mark.parametrize(("color", "depth", "is_interlaced"), KINDS)
def test_every_kind_of_png_gives_pillows_array(color: int, depth: int, is_interlaced: int, dtype: str) -> None:
    """Indices, not colours; 16-bit greys whole; what does not fit into the row is BAD_SHAPE."""
    file = of_kind(color, depth, is_interlaced)
    expected = by_pillow(file)

    status, numbers = decode(file, expected.shape, dtype)

    is_too_deep = depth == 16 and (dtype == "|u1" or color != 0)
    assert (_native.BAD_SHAPE if is_too_deep else _native.OK) == status
    if not is_too_deep:
        np.testing.assert_array_equal(expected, numbers)


@settings(max_examples=80, deadline=None)
@given(recipes())
def test_random_pngs_give_pillows_array(recipe: PngRecipe) -> None:
    """Also with transparency, several pieces and sizes that leave passes empty."""
    file = write_png(recipe)
    expected = by_pillow(file)

    status, numbers = decode(file, expected.shape, "<u2")

    is_too_deep = recipe.depth == 16 and recipe.color != 0
    assert (_native.BAD_SHAPE if is_too_deep else _native.OK) == status
    if not is_too_deep:
        np.testing.assert_array_equal(expected, numbers)


@pytest.mark.parametrize(("color", "depth", "is_interlaced"), KINDS)
def test_headers_tell_what_is_decoded(color: int, depth: int, is_interlaced: int) -> None:
    """Channels are those of the array, bits those that a number needs."""
    file = of_kind(color, depth, is_interlaced)
    expected = by_pillow(file)

    headers = MASK.probe(spans_of([file]))

    assert headers.bits is not None
    assert max(depth, 8) == headers.bits[0]
    if depth < 16 or color == 0:  # others are refused
        assert [*expected.shape, 1][:3] == headers.shapes[0].tolist()


@pytest.mark.parametrize(
    ("type_", "shape", "dtype"),
    [("mask", (4, 5), "|u1"), ("mask16", (4, 5), "|u1"), ("mask16", (4, 5), "<u2"), ("mask[3]", (4, 5, 3), "|u1")],
)
def test_masks_that_fit_their_field(type_: str, shape: tuple[int, ...], dtype: str) -> None:
    """8 bits fit into 16."""
    headers = MASK.probe(spans_of([MASK.encode(np.ones(shape, dtype))]))

    assert {} == misfits(headers, field_of("mask", type_))


@pytest.mark.parametrize(
    ("type_", "shape", "dtype", "problem"),
    [
        ("mask", (4, 5), "<u2", "with 16-bit numbers, but masks of 8 bits are expected: declare the field mask16"),
        ("mask", (4, 5, 3), "|u1", "of 3 channels, but masks of 1 channel are expected: declare the field mask[3], or"),
        ("mask[3]", (4, 5), "|u1", "of 1 channel, but masks of 3 channels are expected: declare the field mask, or"),
    ],
)
def test_masks_that_do_not_fit_their_field(type_: str, shape: tuple[int, ...], dtype: str, problem: str) -> None:
    """The sentence says how to declare the field."""
    headers = MASK.probe(spans_of([MASK.encode(np.ones(shape, dtype))]))

    assert problem in misfits(headers, field_of("mask", type_))[0]


def test_colours_of_16_bits_are_no_mask() -> None:
    """Pillow would drop the lower half of each number."""
    headers = MASK.probe(spans_of([of_kind(2, 16, 0)]))

    assert "with 16-bit numbers, which no mask can have" in misfits(headers, field_of("mask", "mask[3]"))[0]


def test_masks_of_bool_are_0_and_1() -> None:
    """They become PNGs of one bit."""
    numbers = np.random.default_rng(0).integers(0, 2, (5, 11)).astype(np.bool_)
    file = MASK.encode(numbers)

    assert "1" == Image.open(io.BytesIO(file)).mode
    np.testing.assert_array_equal(numbers, decode(file, numbers.shape, "|u1")[1])


@pytest.mark.parametrize("value", [np.zeros((2, 2), np.int32), np.zeros((2, 2, 3), np.uint16), np.zeros(4, np.uint8)])
def test_what_is_no_mask_is_not_encoded(value: NDArray[Any]) -> None:
    """Only bool, uint8 and uint16, or colours of 8 bits, become a PNG without loss."""
    with pytest.raises(SchemaError, match="a mask as bool, uint8 or uint16"):
        MASK.encode(value)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("BMP", "P"), ("BMP", "1"), ("TIFF", "I;16"), ("TIFF", "P"), ("WEBP", "RGB"), ("PPM", "L"), ("GIF", "P")],
)
def test_other_kinds_are_left_to_pillow(kind: str, mode: str) -> None:
    """Their numbers come from Pillow, and their headers tell the same form."""
    file = io.BytesIO()
    picture = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(6, 8)).convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        picture = Image.fromarray(np.arange(48, dtype=np.uint16).reshape(6, 8) * 1000)
    picture.save(file, kind, **({"lossless": True} if kind == "WEBP" else {}))
    expected = by_pillow(file.getvalue())

    headers = MASK.probe(spans_of([file.getvalue()]))

    assert headers.bits is not None
    assert (_native.OK, 8 * expected.dtype.itemsize) == (headers.status[0], headers.bits[0])
    assert [*expected.shape, 1][:3] == headers.shapes[0].tolist()
    np.testing.assert_array_equal(expected, decode_mask_with_pillow(file.getvalue()).pixels)


def test_tiles_may_be_plain_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    """So they are before Pillow 11, and in Pillow-SIMD."""
    picture = Image.new("RGB", (3, 2))
    monkeypatch.setattr(picture, "tile", [("raw", (0, 0, 3, 2), 0, ("RGB;16B", 0, 1))], raising=False)
    monkeypatch.setattr("fastio.codec.pillow.open_picture", lambda _data: nullcontext(picture))

    assert (3, 16) == mask_form(b"")


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000))
def test_the_nearest_pixel_is_torchs(size: int, virtual_size: int) -> None:
    """As ``interpolate(mode="nearest")`` chooses for uint8, to the pixel."""
    numbers = torch.arange(size).remainder(251).to(torch.uint8).reshape(1, 1, 1, size)

    expected = torch.nn.functional.interpolate(numbers, (1, virtual_size), mode="nearest").flatten()

    np.testing.assert_array_equal(expected.numpy(), nearest_positions(size, virtual_size) % 251)


@st.composite
def plans(draw: st.DrawFn, size: tuple[int, int]) -> tuple[list[int], tuple[int, int]]:
    """A plan that fits a mask of ``size``, and the height and width of the row."""
    sides = []
    for side in reversed(size):  # x first
        box = draw(st.integers(1, side))
        start = draw(st.integers(0, side - box))
        virtual = draw(st.one_of(st.just(box), st.integers(1, 40)))
        window = draw(st.integers(0, virtual))
        first = draw(st.integers(0, virtual - window))
        before, behind = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        sides.append((start, box, virtual, first, window, before, max(before + window + behind, 1)))
    x, y = sides
    plan = [x[0], y[0], x[1], y[1], x[2], y[2], x[3], y[3], x[4], y[4], x[5], y[5], draw(st.integers(0, 1))]
    return plan, (y[6], x[6])


def by_torch(numbers: NDArray[Any], plan: list[int], size: tuple[int, int], fill: int) -> NDArray[Any]:
    """What torch's operations give, one after the other: crop, interpolate, crop, pad, flip."""
    x, y, w, h, virtual_w, virtual_h, left, top, window_w, window_h, place_x, place_y, flip = plan
    planes = torch.from_numpy(np.atleast_3d(numbers).astype(np.float32)).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(planes[..., y : y + h, x : x + w], (virtual_h, virtual_w), mode="nearest")
    row = torch.full((1, planes.shape[1], *size), float(fill))
    if window_w and window_h:
        window = resized[..., top : top + window_h, left : left + window_w]
        row[..., place_y : place_y + window_h, place_x : place_x + window_w] = window
    row = row.flip(-1) if flip else row
    return row[0].permute(1, 2, 0).numpy().astype(numbers.dtype).reshape(*size, *numbers.shape[2:])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_plans_give_what_torch_gives(data: st.DataObject) -> None:
    """Native code and the plain path equal torch's operations in a row, in both layouts, for all kinds of numbers."""
    dtype, channels = data.draw(st.sampled_from([("|u1", 0), ("<u2", 0), ("|u1", 2), ("|u1", 3), ("|u1", 4)]))
    height, width = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 30))
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    shape = (height, width, channels) if channels else (height, width)
    numbers = random.integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)
    plan, size = data.draw(plans((height, width)))
    fill = data.draw(st.sampled_from([0, 1, int(np.iinfo(dtype).max)]))
    is_planar = data.draw(st.booleans())
    expected = by_torch(numbers, plan, size, fill)

    plain = nearest_row(numbers, plan, size, fill=fill)
    row = (*size, *shape[2:])
    out = np.zeros((1, *((channels, *size) if is_planar and channels else row)), dtype)
    status = np.full(1, -1, np.int32)
    geometry = Geometry(np.array([plan], np.int32), fill=fill.to_bytes(2, "little"), is_planar=is_planar)
    MASK.decode(spans_of([MASK.encode(numbers)]), out, status, geometry=geometry).wait()

    assert status[0] == _native.OK
    assert plain is not None
    np.testing.assert_array_equal(expected, plain)
    np.testing.assert_array_equal(expected, out[0].transpose(1, 2, 0) if is_planar and channels else out[0])


def jpeg(numbers: NDArray[np.uint8]) -> bytes:
    """A mask that somebody saved as a JPEG."""
    file = io.BytesIO()
    Image.fromarray(numbers).save(file, "JPEG", quality=90)
    return file.getvalue()


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_plans_of_every_kind_of_file(data: st.DataObject) -> None:
    """Native code equals the plain path, Pillow's array through the plan, for all kinds of PNGs and for JPEGs."""
    if data.draw(st.integers(0, 9)) == 0:
        shape = (data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40)), *data.draw(st.sampled_from([(), (3,)])))
        file = jpeg(np.random.default_rng(0).integers(0, 256, shape, np.uint8))
    else:
        recipe = data.draw(recipes().filter(lambda recipe: recipe.depth < 16 or recipe.color == 0))
        file = write_png(recipe)
    numbers = by_pillow(file)
    plan, size = data.draw(plans((numbers.shape[0], numbers.shape[1])))
    dtype = data.draw(st.sampled_from(["|u1", "<u2"])) if numbers.dtype.itemsize == 1 else "<u2"
    expected = nearest_row(numbers, plan, size, fill=200)

    out, status = np.zeros((1, *size, *numbers.shape[2:]), dtype), np.full(1, -1, np.int32)
    MASK.decode(spans_of([file]), out, status, geometry=Geometry(np.array([plan], np.int32), fill=b"\xc8")).wait()

    assert status[0] == _native.OK
    np.testing.assert_array_equal(expected, out[0])


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_jpegs_give_pillows_array(mode: str) -> None:
    """A grey JPEG has one channel, a coloured one three."""
    file = jpeg(np.asarray(Image.effect_noise((50, 40), 60).convert(mode)))
    expected = by_pillow(file)

    status, numbers = decode(file, expected.shape, "|u1")

    assert _native.OK == status
    np.testing.assert_array_equal(expected, numbers)


@pytest.mark.parametrize(("color", "depth", "is_interlaced"), [(3, 8, 0), (3, 4, 1), (0, 16, 0), (0, 1, 0), (0, 16, 1)])
def test_damage_is_found_in_any_part(color: int, depth: int, is_interlaced: int) -> None:
    """No prefix of a file decodes, and no flipped bit goes unseen, though the plan needs only the first rows."""
    file = of_kind(color, depth, is_interlaced)
    random = np.random.default_rng(0)
    prefixes = [file[:size] for size in range(len(file))]
    flipped = [bytearray(file) for _ in range(400)]
    for each in flipped:
        each[random.integers(len(file))] ^= 1 << int(random.integers(8))
    spans = spans_of([file, *prefixes, *map(bytes, flipped)])
    plan = np.tile(np.array([2, 1, 9, 4, 5, 6, 0, 0, 5, 6, 0, 0, 1], np.int32), (len(spans), 1))
    out, status = np.zeros((len(spans), 6, 5), np.uint16), np.zeros(len(spans), np.int32)

    MASK.decode(spans, out, status, geometry=Geometry(plan)).wait()

    assert status[0] == _native.OK
    assert (status[1:] != _native.OK).all()


def test_headers_that_lie_ask_for_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size that the file cannot fill is TRUNCATED, one beyond Pillow's limit TOO_LARGE."""
    small = bytearray(write_png(PngRecipe(23, 11, 8, 0)))
    huge = bytes(small[:16]) + struct.pack(">II", 60_000, 60_000) + bytes(small[24:29])
    huge += struct.pack(">I", zlib.crc32(huge[12:29])) + bytes(small[33:])
    plan = np.array([[0, 0, 4, 4, 4, 4, 0, 0, 4, 4, 0, 0, 0]], np.int32)
    out, status = np.zeros((1, 4, 4), np.uint8), np.zeros(1, np.int32)

    MASK.decode(spans_of([huge]), out, status, geometry=Geometry(plan)).wait()
    assert _native.TOO_LARGE == status[0]

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    MASK.decode(spans_of([huge]), out, status, geometry=Geometry(plan)).wait()
    assert _native.TRUNCATED == status[0]


def test_arrays_that_do_not_fit_are_refused() -> None:
    """Wrong dtypes, shapes and plans raise before anything runs."""
    spans, status = spans_of([of_kind(3, 8, 0)]), np.zeros(1, np.int32)
    outside = np.array([[0, 0, 4, 4, 4, 4, 0, 0, 4, 4, 9, 0, 0]], np.int32)
    with pytest.raises(ValueError, match="uint8 or uint16"):
        MASK.decode(spans, np.zeros((1, 4, 4), np.int32), status)
    with pytest.raises(ValueError, match="3 or 4 dimensions"):
        MASK.decode(spans, np.zeros((1, 4), np.uint8), status)
    with pytest.raises(ValueError, match="out has 5 channels"):
        MASK.decode(spans, np.zeros((1, 4, 4, 5), np.uint8), status)
    with pytest.raises(ValueError, match="plan 0: its window, as placed"):
        MASK.decode(spans, np.zeros((1, 4, 4), np.uint8), status, geometry=Geometry(outside))
    with pytest.raises(ValueError, match="fill is 256, out holds at most 255"):
        MASK.decode(spans, np.zeros((1, 4, 4), np.uint8), status, geometry=Geometry(outside, fill=b"\0\1"))


def test_a_plan_for_a_picture_of_another_size_is_refused() -> None:
    """A mask that has not the size of its picture is BAD_SHAPE, even if the box lies in it."""
    numbers = np.zeros((6, 8), np.uint8)
    plan = np.array([[0, 0, 4, 4, 4, 4, 0, 0, 4, 4, 0, 0, 0]] * 2, np.int32)
    out, status = np.zeros((2, 4, 4), np.uint8), np.full(2, -1, np.int32)
    sizes = np.array([[6, 8], [5, 8]], np.int32)

    MASK.decode(spans_of([MASK.encode(numbers)] * 2), out, status, geometry=Geometry(plan, sizes=sizes)).wait()

    assert [_native.OK, _native.BAD_SHAPE] == status.tolist()
