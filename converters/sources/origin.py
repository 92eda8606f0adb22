"""Opens the source that a packed store came from, read the way it was read for packing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.converters import LabelOptions, Source, open_source
from fastio.converters.fields.types import parse_choice
from fastio.converters.sources.derived import tokenized_as
from fastio.converters.sources.options import IdOptions
from fastio.converters.sources.pictured_chats import chats_again
from fastio.converters.sources.record import origin_of, recorded_kind, recorded_root
from fastio.store.formats import names_store
from fastio.store.kinds.recognise import recognise
from fastio.store.kinds.registry import IMAGEFOLDER, STORE
from fastio.store.kinds.scan import SourcePath
from fastio.store.kinds.unknown import is_container_of_others

__all__ = [
    "reopen_source",
]


def reopen_source(metadata: Mapping[str, Any], path: str, *, kind: str = "auto", labels: str | None = None) -> Source:
    """
    Open ``path`` with the options that a store's metadata records, such as fields and columns; the samples come in the
    order of the source. The label file is not recorded: ``labels`` names it. A store that samples went through on their
    way from another kind of source is read as it is. Raises SourceError as ``open_source``.
    """
    record = origin_of(metadata)
    if recorded_kind(record) != STORE.name and kind in ("auto", STORE.name) and _is_store(path):
        direct = metadata.get("source") or {}
        record = direct if recorded_kind(direct) == STORE.name else {}
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
        chat=record.get("chat"),
    )
    return chats_again(metadata, tokenized_as(metadata, source))


def _is_store(path: str) -> bool:
    """Whether a path is a packed store, and no container of another program."""
    return names_store(path) and not is_container_of_others(path) and recognise(path).kind is STORE
