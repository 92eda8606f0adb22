"""Which samples a loader reads, and in which batches: from what its user passes to one dataset and one BatchSampler."""

from __future__ import annotations

from fastio.loader.selection.chosen import Chosen, choose

__all__ = ["Chosen", "choose"]
