"""ValueSpool: encoded values of many samples in a temporary file, so that a table of any length takes little memory."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.listed import Indices, Values
from fastio.errors import SourceError
from fastio.types.spans import Spans

__all__ = ["SpooledValues", "ValueSpool"]


class ValueSpool:
    """
    Takes the values of one field, one after the other.

    They are in a file without a name in the folder for temporary files, which the system removes with the last user.
    """

    def __init__(self, field_name: str) -> None:
        self._field_name = field_name
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the values
        self._sizes = array("q")

    def append(self, spans: Spans) -> None:
        """Add values. Raises SourceError if there is no space for them."""
        try:
            for run in spans.runs().views():
                self._file.write(run.data)
        except OSError as exc:
            raise SourceError(
                f"{tempfile.gettempdir()}: the values of a table cannot be kept there: {exc.strerror or exc}; free "
                "space, or name another folder in TMPDIR"
            ) from exc
        self._sizes.extend(spans.sizes.tolist())

    def close(self) -> None:
        """Give up the file; values that ``finish`` returned stay."""
        self._file.close()

    def finish(self) -> SpooledValues:
        """Return all values; nothing can be added any more."""
        self._file.flush()
        sizes = np.array(self._sizes, np.int64)
        data = np.memmap(self._file, np.uint8, "r") if sizes.any() else np.zeros(0, np.uint8)
        self.close()
        return SpooledValues(self._field_name, data, np.cumsum(sizes) - sizes, sizes)


class SpooledValues:
    """The values of one field; ``sizes`` (n,) are their bytes."""

    def __init__(
        self, field_name: str, data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> None:
        self.sizes = sizes
        self._field_name, self._data, self._starts = field_name, data, starts

    def view(self, position: int) -> bytes:
        """Return one value."""
        start = int(self._starts[position])
        return self._data[start : start + int(self.sizes[position])].tobytes()

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Return some values; see ``ListedSource.read``."""
        del pool  # they are where they are needed
        spans = Spans.of(self._data, self._starts[indices], self.sizes[indices])
        return lambda: Values({self._field_name: spans})
