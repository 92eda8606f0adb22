"""Packing on a Ray cluster: ``pack`` makes the shards of a plan as tasks, ``Sink`` writes a Dataset of Ray Data.

Ray is imported on first use, and ``import fastio`` does not import this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastio.ray.packing import pack
    from fastio.ray.sink import Sink

__all__ = ["Sink", "pack"]

_HOMES = {"Sink": "fastio.ray.sink", "pack": "fastio.ray.packing"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fastio.ray' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
