"""The file that one value of a field becomes when a store is unpacked: its name and its bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import image_kind
from fastio.codec.image import ImageCodec
from fastio.converters.file_names import file_name
from fastio.types.picture_kinds import PICTURE_KINDS, kind_by_name
from fastio.types.schema import Field

__all__ = ["FieldAsFiles"]

_Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class FieldAsFiles:
    """
    How the values of one payload field become files.

    ``described`` is the field's entry in ``metadata["files"]`` (see ``file_names``), None if it has none: the files of
    the first field are then called like the samples, those of others have the field's name and an extension behind.
    """

    field: Field
    is_first: bool
    described: Mapping[str, Any] | None = None

    def name(self, key: str, data: _Bytes) -> str:
        """Return the name of the file for the sample ``key``."""
        if self.described is not None:
            return file_name(self.described, key)
        field = self.field
        name = key if self.is_first else f"{key}.{field.name}"
        if field.is_raw_picture:
            return name if name.lower().endswith(".png") else f"{name}.png"
        if field.traits.is_picture:
            return name if self.is_first and kind_by_name(key) else name + PICTURE_KINDS[image_kind(data)].suffix
        return name if self.is_first or not field.traits.extension else f"{name}.{field.traits.extension}"

    def content(self, data: _Bytes) -> _Bytes:
        """Return the bytes of the file: raw pictures as PNG, other arrays as .npy, anything else as stored."""
        field = self.field
        if field.is_raw_picture:
            shape = tuple(size for size in field.shape if size is not None)
            return np.frombuffer(ImageCodec().encode(data.reshape(shape)), np.uint8)
        if field.traits.extension != "npy" or (self.is_first and self.described is None):
            return data
        shape = tuple(-1 if size is None else size for size in field.shape)
        if 0 in shape and -1 in shape:  # rows without elements: how many there were, no byte tells
            shape = tuple(max(size, 0) for size in shape)
        file = io.BytesIO()
        np.save(file, data.view(field.dtype).reshape(shape), allow_pickle=False)
        return np.frombuffer(file.getvalue(), np.uint8)
