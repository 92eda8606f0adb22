"""Where the samples of a store came from, before they went from store to store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["origin_of", "recorded_kind"]


def origin_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    The record of the first source, which was no store; {} if a store does not say it.

    Of a text file that record keeps what stood between its documents, by their numbers. If documents were skipped on
    the way from store to store, the numbers mean others: only the usual separator is left then.
    """
    text: Mapping[str, Any] | None = metadata.get("text_source")
    if text is None:
        found: Mapping[str, Any] = metadata.get("origin") or metadata.get("source") or {}
        return found
    if metadata.get("skipped") and text.get("between"):
        return {**text, "between": {**text["between"], "odd": {}, "whole": False}}
    return text


def recorded_kind(record: Mapping[str, Any]) -> str:
    """The kind of source in such a record, "" without one. Before it was called kind, it was called layout."""
    return str(record.get("kind") or record.get("layout") or "")
