"""Types of fields as users write them."""

from __future__ import annotations

import numpy as np
import pytest

from fastio.errors import SchemaError
from fastio.types.field_types import FIELD_TYPES, field_of, type_of
from fastio.types.schema import ARRAY, COLUMN, RAGGED, RAW, Field, Schema

_LISTS = [
    "image[*]",
    "image?",
    "mask16[*]",
    "mask[3]?",
    "text[*]",
    "bytes?",
    "tokens[*]",
    "float32[2][*]",
    "float32[*,4]?",
    "float16[16,*,*][*]",
    "float32[*,*]?",
]
_ARRAYS = ["float32[512]", "float32[*,5]", "int64[*]", "float32[14] column", "float32", "points[17]", "uint8[2,3]"]
_ARRAYS += ["float16[16,*,*]", "float32[*,*]", "int32[4,*]"]
_ARRAYS += ["bfloat16[768]", "bfloat16[*,4]", "bfloat16[16,*,*]", "bfloat16[4][*]", "bfloat16[*]?"]
_PER = ["int64[*] per boxes", "points per boxes", "points[17] per boxes", "cxcywh per boxes", "float32[*,5] per boxes"]


@pytest.mark.parametrize("words", [*FIELD_TYPES, *_ARRAYS, *_PER, *_LISTS, "mask[3]"])
def test_words_come_back(words: str) -> None:
    """The words of a type give a field that gives the words."""
    field = field_of("value", words)

    assert field == field_of("value", type_of(field))
    schema = Schema((field, field_of("boxes", "xyxy")))
    assert field == Schema.from_json(schema.to_json())["value"]


@pytest.mark.parametrize(
    ("words", "codec", "shape"),
    [
        ("float32[2]", RAW, (2,)),
        ("float32[*]", RAGGED, (None,)),
        ("float32[2] column", COLUMN, (2,)),
        ("float16[16,*,*]", ARRAY, (16, None, None)),
        ("float16[*,*]", ARRAY, (None, None)),
    ],
)
def test_arrays(words: str, codec: str, shape: tuple[int | None, ...]) -> None:
    """The shape decides whether an array is fixed, ragged, of several free sizes or a column."""
    assert (codec, shape) == (field_of("a", words).codec, field_of("a", words).shape)


def test_tuples() -> None:
    """Pairs and triples say the same as words."""
    assert field_of("a", "xywh") == field_of("a", ("float32", (None, 4), "xywh"))
    assert field_of("a", "float32[512]") == field_of("a", ("float32", (512,)))


def test_rows_of_others() -> None:
    """A field whose rows belong to boxes names a field of boxes that is there."""
    boxes, classes = field_of("boxes", "xyxy"), field_of("classes", "int64[*] per boxes")

    assert "boxes" == Schema((boxes, classes))["classes"].owner
    with pytest.raises(SchemaError, match="belongs to 'boxes', which is not a field of boxes"):
        Schema((classes,))
    joints = field_of("joints", "points[17] per boxes")
    assert (True, False, "boxes") == (joints.is_points, joints.is_box, joints.owner)
    with pytest.raises(SchemaError, match="belongs to 'joints', which is not a field of boxes or points of its own"):
        Schema((boxes, joints, field_of("visible", "int64[*,17] per joints")))


