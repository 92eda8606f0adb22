"""Masks: pictures whose pixels are numbers of classes."""

from __future__ import annotations

from fastio.codec.image import ImageCodec

__all__ = ["MaskCodec"]


class MaskCodec(ImageCodec):
    """Decodes masks like pictures."""
