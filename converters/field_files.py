"""FieldFiles: files that hold one field of the samples, such as masks; what type names and content suggest."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.headers import read_headers
from fastio.converters.files import FileReader
from fastio.converters.listed import Indices, Values
from fastio.converters.npy import parse_npy, read_npy_header
from fastio.converters.record_values import encode_values
from fastio.errors import SourceError
from fastio.types.field_types import field_of
from fastio.types.picture_kinds import kind_by_name
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = ["FieldFiles", "fitted", "is_mask_name", "suggested_field"]

_MASK_NAMES = re.compile(r"mask|label|seg|annot|panoptic|ground_?truth|(?:\A|_)gts?(?:_|\Z)|trimap")
_BY_EXTENSION = {"txt": "text", "json": "json"}
_LOOKED_AT = 16  # arrays whose headers tell whether their shapes are equal


@dataclass(frozen=True, slots=True)
class FieldFiles:
    """The files of one field below ``root``, one per sample: their names, and their sizes ``(n,)`` in bytes."""

    field: Field
    root: str
    names_at: Callable[[Indices], list[str]]
    sizes: NDArray[np.int64]

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read some files; see ``ListedSource.read``. Content that does not fit the field is a problem."""
        reader = FileReader(self.field, self.root, self.names_at, self.sizes)
        return fitted(self.field, reader.begin(indices, pool))


def fitted(field: Field, wait: Callable[[], Values]) -> Callable[[], Values]:
    """Return how to wait for the contents of whole files, and make the values of ``field`` of them."""
    traits = field.traits
    if traits.is_picture or not (traits.is_plain or traits.is_json):
        return wait
    return lambda: _encoded(field, wait())


def is_mask_name(name: str) -> bool:
    """Whether a field of pictures is called as masks are: "mask", "labels", "seg"."""
    return _MASK_NAMES.search(name) is not None


def _encoded(field: Field, values: Values) -> Values:
    """The same values as the field keeps them: text and JSON checked, arrays without the header of their .npy file."""
    problems = dict(values.problems)
    contents: list[Any] = []
    for i, data in enumerate(values.spans[field.name].views()):
        content: Any = data.tobytes()
        if not (field.traits.is_text or field.traits.is_json) and i not in problems:
            try:
                content = parse_npy(content)
            except ValueError as exc:
                problems[i] = f"has a field {field.name!r} that is not a .npy file: {exc}"
        contents.append(content)
    encoded = encode_values(field, contents)
    problems = {**encoded.problems, **problems}
    if encoded.spans is None:
        assert encoded.column is not None
        return Values({}, problems, {field.name: encoded.column})
    return Values({field.name: encoded.spans}, problems)


def suggested_field(name: str, root: str, files: Sequence[str]) -> Field:
    """
    Return the field that files with these names seem to hold; the first of them are looked into.

    Pictures are masks if ``name`` says so ("mask", "labels", "seg"), with the bits and channels of the first;
    .txt is text, .json JSON, .npy an array, ragged if only the first axis differs. All others are bytes. Raises
    SourceError for arrays that have no shape or dtype in common, and if pictures and other files are mixed.
    """
    extensions = {Path(file).suffix.lower().removeprefix(".") for file in files}
    are_pictures = {bool(kind_by_name(file)) for file in files}
    if are_pictures == {True}:
        if not is_mask_name(name):
            return field_of(name, "image")
        return field_of(name, _mask_type(root, files[0]))
    if extensions == {"npy"}:
        return _array_field(name, root, files[:_LOOKED_AT])
    if len(extensions) > 1:
        kinds = ", ".join(f".{each}" for each in sorted(extensions)[:5])
        raise SourceError(
            f"{root}: --field {name}: files of different kinds ({kinds}): name the type, as in --field {name}=...:bytes"
        )
    return field_of(name, _BY_EXTENSION.get(extensions.pop(), "bytes"))


def _mask_type(root: str, name: str) -> str:
    """The type of the first mask. One that cannot be read has any: packing it says why."""
    from fastio.codec.mask import with_mask_form  # imports Pillow

    try:
        data = np.fromfile(Path(root, name), np.uint8)
    except OSError:
        return "mask"
    spans = Spans.joined(data, np.array([len(data)]))
    headers = with_mask_form(read_headers(spans), spans)
    assert headers.bits is not None
    channels = int(headers.channels[0])
    if channels > 1:
        return f"mask[{channels}]"
    return "mask16" if headers.bits[0] > 8 else "mask"


def _array_field(name: str, root: str, files: Sequence[str]) -> Field:
    """An array of fixed shape, or one whose first axis differs."""
    shapes, dtypes = set[tuple[int, ...]](), set[str]()
    for each in files:
        try:
            with Path(root, each).open("rb") as file:
                shape, _, dtype = read_npy_header(file)
        except (OSError, ValueError):
            continue  # a problem of that sample, when it is read
        shapes.add(shape)
        dtypes.add(dtype.newbyteorder("<").name)
    if len(dtypes) != 1 or len({shape[1:] for shape in shapes}) != 1 or len({len(shape) for shape in shapes}) != 1:
        what = f"{len(dtypes)} dtypes and {len(shapes)} shapes" if shapes else "nothing that can be read"
        raise SourceError(
            f"{root}: --field {name}: the first arrays have {what}: name the type, as in {name}=...:float32[512]"
        )
    dtype_name, shape = dtypes.pop(), sorted(shapes)[0]
    return field_of(name, (dtype_name, shape if len(shapes) == 1 else (None, *shape[1:])))
