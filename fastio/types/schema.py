"""Field and Schema: what a sample consists of, to and from JSON; keys of samples as paths."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.types.bfloat16 import BFLOAT16, dtype_name
from fastio.types.traits import (
    ARRAY,
    BYTES,
    COLUMN,
    IMAGE,
    JSON,
    LIST,
    MASK,
    OPTIONAL,
    PLANAR,
    RAGGED,
    RAW,
    TEXT,
    TOKENS,
    Traits,
    traits_of,
)

__all__ = [
    "ARRAY",
    "BOX_ROLES",
    "BYTES",
    "COLUMN",
    "IMAGE",
    "JSON",
    "LOSS",
    "MASK",
    "POINTS",
    "RAGGED",
    "RAW",
    "TEXT",
    "TOKENS",
    "Field",
    "Schema",
    "are_plain_paths",
    "is_plain_path",
    "text_field",
]


BOX_ROLES = ("xyxy", "xywh", "cxcywh")
POINTS = "points"
LOSS = "loss"

VERSION = 1
PER_SAMPLE_VERSION = 2  # written only then: an older fastio would take byte offsets for numbers of ids
LISTS_VERSION = 3  # written only with lists: an older fastio would expect one value a sample
ARRAYS_VERSION = 4  # written only with arrays of several free sizes or bfloat16, which an older fastio cannot read

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_PER = "per:"


@dataclass(frozen=True, slots=True)
class Field:
    """
    One named value of a sample.

    ``codec`` names a row of ``fastio.types.traits``, or was written by a later fastio. ``dtype`` is a NumPy type string
    (``"|u1"``, ``"<i8"``; ``"|V2"`` is bfloat16, see ``fastio.types.bfloat16``). ``shape`` is that of the *decoded*
    value, with None for a size that differs between samples; ``()`` is a scalar.

    ``role`` says what geometry does with the numbers of a ragged field, which it leaves alone without a role. Rows are
    boxes in pixels of the pictures beside them, ``(None, 4)``: "xyxy" (two corners), "xywh" (upper left corner, size)
    or "cxcywh" (centre, size). Or they are "points": ``(None, 2)``, or ``(None, K, 2)`` for K key points an object.
    "per:NAME": row i belongs to row i of the field NAME (such as the class of each box), and is dropped with it.
    "points per:NAME" are both, such as the key points of the person in each box.

    "loss" are lengths of runs of the sample's token ids, int32, by turns outside and inside of the loss: see
    ``fastio.types.runs``.

    A field of lists has the codec of its elements and "[*]" (any number of them), or "?" (one or none: a value that may
    be missing); ``dtype`` and ``shape`` are those of an element. Its ``traits`` are those of no value at all, so that
    nobody takes a list for a picture; ``element`` has those of its elements.
    """

    name: str
    codec: str
    dtype: str
    shape: tuple[int | None, ...]
    role: str = ""

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise SchemaError(
                f"field name {self.name!r}: expected lower-case letters, digits and _, starting with a letter"
            )
        try:
            dtype = np.dtype(self.dtype)
        except (TypeError, ValueError, SyntaxError) as exc:  # SyntaxError: "(,)f4" is parsed as Python
            raise SchemaError(f"field {self.name!r}: {self.dtype!r} is not a dtype") from exc
        is_plain = dtype.kind in "biufcSU" and dtype.itemsize and not dtype.str.startswith(">")
        if self.dtype != BFLOAT16 and not (is_plain and dtype.str == self.dtype):
            raise SchemaError(
                f"field {self.name!r}: expected a plain little-endian dtype such as '<i8', got {self.dtype!r}"
            )
        if any(size is not None and size < 0 for size in self.shape):
            raise SchemaError(f"field {self.name!r}: expected sizes of at least 0 in shape, got {self.shape}")
        if self.is_list:
            self._check_list()
            return
        traits = self.traits
        if self.dtype == BFLOAT16 and not (traits.is_array or traits.is_ragged or traits.is_npy):
            raise SchemaError(
                f"field {self.name!r}: bfloat16 is for arrays, such as bfloat16[768], bfloat16[*] or bfloat16[16,*,*]; "
                "float32 keeps one number a sample"
            )
        if traits.has_fixed_shape and None in self.shape:
            raise SchemaError(f"field {self.name!r}: codec {self.codec!r} needs a fixed shape, got {self.shape}")
        if traits.is_sequence and (self.dtype not in traits.dtypes or self.shape != (None,)):
            raise SchemaError(
                f"field {self.name!r}: codec {self.codec!r} needs {' or '.join(map(repr, traits.dtypes))} and the "
                f"shape (None,), got {self.dtype!r} and {self.shape}"
            )
        if traits.is_ragged and (not self.shape or self.shape[0] is not None or None in self.shape[1:]):
            raise SchemaError(
                f"field {self.name!r}: codec {self.codec!r} needs a shape whose first size alone is None, such as "
                f"(None, 4), got {self.shape}"
            )
        if traits.is_npy and None not in self.shape[1:]:
            raise SchemaError(
                f"field {self.name!r}: codec {self.codec!r} is for arrays that differ in other sizes than the first, "
                f"got {self.shape}"
            )
        if traits.is_planar and not (self.is_raw_picture and len(self.shape) == 3):
            raise SchemaError(
                f"field {self.name!r}: codec {self.codec!r} needs '|u1' and the shape (H, W, C), C 1, 3 or 4, got "
                f"{self.dtype!r} and {self.shape}"
            )
        self._check_role()

    def _check_list(self) -> None:
        element = self.element
        if not element.traits.is_listable or self.role:
            raise SchemaError(
                f"field {self.name!r}: expected lists of pictures, masks, text, bytes, token ids or arrays without a "
                f"role, got {self.codec!r} with the role {self.role!r}"
            )

    def _check_role(self) -> None:
        if not self.role:
            return
        if not self.traits.is_ragged:
            raise SchemaError(f"field {self.name!r}: only ragged fields have a role, got {self.role!r} for {self}")
        if self.geometry in BOX_ROLES:
            is_right = self.shape == (None, 4)
        elif self.geometry == POINTS:
            is_right = len(self.shape) in (2, 3) and self.shape[-1] == 2
        elif self.is_loss:
            is_right = self.shape == (None,) and self.dtype == "<i4"
        elif self.owner and not self.geometry:
            is_right = True
        else:
            raise SchemaError(
                f"field {self.name!r}: expected one of the roles {', '.join(BOX_ROLES)}, {POINTS}, {LOSS} or "
                f"{_PER}FIELD, got {self.role!r}"
            )
        if not is_right or (self.geometry and self.dtype == BFLOAT16):
            raise SchemaError(
                f"field {self.name!r}: {self.role} does not fit {self.dtype} {self.shape}; boxes are (None, 4), points "
                "(None, 2) or (None, K, 2), and loss is '<i4' (None,)"
            )

    @property
    def is_list(self) -> bool:
        """Whether a sample has a list of values, any number of them or one that may be missing."""
        return self.codec.endswith((LIST, OPTIONAL))

    @property
    def is_optional(self) -> bool:
        """Whether it is a list of one value or none, which samples have as the value or None."""
        return self.codec.endswith(OPTIONAL)

    def listed(self, *, is_optional: bool = False) -> Field:
        """Return the field of lists of such values, or of one or none. Raises SchemaError if these have no lists."""
        return replace(self, codec=self.codec + (OPTIONAL if is_optional else LIST))

    @property
    def element(self) -> Field:
        """The field of one element of a list; of another field itself."""
        if not self.is_list:
            return self
        return replace(self, codec=self.codec.removesuffix(OPTIONAL).removesuffix(LIST))

    @property
    def geometry(self) -> str:
        """What the numbers are, one of BOX_ROLES or POINTS; "" if they are neither boxes nor points."""
        return "" if self.is_loss else self.role.partition(_PER)[0].rstrip()

    @property
    def is_box(self) -> bool:
        """Whether rows are boxes."""
        return self.geometry in BOX_ROLES

    @property
    def is_points(self) -> bool:
        """Whether rows are points."""
        return self.geometry == POINTS

    @property
    def is_loss(self) -> bool:
        """Whether values say which token ids count in the loss."""
        return self.role == LOSS

    @property
    def owner(self) -> str:
        """The field of boxes or points whose rows this field's rows belong to; "" if there is none."""
        return self.role.partition(_PER)[2]

    def __str__(self) -> str:
        """
        Return what the values are, and the field's name.

        >>> str(Field("image", IMAGE, "|u1", (None, None, None))), str(Field("pixels", RAW, "|u1", (32, 32, 3)))
        ("encoded pictures in 'image'", "raw |u1 of 32x32x3 in 'pixels'")
        """
        if self.is_list:
            return f"{'perhaps' if self.is_optional else 'lists of'} {self.element}"
        shape = f" of {'x'.join(map(str, self.shape))}" if self.shape else ""
        dtype = dtype_name(self.dtype) if self.dtype == BFLOAT16 else self.dtype
        return f"{self.traits.title.replace('{array}', dtype + shape)} in {self.name!r}"

    @property
    def traits(self) -> Traits:
        """What is true of the values of its codec."""
        return traits_of(self.codec)

    @property
    def is_column(self) -> bool:
        """Whether the values of all samples form one array (instead of a run of bytes each)."""
        return self.traits.is_column

    @property
    def is_raw_picture(self) -> bool:
        """Whether raw bytes are a picture that PIL can show: grey (H, W), or (H, W, C) with C 1, 3 or 4; none 0."""
        shape = self.shape
        is_picture = (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))) and 0 not in shape
        return self.has_known_size and self.dtype == "|u1" and is_picture

    @property
    def planar(self) -> Field:
        """The field of the same pictures with their channels one behind the other. Raises SchemaError for others."""
        return replace(self, codec=PLANAR)

    @property
    def has_known_size(self) -> bool:
        """Whether each value has the bytes of an array of the field's dtype and shape, in this order or as planes."""
        return self.traits.is_array or self.traits.is_planar

    @property
    def unit_bytes(self) -> int:
        """Bytes of what the length of a value is counted in: a token id, a row of a ragged array, or a byte."""
        if self.traits.is_ragged:
            return math.prod(size for size in self.shape if size is not None) * np.dtype(self.dtype).itemsize
        return np.dtype(self.dtype).itemsize if self.traits.is_sequence else 1

    def takes(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape is a value of the field."""
        sizes = zip(self.shape, shape, strict=False)
        return len(shape) == len(self.shape) and all(size in (None, got) for size, got in sizes)

    def fits(self, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these sizes, in bytes, a stored value may have."""
        if self.has_known_size:
            return np.equal(sizes, self.nbytes)
        if self.unit_bytes == 0:  # rows without elements
            return np.equal(sizes, 0)
        if self.unit_bytes == 1:
            return np.broadcast_to(np.True_, sizes.shape)  # takes no pass over an index of millions
        return np.equal(sizes % self.unit_bytes, 0)

    @property
    def nbytes(self) -> int:
        """Bytes of one decoded value. Raises SchemaError if the shape is not fixed."""
        count = 1
        for size in self.shape:
            if size is None:
                raise SchemaError(f"field {self.name!r}: shape {self.shape} is not fixed")
            count *= size
        return count * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Schema:
    """
    The fields of a sample, in order, and the version of the rules by which they are written.

    With ``is_per_sample``, token ids that are the only payload are a value of their own for each sample, as they are
    next to other payload.
    """

    fields: tuple[Field, ...]
    version: int = VERSION
    is_per_sample: bool = False

    def __post_init__(self) -> None:
        names = [f.name for f in self.fields]
        if len(set(names)) != len(names):
            raise SchemaError(f"field names must be unique, got {names}")
        owners = [f.name for f in self.fields if (f.is_box or f.is_points) and not f.owner]
        for field in self.fields:
            if field.owner and field.owner not in owners:
                raise SchemaError(
                    f"field {field.name!r}: belongs to {field.owner!r}, which is not a field of boxes or points of its "
                    f"own; there is {names}"
                )

    def __getitem__(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise SchemaError(f"no field {name!r}; this store has {[f.name for f in self.fields]}")

    def __contains__(self, name: object) -> bool:
        return any(f.name == name for f in self.fields)

    @property
    def payload(self) -> tuple[Field, ...]:
        """The fields with a run of bytes per sample, or one for each element of its list."""
        return tuple(f for f in self.fields if not f.is_column)

    @property
    def lists(self) -> tuple[Field, ...]:
        """The fields of payload with a list of values per sample."""
        return tuple(f for f in self.fields if f.is_list)

    @property
    def columns(self) -> tuple[Field, ...]:
        """The fields with one array for all samples."""
        return tuple(f for f in self.fields if f.is_column)

    @property
    def picture(self) -> Field | None:
        """The first field of encoded pictures: one that is no mask, or a mask if there are no others."""
        pictures = [f for f in self.payload if f.traits.is_picture]
        return next((f for f in pictures if not f.traits.is_mask), pictures[0] if pictures else None)

    @property
    def flat(self) -> Field | None:
        """The field of token ids if it is the only payload, which a store keeps as one array, unless per sample."""
        payload = self.payload
        is_flat = len(payload) == 1 and payload[0].traits.is_tokens and not self.is_per_sample
        return payload[0] if is_flat else None

    @property
    def is_text(self) -> bool:
        """Whether text is the only payload."""
        return [f.traits.is_text for f in self.payload] == [True]

    def to_json(self) -> dict[str, Any]:
        """Return a plain structure for ``json.dumps``."""
        fields: list[dict[str, Any]] = []
        for field in self.fields:
            role = {"role": field.role} if field.role else {}
            fields.append(
                {"name": field.name, "codec": field.codec, "dtype": field.dtype, "shape": list(field.shape), **role}
            )
        per_sample = {"per_sample": True} if self.is_per_sample else {}
        return {"version": self._stored_version, "fields": fields, **per_sample}

    @property
    def _stored_version(self) -> int:
        """The least version that knows all that is in it."""
        if any(field.element.traits.is_npy or field.dtype == BFLOAT16 for field in self.payload):
            return ARRAYS_VERSION
        return LISTS_VERSION if self.lists else PER_SAMPLE_VERSION if self.is_per_sample else self.version

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schema:
        """Read what ``to_json`` wrote. Raises SchemaError for a newer version or a malformed structure."""
        try:
            version = int(data["version"])
            if version > ARRAYS_VERSION:
                newest = ARRAYS_VERSION
                raise SchemaError(f"schema version {version}, this fastio reads up to {newest}: upgrade fastio")
            fields = tuple(
                Field(
                    name=str(f["name"]),
                    codec=str(f["codec"]),
                    dtype=str(f["dtype"]),
                    shape=tuple(None if s is None else int(s) for s in f["shape"]),
                    role=str(f.get("role", "")),
                )
                for f in data["fields"]
            )
        except SchemaError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as exc:
            raise SchemaError(f"malformed schema {data!r}") from exc
        return cls(fields=fields, is_per_sample=bool(data.get("per_sample", False)))


# Keys of samples as paths.

_NOT_NAMES = frozenset(("", ".", ".."))


def is_plain_path(key: str) -> bool:
    """
    Return whether a key names a file below a folder, whatever the folder.

    That is not so if it is empty or absolute, holds NUL, or has an empty part, ``.`` or ``..`` in it.
    """
    return _NOT_NAMES.isdisjoint(key.split("/")) and "\0" not in key


def are_plain_paths(keys: Sequence[str]) -> bool:
    """Return whether ``is_plain_path`` holds for all keys, in a tenth of the time."""
    joined = "/" + "/\0/".join(keys) + "/"
    is_odd = any(part in joined for part in ("//", "/./", "/../"))
    return not keys or (joined.count("\0") == len(keys) - 1 and not is_odd)


def text_field(schema: Schema) -> Field | None:
    """Return the field of tokens or text, if it is a store's only payload."""
    payload = schema.payload
    return payload[0] if len(payload) == 1 and payload[0].traits.is_sequence else None
