"""Columns of lists as fields of lists: the elements of all rows, and how many each row has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.fields.problems import list_problems
from fastio.converters.fields.values import EncodedField
from fastio.converters.sources.arrow.columns import is_list, is_picture_struct, plain_type
from fastio.converters.sources.arrow.reading import plain_array
from fastio.converters.sources.arrow.values import encode_array
from fastio.converters.sources.optional import pyarrow
from fastio.errors import SourceError
from fastio.types.field_types import type_of
from fastio.types.schema import Field

__all__ = ["check_lists", "encode_lists"]


def check_lists(where: str, field: Field, type_: Any) -> None:
    """Raise SourceError for a field of lists if the column ``where`` is none of lists."""
    if field.is_list and not field.is_optional and not is_list(type_):
        raise SourceError(f"{where} is {type_}, expected lists for {type_of(field)}")


def encode_lists(field: Field, array: Any, *, where: str) -> EncodedField:
    """
    Encode one list of any length per sample, or one value that may be missing; see ``encode_array``.

    A null in place of a list is an empty one. What is wrong with an element is a problem of its sample: none is left
    out of a list.
    """
    array = plain_array(array)
    if field.is_optional:
        is_there = ~_missing(array)
        counts, elements = is_there.astype(np.int64), array.filter(pyarrow("to read tables").array(is_there))
    else:
        lengths = pyarrow("to read tables", "pyarrow.compute").list_value_length(array)
        counts = lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        elements = array.flatten()  # without those below a null
    encoded = encode_array(field.element, elements, where=where)
    assert encoded.spans is not None, "columns are not listable"
    problems = list_problems(counts, encoded.problems, is_optional=field.is_optional)
    return EncodedField(encoded.spans, problems=problems, counts=counts)


def _missing(array: Any) -> NDArray[np.bool_]:
    """Which values are null; of pictures, those with neither bytes nor a path, too."""
    missing: NDArray[np.bool_] = np.array(array.is_null())
    if not is_picture_struct(plain_type(array.type)):
        return missing
    compute = pyarrow("to read tables", "pyarrow.compute")
    parts = [compute.struct_field(array, part).is_null().to_numpy(zero_copy_only=False) for part in ("bytes", "path")]
    missing |= parts[0] & parts[1]
    return missing
