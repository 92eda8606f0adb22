"""Python values of a field: what comes back is what was given, and what cannot be kept is named in one line."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from fastio.codec.headers import read_headers
from fastio.converters.fields.values import encode_values
from fastio.types.field_types import field_of
from tests.converters.trees import picture

_DROP = " (drop ToTensor() and Normalize(), which belong to loading)"


def stored(type_, value):
    """The bytes, or the row of the column, that a field of this type keeps of one value."""
    encoded = encode_values(field_of("x", type_), [value])
    assert {} == encoded.problems
    return encoded.spans.view(0).tobytes() if encoded.column is None else encoded.column[0]


def problem(type_, value):
    """What is wrong with a value, without the words that name the field."""
    encoded = encode_values(field_of("x", type_), [value])
    assert [0] == list(encoded.problems)
    sentence = encoded.problems[0]
    assert sentence.startswith("has a field 'x' that ")
    assert "\n" not in sentence
    assert len(sentence) < 260
    return sentence.removeprefix("has a field 'x' that ")


def opened(data):
    """The PIL image of encoded bytes, decoded."""
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        return image


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("int", 7, 7),
        ("int", True, 1),
        ("int", np.uint8(200), 200),
        ("int", torch.tensor(5), 5),
        ("int8", -128, -128),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("bool", True, True),
        ("bool", 0, False),
        ("bool", np.bool_(True), True),
        ("float", 3, 3.0),
        ("float32", 0.1, np.float32(0.1)),
        ("float32", float("inf"), np.inf),
        ("float32", 2**24, 2.0**24),
        ("float", torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
        ("float16", 65504, 65504),
    ],
)
def test_numbers(type_, value, expected):
    """Numbers of Python, NumPy and torch go into a column if its dtype can hold them."""
    assert expected == stored(type_, value)


def test_nan_stays():
    """NaN is a float like others, alone and beside others."""
    assert np.isnan(stored("float32", float("nan")))
    assert [True, False] == np.isnan(encode_values(field_of("x", "float"), [np.nan, 1.0]).column).tolist()


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("int", 3.0, "is float64 (3.0); expected a whole number"),
        ("int", float("nan"), "is float64 (nan); expected a whole number"),
        ("int", None, "is None; expected a whole number"),
        ("int", "3", "is text ('3'); expected a whole number"),
        ("int", 2**63, "holds 9223372036854775808, which int64 cannot hold"),
        ("int", 2**70, "holds 1180591620717411303424, which int64 cannot hold"),
        ("int", [1, 2], "is int64 of shape (2,) ([1, 2]); expected a whole number"),
        ("uint8", 256, "holds 256, which uint8 cannot hold"),
        ("uint8", -1, "holds -1, which uint8 cannot hold"),
        ("uint64", -1, "holds -1, which uint64 cannot hold"),
        ("bool", 2, "holds 2, which bool cannot hold"),
        ("float32", 2**24 + 1, "holds 16777217, which float32 cannot hold"),
        ("float", 2**53 + 1, "holds 9007199254740993, which float64 cannot hold"),
        ("float32", 1e300, "holds 1e+300, which float32 cannot hold"),
        ("float32", 1 + 2j, "is complex128 ((1+2j)); expected a number"),
        ("float32[3] column", [1, 2], "is int64 of shape (2,) ([1, 2]); expected float32[3] column"),
        ("float32[3]", [[1], [1, 2]], "is lists of different lengths ([[1], [1, 2]]); expected float32[3]"),
        ("int64[*]", [1, 2.5], "is float64 of shape (2,) ([1, 2.5]); expected int64[*]"),
        ("xyxy", [[1, 2, 3]], "is int64 of shape (1, 3) ([[1, 2, 3]]); expected xyxy"),
        ("xyxy", {"a": 1}, "is objects ({'a': 1}); expected xyxy"),
        ("tokens16", [70_000], "holds 70000, which uint16 cannot hold"),
        ("tokens", "a cat", "is str ('a cat'); expected token ids, or a tokenizer for text"),
    ],
)
def test_numbers_that_do_not_fit(type_, value, expected):
    """A number that would change, and a value of another type or shape, is one clear line."""
    assert expected == problem(type_, value)


def test_masked_values_are_refused():
    """The mask of a NumPy array would be lost."""
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])

    assert "has masked values: fill them" == problem("float32[2]", masked)


def test_one_wrong_number_leaves_the_others():
    """Every other row of the column is as given."""
    encoded = encode_values(field_of("x", "int"), [1, "2", 3, None])

    assert [1, 0, 3, 0] == encoded.column.tolist()
    assert [1, 3] == list(encoded.problems)


@given(
    st.sampled_from(["bool", "int8", "uint16", "int64", "uint64", "float16", "float32", "float64"]),
    st.sampled_from(["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]),
    st.data(),
)
def test_no_number_changes(kept, given_dtype, data):
    """What a column takes is equal to what was given, or the nearest float; what it refuses would have changed."""
    value = data.draw(arrays.from_dtype(np.dtype(given_dtype)))
    encoded = encode_values(field_of("x", kept), [value])
    field_dtype = np.dtype(kept)
    if given_dtype.startswith("float"):
        with np.errstate(all="ignore"):
            cast = value.astype(field_dtype)
        fits = field_dtype.kind == "f" and (np.isinf(cast) == np.isinf(value))
        assert fits == (not encoded.problems)
        assert not fits or np.array_equal(cast, encoded.column[0], equal_nan=True)
    else:
        with np.errstate(all="ignore"):
            back = value.astype(field_dtype).item()
        fits = back == value.item()
        assert fits == (not encoded.problems)
        assert not fits or encoded.column[0].item() == value.item()


@pytest.mark.parametrize("value", [[], (), np.zeros((0, 4)), torch.zeros(0, 4), np.array([])])
def test_no_boxes(value):
    """An empty list or array is no rows."""
    assert b"" == stored("xyxy", value)


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2, 3, 4]],
        [np.array([1, 2, 3, 4], np.float64)],
        [torch.tensor([1, 2, 3, 4])],
        torch.tensor([[1.0, 2, 3, 4]]),
        np.asfortranarray(np.array([[1, 2, 3, 4]], ">f8")),
    ],
)
def test_boxes(value):
    """Lists, arrays and tensors, also lists of these, become rows of float32."""
    assert np.array([[1, 2, 3, 4]], "<f4").tobytes() == stored("xyxy", value)


def test_rows_are_in_c_order():
    """A transposed array is stored as it is indexed."""
    value = np.arange(6, dtype=np.float32).reshape(3, 2).T

    assert np.arange(6, dtype="<f4").reshape(3, 2).T.tobytes() == stored("float32[2,3]", value)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
@pytest.mark.parametrize("type_", ["image", "mask", "bytes"])
def test_bytes_stay(type_, wrap):
    """Encoded pictures and bytes are kept as they are, whatever holds them."""
    assert picture(1) == stored(type_, wrap(picture(1)))


@pytest.mark.parametrize("type_", ["image", "mask", "bytes"])
def test_paths(tmp_path, type_):
    """A path, as text or not, alone or beside empty bytes, stands for the bytes of its file."""
    path = tmp_path / "a.png"
    path.write_bytes(picture(1))
    for value in (path, str(path), {"bytes": None, "path": str(path)}, {"bytes": picture(1), "path": "gone.png"}):
        assert picture(1) == stored(type_, value)


def test_paths_that_cannot_be_read(tmp_path):
    """The line names the file and the reason."""
    assert f"cannot be read: {tmp_path}/no.png: No such file or directory" == problem("image", tmp_path / "no.png")
    assert f"cannot be read: {tmp_path}: Is a directory" == problem("image", tmp_path)
    assert "bytes or a path in it" in problem("image", {"bytes": None, "path": None})
    assert "is no path" in problem("image", "a\0b")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_pil_images_become_pngs(mode):
    """A PNG keeps mode and pixels."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)).convert("RGB")
    image = (
        Image.fromarray(np.arange(35, dtype=np.uint16).reshape(5, 7) * 999) if mode == "I;16" else image.convert(mode)
    )
    kept = opened(stored("image", image))

    assert (mode, image.size) == (kept.mode, kept.size)
    assert np.array_equal(np.asarray(image), np.asarray(kept))


