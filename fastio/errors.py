"""All exceptions of fastio, as one tree.

    FastioError
    ├── SchemaError(ValueError)        fields, dtypes or shapes do not fit the data
    │   └── UnequalSizesError          samples of one batch have different sizes; not exported by ``fastio``
    ├── SourceError(ValueError)        a file to be packed is not as expected; the message names it
    ├── StoreError
    │   ├── StoreNotFound(FileNotFoundError)
    │   ├── StoreIncomplete            the writer never reached close()
    │   └── StoreCorrupt               bytes on disk contradict the index
    └── SampleError(ValueError)        one sample cannot be decoded; carries path, index, key, field

A message says what, where, expected, got, and what to do. Errors of other libraries (h5py, OSError, native status)
are turned into this tree in the one file that calls them.
"""

from __future__ import annotations

__all__ = [
    "FastioError",
    "SampleError",
    "SchemaError",
    "SourceError",
    "StoreCorrupt",
    "StoreError",
    "StoreIncomplete",
    "StoreNotFound",
    "UnequalSizesError",
]


class FastioError(Exception):
    """Base of all exceptions that fastio raises on purpose."""


class SchemaError(FastioError, ValueError):
    """Fields, dtypes or shapes do not fit the data."""


class UnequalSizesError(SchemaError):
    """Samples of one batch have different sizes; ``args`` are two sentences: which samples, and what to do."""

    def __str__(self) -> str:
        return "; ".join(map(str, self.args))


class SourceError(FastioError, ValueError):
    """A file to be packed is not as expected; the message names it."""


class StoreError(FastioError):
    """A store cannot be written, opened or read."""


class StoreNotFound(StoreError, FileNotFoundError):  # noqa: N818 - reads as a statement, like its builtin parent
    """Nothing lies under this name; behind a URL, no store."""


class StoreIncomplete(StoreError):  # noqa: N818
    """The writer never reached close(): there is no seal."""


class StoreCorrupt(StoreError):  # noqa: N818
    """Bytes on disk contradict the seal or the index."""


class SampleError(FastioError, ValueError):
    """
    One sample cannot be decoded.

    ``path`` is the shard, ``index`` the sample's position in the store, ``key`` its name in the source, ``field`` the
    bad value. From a DataLoader worker, only type and message arrive: torch does not pass on the attributes, which
    then have their defaults; the message contains everything.
    """

    def __init__(self, message: str, *, path: str = "", index: int = -1, key: str = "", field: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.index = index
        self.key = key
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the attributes when pickled."""
        return _rebuild, (str(self), self.path, self.index, self.key, self.field)


def _rebuild(message: str, path: str, index: int, key: str, field: str) -> SampleError:
    return SampleError(message, path=path, index=index, key=key, field=field)
