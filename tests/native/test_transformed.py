"""Transforms in the decoders, compared with Pillow to the bit."""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import PIL
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio._native import ThreadPool
from fastio.types.spans import Spans

Array = NDArray[np.uint8]

# In the order of their numbers.
FILTERS = [
    Image.Resampling.BILINEAR,
    Image.Resampling.BICUBIC,
    Image.Resampling.BOX,
    Image.Resampling.LANCZOS,
    Image.Resampling.HAMMING,
    Image.Resampling.NEAREST,
]
MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class Plan:
    """One row of a plan, and the size of the row of the batch."""

    box: tuple[int, int, int, int]
    virtual: tuple[int, int]
    window: tuple[int, int, int, int]
    place: tuple[int, int]
    row: tuple[int, int]  # width, height
    flip: int = 0

    def numbers(self) -> list[int]:
        return [*self.box, *self.virtual, *self.window, *self.place, self.flip]


def whole(box: tuple[int, int, int, int], size: tuple[int, int]) -> Plan:
    """A crop that is resized to the row."""
    return Plan(box, size, (0, 0, *size), (0, 0), size)


def resized(
    picture: Image.Image, size: tuple[int, int], kernel: Image.Resampling, *, cheaper_first: bool = True
) -> Image.Image:
    """
    Pillow's resize, its two passes in the order of Pillow 13, or of those before it, which always begin horizontally.

    They differ where rounding between the passes does.
    """
    if kernel == Image.Resampling.NEAREST:
        return picture.resize(size, kernel)
    alpha = picture.mode == "RGBA" and picture.size != size
    result = picture.convert("RGBa") if alpha else picture
    (width, height), (new_width, new_height) = picture.size, size
    if cheaper_first and height > new_height and height - new_height > 2 * (width - new_width):
        result = result.resize((width, new_height), kernel).resize(size, kernel)
    else:
        result = result.resize((new_width, height), kernel).resize(size, kernel)
    return result.convert(picture.mode) if alpha else result


def expected(
    picture: Image.Image, plan: Plan, *, kernel: int, fill: bytes, grey: bool, cheaper_first: bool = True
) -> Array:
    """The same by Pillow, step by step: (H, W, C)."""
    x, y, width, height = plan.box
    cropped = picture.crop((x, y, x + width, y + height))
    result = resized(cropped, plan.virtual, FILTERS[kernel], cheaper_first=cheaper_first)
    if grey:
        result = result.convert("L").convert(picture.mode)
    left, top, width, height = plan.window
    result = result.crop((left, top, left + width, top + height))
    row = Image.new(picture.mode, plan.row, fill[0] if picture.mode == "L" else tuple(fill))
    if width and height:
        row.paste(result, plan.place)
    if plan.flip & 1:
        row = row.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if plan.flip & 2:
        row = row.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    return np.asarray(row).reshape(plan.row[1], plan.row[0], -1)


@dataclass
class Batch:
    """Values that go through plans of one row size."""

    values: list[bytes]
    plans: list[Plan]
    channels: int = 3
    filter: int = 0
    planar: bool = False
    grey: bool = False
    fast: bool = False
    cheaper_first: bool = True
    checksums: NDArray[np.uint32] | None = None
    pool: ThreadPool | None = None

    @property
    def fill(self) -> bytes:
        return bytes([7, 100, 250, 30][: self.channels])

    def _prepare(self) -> None:
        width, height = self.plans[0].row
        shape = (self.channels, height, width) if self.planar else (height, width, self.channels)
        # Guard bytes around: nothing may be written there.
        size = len(self.plans) * width * height * self.channels
        self.guarded = np.full(size + 128, 0xA5, np.uint8)
        self.out = self.guarded[64 : 64 + size].reshape(len(self.plans), *shape)
        self.status = np.full(len(self.plans), -1, np.int32)
        self.plan = np.array([plan.numbers() for plan in self.plans], np.int32)
        data = np.frombuffer(b"".join(self.values), np.uint8)
        sizes = np.array([len(value) for value in self.values], np.int64)
        self.spans = Spans.of(data, np.cumsum(sizes) - sizes, sizes, checksums=self.checksums)

    def _finish(self) -> Array:
        assert (self.guarded[:64] == 0xA5).all()
        assert (self.guarded[-64:] == 0xA5).all()
        return self.out.transpose(0, 2, 3, 1) if self.planar else self.out

    def decode(self) -> Array:
        """The pictures as (n, H, W, C)."""
        self._prepare()
        _native.decode_transformed(
            self.spans, self.plan, self.out, self.status, self.pool,
            filter=self.filter, fill=self.fill, planar=self.planar, grey=self.grey, fast=self.fast,
            cheaper_first=self.cheaper_first,
        ).wait()  # fmt: skip
        return self._finish()

    def gather(self, height: int, width: int, *, from_planes: bool = False) -> Array:
        """The raw pixels as (n, H, W, C)."""
        self._prepare()
        _native.gather_transformed(
            self.spans, self.plan, self.out, self.status, self.pool,
            filter=self.filter, fill=self.fill, planar=self.planar, grey=self.grey,
            height=height, width=width, from_planes=from_planes, cheaper_first=self.cheaper_first,
        ).wait()  # fmt: skip
        return self._finish()