def test_a_deep_grey_picture():
    """Mode I is kept in 16 bits if they can hold it."""
    image = Image.fromarray(np.array([[0, 65535]], np.int32))

    assert [[0, 65535]] == np.asarray(opened(stored("image", image))).tolist()
    image = Image.fromarray(np.array([[0, 65536]], np.int32))
    assert "holds 65536, which a grey PNG of 16 bits cannot hold (0 to 65535)" == problem("image", image)


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "HSV", "F"])
def test_modes_that_no_png_keeps(mode):
    """They are refused, with what to do."""
    assert (
        f"is a PIL image of mode {mode}, which no PNG keeps; hand over its file's bytes, or convert it to RGB"
    ) == problem("image", Image.new("RGB", (4, 4)).convert("L" if mode == "F" else "RGB").convert(mode))


def test_palettes_keep_all_indices():
    """Indices beyond the palette's colours stay, which Pillow cuts off by itself."""
    mask = Image.fromarray(np.array([[0, 1, 5, 255]], np.uint8)).convert("L")
    mask.putpalette([0, 0, 0, 255, 0, 0])
    assert "P" == mask.mode
    kept = opened(stored("mask", mask))

    assert ("P", [[0, 1, 5, 255]]) == (kept.mode, np.asarray(kept).tolist())


