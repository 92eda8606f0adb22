"""Opens the source of a packed store again, read the way it was read for packing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.converters import LabelOptions, Source, open_source
from fastio.converters.fields_asked import parse_choice
from fastio.converters.kind import SourcePath
from fastio.converters.origin import origin_of, recorded_kind, recorded_root
from fastio.converters.sources import imagefolder
from fastio.converters.tokenized_source import tokenized_as

__all__ = ["source_again"]


def source_again(metadata: Mapping[str, Any], path: str, *, kind: str = "auto", labels: str | None = None) -> Source:
    """
    Open ``path`` with the options that a store's metadata records, such as fields and columns; the samples come in the
    order of the source. The label file is not recorded: ``labels`` names it. Raises SourceError as ``open_source``.
    """
    record = origin_of(metadata)
    if kind == "auto" and recorded_kind(record) == imagefolder.KIND.name and imagefolder.KIND.signs(SourcePath(path)):
        kind = imagefolder.KIND.name  # folders that were classes are not asked about again
    source: Source = open_source(
        path,
        kind=kind,
        labels=labels,
        label_options=LabelOptions.from_json(record.get("label_options") or {}),
        fields=[parse_choice(words) for words in record.get("fields") or ()],
        root=recorded_root(record, path),
        as_recorded=True,
    )
    return tokenized_as(metadata, source)
