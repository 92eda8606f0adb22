"""Pictures that wait: PIL images that decode, crop and resize in one native call, when pixels are asked for."""

from __future__ import annotations

from fastio.picture.eager import small_picture
from fastio.picture.lazy import LazyPicture
from fastio.picture.stored import StoredPicture

__all__ = ["LazyPicture", "StoredPicture", "small_picture"]
