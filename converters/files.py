"""Image files on disk as a source: read in chunks, recognised by their first bytes, kept byte for byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.cut import cut
from fastio.converters.probe import KIND_NAMES, image_problem, probe
from fastio.converters.scan import Folder, shown
from fastio.converters.source import Chunk, Problem
from fastio.errors import SourceError
from fastio.samplers.order import full_order
from fastio.store.sample_store import SampleBatch
from fastio.types.schema import COLUMN, IMAGE, Field, Schema
from fastio.types.spans import Spans

__all__ = ["IMAGE_FIELD", "LABEL_FIELD", "FileSource", "read_problem"]

# Sizes are known only when all headers have been read: the schema leaves them open, the store's shapes tell.
IMAGE_FIELD = Field("image", IMAGE, "|u1", (None, None, None))
LABEL_FIELD = Field("label", COLUMN, "<i8", ())

_ROUND_BYTES = 1 << 20  # chunks of nearly the same size can use the same memory


@dataclass(frozen=True, slots=True)
class FileSource:
    """
    Files below ``path``, in the order of ``keys``, with the labels that belong to them (or None).

    Satisfies ``fastio.converters.Source``. ``sizes`` are those seen while scanning, ``kinds`` the content
    that each extension promises; a picture of another kind is packed as it is and named by its chunk.
    """

    path: str
    layout: str
    metadata: Mapping[str, Any]
    keys: Sequence[str]
    sizes: NDArray[np.int64]
    kinds: NDArray[np.int32]
    labels: NDArray[Any] | None  # (n,), or (n, k) where a sample has k numbers
    problems: Sequence[Problem]
    disk_bytes: int
    left_out: Sequence[Problem] = ()
    # Memory that the kernel has zeroed once already: fresh pages for every chunk cost as much as checking its bytes.
    _ring: _native.BufferRing = field(default_factory=lambda: _native.BufferRing(2), repr=False, compare=False)

    @classmethod
    def of(cls, path: str, found: Folder, labels: NDArray[Any] | None, metadata: Mapping[str, Any]) -> FileSource:
        """The source of what a scan found below ``path``; ``labels`` belong to ``found.keys``."""
        return cls(
            path=path,
            layout=metadata["source"]["layout"],
            metadata=metadata,
            keys=found.keys,
            sizes=np.array(found.sizes, np.int64),
            kinds=np.array(found.kinds, np.int32),
            labels=labels,
            problems=sorted(found.problems, key=lambda problem: problem.key),
            disk_bytes=found.disk_bytes,
            left_out=sorted(found.left_out, key=lambda problem: problem.key),
        )

    @property
    def schema(self) -> Schema:
        """An image, and its label where there are labels."""
        if self.labels is None:
            return Schema((IMAGE_FIELD,))
        return Schema((IMAGE_FIELD, replace(LABEL_FIELD, dtype=self.labels.dtype.str, shape=self.labels.shape[1:])))

    @property
    def size_bytes(self) -> int:
        """Bytes of all files that may be packed."""
        return int(self.sizes.sum())

    @property
    def files_opened(self) -> int:
        """One file a sample."""
        return len(self.keys)

    def __len__(self) -> int:
        return len(self.keys) + len(self.problems)

    def chunks(self, max_bytes: int, max_samples: int) -> Sequence[range]:
        """Cut the files that are not problems already."""
        return cut(self.sizes, max_bytes, max_samples)

    def shuffled(self, seed: int) -> FileSource:
        """See ``fastio.converters.Source``."""
        order = full_order(len(self.keys), seed=seed, epoch=0)
        return replace(
            self,
            keys=[self.keys[i] for i in order.tolist()],
            sizes=self.sizes[order],
            kinds=self.kinds[order],
            labels=None if self.labels is None else self.labels[order],
            metadata={**self.metadata, "shuffle": seed},
        )

    def begin(self, chunk: range, pool: _native.ThreadPool | None = None) -> Callable[[], Chunk]:
        """Begin to read one piece; see ``fastio.converters.Source``."""
        part = slice(chunk.start, chunk.stop)
        keys, sizes = self.keys[part], self.sizes[part]
        starts = np.cumsum(sizes) - sizes
        total = int(sizes.sum())
        try:
            data = self._ring.acquire(-(-total // _ROUND_BYTES) * _ROUND_BYTES)[:total]
        except MemoryError as exc:  # says nothing of the file: it is not left out for it
            largest = int(sizes.argmax())
            name = f"{shown(self.path)}/{keys[largest]}"
            raise SourceError(
                f"{name}: there is not enough memory for its {sizes[largest]:,} bytes; free some, or take the file away"
            ) from exc
        status, errno = np.zeros(len(keys), np.int32), np.zeros(len(keys), np.int32)
        job = _native.read_files(os.fsencode(self.path), keys, sizes, data, starts, status, errno, pool)

        def finish() -> Chunk:
            job.wait()
            return self._chunk(chunk, data, (starts, status, errno))

        return finish

    def _chunk(
        self,
        chunk: range,
        data: NDArray[np.uint8],
        read: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]],
    ) -> Chunk:
        """
        What was read as a batch of the good samples and sentences about the others.

        Headers are probed in this thread: on the pool they would wait behind the reading ahead.
        """
        part = slice(chunk.start, chunk.stop)
        keys, sizes = self.keys[part], self.sizes[part]
        starts, status, errno = read
        buffers = _native.Buffers([data])
        shapes = np.zeros((len(keys), 3), np.int32)
        misnamed: dict[int, str] = {}
        problems: dict[int, str] = {
            i: read_problem(int(status[i]), int(errno[i])) for i in np.flatnonzero(status).tolist()
        }
        good = np.flatnonzero(status == _native.OK)
        seen = probe(Spans(buffers, np.zeros(len(good), np.int32), starts[good], sizes[good]), verify=True)
        shapes[good] = seen[:, 1:4]
        odd = (seen[:, 0] != _native.OK) | (seen[:, 4] != self.kinds[part][good])
        for row in np.flatnonzero(odd):
            at = int(good[row])
            problem = image_problem(seen[row])
            if problem:
                problems[at] = problem
            else:
                misnamed[at] = _other_name(keys[at], int(seen[row, 4]), int(self.kinds[part][at]))
        if problems:
            good = np.setdiff1d(np.arange(len(keys)), np.fromiter(problems, np.int64, len(problems)))
            keys = [keys[i] for i in good.tolist()]
        batch = SampleBatch(
            keys=keys,
            spans={"image": Spans(buffers, np.zeros(len(good), np.int32), starts[good], sizes[good])},
            columns={} if self.labels is None else {"label": self.labels[part][good]},
            shapes={"image": shapes[good]},
        )
        return Chunk(batch, self._named(chunk, problems), self._named(chunk, misnamed))

    def _named(self, chunk: range, sentences: Mapping[int, str]) -> list[Problem]:
        return [Problem(self.keys[chunk[i]], sentences[i]) for i in sorted(sentences)]


def read_problem(status: int, errno: int) -> str:
    """What went wrong with one file of ``_native.read_files``, in words that follow its name."""
    if status == _native.CHANGED:
        return "changed while it was being packed: its size is not what it was a moment ago"
    return f"cannot be read: {os.strerror(errno) if errno else 'it ended early'}"


def _other_name(key: str, found: int, promised: int) -> str:
    return f"is a {KIND_NAMES[found]} under the name of a {KIND_NAMES[promised]} ({Path(key).suffix})"
