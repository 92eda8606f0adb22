"""Types of fields as users write them."""

from __future__ import annotations

import pytest

from fastio.errors import SchemaError
from fastio.types.field_types import FIELD_TYPES, field_of, type_of
from fastio.types.schema import COLUMN, RAGGED, RAW, Field, Schema

_ARRAYS = ["float32[512]", "float32[*,5]", "int64[*]", "float32[14] column", "float32", "points[17]", "uint8[2,3]"]
_PER = ["int64[*] per boxes", "points per boxes", "points[17] per boxes", "cxcywh per boxes", "float32[*,5] per boxes"]


@pytest.mark.parametrize("words", [*FIELD_TYPES, *_ARRAYS, *_PER, "mask[3]"])
def test_words_come_back(words: str) -> None:
    """The words of a type give a field that gives the words."""
    field = field_of("value", words)

    assert field == field_of("value", type_of(field))
    schema = Schema((field, field_of("boxes", "xyxy")))
    assert field == Schema.from_json(schema.to_json())["value"]


@pytest.mark.parametrize(
    ("words", "codec", "shape"),
    [("float32[2]", RAW, (2,)), ("float32[*]", RAGGED, (None,)), ("float32[2] column", COLUMN, (2,))],
)
def test_arrays(words: str, codec: str, shape: tuple[int | None, ...]) -> None:
    """The shape decides whether an array is fixed, ragged or a column."""
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
    "type_", ["picture", "float33[2]", "float32[a]", ("float32",), ("float32", (1.5,)), "int64[*] of b", "int64 per b"]
)
def test_unknown_types(type_: object) -> None:
    """Anything else is an error that lists what there is."""
    with pytest.raises(SchemaError, match="field 'a': expected"):
        field_of("a", type_)  # type: ignore[arg-type]


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
