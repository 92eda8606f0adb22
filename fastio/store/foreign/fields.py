"""
Names and types the fields of tar files that other tools wrote, by the extensions and first bytes of their members.

    0001.jpg, .png, ...     ``image``, pictures
    0001.mask.png           ``mask``: masks if all are grey or palette PNGs and the name says so (``mask``, ``seg``), or
                            pictures
    0001.cls                ``label``, a column
    0001.txt, .caption.txt  ``text``, ``caption``: text
    0001.json, .boxes.json  ``json``, ``boxes``: JSON
    0001.npy, .depth.npy    ``npy``, ``depth``: arrays of one dtype and shape, ragged if only the first size differs;
                            the span points behind the npy header. Otherwise bytes: the whole files
    0001.left.flow          ``left_flow``, bytes: anything else

Two extensions that would share a name get longer ones: ``mask_png`` and ``mask_json``. So do ``label.png`` and the
like, because ``label`` is the column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from fastio.store.foreign.scan import BLOCK
from fastio.store.formats.format import NPY
from fastio.store.index.sealed import Shard
from fastio.types.field_types import field_of
from fastio.types.npy import npy_head
from fastio.types.picture_kinds import PNG_SIGNATURE, is_picture_extension
from fastio.types.schema import RAW, Field, Schema

__all__ = [
    "HEAD_BYTES",
    "LABEL",
    "MemberForm",
    "Typed",
    "form_of",
    "is_picture",
    "names_of",
    "short_name",
    "typed",
    "with_equal_types",
]


LABEL = "label"
HEAD_BYTES = BLOCK - 1  # of a member: a header of an array takes less than a block

_TEXTS = ("txt", "text", "transcript")
_DOCUMENTS = ("json", "jsn")
_MASK_WORDS = {"mask", "masks", "seg", "segmentation"}
_GREY, _PALETTE = 0, 3  # colour types of PNG


class MemberForm(Enum):
    """What a member is by its extension, and the type of its field."""

    PICTURE = "image"
    TEXT = "text"
    DOCUMENT = "json"
    ARRAY = "an npy file"  # whose header tells the type
    OTHER = "bytes"


def is_picture(extension: str) -> bool:
    """Whether an extension, such as "jpg" or "seg.png", is that of a picture."""
    return is_picture_extension(_kind(extension))


def short_name(extension: str) -> str:
    """
    Return the name that a field has if no other extension of the archive wants it.

    >>> [short_name(extension) for extension in ("jpg", "mask.png", "txt", "boxes.json", "cls", "left.flow", "3d")]
    ['image', 'mask', 'text', 'boxes', 'label', 'left_flow', 'x_3d']
    """
    before, dot, kind = extension.rpartition(".")
    if dot and _form(extension) is not MemberForm.OTHER:
        name = _clean(before)
        return _clean(extension) if name == LABEL else name
    if is_picture_extension(kind):
        return "image"
    return LABEL if extension == "cls" else "text" if extension in _TEXTS[:2] else _clean(extension)


def names_of(extensions: Iterable[str]) -> dict[str, str]:
    """Return the field that each extension of an archive belongs to; pictures may share one."""
    wanting: dict[str, list[str]] = {}
    for extension in sorted(set(extensions), key=lambda each: (each.count("."), not is_picture(each), each)):
        wanting.setdefault(short_name(extension), []).append(extension)
    names: dict[str, str] = {}
    for name, rivals in wanting.items():
        owner = _family(rivals[0])
        names |= {each: name if _family(each) == owner else _clean(each) for each in rivals}
    return names


def form_of(extensions: Iterable[str]) -> MemberForm:
    """Return what members with these extensions are; OTHER if they are not all of one form."""
    forms = {_form(each) for each in extensions}
    return forms.pop() if len(forms) == 1 else MemberForm.OTHER


@dataclass(frozen=True, slots=True)
class Typed:
    """
    A field of some members, and the bytes before each value in its member.

    ``problems`` says by position what is wrong with a member, in words that follow its key.
    """

    field: Field
    prefixes: NDArray[np.int64]
    problems: Mapping[int, str]


def typed(name: str, form: MemberForm, heads: Iterator[bytes], sizes: NDArray[np.int64]) -> Typed:
    """
    Return the field of members with these beginnings, of up to HEAD_BYTES each, and sizes.

    ``heads`` is only read where they matter: for arrays, and for pictures that may be masks.
    """
    none: NDArray[np.int64] = np.zeros(len(sizes), np.int64)
    if form is MemberForm.ARRAY:
        return _array(name, heads, sizes)
    depths = _mask_depths(heads) if form is MemberForm.PICTURE and _MASK_WORDS.intersection(name.split("_")) else set()
    type_ = form.value if not depths else "mask16" if 16 in depths else "mask"
    return Typed(field_of(name, type_), none, {})


def with_equal_types(shards: Sequence[Shard]) -> list[Shard]:
    """
    Return shards whose fields of one name have one type, where that is possible without reading.

    Arrays whose first dimension alone differs become ragged; others are bytes, the whole npy files; masks of which some
    shards hold pictures are pictures.
    """
    result = list(shards)
    for field in shards[0].schema.payload:
        if not all(field.name in shard.schema for shard in shards):
            continue
        fields = {shard.schema[field.name] for shard in shards}
        if len(fields) > 1:
            common = _common(field.name, fields)
            result = [_retyped(shard, common) for shard in result]
    return result


def _common(name: str, fields: Iterable[Field]) -> Field:
    if all(f.traits.is_mask for f in fields):
        return field_of(name, "mask16")
    if all(f.traits.is_picture for f in fields):
        return field_of(name, "image")
    dtypes, rows = {f.dtype for f in fields}, {f.shape[1:] for f in fields if f.shape}
    are_arrays = all(f.shape and (f.traits.is_array or f.traits.is_ragged) for f in fields)
    if are_arrays and len(dtypes) == len(rows) == 1:
        return field_of(name, (dtypes.pop(), (None, *rows.pop())))
    return field_of(name, "bytes")


def _retyped(shard: Shard, field: Field) -> Shard:
    """The shard with this field; as bytes, values begin where their members do."""
    schema = Schema(tuple(field if each.name == field.name else each for each in shard.schema.fields))
    if field.traits.is_picture or field.traits.is_plain:
        return replace(shard, schema=schema)
    starts = shard.starts[field.name]
    prefixes = starts % BLOCK  # a header takes less than a block
    sizes = shard.sizes[field.name] + prefixes
    return replace(
        shard,
        schema=schema,
        starts={**shard.starts, field.name: starts - prefixes},
        sizes={**shard.sizes, field.name: sizes},
    )


def _array(name: str, heads: Iterator[bytes], sizes: NDArray[np.int64]) -> Typed:
    """Arrays, ragged arrays, or bytes if their types differ."""
    headers = [npy_head(head, size) for head, size in zip(heads, sizes.tolist(), strict=True)]
    problems = {i: f"has a field {name!r} that {each}" for i, each in enumerate(headers) if isinstance(each, str)}
    good = [each for each in headers if not isinstance(each, str)]
    kinds = {(each.dtype, each.shape) for each in good}
    dtypes = {dtype for dtype, _ in kinds}
    rows = {shape[1:] if shape else None for _, shape in kinds}
    field = field_of(name, MemberForm.OTHER.value)
    if len(dtypes) == 1 and "" not in dtypes:
        if len(kinds) == 1:
            field = Field(name, RAW, *kinds.pop())
        elif len(rows) == 1 and None not in rows:
            field = field_of(name, (dtypes.pop(), (None, *(rows.pop() or ()))))
    prefixes = [0 if isinstance(each, str) or not field.traits.is_plain else each.size for each in headers]
    return Typed(field, np.array(prefixes, np.int64), problems)


def _mask_depths(heads: Iterator[bytes]) -> set[int]:
    """The bits of a pixel of PNGs, if all are grey or palette; empty otherwise."""
    depths: set[int] = set()
    for head in heads:
        if not head.startswith(PNG_SIGNATURE) or len(head) < 26 or head[25] not in (_GREY, _PALETTE):
            return set()
        depths.add(head[24])
    return depths


def _form(extension: str) -> MemberForm:
    kind = _kind(extension)
    if is_picture_extension(kind):
        return MemberForm.PICTURE
    if kind in _TEXTS:
        return MemberForm.TEXT
    return MemberForm.DOCUMENT if kind in _DOCUMENTS else MemberForm.ARRAY if kind == NPY else MemberForm.OTHER


def _family(extension: str) -> tuple[str, str]:
    """Extensions that may share a name: pictures of different kinds, and equal ones."""
    before, _, kind = extension.rpartition(".")
    return before, "" if is_picture_extension(kind) else kind


def _kind(extension: str) -> str:
    return extension.rpartition(".")[2]


def _clean(extension: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "_", extension).strip("_") or "unnamed"
    return name if name[0].isalpha() else f"x_{name}"
