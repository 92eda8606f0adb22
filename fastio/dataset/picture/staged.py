"""Staged: a finished stage of a picture, from which a new plan starts."""

from __future__ import annotations

from typing import Protocol

from fastio.dataset.picture.pending import Pending
from fastio.dataset.picture.render import Pixels, from_array, frozen
from fastio.dataset.picture.stored import StoredPicture

__all__ = ["PixelSource", "StagedPixels"]


class PixelSource(Protocol):
    """What a plan of pending steps starts from."""

    @property
    def origin(self) -> StoredPicture:
        """The picture of the store that it was made from."""
        ...

    @property
    def can_read(self) -> bool:
        """Whether it can be read in modes other than its own."""
        ...

    def render(self, pending: Pending) -> Pixels:
        """Return the pixels ``(H, W, C)`` after these steps. Raises SampleError for a bad sample."""
        ...


class StagedPixels:
    """
    The result of ``pending`` on ``source``, computed on first use and then kept, read-only.

    ``pixels`` are its pixels if they are already known; ``nothing`` is the plan that leaves them unchanged.
    """

    __slots__ = ("_pending", "_pixels", "_source", "can_read", "nothing", "origin")

    def __init__(self, source: PixelSource, pending: Pending, pixels: Pixels | None = None) -> None:
        self.origin = source.origin
        self.can_read = False
        self._source: PixelSource | None = source if pixels is None else None
        self._pending = pending
        self._pixels = None if pixels is None else frozen(pixels)
        self.nothing = Pending.nothing(*pending.size, pending.mode)

    @property
    def pixels(self) -> Pixels:
        """All pixels."""
        source, pixels = self._source, self._pixels
        if pixels is None:
            assert source is not None
            pixels = self._pixels = frozen(source.render(self._pending))
            self._source = None
        return pixels

    def render(self, pending: Pending) -> Pixels:
        """As PixelSource.render; returns the kept array itself if there is nothing to do."""
        return self.pixels if pending == self.nothing else from_array(self.pixels, self._pending.mode, pending)
