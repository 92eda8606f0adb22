"""A stage of a picture's making as a source of pixels: what had to be done before a new plan could begin."""

from __future__ import annotations

from typing import Protocol

from fastio.dataset.picture.pending import Pending
from fastio.dataset.picture.render import Pixels, from_array, frozen
from fastio.dataset.picture.stored import StoredPicture

__all__ = ["PixelSource", "StagedPixels"]


class PixelSource(Protocol):
    """What a plan of pending steps begins with."""

    @property
    def origin(self) -> StoredPicture:
        """The picture of the store that it was made from."""
        ...

    @property
    def can_read(self) -> bool:
        """Whether it can be read in other modes than its own."""
        ...

    def render(self, pending: Pending) -> Pixels:
        """The pixels ``(H, W, C)`` after these steps; SampleError for a bad sample."""
        ...


class StagedPixels:
    """
    The result of ``pending`` on ``source``, made when it is first asked for and then kept, read-only.

    ``pixels`` are its pixels if they are known already; ``nothing`` is the plan that leaves them as they are.
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
        """All of them."""
        source, pixels = self._source, self._pixels
        if pixels is None:
            assert source is not None
            pixels = self._pixels = frozen(source.render(self._pending))
            self._source = None
        return pixels

    def render(self, pending: Pending) -> Pixels:
        """As PixelSource.render; the kept array itself where nothing is to be done."""
        return self.pixels if pending == self.nothing else from_array(self.pixels, self._pending.mode, pending)