@pytest.mark.parametrize(
    ("type_", "dtype", "mode"),
    [("mask", "bool", "L"), ("mask", "uint8", "L"), ("mask", "int64", "L"), ("mask", "uint16", "L")]
    + [("mask16", dtype, "I;16") for dtype in ("uint8", "uint16", "int32")],
)
def test_masks_of_numbers(type_, dtype, mode):
    """Arrays of any integers become masks of the field's bits."""
    pixels = np.array([[0, 1], [1, 0]], dtype) if dtype == "bool" else np.array([[0, 1], [200, 255]], dtype)
    for value in (pixels, torch.from_numpy(pixels.astype(np.int64)), pixels[:, :, None]):
        kept = opened(stored(type_, value))
        assert (mode, pixels.tolist()) == (kept.mode, np.asarray(kept).tolist())


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("mask", np.array([[-1]]), "holds -1, which a mask of 8 bits cannot hold (0 to 255)"),
        ("mask", np.array([[256]]), "holds 256, which a mask of 8 bits cannot hold (0 to 255)"),
        ("mask", np.zeros((2, 2)), "is an array float64 (2, 2); expected whole numbers of classes, (H, W)"),
        (
            "mask",
            np.zeros((2, 2, 3), np.uint8),
            "is an array uint8 (2, 2, 3); expected whole numbers of classes, (H, W)",
        ),
        ("mask", np.zeros((0, 2), np.uint8), "is an array uint8 (0, 2); expected whole numbers of classes, (H, W)"),
        (
            "mask",
            Image.new("RGB", (2, 2)),
            "is a PIL image of mode RGB; expected numbers of classes: mode P, L, 1 or I;16 (palette, 8, 1 or 16 bits)",
        ),
        (
            "image",
            np.zeros((2, 2, 5), np.uint8),
            "is an array uint8 (2, 2, 5); expected uint8, (H, W) or (H, W, C) with 1, 3 or 4 channels",
        ),
        (
            "image",
            torch.zeros(2, 2, 3, dtype=torch.uint8),
            "is a tensor uint8 (2, 2, 3); expected uint8, (H, W) or (C, H, W) with 1, 3 or 4 channels",
        ),
        (
            "image",
            torch.zeros(3, 2, 2),
            "is a tensor float32 (3, 2, 2); expected uint8, (H, W) or (C, H, W) with 1, 3 or 4 channels" + _DROP,
        ),
        ("image", 3, "is int (3); expected encoded bytes, a path, a PIL image or an array of pixels"),
        ("image", None, "is None; expected encoded bytes, a path, a PIL image or an array of pixels"),
        ("image", Image.new("L", (0, 3)), "is a PIL image of 0 x 3 pixels; expected at least one"),
    ],
)
def test_pictures_that_do_not_fit(type_, value, expected):
    """Another shape, dtype or number is one clear line."""
    assert expected == problem(type_, value)


def test_a_pil_mask_of_16_bits():
    """It is kept in 16 bits, or in 8 if the field has 8 and they can hold it."""
    small = Image.fromarray(np.array([[0, 255]], np.uint16))
    large = Image.fromarray(np.array([[0, 256]], np.uint16))

    assert ("I;16", [[0, 256]]) == ((kept := opened(stored("mask16", large))).mode, np.asarray(kept).tolist())
    assert ("L", [[0, 255]]) == ((kept := opened(stored("mask", small))).mode, np.asarray(kept).tolist())
    assert "holds 256, which a mask of 8 bits cannot hold (0 to 255)" == problem("mask", large)


@pytest.mark.parametrize(("channels", "mode"), [(3, "RGB"), (4, "RGBA")])
def test_masks_of_colours(channels, mode):
    """Arrays and PIL images with the field's channels are kept; others are one clear line."""
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, channels), np.uint8)
    for value in (pixels, torch.from_numpy(pixels.transpose(2, 0, 1).copy()), Image.fromarray(pixels)):
        kept = opened(stored(f"mask[{channels}]", value))
        assert (mode, pixels.tolist()) == (kept.mode, np.asarray(kept).tolist())
    assert f"is a PIL image of mode L; expected mask[{channels}]" == problem(
        f"mask[{channels}]", Image.new("L", (2, 2))
    )
    assert "is an array uint8 (2, 2); expected uint8, mask[" in problem(f"mask[{channels}]", np.zeros((2, 2), "u1"))


