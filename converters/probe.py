"""What the first bytes of an encoded image say, and how that reads as a sentence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.types.spans import Spans

__all__ = ["KIND_NAMES", "decode_problem", "image_problem", "probe"]

# By the kind that fastio._native.probe_images gives.
KIND_NAMES = ("unknown", "JPEG", "PNG", "GIF", "BMP", "WebP", "TIFF", "PNM")


_DECODE_PROBLEMS = {
    _native.TRUNCATED: "cannot be decoded: its data end too early",
    _native.CORRUPT: "cannot be decoded: its data are damaged",
    _native.BAD_SHAPE: "decodes to another size than its header announces",
    _native.NOT_IMAGE: "is not an image",
}


def decode_problem(status: int) -> str:
    """One sentence on a picture that a native decoder gave this status."""
    return _DECODE_PROBLEMS.get(status, f"cannot be decoded (status {status})")


def probe(spans: Spans, *, verify: bool = False) -> NDArray[np.int32]:
    """
    ``(n, 5)`` status, height, width, channels and kind of encoded images, from their headers.

    With ``verify`` a picture that is too large to be decoded (see ``fastio.codec.pixel_limit``) is TOO_LARGE, and a PNG
    with a chunk that differs from its own CRC-32 is BAD_CHECKSUM.
    """
    out = np.zeros((len(spans), 5), np.int32)
    _native.probe_images(spans, out, verify=verify).wait()
    if verify:
        from fastio.codec.pixel_limit import is_refused  # imports Pillow

        out[(out[:, 0] == _native.OK) & is_refused(out[:, 1:3]), 0] = _native.TOO_LARGE
    return out


def image_problem(seen: NDArray[np.int32]) -> str:
    """One sentence on a row of ``probe``, "" where it is a whole header of an image."""
    status, kind = int(seen[0]), KIND_NAMES[int(seen[4])]
    if status == _native.OK:
        return ""
    if status == _native.TOO_LARGE:
        from fastio.codec.pixel_limit import refusal

        return refusal(int(seen[1]), int(seen[2]))
    if status == _native.BAD_CHECKSUM:
        return f"is a {kind} with a damaged chunk: it differs from its own CRC-32"
    if status == _native.NOT_IMAGE or not seen[4]:
        return "is not an image: its first bytes are those of no known kind"
    if status == _native.TRUNCATED:
        return f"is a {kind} that ends within its header"
    return f"is a {kind} with a damaged header"
