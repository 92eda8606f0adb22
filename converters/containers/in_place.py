"""Values that lie in the file of a container as they are: read ahead natively, and used where they lie."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.store.files import StoreFiles
from fastio.types.spans import Spans

__all__ = ["begin_in_place"]


def begin_in_place(
    files: StoreFiles,
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    pool: _native.ThreadPool | None,
    *,
    checksums: NDArray[np.uint32] | None = None,
) -> Callable[[], tuple[Spans, list[int]]]:
    """
    Begin to read the values that are ``sizes[i]`` bytes from ``starts[i]`` on in the only file of ``files``.

    Returns a function that waits, and returns the values and the positions of those that cannot be read. ``checksums``
    go with the values; nothing is compared with them here.
    """
    spans = Spans(files.buffers, np.zeros(len(starts), np.int32), starts, sizes, checksums)
    job = files.read_ahead(spans, pool=pool)
    fetched = files.fetch(spans, pool=pool, is_near=True)

    def finish() -> tuple[Spans, list[int]]:
        job.wait()
        there, status = fetched.wait()
        return there, [] if status is None else np.flatnonzero(status).tolist()

    return finish
