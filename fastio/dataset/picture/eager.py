"""Small pictures, decoded with their batch: putting that off would cost more than it saves."""

from __future__ import annotations

from functools import cached_property

from PIL import Image

from fastio.dataset.picture.header import is_plain_png
from fastio.dataset.picture.lazy import LazyPicture
from fastio.dataset.picture.render import Pixels
from fastio.dataset.picture.stored import StoredPicture

__all__ = ["EagerPicture", "small_picture"]


def small_picture(stored: StoredPicture, pixels: Pixels) -> Image.Image:
    """
    Return a picture with a copy of the decoded pixels ``(H, W, C)``, which may be a row of a batch.

    It is Pillow's own class if the file surely has nothing for ``info``; otherwise, a class that looks there on
    demand.
    """
    if not stored.can_read or is_plain_png(stored.value):
        return EagerPicture.of(stored, pixels)
    return LazyPicture.of(stored, pixels.copy())


class EagerPicture(Image.Image):
    """A ``PIL.Image.Image`` that also knows its sample: ``filename`` is the key, ``format`` the file's format."""

    _origin: StoredPicture

    @classmethod
    def of(cls, stored: StoredPicture, pixels: Pixels) -> EagerPicture:
        """Return a picture with a copy of these pixels ``(H, W, C)`` and an empty ``info``."""
        picture = Image.frombytes(stored.mode, stored.size, pixels.data)
        picture.__class__ = cls  # copying into a picture of our own would take longer than decoding
        picture._origin = stored  # type: ignore[attr-defined]
        return picture  # type: ignore[return-value]

    @cached_property
    def format(self) -> str | None:  # type: ignore[override] # Pillow's is an attribute
        """The file's format; None for raw pixels."""
        return self._origin.header.format

    @cached_property
    def filename(self) -> str:
        """The sample's key: its path in the source of the store."""
        return self._origin.key
