"""Packing on a Ray cluster: ``pack`` makes the shards of a plan as tasks, ``Sink`` writes a Dataset of Ray Data.

Ray is imported on first use, and ``import fastio`` does not import this package.
"""

from __future__ import annotations

from fastio.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
