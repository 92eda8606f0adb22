"""What a user gives a Writer as the metadata of its store: checked, and the names of classes in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastio.errors import SchemaError
from fastio.types.schema import Schema

__all__ = ["checked_metadata", "classes_of"]

_OWN = ("document_counts", "skipped", "source", "tokenizer")  # entries that the writer makes


def checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy. Raises SchemaError if it is not JSON, or has entries that the writer makes."""
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(metadata or {}), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as exc:
        raise SchemaError(f"metadata cannot be kept as JSON ({exc})") from exc
    taken = [name for name in _OWN if name in copied]
    if taken:
        raise SchemaError(f"metadata: the entry {taken[0]!r} is made by the writer: rename it")
    return copied


def classes_of(metadata: Mapping[str, Any], schema: Schema) -> dict[str, list[str]]:
    """The names of classes by field. Raises SchemaError if they are not names, or of a field that is not there."""
    by_field = dict(metadata.get("field_classes") or {})
    if metadata.get("classes") is not None:
        by_field["label"] = metadata["classes"]
    for name, classes in by_field.items():
        if name not in schema:
            raise SchemaError(f"metadata: there are classes of {name!r}, but no such field: drop them, or add it")
        if not isinstance(classes, list) or not all(isinstance(each, str) for each in classes):
            raise SchemaError(f"metadata: the classes of {name!r} must be a list of names")
        if len(set(classes)) != len(classes):
            raise SchemaError(f"metadata: a class of {name!r} comes twice")
    return by_field
