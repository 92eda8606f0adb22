"""Headers of .npy files: one reader for those that are packed and for those that are values of a field."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from fastio.converters.sources.npy import parse_npy
from fastio.types.npy import NpyHead, npy_file, npy_head

SHAPE = "(2, 3)"


def with_header(text: str, *, version: int = 1) -> bytes:
    """A file with this header and nothing behind it."""
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode("latin1")


def header_of(shape: str, dtype: str = "'<f4'") -> str:
    """The words of a header."""
    return f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (with_header("{'descr': \n"), "header"),
        (with_header("[" * 3000 + "\n"), "header"),
        (with_header(header_of("(2, -3)")), r"its shape is (2, -3)"),
        (with_header(header_of("(True, 3)")), r"its shape is (True, 3)"),
        (with_header(header_of(f"({1 << 63},)")), "its shape is (92233720368547758"),
        (with_header(header_of(SHAPE, "'<q9'")), "descr"),
        (with_header(header_of(SHAPE), version=4), "version"),
    ],
)
def test_no_header(data: bytes, words: str) -> None:
    """Both readers refuse it, in the same words."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its words are compared
        parse_npy(data)
    said = npy_head(data, len(data))

    assert words in str(caught.value)
    assert said == f"has a damaged npy header: {str(caught.value).splitlines()[0][:80]}"


def test_names_of_fields_in_utf8() -> None:
    """The third version of the format is read; what has such names are no numbers, and no values of a field."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.zeros(2, [("\u03b1", "<f4")]), version=(3, 0))
    data = file.getvalue()
    with pytest.raises(ValueError, match=r"it holds .*, expected numbers"):
        parse_npy(data)
    head = npy_head(data, len(data))

    assert isinstance(head, NpyHead)
    assert head.dtype == ""


@pytest.mark.parametrize("array", [np.arange(6, dtype="<i2").reshape(2, 3), np.ones(()), np.zeros((0, 4), np.uint8)])
def test_both_read_what_is_written(array: Any) -> None:
    """Shape, dtype and values."""
    data = npy_file(array)
    head = npy_head(data, len(data))

    assert isinstance(head, NpyHead)
    assert (head.dtype, head.shape) == (array.dtype.str, array.shape)
    assert np.array_equal(parse_npy(data), array)
