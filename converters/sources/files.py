"""Image files on disk as a source: read in chunks, recognised by their first bytes, kept byte for byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.pictures.probe import NO_IMAGE
from fastio.converters.sources.listed import Indices, ListedSource, Values, names_at
from fastio.converters.sources.source import LARGE_BYTES, check_memory, size_problem
from fastio.errors import SourceError
from fastio.store.kinds.scan import Folder, shown
from fastio.types.picture_kinds import UNKNOWN
from fastio.types.schema import COLUMN, IMAGE, Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "IMAGE_FIELD",
    "LABEL_FIELD",
    "FileReader",
    "file_source",
    "paths_below",
    "read_problem",
]


# Sizes are known only when all headers have been read: the schema leaves them open, the store's shapes tell.
IMAGE_FIELD = Field("image", IMAGE, "|u1", (None, None, None))
LABEL_FIELD = Field("label", COLUMN, "<i8", ())

_HEAD_BYTES = 64  # in which every kind of picture is known
_ROUND_BYTES = 1 << 20  # chunks of nearly the same size can use the same memory


def file_source(path: str, found: Folder, labels: NDArray[Any] | None, metadata: Mapping[str, Any]) -> ListedSource:
    """
    Return the files that a scan found below ``path`` as a source, in the scan's order, one picture each.

    ``labels`` belong to ``found.keys``: (n,), or (n, k) if a sample has k numbers; None means no labels.
    """
    schema = Schema((IMAGE_FIELD,))
    if labels is not None:
        schema = Schema((IMAGE_FIELD, replace(LABEL_FIELD, dtype=labels.dtype.str, shape=labels.shape[1:])))
    sizes, keys_at = np.array(found.sizes, np.int64), names_at(found.keys)
    return ListedSource(
        path=path,
        kind=metadata["source"]["kind"],
        schema=schema,
        metadata=metadata,
        keys_at=keys_at,
        sizes=sizes,
        read=FileReader(IMAGE_FIELD, path, keys_at, sizes).begin,
        disk_bytes=found.disk_bytes,
        files_opened=len(found.keys),
        columns={} if labels is None else {"label": labels},
        problems=found.problems,
        left_out=found.left_out,
        paths=lambda: paths_below(path, found.keys),
        listed=found.listed,
    )


def paths_below(root: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the paths of files that are named from ``root`` on; of "", none."""
    return (os.path.join(root, name) for name in names if name)  # noqa: PTH118 - a million of them


@dataclass(frozen=True, slots=True)
class FileReader:
    """Files below ``path`` that hold the values of one field, with the sizes that they had while scanning."""

    of: Field
    path: str
    keys_at: Callable[[Indices], list[str]]
    sizes: NDArray[np.int64]
    # Memory that the kernel has zeroed once already: fresh pages for every chunk cost as much as checking its bytes.
    ring: _native.BufferRing = field(default_factory=lambda: _native.BufferRing(2), repr=False, compare=False)

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """
        Begin to read some files, one after the other; see ``ListedSource.read``.

        Of a large one, the head and the space that it takes are looked at first. Raises SourceError for files that
        memory cannot hold.
        """
        keys, sizes = self.keys_at(indices), self.sizes[indices]
        large = np.flatnonzero(sizes > LARGE_BYTES).tolist()
        unread = {i: sentence for i in large if (sentence := self._look(keys[i]))}
        sizes[list(unread)] = 0
        wanted = [i for i in range(len(keys)) if i not in unread]
        starts = np.cumsum(sizes) - sizes
        total = int(sizes.sum())
        try:
            check_memory(total)
            data = self.ring.acquire(-(-total // _ROUND_BYTES) * _ROUND_BYTES)[:total]
        except MemoryError as exc:  # says nothing of the file: it is not left out for it
            largest = int(sizes.argmax())
            name = f"{shown(self.path)}/{keys[largest]}"
            raise SourceError(
                f"{name}: there is not enough memory for its {sizes[largest]:,} bytes: free some, or remove the file"
            ) from exc
        names = keys if not unread else [keys[i] for i in wanted]
        status, errno = np.zeros(len(names), np.int32), np.zeros(len(names), np.int32)
        root = os.fsencode(self.path)
        job = _native.read_files(root, names, sizes[wanted], data, starts[wanted], status, errno, pool)

        def finish() -> Values:
            job.wait()
            spans = Spans.of(data, starts, sizes)
            bad = np.flatnonzero(status).tolist()
            problems = {wanted[i]: read_problem(int(status[i]), int(errno[i])) for i in bad}
            return Values({self.of.name: spans}, {**unread, **problems})

        return finish

    def _look(self, key: str) -> str:
        """What is wrong with a large file before it is read, in words that follow its name."""
        try:
            with Path(self.path, key).open("rb") as file:
                head, status = file.read(_HEAD_BYTES), os.fstat(file.fileno())
        except OSError:  # reading it says so
            return ""
        if self.of.traits.is_picture and _native.image_kind(np.frombuffer(head, np.uint8)) == UNKNOWN:
            return NO_IMAGE
        # Some network file systems say of all files that they take no space.
        return size_problem(status.st_size, status.st_blocks * 512) if status.st_blocks else ""


def read_problem(status: int, errno: int) -> str:
    """Return what went wrong with one file of ``_native.read_files``, in words that follow its name."""
    if status == _native.CHANGED:
        return "changed while it was being packed: its size is different now"
    return f"cannot be read: {os.strerror(errno) if errno else 'it ended early'}"
