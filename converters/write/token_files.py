"""TokenFileWriter: a row of token ids as others read it, a ``.bin``, perhaps with Megatron's ``.idx`` beside it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError, StoreError
from fastio.store.files.local import path_text
from fastio.store.listing import remove_stale
from fastio.store.token_files import MEGATRON_CODES, id_dtype, megatron_index
from fastio.store.write.atomic import PartialFile, exists, publish_file

__all__ = ["TokenFileWriter"]


class TokenFileWriter:
    """
    Writes documents of token ids one after the other, for ``TokenStream`` and for the trainers of others::

        with TokenFileWriter("train.bin", dtype="uint16") as out:
            for ids in documents:
                out.write(ids)

    ``path`` ends with ``.bin``. ``dtype`` is that of the ids: "uint16" for up to 65,536 different ones. With
    ``megatron``, an ``.idx`` beside it says where each document begins; without, an id that ends documents should.

    Nothing has the final name before everything is on the disk; an exception or ``kill -9`` leaves what was there
    before. Raises StoreError for a name that is taken, unless ``overwrite``, and for a disk that is full; SchemaError
    for ids that ``dtype`` does not hold, of which nothing is written.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, dtype: Any, megatron: bool = False, overwrite: bool = False
    ) -> None:
        self.path = path_text(path, "the path of a .bin to write")
        if not self.path.endswith(".bin"):
            raise StoreError(f"{self.path}: expected a name that ends with .bin")
        self.dtype = id_dtype(dtype)
        if megatron and self.dtype.name not in MEGATRON_CODES.values():
            names = ", ".join(MEGATRON_CODES.values())
            raise SchemaError(f"{self.path}: Megatron's index knows no {self.dtype}: expected one of {names}")
        self._index_path = self.path.removesuffix(".bin") + ".idx"
        self._has_index, self._overwrite = megatron, overwrite
        self.paths = (self.path, self._index_path) if megatron else (self.path,)
        for each in (self.path, self._index_path):  # an old index would contradict the new ids
            if os.path.lexists(each) and not overwrite:
                raise exists(each)
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise StoreError(f"{self.path}: the folder {folder} does not exist: create it first")
        remove_stale(folder, re.compile("|".join(re.escape(Path(each).name) for each in self.paths)))
        self._lengths: list[NDArray[np.int64]] = []
        self.tokens = 0
        self.documents = 0
        self._file = PartialFile(self.path)
        self._is_done = False

    def write(self, ids: Any) -> None:
        """Add one document, ``(n,)``."""
        array = np.asarray(ids)
        self.write_all(array, [len(array)])

    def write_all(self, ids: Any, lengths: Any, *, continues: bool = False) -> None:
        """
        Add documents that lie one after the other in ``ids`` ``(n,)``, of these ``lengths``. ``continues``: the first
        of them goes on with the last document before.
        """
        array = np.asarray(ids)
        sizes = np.asarray(lengths, np.int64)
        if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)) or int(sizes.sum()) != len(array):
            raise SchemaError(
                f"{self.path}: expected ids of one axis and lengths that add up, got {array.dtype} {array.shape} and "
                f"{int(sizes.sum())} ids in {len(sizes)} documents"
            )
        limits = np.iinfo(self.dtype)
        if len(array) and not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
            raise SchemaError(
                f"{self.path}: ids from {array.min()} to {array.max()} do not fit into {self.dtype}: choose another "
                "dtype"
            )
        if continues and len(sizes) and self._lengths:
            self._lengths[-1][-1] += sizes[0]
            sizes = sizes[1:]
        if len(sizes):
            self._lengths.append(sizes.copy())
            self.documents += len(sizes)
        self.tokens += len(array)
        self._file.write(np.ascontiguousarray(array, self.dtype).tobytes())

    def close(self) -> None:
        """Sync what was written, and give it its name. Raises StoreError if that fails, or for a row without ids."""
        if self._is_done:
            return
        try:
            if self.tokens == 0:
                raise StoreError(f"{self.path}: no ids were written: nothing is kept under this name")
            index = PartialFile(self._index_path) if self._has_index else None
            try:
                if index is not None:
                    lengths = np.concatenate(self._lengths)
                    for part in megatron_index(lengths, self.dtype):
                        index.write(part)
                    index.sync()
                self._file.sync()
                # The old index goes first: at no time does it lie beside ids that it does not describe.
                if self._overwrite:
                    Path(self._index_path).unlink(missing_ok=True)
                publish_file(self._file, replace=self._overwrite)
                if index is not None:
                    publish_file(index, replace=self._overwrite)
            finally:
                if index is not None:
                    index.discard()
        finally:
            self.abort()

    def abort(self) -> None:
        """Remove everything written so far; does nothing after ``close``."""
        self._is_done = True
        self._file.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
