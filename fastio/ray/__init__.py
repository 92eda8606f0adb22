"""Packing on a Ray cluster: ``pack`` makes the shards of a plan as tasks, ``Sink`` writes a Dataset of Ray Data.

Ray is imported on first use, and ``import fastio`` does not import this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastio.lazy import lazy_names

if TYPE_CHECKING:
    from fastio.ray.packing import pack
    from fastio.ray.sink import Sink

__all__ = ["Sink", "pack"]

__getattr__, __dir__ = lazy_names(__name__, {"Sink": "fastio.ray.sink", "pack": "fastio.ray.packing"})