@pytest.mark.parametrize(("shape", "chw"), [((4, 5, 3), (3, 4, 5)), ((4, 5, 4), (4, 4, 5)), ((4, 5), (4, 5))])
def test_arrays_and_tensors_of_pixels(shape, chw):
    """NumPy's (H, W, C) and torch's (C, H, W) become the same PNG."""
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    tensor = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels))

    assert chw == tuple(tensor.shape)
    assert np.array_equal(pixels, np.asarray(opened(stored("image", pixels))))
    assert stored("image", pixels) == stored("image", tensor)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP"])
def test_untouched_pil_images_keep_their_file(tmp_path, kind):
    """An image that was only opened is its file, byte by byte, and can still be used afterwards."""
    (tmp_path / "a").write_bytes(picture(3, kind=kind, size=(40, 30)))
    with Image.open(tmp_path / "a") as image:
        assert picture(3, kind=kind, size=(40, 30)) == stored("image", image)
        assert np.array_equal(np.asarray(opened(picture(3, kind=kind, size=(40, 30)))), np.asarray(image))


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image.load(),
        lambda image: image.putpixel((0, 0), (1, 2, 3)),
        lambda image: image.draft("L", (20, 15)),
        lambda image: image.draft("L", None),
        lambda image: image.thumbnail((8, 8)),
        lambda image: image.paste((9, 9, 9), (0, 0, 4, 4)),
    ],
    ids=["load", "putpixel", "draft", "draft grey", "thumbnail", "paste"],
)
def test_touched_pil_images_become_pngs(change):
    """What was done to an image in place is in the store."""
    image = Image.open(io.BytesIO(picture(3, kind="JPEG", size=(40, 30))))
    change(image)
    kept = opened(stored("image", image))

    assert "PNG" == kept.format
    assert np.array_equal(np.asarray(image), np.asarray(kept))


def test_exif_stays():
    """The orientation of a decoded photo goes into its PNG."""
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG", exif=exif)
    image = Image.open(io.BytesIO(file.getvalue())).convert("RGB")

    assert 6 == opened(stored("image", image)).getexif()[0x0112]


def test_damaged_pil_images():
    """An image whose file ends too early is a problem if it must be decoded."""
    image = Image.open(io.BytesIO(picture(3, kind="JPEG", size=(200, 200))[:2000]))
    image.draft("RGB", (50, 50))

    assert problem("image", image).startswith("is a PIL image that cannot be decoded: ")


@pytest.mark.parametrize("value", ["", "grüße", "a\0b", np.str_("x"), "日本".encode()])
def test_text(value):
    """Text is stored as UTF-8."""
    assert (value if isinstance(value, bytes) else value.encode()) == stored("text", value)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("text", "a\ud800", "cannot be written as UTF-8: character 1 is a lone surrogate"),
        ("text", b"a\xff", "is not UTF-8: byte 1 is 0xff"),
        ("text", 3, "is int (3); expected text"),
        ("text", None, "is None; expected text"),
        ("bytes", 3, "is int (3); expected bytes or a path"),
        ("json", {1: "a"}, "cannot be kept as JSON: the key 1 is not text"),
        ("json", [{"a": {None: 1}}], "cannot be kept as JSON: the key None is not text"),
        ("json", {"a": {1, 2}}, "cannot be kept as JSON: a value of type set is in it"),
    ],
)
def test_text_and_json_that_do_not_fit(type_, value, expected):
    """Text that is none, and objects that JSON would change, are one clear line."""
    assert expected == problem(type_, value)


def test_what_is_no_json():
    """NaN, and bytes that are no document, are one clear line."""
    assert problem("json", float("nan")).startswith("cannot be kept as JSON: ")
    assert problem("json", b"{").startswith("is not a JSON document in UTF-8: ")


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=3)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS


@given(st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner), max_leaves=8))
def test_json_comes_back(value):
    """Any object of JSON comes back as it was."""
    assert value == json.loads(stored("json", value))


def test_json_takes_arrays():
    """NumPy's and torch's numbers and arrays become lists and numbers."""
    value = {"a": np.float64(0.5), "b": np.arange(2), "c": torch.tensor([1.5]), "d": (1, np.bool_(True))}

    assert {"a": 0.5, "b": [0, 1], "c": [1.5], "d": [1, True]} == json.loads(stored("json", value))


def test_sizes_of_what_was_encoded():
    """Headers of the PNGs made give the shapes of the arrays."""
    pixels = [np.zeros((3, 4, 3), np.uint8), np.zeros((6, 5), np.uint8)]
    encoded = encode_values(field_of("x", "image"), pixels)

    assert [[3, 4, 3], [6, 5, 1]] == read_headers(encoded.spans).shapes.tolist()
