"""The members of a tar shard, written one after the other, and the index behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.store.arrays import Place, byte_view
from fastio.store.atomic import PartialFile
from fastio.store.format import Ending
from fastio.store.npy import npy_header
from fastio.store.seal import SEAL_SIZE
from fastio.store.tar_names import INDEX_FOLDER

__all__ = ["ABOUT", "ABOUT_TEXT", "BLOCK", "MAX_NAME", "MAX_SIZE", "MemberFile", "member_header"]

BLOCK = 512
MAX_NAME = 100
MAX_SIZE = 8 << 30  # the largest number in eleven octal digits
ABOUT = INDEX_FOLDER + "about"
ABOUT_TEXT = b"Packed by fastio. The index is at the end; a file without the member __fastio__/seal is not whole.\n"
_ZEROS = bytes(BLOCK)

# name 100 | mode 8 | uid 8 | gid 8 | size 12 | mtime 12 | checksum 8 | type 1 | link 100 | magic 8 | ... up to 512
_BEFORE_SIZE = b"0000644\0" + b"0000000\0" * 2
_AFTER_SIZE = b"\0" + b"00000000000\0"
_AFTER_SUM = b"\0 0" + bytes(100) + b"ustar\00000" + bytes(64) + b"0000000\0" * 2 + bytes(167)
# For its own sum, the checksum counts as 8 blanks.
_CONSTANT_SUM = sum(_BEFORE_SIZE + _AFTER_SIZE + _AFTER_SUM) + 7 * ord(" ")


class MemberFile:
    """Writes members to ``file``, which belongs to the caller."""

    def __init__(self, file: PartialFile) -> None:
        self._file = file

    def write(self, name: str, data: bytes | NDArray[np.uint8], *, prefix: bytes = b"") -> int:
        """Write one member of ``prefix`` and ``data``, and return where its bytes begin."""
        total = len(prefix) + len(data)
        head = member_header(name, total)
        start = self._file.size + len(head)
        padding = _ZEROS[: -total % BLOCK]
        parts = (head, prefix, data, padding) if len(data) else (head, prefix, padding)
        self._file.write_parts(parts, len(head) + total + len(padding))
        return start

    def finish(
        self,
        arrays: Mapping[str, NDArray[Any]],
        header: Callable[[Mapping[str, Place]], bytes],
        *,
        head: bytes = b"",
    ) -> Ending:
        """
        Write the index members and the end of the archive.

        ``head`` is what the file begins with, if it was skipped because it was not known then.
        """
        places: dict[str, Place] = {}
        for name, array in arrays.items():
            raw, prefix = byte_view(array), npy_header(array.dtype.str, array.shape)
            start = self.write(f"{INDEX_FOLDER}{name}.npy", raw, prefix=prefix) + len(prefix)
            places[name] = Place(start, array.dtype.str, array.shape, crc32(raw))
        encoded = header(places)
        header_start = self.write(INDEX_FOLDER + "header.json", encoded)
        self._file.write(member_header(INDEX_FOLDER + "seal", SEAL_SIZE))
        seal_start = self._file.size
        self._file.skip(SEAL_SIZE)
        self._file.write(bytes(BLOCK - SEAL_SIZE + 2 * BLOCK))
        self._file.flush()
        if head:
            self._file.overwrite(0, head)
        return Ending(
            file_size=self._file.size,
            seal_start=seal_start,
            head_size=len(head),
            header_start=header_start,
            header_size=len(encoded),
            header_crc=crc32(encoded),
            head_crc=crc32(head),
            file_crc=crc32(head, self._file.crc),
        )


def member_header(name: str, size: int) -> bytes:
    """Return a member's ustar header, preceded by a PAX header if ustar is not enough."""
    if len(name) > MAX_NAME or not name.isascii() or size >= MAX_SIZE:
        import tarfile

        info = tarfile.TarInfo(name)
        info.size = size
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    raw, digits = name.encode("ascii"), b"%011o" % size
    total = _CONSTANT_SUM + sum(raw) + sum(digits)
    return b"".join(
        (raw.ljust(MAX_NAME, b"\0"), _BEFORE_SIZE, digits, _AFTER_SIZE, b"%06o" % total, _AFTER_SUM),
    )
