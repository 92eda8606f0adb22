"""The types that the first samples tell, and what they leave open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fastio
from fastio.converters.write.fields import infer_field
from fastio.errors import SampleError, SchemaError
from fastio.store import open_store
from fastio.types.field_types import field_of
from tests.converters.trees import picture


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("x", [picture(1), None], "image"),
        ("x", [{"bytes": picture(1), "path": None}], "image"),
        ("x", [bytearray(b"abc")], "bytes"),
        ("x", [picture(1), b"abc"], "bytes"),
        ("x", [Image.new("RGB", (2, 2))], "image"),
        ("mask", [Image.new("P", (2, 2))], "mask"),
        ("left_mask", [picture(1, mode="L")], "mask"),
        ("mask", [np.zeros((2, 2), np.int64)], "mask"),
        ("mask", [np.full((2, 2), 300)], "mask16"),
        ("mask", [Image.fromarray(np.zeros((2, 2), np.uint16))], "mask16"),
        ("image", [np.zeros((2, 2, 3), np.uint8)], "image"),
        ("x", ["a", None], "text"),
        ("label", [1, 2], "label"),
        ("x", [1, 2], "int"),
        ("x", [1, 2.5], "float"),
        ("x", [True], "bool"),
        ("label", [np.int32(1)], "label"),
        ("x", [np.float32(1)], "float32"),
        ("x", [torch.tensor(3)], "int64"),
        ("x", [np.zeros((2, 3), np.float32)] * 2, "float32[2,3]"),
        ("x", [torch.zeros(2, 3), torch.zeros(0, 3)], "float32[*,3]"),
        ("x", [np.zeros((4, 4, 3), np.uint8)], "uint8[4,4,3]"),
        ("x", [np.zeros((2, 3), np.float16), torch.zeros(2, 4, dtype=torch.float16)], "float16[2,*]"),
        ("x", [np.zeros((4, 2, 3)), np.zeros((4, 3, 2))], "float64[4,*,*]"),
        ("x", [[], [1, 2]], "int64[*]"),
        ("x", [[1, 2.5]], "float64[*]"),
        ("x", [[[1, 2, 3]], []], "int64[*,3]"),
        ("x", [[True]], "bool[*]"),
        ("x", [{"a": 1}], "json"),
        ("x", [["a", 1]], "json"),
    ],
)
def test_types(name, values, expected):
    """Bytes, images, text, numbers, arrays and lists have the type that the documentation says."""
    assert field_of(name, expected) == infer_field(name, values)


def test_empty_lists_beside_others():
    """They are lists of whatever the others have: captions are JSON though a sample has none."""
    assert field_of("x", "json") == infer_field("x", [[], ["a"], [{"b": 1}], []])
    assert field_of("x", "image[*]") == infer_field("x", [[], [Image.new("L", (2, 2))]])


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("x", [None, None], "None in all of the first samples: give its type, as in fields={'x': ...}"),
        ("x", [1, "a"], "its values are int in some samples and text in others"),
        ("x", [True, 1], "bool in some samples and int in others"),
        ("label", ["cat"], 'text; give metadata={"classes": [...]} and the type "label" for names of classes'),
        ("image", ["a.png"], 'text; say "image" or "mask" if these are paths'),
        ("image", [b"abc"], "bytes that are no pictures"),
        ("boxes", [np.zeros((1, 4))], "boxes; say xyxy, xywh, cxcywh, or float64[*,4] to leave them alone"),
        ("x", [[]], "empty lists in all of the first samples"),
        ("x", [np.zeros((2, 3)), np.zeros((2, 4, 1))], "arrays of the shapes (2, 3), (2, 4, 1)"),
        ("x", [np.zeros(2), np.zeros(2, int)], "arrays of the dtypes float64, int64"),
        ("x", [object()], "its values are object"),
        ("x", [np.array(["a"])], "of the dtype <U1"),
    ],
)
def test_what_is_left_open(name, values, message):
    """Whatever could be meant in two ways is an error that says what to give."""
    with pytest.raises(SchemaError) as caught:
        infer_field(name, values)

    assert message in str(caught.value)


def test_all_first_samples_count(tmp_path):
    """A field that is None, an int, or of one size at first is settled by later samples; files may go at once."""
    path = tmp_path / "a.png"
    with fastio.Writer(tmp_path / "out.lmdb") as writer:
        for i in range(100):
            path.write_bytes(picture(i))
            writer.write({"file": Path(path), "n": i if i < 10 else i + 0.5, "rows": np.zeros(1 + (i == 20))})
            path.unlink()
    assert ["image", "column", "ragged"] == [field.codec for field in writer.schema.fields]
    with open_store(tmp_path / "out.lmdb") as store:
        assert [i if i < 10 else i + 0.5 for i in range(100)] == store.column("n").tolist()


def test_a_first_sample_that_does_not_fit(tmp_path):
    """It is named when the types are settled, and the others are kept."""
    with fastio.Writer(tmp_path / "out.lmdb") as writer:
        for i in range(63):
            writer.write({"a": "x", "b": [i]} if i != 7 else {"a": "x"})
        with pytest.raises(SampleError, match="'00000007' lacks the field 'b': expected a, b; got a"):
            writer.write({"a": "x", "b": [1]})
        writer.write({"a": "y", "b": []})
    assert 64 == writer.report.packed


def test_types_that_cannot_be_settled(tmp_path):
    """The writer is given up, and nothing is left."""
    with pytest.raises(SchemaError, match="int in some samples and text in others"):
        fastio.pack([{"a": 1, "b": "x"}, {"a": "1", "b": "x"}], tmp_path / "out.lmdb")

    assert [] == list(tmp_path.iterdir())
