"""Where the samples of a store came from, before they went from store to store: what the record of a source says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["origin_of", "recorded_kind", "recorded_root", "root_to_record"]


def origin_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Return the record of the first source, the one that was not a store, or {} if there is none.

    The record of a text file lists unusual separators by the number of their document. If a document was skipped on
    the way from store to store, those numbers are wrong, so only the usual separator is returned.
    """
    text: Mapping[str, Any] | None = metadata.get("text_source")
    if text is None:
        found: Mapping[str, Any] = metadata.get("origin") or metadata.get("source") or {}
        return found
    if metadata.get("skipped") and text.get("between"):
        return {**text, "between": {**text["between"], "odd": {}, "whole": False}}
    return text


def recorded_kind(record: Mapping[str, Any]) -> str:
    """Return the kind of source in such a record, or "". Older versions call it "layout"."""
    return str(record.get("kind") or record.get("layout") or "")


def root_to_record(root: str | None, path: str) -> str | None:
    """Return ``--root`` as the record of the source ``path`` keeps it: from there on, unless it is an absolute path."""
    return root if root is None or Path(root).is_absolute() else os.path.relpath(root, path)


def recorded_root(record: Mapping[str, Any], path: str) -> str | None:
    """Return the ``--root`` of such a record for the source as it lies under ``path`` now; None if there was none."""
    root = record.get("root")
    return None if root is None else os.path.normpath(Path(path, str(root)))
