"""Opens the source that a packed store came from, read the way it was read for packing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.converters import LabelOptions, Source, open_source
from fastio.converters.fields.types import parse_choice
from fastio.converters.sources.derived import tokenized_as
from fastio.converters.sources.options import IdOptions
from fastio.converters.sources.record import origin_of, recorded_kind, recorded_root
from fastio.store.kinds.registry import IMAGEFOLDER
from fastio.store.kinds.scan import SourcePath

__all__ = [
    "reopen_source",
]


def reopen_source(metadata: Mapping[str, Any], path: str, *, kind: str = "auto", labels: str | None = None) -> Source:
    """
    Open ``path`` with the options that a store's metadata records, such as fields and columns; the samples come in the
    order of the source. The label file is not recorded: ``labels`` names it. Raises SourceError as ``open_source``.
    """
    record = origin_of(metadata)
    if kind == "auto" and recorded_kind(record) == IMAGEFOLDER.name and IMAGEFOLDER.signs(SourcePath(path)):
        kind = IMAGEFOLDER.name  # folders that were classes are not asked about again
    part = record.get("part")
    if kind == "auto" and part is not None:
        kind = recorded_kind(record)
    source: Source = open_source(
        path,
        kind=kind,
        labels=labels,
        split=part,
        label_options=LabelOptions.from_json(record.get("label_options") or {}),
        fields=[parse_choice(words) for words in record.get("fields") or ()],
        root=recorded_root(record, path),
        as_recorded=True,
        ids=IdOptions(**(record.get("ids") or {})),
    )
    return tokenized_as(metadata, source)
