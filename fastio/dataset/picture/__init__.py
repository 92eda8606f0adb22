"""Lazy pictures: PIL images that decode, crop and resize in one native call when pixels are asked for."""

from __future__ import annotations

from fastio.dataset.picture.lazy import LazyPicture, small_picture
from fastio.dataset.picture.stored import StoredPicture

__all__ = ["LazyPicture", "StoredPicture", "small_picture"]
