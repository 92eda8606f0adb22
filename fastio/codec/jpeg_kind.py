"""Decides which JPEGs a GPU may decode: baseline, grey or YCbCr of 8 bits, and complete as far as headers tell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastio.types.picture_kinds import JPEG_SIGNATURE

__all__ = ["is_for_gpu"]

_EOI = b"\xff\xd9"
_BASELINE, _SCAN, _ADOBE = 0xC0, 0xDA, 0xEE
_RGB = b"RGB"  # component ids that tell libjpeg not to convert colours
_LUMA = (0x11, 0x12, 0x21, 0x22, 0x41)  # 4:4:4, 4:4:0, 4:2:2, 4:2:0, 4:1:1, if both other components are 1x1

# Decoders stop at the end marker; bytes that some cameras write after it are accepted.
_TAIL = 1 << 10


def is_for_gpu(data: NDArray[np.uint8]) -> bool:
    """
    Return whether a GPU's decoder gives the same result as the CPU's, judging by headers and the file's end alone.

    A hardware decoder may silently fill the rest of a truncated JPEG with grey, so the end is checked. Progressive
    JPEGs, CMYK, RGB without conversion and 12 bits are left to the CPU.
    """
    head = data[: 1 << 16].tobytes()
    if not head.startswith(JPEG_SIGNATURE) or _EOI not in data[-_TAIL:].tobytes():
        return False
    place, components = 2, b""
    while place + 4 <= len(head):
        if head[place] != 0xFF:
            return False
        marker, size = head[place + 1], int.from_bytes(head[place + 2 : place + 4], "big")
        body = head[place + 4 : place + 2 + size]
        if marker == 0xFF:  # a fill byte
            place += 1
            continue
        if marker == _SCAN:
            # One scan of all components, as baseline cameras write it.
            return len(components) in (1, 3) and body[:1] == bytes([len(components)])
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            components, sampling = body[6::3], body[7::3]
            if marker != _BASELINE or body[:1] != b"\x08" or components == _RGB:
                return False
            if len(components) == 3 and (sampling[0] not in _LUMA or sampling[1:] != b"\x11\x11"):
                return False
        if marker == _ADOBE and body[:5] == b"Adobe" and body[11:12] != b"\x01" and len(body) >= 12:
            return False
        place += 2 + size
    return False
