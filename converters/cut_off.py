"""Finds pictures whose files break off before their data end: suspected by their ends, confirmed by decoding them."""

from __future__ import annotations

import numpy as np

from fastio import _native
from fastio.codec.headers import Headers
from fastio.errors import SourceError
from fastio.types.spans import Spans

__all__ = ["settle_suspects"]


def settle_suspects(headers: Headers, spans: Spans, *, decode: bool) -> None:
    """
    Decide which of the pictures that ``read_headers(verify=True)`` suspects of breaking off do so; ``headers`` changes.

    With ``decode``, each of them is decoded: its status becomes OK if that succeeds (a GIF may have bytes behind its
    end, a JPEG lack nothing but its end marker), TOO_LARGE if it may not be decoded, or what the decoder found.
    Without, all become OK. Raises SourceError if there is not enough memory to decode one, which says nothing of the
    picture.
    """
    is_suspect = (headers.status == _native.TRUNCATED) & (headers.sizes > 0).all(axis=1)
    for position in np.flatnonzero(is_suspect).tolist():
        headers.status[position] = _status_of(headers, spans, position) if decode else _native.OK


def _status_of(headers: Headers, spans: Spans, position: int) -> int:
    """The status of a picture that is decoded."""
    from fastio.codec.pillow import decode_with_pillow
    from fastio.codec.pixel_limit import is_refused  # imports Pillow, as above: few sets have such a picture

    if is_refused(headers.sizes[position : position + 1]).any():
        return int(_native.TOO_LARGE)
    height, width = headers.sizes[position].tolist()
    status = np.zeros(1, np.int32)
    try:
        pixels = np.empty((1, height, width, 3), np.uint8)
        _native.decode_images(spans.at(np.array([position])), pixels, status, verify=False).wait()
    except MemoryError:
        status[0] = _native.NO_MEMORY
    if status[0] == _native.NO_MEMORY:
        raise SourceError(f"there is not enough memory to decode a picture of {height:,} x {width:,} pixels: free some")
    if status[0] != _native.UNSUPPORTED:
        return int(status[0])
    try:
        decode_with_pillow(spans.view(position), "RGB")
    except ValueError:
        return int(_native.TRUNCATED)
    return int(_native.OK)