def pixels(height: int, width: int, channels: int, seed: int = 0) -> Array:
    """Noise with hard edges: every fault in a weight shows."""
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    noise[noise > 170] = 255
    noise[noise < 60] = 0
    return noise


def picture_of(array: Array) -> Image.Image:
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def png(array: Array) -> bytes:
    file = io.BytesIO()
    picture_of(array).save(file, "PNG", compress_level=1)
    return file.getvalue()


sides = st.one_of(st.integers(1, 12), st.integers(1, 90))


@st.composite
def plans(draw: st.DrawFn, width: int, height: int) -> Plan:
    """Any plan for a picture of this size."""
    box_w, box_h = draw(st.integers(1, width)), draw(st.integers(1, height))
    box = (draw(st.integers(0, width - box_w)), draw(st.integers(0, height - box_h)), box_w, box_h)
    virtual = draw(st.one_of(st.just((box_w, box_h)), st.tuples(sides, sides)))
    window_w, window_h = draw(st.integers(0, virtual[0])), draw(st.integers(0, virtual[1]))
    window = (
        draw(st.integers(0, virtual[0] - window_w)),
        draw(st.integers(0, virtual[1] - window_h)),
        window_w,
        window_h,
    )
    right, bottom = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    place = (draw(st.integers(0, 5)), draw(st.integers(0, 5)))
    row = (max(1, place[0] + window_w + right), max(1, place[1] + window_h + bottom))
    return Plan(box, virtual, window, place, row, draw(st.integers(0, 3)))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_order_of_passes(data: st.DataObject) -> None:
    """In one call Pillow takes the order that ``resized`` says."""
    old, new = data.draw(st.tuples(sides, sides)), data.draw(st.tuples(sides, sides))
    kernel = data.draw(st.sampled_from(FILTERS))
    picture = picture_of(pixels(old[1], old[0], 3))
    found = resized(picture, new, kernel, cheaper_first=int(PIL.__version__.split(".")[0]) >= 13)
    np.testing.assert_array_equal(np.asarray(picture.resize(new, kernel)), np.asarray(found))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_raw_equals_pillow(data: st.DataObject) -> None:
    """Crop, resample, window, place and flip of raw pixels are Pillow's to the bit."""
    width, height = data.draw(sides), data.draw(sides)
    channels = data.draw(st.sampled_from([1, 3, 4]))
    plan = data.draw(plans(width, height))
    grey = channels != 4 and data.draw(st.booleans())
    array = pixels(height, width, channels)
    batch = Batch([array.tobytes()], [plan], channels, data.draw(st.integers(0, 5)), data.draw(st.booleans()), grey)
    batch.cheaper_first = order = data.draw(st.booleans())
    found = batch.gather(height, width)[0]
    assert batch.status.tolist() == [_native.OK]
    want = expected(picture_of(array), plan, kernel=batch.filter, fill=batch.fill, grey=grey, cheaper_first=order)
    np.testing.assert_array_equal(want, found)
    batch.values = [np.moveaxis(array, -1, 0).tobytes()]
    np.testing.assert_array_equal(want, batch.gather(height, width, from_planes=True)[0])
    assert batch.status.tolist() == [_native.OK]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_png_equals_pillow(data: st.DataObject) -> None:
    """The same for PNG files."""
    width, height = data.draw(sides), data.draw(sides)
    channels = data.draw(st.sampled_from([1, 3, 4]))
    plan = data.draw(plans(width, height))
    array = pixels(height, width, channels)
    batch = Batch([png(array)], [plan], channels, data.draw(st.integers(0, 5)))
    found = batch.decode()[0]
    assert batch.status.tolist() == [_native.OK]
    want = expected(picture_of(array), plan, kernel=batch.filter, fill=batch.fill, grey=False)
    np.testing.assert_array_equal(want, found)


def save_jpeg(picture: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=85, **options)
    return file.getvalue()


