"""Where the samples of a store came from before they went from store to store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["origin_of", "recorded_kind"]


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
