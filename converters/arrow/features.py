"""What Hugging Face ``datasets`` notes of the columns in a table's schema: names of classes, pictures, arrays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastio.errors import SourceError

__all__ = ["class_names", "feature_at", "features_of", "inner_class_names"]


def features_of(place: str, schema: Any) -> Mapping[str, Any]:
    """Return the notes by column, {} if there are none. Raises SourceError if they cannot be read."""
    raw = (schema.metadata or {}).get(b"huggingface")
    try:
        notes = json.loads(raw) if raw else {}
        features = notes.get("info", {}).get("features") or {}
        if not isinstance(features, Mapping):
            raise TypeError("features are not an object")
    except (ValueError, AttributeError, TypeError) as exc:
        raise SourceError(
            f"{place}: the notes of Hugging Face datasets in it cannot be read ({exc}): save it again"
        ) from exc
    return features


def feature_at(features: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return what is noted of the column, or part of one, at ``path``; None if nothing is."""
    node: Any = features
    for part in path:
        node = _inner(node)
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def class_names(feature: Any) -> list[str] | None:
    """Return the names of a ClassLabel, or of those in a list; None for anything else."""
    feature = _inner(feature)
    names = feature.get("names") if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel" else None
    return [str(name) for name in names] if isinstance(names, list) and names else None


def inner_class_names(feature: Any, prefix: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the path and the names of every ClassLabel in a feature, such as ``objects.category``."""
    names, feature = class_names(feature), _inner(feature)
    if names is not None:
        yield prefix, names
    elif isinstance(feature, Mapping) and "_type" not in feature:
        for name, part in feature.items():
            yield from inner_class_names(part, f"{prefix}.{name}")


def _inner(feature: Any) -> Any:
    """What is in lists: Sequence and List of ``datasets`` wrap it, older notes have a list of one."""
    while True:
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif (
            isinstance(feature, Mapping) and "_type" in feature and isinstance(feature.get("feature"), (Mapping, list))
        ):
            feature = feature["feature"]
        else:
            return feature
