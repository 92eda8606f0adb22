"""Mends a set from another copy of it or from its source, whichever a path is."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from fastio.converters.origin import recorded_kind
from fastio.converters.planned.remade import Remade
from fastio.converters.source import Source
from fastio.converters.source_again import source_again
from fastio.errors import StoreCorrupt, StoreError
from fastio.store.copies import Copies
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.folders import folder_of
from fastio.store.formats import FORMATS, holds_shards
from fastio.store.repair import Maker, Progress, RepairReport, repair_set
from fastio.store.set_lookup import set_of_path
from fastio.store.set_names import SET_SUFFIX
from fastio.store.set_object import SetObject, read_set
from fastio.store.urls import set_of_url

__all__ = ["repair"]


def repair(
    path: str,
    against: str,
    *,
    kind: str = "auto",
    labels: str | None = None,
    meter: Callable[[int], AbstractContextManager[Progress]] | None = None,
    remote: RemoteOptions = DEFAULT,
) -> RepairReport:
    """
    Check every byte of the set ``path``, and write missing and damaged shards again, from ``against``: another copy of
    the set, as a path or URL, or the source that it was packed from (of ``kind``, with the label file ``labels``).

    ``meter(samples)`` yields what is called with the samples and bytes of each shard checked. Raises StoreError if
    there is no such set, or if a shard cannot be read or written; see ``repair_set``.
    """
    repaired = _set(path, remote)
    makers = _makers(repaired, against, kind, labels, remote)
    with nullcontext() if meter is None else meter(len(repaired)) as progress:
        return repair_set(repaired, makers, remote=remote, progress=progress)


def _set(path: str, remote: RemoteOptions) -> SetObject:
    set_object = set_of_path(path) if is_local(path) else set_of_url(path, remote)
    if set_object is None:
        raise StoreError(
            f"{path}: has no set object (name{SET_SUFFIX}), which alone knows what every shard must be: "
            "pack it again; if only the set object is missing, fastio seal makes it anew"
        )
    folder, name = folder_of(set_object, remote)
    return read_set(folder.open(name))


def _makers(repaired: SetObject, against: str, kind: str, labels: str | None, remote: RemoteOptions) -> list[Maker]:
    metadata = _metadata(repaired)
    makers: list[Maker] = []
    if labels is None and kind == "auto" and _may_be_copy(repaired, against):
        makers.append(Copies(against, repaired, remote=remote))
    if not makers or (is_local(against) and recorded_kind(metadata.get("source") or {}) == "store"):

        def open_source() -> Source:
            source = source_again(metadata, against, kind=kind, labels=labels)
            seed = metadata.get("shuffle")
            return source if seed is None else source.shuffled(seed)

        makers.append(Remade(open_source, repaired, remote=remote))
    return makers


def _may_be_copy(repaired: SetObject, against: str) -> bool:
    """Whether a path or URL may hold shards of this set."""
    if not is_local(against) or against.endswith(SET_SUFFIX) or FORMATS[repaired.format].is_name(against):
        return True
    return Path(against).is_dir() and holds_shards(against)


def _metadata(repaired: SetObject) -> dict[str, Any]:
    try:
        return dict(json.loads(repaired.metadata))
    except (ValueError, TypeError) as exc:
        raise StoreCorrupt(f"{repaired.path}: the metadata is not JSON ({exc}): pack again") from exc
