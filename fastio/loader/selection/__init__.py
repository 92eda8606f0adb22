"""Turns what a user passes to a loader into one dataset and one BatchSampler: which samples, in which batches."""

from __future__ import annotations

from fastio.loader.selection.selection import Selection, select

__all__ = ["Selection", "select"]
