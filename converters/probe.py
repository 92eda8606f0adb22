"""What the first bytes of an encoded image say, and how that reads as a sentence."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.spans import Spans

__all__ = ["KIND_NAMES", "image_problem", "probe"]

# By the kind that fastio._native.probe_images gives.
KIND_NAMES = ("unknown", "JPEG", "PNG", "GIF", "BMP", "WebP", "TIFF", "PNM")

_CHANNELS = {"1": 1, "L": 1, "I;16": 1, "I": 1, "F": 1, "LA": 2, "RGBA": 4, "CMYK": 4, "PA": 2}


def probe(spans: Spans) -> NDArray[np.int32]:
    """
    ``(n, 5)`` status, height, width, channels and kind of encoded images, from their headers.

    Kinds that the native core only recognises get their size from Pillow; what Pillow cannot open is CORRUPT.
    """
    out = np.zeros((len(spans), 5), np.int32)
    _native.probe_images(spans.buffers, spans.shard, spans.starts, spans.sizes, out).wait()
    for i in np.flatnonzero((out[:, 0] == _native.UNSUPPORTED) & (out[:, 1] == 0)):
        out[i, :4] = _pillow_header(spans.view(int(i)))
    out[out[:, 0] == _native.UNSUPPORTED, 0] = _native.OK
    return out


def image_problem(seen: NDArray[np.int32]) -> str:
    """One sentence on a row of ``probe``, "" where it is a whole header of an image."""
    status, kind = int(seen[0]), KIND_NAMES[int(seen[4])]
    if status == _native.OK:
        return ""
    if status == _native.NOT_IMAGE or not seen[4]:
        return "is not an image: its first bytes are those of no known kind"
    if status == _native.TRUNCATED:
        return f"is a {kind} that ends within its header"
    return f"is a {kind} with a damaged header"


def _pillow_header(data: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    from PIL import Image  # needed for rare kinds only: importing it costs as much as packing a thousand samples

    try:
        with Image.open(io.BytesIO(data.tobytes())) as image:
            return _native.OK, image.height, image.width, _CHANNELS.get(image.mode, 3)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return _native.CORRUPT, 0, 0, 0
