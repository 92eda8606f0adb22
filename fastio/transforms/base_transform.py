"""BaseTransform: what transforms of single samples and of whole batches have in common."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["BaseTransform"]


@runtime_checkable
class BaseTransform(Protocol):
    """
    A ``Transform`` or a ``BatchTransform``: the type of what a list of both holds::

        steps: list[BaseTransform] = [RandomCrop(32), Normalize(mean, std)]
    """

    @property
    def draws(self) -> int:
        """How many random numbers one sample takes."""
        ...
