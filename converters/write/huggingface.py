"""Datasets of Hugging Face's ``datasets`` library: their features as fields, their pictures as the bytes they have."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from fastio.errors import SchemaError
from fastio.types.field_types import FieldType

__all__ = ["describe_features", "is_dataset", "read_rows"]

_ROWS = 64  # read at once
_ENCODED = ("Image", "Audio", "Video")  # features with decode=False
_TEXTS = ("string", "large_string", "string_view")
_BYTES = ("binary", "large_binary", "binary_view")
_NUMBERS: Final = frozenset(
    {"bool", "float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
)

Columns = Mapping[str, str]  # the field's name for each column


def is_dataset(dataset: Any) -> bool:
    """
    Whether this is a ``datasets.Dataset`` or ``IterableDataset`` that describes its samples.

    One with a transform of the user's does not: what that returns is its own.
    """
    library = sys.modules.get("datasets")
    if library is None or not isinstance(dataset, (library.Dataset, library.IterableDataset)):
        return False
    custom = isinstance(dataset, library.Dataset) and dataset.format["type"] == "custom"
    return dataset.features is not None and not custom


def describe_features(dataset: Any) -> tuple[dict[str, FieldType], dict[str, Any], Columns]:
    """
    Return the fields' types by name, metadata with the names of classes, and which column is which field.

    Raises SchemaError for a feature that no type of fastio holds, and for names that become one.
    """
    chosen = set(dataset.format["columns"]) if hasattr(dataset, "format") else set(dataset.features)
    fields: dict[str, FieldType] = {}
    columns: dict[str, str] = {}
    classes: dict[str, list[str]] = {}
    for column, feature in dataset.features.items():
        if column not in chosen:
            continue
        name = _field_name(column)
        if name in fields:
            other = next(other for other, field in columns.items() if field == name)
            raise SchemaError(f"columns {other!r} and {column!r} both become the field {name!r}: rename one of them")
        fields[name], columns[column] = _type_of(name, column, feature), name
        names = _class_names(feature)
        if names is not None:
            classes[name] = names
    metadata: dict[str, Any] = {"classes": classes.pop("label")} if "label" in classes else {}
    return fields, metadata | ({"field_classes": classes} if classes else {}), columns


def read_rows(
    dataset: Any, columns: Columns
) -> tuple[Callable[[Sequence[int]], Iterator[Any]], Callable[[], Iterator[Any]]]:
    """Return two functions: one yields the rows at some indices, the other all; pictures as ``{"bytes", "path"}``."""
    library = sys.modules["datasets"]
    plain = dataset.with_format(None)
    for column in columns:
        feature = dataset.features[column]
        if type(feature).__name__ in _ENCODED:
            plain = plain.cast_column(column, getattr(library, type(feature).__name__)(decode=False))
    pairs = list(columns.items())

    def read(indices: Sequence[int]) -> Iterator[Any]:
        for start in range(0, len(indices), _ROWS):
            part = list(indices[start : start + _ROWS])
            is_run = part == list(range(part[0], part[0] + len(part)))
            rows = plain[part[0] : part[0] + len(part)] if is_run else plain[part]
            for values in zip(*(rows[column] for column, _ in pairs), strict=True):
                yield {name: value for (_, name), value in zip(pairs, values, strict=True)}

    def iterate() -> Iterator[Any]:
        for row in plain:
            yield {name: row[column] for column, name in pairs}

    return read, iterate


def _field_name(column: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")
    return name if name and name[0].isalpha() else f"column_{name}".rstrip("_")


def _type_of(name: str, column: str, feature: Any) -> FieldType:
    kind = type(feature).__name__
    if kind == "Image":
        return "mask" if name == "mask" or name.endswith("_mask") else "image"
    if kind in _ENCODED:
        return "bytes"
    if kind == "ClassLabel":
        return "label"
    if kind == "Value":
        return _of_value(column, feature.dtype)
    if re.fullmatch(r"Array[2-5]D", kind):
        return (feature.dtype, tuple(feature.shape))
    if kind in ("List", "LargeList", "Sequence") or (isinstance(feature, list) and len(feature) == 1):
        return _of_list(feature) or "json"
    if isinstance(feature, Mapping) or kind in ("Translation", "TranslationVariableLanguages", "Json"):
        return "json"
    raise _unknown(column, kind)


def _of_value(column: str, dtype: str) -> FieldType:
    if dtype in _TEXTS:
        return "text"
    if dtype in _BYTES:
        return "bytes"
    if dtype not in _NUMBERS:
        raise _unknown(column, dtype)
    return dtype


def _of_list(feature: Any) -> FieldType | None:
    """An array of numbers, with the sizes that the features fix; None for lists of anything else, or ragged inside."""
    shape: list[int | None] = []
    while type(feature).__name__ in ("List", "LargeList", "Sequence") or isinstance(feature, list):
        length = -1 if isinstance(feature, list) else getattr(feature, "length", -1)
        shape.append(length if length is not None and length >= 0 else None)
        feature = feature[0] if isinstance(feature, list) else feature.feature
    dtype = "int64" if type(feature).__name__ == "ClassLabel" else getattr(feature, "dtype", "")
    if dtype not in _NUMBERS or None in shape[1:]:
        return None
    return (dtype, tuple(shape))


def _class_names(feature: Any) -> list[str] | None:
    while type(feature).__name__ in ("List", "LargeList", "Sequence"):
        return None  # rows of numbers, whose classes no column has
    return list(feature.names) if type(feature).__name__ == "ClassLabel" and feature.names else None


def _unknown(column: str, what: str) -> SchemaError:
    return SchemaError(
        f"column {column!r}: no field holds the feature {what}: convert it, or leave it out with "
        f"dataset.remove_columns({column!r})"
    )