def resampled_header(file: bytes, sampling: int, width: int, height: int) -> bytes:
    """The same blocks under a header with another sampling of luma: kinds that Pillow does not write."""
    start = file.index(b"\xff\xc0")
    size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return file[: start + 5] + size + file[start + 9 : start + 11] + bytes([sampling]) + file[start + 12 :]


def jpeg_files(width: int, height: int, seed: int) -> dict[str, bytes]:
    """One picture in every subsampling, grey, CMYK, progressive and with restart markers."""

    def drawn(width: int, height: int) -> Image.Image:
        coarse = pixels(1 + height // 5, 1 + width // 5, 3, seed)
        return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)

    picture = drawn(width, height)
    upright = drawn(16 * -(-width // 8), 8 * -(-height // 16))
    flat = drawn(16 * -(-width // 32), 16 * -(-height // 8))
    return {
        "4:4:4": save_jpeg(picture, subsampling=0),
        "4:2:2": save_jpeg(picture, subsampling=1),
        "4:2:0": save_jpeg(picture, subsampling=2),
        "4:4:0": resampled_header(save_jpeg(upright, subsampling=1), 0x12, width, height),
        "4:1:1": resampled_header(save_jpeg(flat, subsampling=2), 0x41, width, height),
        "progressive 4:4:4": save_jpeg(picture, subsampling=0, progressive=True),
        "progressive 4:2:2": save_jpeg(picture, subsampling=1, progressive=True),
        "progressive 4:2:0": save_jpeg(picture, subsampling=2, progressive=True),
        "restarts": save_jpeg(picture, subsampling=2, restart_marker_blocks=3),
        "grey": save_jpeg(picture.convert("L"), restart_marker_rows=1),
        "progressive grey": save_jpeg(picture.convert("L"), progressive=True),
        "CMYK": save_jpeg(picture.convert("CMYK"), restart_marker_blocks=2),
        "progressive CMYK": save_jpeg(picture.convert("CMYK"), progressive=True),
    }


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_jpeg_regions_equal_the_whole(data: st.DataObject) -> None:
    """A region of a JPEG has the very pixels of the whole picture, wherever it lies."""
    width, height = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 150))
    channels = data.draw(st.sampled_from([1, 3, 4]))
    plan = data.draw(plans(width, height))
    whole_plan = whole((0, 0, width, height), (width, height))
    for kind, file in jpeg_files(width, height, 1).items():
        full = Batch([file], [whole_plan], channels).decode()[0]
        part = Batch([file], [plan], channels)
        found = part.decode()[0]
        again = Batch([full.tobytes()], [plan], channels).gather(height, width)[0]
        assert part.status.tolist() == [_native.OK], kind
        np.testing.assert_array_equal(again, found, err_msg=kind)


@pytest.mark.parametrize("size", [(1, 1), (7, 9), (33, 50), (64, 48), (97, 35)])
def test_jpeg_regions_at_all_positions(size: tuple[int, int]) -> None:
    """Regions of few pixels at every position, against the edges of blocks in particular."""
    width, height = size
    for kind, file in jpeg_files(width, height, 2).items():
        full = Batch([file], [whole((0, 0, width, height), (width, height))]).decode()[0]
        side = min(3, width, height)
        boxes = [(x, y, side, side) for y in range(height - side + 1) for x in range(0, width - side + 1, 2)]
        batch = Batch([file] * len(boxes), [whole(box, (side, side)) for box in boxes])
        found = batch.decode()
        assert not batch.status.any(), kind
        for box, region in zip(boxes, found, strict=True):
            x, y = box[:2]
            np.testing.assert_array_equal(full[y : y + side, x : x + side], region, err_msg=f"{kind} {box}")


PHOTO = save_jpeg(Image.fromarray(pixels(40, 60, 3)), subsampling=2)
PLAN = whole((10, 5, 40, 30), (20, 15))


@pytest.mark.parametrize(
    ("fault", "plan"),
    [
        ("box is empty", replace(PLAN, box=(0, 0, 0, 5))),
        ("box begins before", replace(PLAN, box=(-1, 0, 5, 5))),
        ("virtual size", replace(PLAN, virtual=(0, 15))),
        ("window leaves the virtual", replace(PLAN, window=(1, 0, 20, 15))),
        ("leaves the row", replace(PLAN, place=(1, 0))),
        ("flip", replace(PLAN, flip=4)),
    ],
)
def test_a_bad_plan_is_named(fault: str, plan: Plan) -> None:
    """A plan that cannot be right is refused before anything runs, with its position."""
    with pytest.raises(ValueError, match=f"plan 1: .*{fault}"):
        Batch([PHOTO] * 2, [PLAN, plan]).decode()


def test_arguments_are_checked() -> None:
    """Filter, channels and fill that do not fit are refused."""
    with pytest.raises(ValueError, match="filter is 6"):
        Batch([PHOTO], [PLAN], filter=6).decode()
    with pytest.raises(ValueError, match="2 channels"):
        Batch([PHOTO], [PLAN], channels=2).decode()
    with pytest.raises(ValueError, match="grey goes with 1 or 3"):
        Batch([PHOTO], [PLAN], channels=4, grey=True).decode()


def test_a_smaller_picture_is_bad_shape() -> None:
    """A box that leaves its picture is no damage, but another picture than was planned for."""
    too_wide = replace(PLAN, box=(30, 5, 31, 30))
    batch = Batch([PHOTO, png(pixels(40, 60, 3)), PHOTO], [too_wide, too_wide, PLAN])
    batch.decode()
    assert batch.status.tolist() == [_native.BAD_SHAPE, _native.BAD_SHAPE, _native.OK]
    raw = Batch([bytes(40 * 60 * 3), bytes(40 * 60)], [too_wide, PLAN])
    raw.gather(40, 60)
    assert raw.status.tolist() == [_native.BAD_SHAPE, _native.BAD_SHAPE]


def test_damage() -> None:
    """Damage within the rows needed is seen; behind them only the checksum sees it."""
    above = whole((0, 0, 60, 8), (60, 8))
    below = whole((0, 30, 60, 10), (60, 10))
    cut = PHOTO[: len(PHOTO) * 2 // 3]
    batch = Batch([cut, cut, b"", b"no picture at all"], [above, below])
    batch.plans = [above, replace(below, row=(60, 8), window=(0, 0, 60, 8)), above, above]
    batch.decode()
    assert batch.status.tolist() == [_native.OK, _native.TRUNCATED, _native.TRUNCATED, _native.NOT_IMAGE]
    batch.checksums = np.array([zlib.crc32(PHOTO)] * 4, np.uint32)
    batch.decode()
    assert batch.status.tolist() == [_native.BAD_CHECKSUM] * 4


def test_a_pool_gives_the_same() -> None:
    """Threads change nothing, nor does a checksum."""
    values = [save_jpeg(Image.fromarray(pixels(40, 60, 3, seed))) for seed in range(20)]
    one = Batch(values, [PLAN] * 20)
    checksums = np.array([zlib.crc32(value) for value in values], np.uint32)
    many = Batch(values, [PLAN] * 20, checksums=checksums, pool=ThreadPool(3))
    np.testing.assert_array_equal(one.decode(), many.decode())
    assert not many.status.any()


def test_grey_pixels_may_become_three_channels() -> None:
    """Raw grey pixels are replicated where grey is asked for."""
    array = pixels(9, 7, 1)
    found = Batch([array.tobytes()], [whole((0, 0, 7, 9), (7, 9))], grey=True).gather(9, 7)[0]
    np.testing.assert_array_equal(np.repeat(array, 3, axis=2), found)


def draw(seed: int, epoch: int, indices: list[int], count: int) -> NDArray[np.float64]:
    out = np.empty((len(indices), count))
    _native.philox(seed, epoch, np.array(indices, np.int64), out)
    return out


def test_philox_depends_on_seed_epoch_index_and_place_alone() -> None:
    """A sample's numbers are the same in any batch, and differ between seeds, epochs, indices and places."""
    together = draw(5, 2, [7, 2**40, 3], 6)
    np.testing.assert_array_equal(together[1], draw(5, 2, [2**40], 6)[0])
    np.testing.assert_array_equal(together[:, :3], draw(5, 2, [7, 2**40, 3], 3))
    others = [draw(5, 3, [7], 6), draw(6, 2, [7], 6), draw(5 + 2**32, 2, [7], 6), together]
    assert 6 * 6 == len(np.unique(np.concatenate(others)))


def test_philox_is_uniform() -> None:
    """Numbers lie in [0, 1), as many in each tenth; the values are those of every version to come."""
    numbers = draw(0, 0, list(range(20000)), 3)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    share = np.histogram(numbers, 10, (0, 1))[0] / numbers.size
    np.testing.assert_allclose(0.1, share, atol=0.005)
    expected_numbers = ["0x1.e2d377c610b08p-3", "0x1.6ef031ab1c82ep-2", "0x1.25d8ec8eace40p-3"]
    assert expected_numbers == [number.hex() for number in draw(1, 2, [3], 3)[0].tolist()]
