"""
Writes token ids that are the only payload as one member of a tar shard, an npy file of the ids of all samples.

    __fastio__/about
    tokens.npy                  the ids, sample after sample; the member is called as the field
    (zeros up to a whole block)
    __fastio__/tokens_sizes.npy and the other index arrays, columns such as ``label`` among them
    __fastio__/header.json, __fastio__/seal, the end of the archive, as in any shard (see ``tar.py``)

``__fastio__/tokens_starts.npy`` and ``tokens_sizes.npy`` count ids: starts from the beginning of the file, of which the
header of tokens.npy takes the first 1664 bytes. Those are written last, when the number of ids is known. From 8 GiB on,
the size of the member is in base 256, as GNU tar writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.store.arrays import Place
from fastio.store.atomic import PartialFile
from fastio.store.format import Columns, Ending, Values
from fastio.store.npy import NPY, npy_header
from fastio.store.tar_file import ABOUT, ABOUT_TEXT, BLOCK, MAX_SIZE, MemberFile, member_header
from fastio.types.schema import Field

__all__ = ["FlatTarWriter"]


class FlatTarWriter:
    """Writes the ids of one field as they come; ``field`` is the only payload."""

    base = 0

    def __init__(self, file: PartialFile, field: Field) -> None:
        self._file = file
        self._field = field
        self._starts: list[NDArray[np.int64]] = []
        self._first = len(self._head(0))
        self._end = self._first
        file.skip(self._first)

    def append(self, keys: Sequence[str], values: Values, columns: Columns) -> None:
        """Write the ids of some samples."""
        spans = values[self._field.name]
        self._starts.append(self._file.size + np.cumsum(spans.sizes) - spans.sizes)
        runs = spans.runs().views()
        if runs:  # none: the shard before took all samples of the batch
            self._file.write(runs[0] if len(runs) == 1 else np.concatenate(runs))

    def take_starts(self) -> dict[str, NDArray[np.int64]]:
        """Return where values lie: known when they are appended."""
        taken, self._starts = self._starts, []
        return {self._field.name: np.concatenate([np.empty(0, np.int64), *taken])}

    def end_payload(self) -> None:
        """Write what fills the last block of the member."""
        self._end = self._file.size
        self._file.write(bytes(-self._end % BLOCK))

    def finish(self, arrays: Mapping[str, NDArray[Any]], header: Callable[[Mapping[str, Place]], bytes]) -> Ending:
        """Write the index members and the end of the archive, then its beginning."""
        head = self._head(self._end - self._first)
        assert len(head) == self._first, "the ids begin where they were said to"
        return MemberFile(self._file).finish(arrays, header, head=head)

    def _head(self, size: int) -> bytes:
        """Return what precedes ``size`` bytes of ids: as many bytes whatever the size."""
        prefix = npy_header(self._field.dtype, (size // self._field.unit_bytes,))
        about = member_header(ABOUT, len(ABOUT_TEXT)) + ABOUT_TEXT.ljust(BLOCK, b"\0")
        return about + _header(f"{self._field.name}.{NPY}", len(prefix) + size) + prefix


def _header(name: str, size: int) -> bytes:
    """Return the header of a member, one block whatever its size."""
    if size < MAX_SIZE:
        return member_header(name, size)
    import tarfile

    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT, "ascii", "strict")