@pytest.mark.parametrize(
    "type_", ["picture", "float33[2]", "float32[a]", ("float32",), ("float32", (1.5,)), "int64[*] of b"]
)
def test_unknown_types(type_: object) -> None:
    """Anything else is an error that lists what there is."""
    with pytest.raises(SchemaError, match="field 'a': expected"):
        field_of("a", type_)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("type_", "sentence"),
    [
        ("tokens[512]", "tokens takes no [512]: its values have any length already"),
        ("text[2]", "text takes no [2]: its values have any length already; a list of texts is text[*]"),
        ("bytes[4]", "bytes takes no [4]: its values have any length already"),
        ("json[*]", "json takes no [*]: its values have any length already, and may be lists"),
        ("image[2]", "image takes no [2]: a list of any number of pictures is image[*]"),
        ("mask16[2]", "mask16 takes no [2]: a list of masks is mask16[*]"),
        ("xyxy?", "xyxy cannot be missing: only pictures, masks, text, bytes, token ids and arrays"),
        ("label?", "label cannot be missing: "),
        ("json?", "json cannot be missing: "),
        ("image?[*]", "expected a type such as image, "),
        ("image[*]?", "image[*] cannot be missing: "),
        ("points[17][*]", "points[17] cannot be listed: "),
        ("label[3]", "label takes no [3]: it is one whole number; several a sample are int64[3]"),
        ("xyxy[*]", "xyxy takes no [*]: it is as many rows as a sample has already"),
        ("points[*]", "points takes no [*]: it is as many rows as a sample has already"),
        ("image[*] per boxes", "only rows can be per boxes, as many as it has: int64[*]"),
        ("int64 per boxes", "only rows can be per boxes, as many as it has: int64[*]"),
        ("float33[2]", "expected a type such as image, "),
        ("bfloat16", "bfloat16 is for arrays, such as bfloat16[768], bfloat16[*] or bfloat16[16,*,*]; float32 keeps"),
        ("bfloat16[4] column", "bfloat16 is for arrays, such as"),
        (("bfloat16", (None, 4), "xyxy"), "xyxy does not fit |V2 (None, 4)"),
        (str, "expected a type by its name, such as 'text', got <class 'str'>"),
        (np.float32, "expected a type by its name, such as 'float32', got <class 'numpy.float32'>"),
        (5, "expected a type by its name, such as 'image', got 5"),
    ],
)
def test_what_types_are_not(type_: object, sentence: str) -> None:
    """Sizes for a type that takes none, and types of Python, are told from names that do not exist."""
    with pytest.raises(SchemaError) as caught:
        field_of("a", type_)  # type: ignore[arg-type]

    assert str(caught.value).startswith(f"field 'a': {sentence}")
    assert not str(caught.value).endswith("got 'float33'")


@pytest.mark.parametrize(
    ("codec", "shape", "role"),
    [
        (RAGGED, (None, 3), "xyxy"),
        (RAGGED, (None, 3), "points"),
        (RAW, (1, 4), "xyxy"),
        (RAGGED, (None, 4), "ltrb"),
        (RAGGED, (None, 3), "points per:b"),
    ],
)
def test_roles_fit_shapes(codec: str, shape: tuple[int | None, ...], role: str) -> None:
    """Roles are for ragged fields of the right shape."""
    with pytest.raises(SchemaError, match="field 'a'"):
        Field("a", codec, "<f4", shape, role)


@pytest.mark.parametrize("shape", [(), (4,), (4, None), (None, None)])
def test_ragged_in_the_first_axis(shape: tuple[int | None, ...]) -> None:
    """Only the first size of a ragged array differs."""
    with pytest.raises(SchemaError, match="first size alone is None"):
        Field("a", RAGGED, "<f4", shape)


@pytest.mark.parametrize("shape", [(), (4,), (None,), (None, 4)])
def test_arrays_of_several_free_sizes(shape: tuple[int | None, ...]) -> None:
    """What differs in no other size than the first is a ragged array, or of one shape."""
    with pytest.raises(SchemaError, match="for arrays that differ in other sizes than the first"):
        Field("a", ARRAY, "<f4", shape)


def test_older_versions_refuse_arrays_of_several_free_sizes() -> None:
    """A schema with such a field says so by its version, also in a list; others keep theirs."""
    versions = [
        Schema((field_of("a", words),)).to_json()["version"]
        for words in ("float32[*,4]", "image[*]", "float16[16,*,*]", "float16[16,*,*]?", "bfloat16[3]", "bfloat16[*]?")
    ]

    assert [1, 3, 4, 4, 4, 4] == versions
