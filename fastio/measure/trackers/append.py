"""Appends to a file a whole piece or nothing, so that a full disk leaves no half of one."""

from __future__ import annotations

import os
from io import FileIO

__all__ = ["append_whole"]


def append_whole(file: FileIO, piece: bytes) -> None:
    """Write the piece at the file's end. If that fails, the file is as it was; raises OSError."""
    size = os.fstat(file.fileno()).st_size
    left = piece
    try:
        while left:
            left = left[file.write(left) :]
    except OSError:
        file.truncate(size)
        raise
