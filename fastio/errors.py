"""The one exception tree of fastio.

    FastioError
    ├── SchemaError(ValueError)        fields, dtypes or shapes do not fit the data
    ├── SourceError(ValueError)        what is to be packed is not what it should be; names the file
    ├── StoreError
    │   ├── StoreNotFound(FileNotFoundError)
    │   ├── StoreIncomplete            the writer never reached close()
    │   └── StoreCorrupt               bytes on disk contradict the index
    └── SampleError(ValueError)        one sample cannot be decoded; carries path, index, key, field

A message says what, where, expected, got, and what to do. Errors of other libraries
(h5py, OSError, native status) are turned into this tree in the one file that talks to them.
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
]


class FastioError(Exception):
    """Base of everything that fastio raises on purpose."""


class SchemaError(FastioError, ValueError):
    """Fields, dtypes or shapes do not fit the data."""


class SourceError(FastioError, ValueError):
    """What is to be packed is not what it should be; the message names the file."""


class StoreError(FastioError):
    """A store cannot be written, opened or read."""


class StoreNotFound(StoreError, FileNotFoundError):  # noqa: N818 - reads as a statement, like its builtin parent
    """No store lies under this name."""


class StoreIncomplete(StoreError):  # noqa: N818
    """The writer never reached close(): there is no seal."""


class StoreCorrupt(StoreError):  # noqa: N818
    """Bytes on disk contradict the seal or the index."""


class SampleError(FastioError, ValueError):
    """
    One sample cannot be decoded.

    ``path`` is the shard, ``index`` the sample's position in the store, ``key`` its
    name in the source, ``field`` the value that is bad. Out of a DataLoader worker come the type
    and the message, which says it all; torch does not carry the attributes, and they have these defaults.
    """

    def __init__(self, message: str, *, path: str = "", index: int = -1, key: str = "", field: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.index = index
        self.key = key
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling, attributes and all."""
        return _rebuild, (str(self), self.path, self.index, self.key, self.field)


def _rebuild(message: str, path: str, index: int, key: str, field: str) -> SampleError:
    return SampleError(message, path=path, index=index, key=key, field=field)
