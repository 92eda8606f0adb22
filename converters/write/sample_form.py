"""SampleForm: makes a mapping of fields of whatever a dataset calls a sample: a dict, a tuple, one value."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from fastio import _native
from fastio.converters.record_arrays import is_tensor
from fastio.converters.write.sample_encoder import Misfit
from fastio.errors import SchemaError
from fastio.types.picture_kinds import UNKNOWN

__all__ = ["KeyRule", "SampleForm"]

# The field that holds the key of a sample, or a function of the sample.
KeyRule = str | Callable[[Any], str] | None


@dataclass(frozen=True, slots=True)
class SampleForm:
    """The names of the values of a tuple, or of the only one; None where samples are dicts. ``key`` finds its key."""

    names: Sequence[str] | None
    key: KeyRule = None
    is_key_kept: bool = False

    @classmethod
    def of(cls, sample: Any, names: Sequence[str] | None, key: KeyRule) -> SampleForm:
        """
        Return the form of samples like this one; ``names`` are the fields that the user has named.

        Without names, a pair with a whole number is a value and its label, and the value is called "image", "text",
        "bytes" or "array" by its type. Raises SchemaError for other tuples.
        """
        is_key_kept = isinstance(key, str) and names is not None and key in names
        if _is_mapping(sample):
            return cls(None, key, is_key_kept)
        if isinstance(key, str):
            raise SchemaError(
                f"key={key!r}: samples are no dicts, but {type(sample).__name__}: give a function of these"
            )
        if names is not None:
            return cls(names, key)
        values = sample if isinstance(sample, tuple) else (sample,)
        if len(values) == 2 and _is_whole(values[1]):
            return cls((_name_of(values[0]), "label"), key)
        if len(values) != 1:
            raise SchemaError(
                f"samples are tuples of {len(values)} values: name these, as in fields={{'image': None, 'mask': None}} "
                "(None: inferred)"
            )
        return cls((_name_of(values[0]),), key)

    def mapping(self, sample: Any) -> Mapping[str, Any]:
        """Return the sample's values by field. Raises Misfit for another form than the first sample's."""
        if self.names is None:
            if not _is_mapping(sample):
                raise Misfit(f"is of type {type(sample).__name__}; expected a dict, as the first sample is")
            named: Mapping[str, Any] = sample if isinstance(sample, Mapping) else sample._asdict()
            if isinstance(self.key, str) and not self.is_key_kept:
                return {name: value for name, value in named.items() if name != self.key}
            return named
        is_one = len(self.names) == 1 and not (isinstance(sample, tuple) and len(sample) == 1)
        values = (sample,) if is_one else sample
        if not isinstance(values, (tuple, list)) or len(values) != len(self.names):
            size = f" of {len(values)} values" if isinstance(values, (tuple, list)) else ""
            raise Misfit(f"is of type {type(sample).__name__}{size}; expected a tuple of {', '.join(self.names)}")
        return dict(zip(self.names, values, strict=True))

    def key_of(self, sample: Any, default: str) -> Any:
        """Return the sample's key; numbers count as text. Raises Misfit if it has none."""
        if self.key is None:
            return default
        if callable(self.key):
            key = self.key(sample)
        else:
            named = sample if isinstance(sample, Mapping) else sample._asdict()
            if self.key not in named:
                raise Misfit(f"lacks the field {self.key!r}, its key", self.key)
            key = named[self.key]
        return str(int(key)) if _is_whole(key) else key


def _is_mapping(sample: Any) -> bool:
    return isinstance(sample, Mapping) or (isinstance(sample, tuple) and hasattr(sample, "_asdict"))


def _is_whole(value: Any) -> bool:
    """Whether this is one whole number, of Python, NumPy or torch."""
    if isinstance(value, (int, np.integer)):
        return not isinstance(value, bool)
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iu"
    return is_tensor(value) and value.ndim == 0 and not value.dtype.is_floating_point and not value.dtype.is_complex


def _name_of(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "image" if _native.image_kind(np.frombuffer(value, np.uint8)) != UNKNOWN else "bytes"
    if isinstance(value, (Image.Image, os.PathLike)):
        return "image"
    if isinstance(value, np.ndarray) or is_tensor(value):
        return "array"
    raise SchemaError(f"samples are of type {type(value).__name__}: yield dicts of fields, or name one in fields=")
