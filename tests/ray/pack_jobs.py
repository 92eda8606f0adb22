"""What the tests of pack run in the driver of a cluster, and sources that kill whoever reads them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fastio.converters import open_source
from fastio.ray import pack, packing


def run(
    src: str, dst: str, *, deaths: str | None = None, others_see: str | None = None, retries: int = 10, **options: Any
) -> dict[str, Any]:
    """Pack, and return the report and what progress was told."""
    told: list[tuple[int, int]] = []
    packing._RETRIES = retries
    source: Any = src
    if deaths is not None:
        source = partial(DeadlySource, src, deaths)
    if others_see is not None:
        source = partial(opened_by_few, src, others_see)
    report = pack(source, dst, progress=lambda samples, size: told.append((samples, size)), **options)
    return {
        "packed": report.packed,
        "skipped": [problem.key for problem in report.skipped],
        "shards": report.shards,
        "told": [sum(column) for column in zip(*told, strict=True)],
        "payload_bytes": report.payload_bytes,
    }


class DeadlySource:
    """
    A source that kills a process which reads it, once for each file of a folder: after as many pieces as it says.
    """

    def __init__(self, path: str, deaths: str) -> None:
        self._source = open_source(path)
        self._deaths = Path(deaths)
        self._left: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __len__(self) -> int:
        return len(self._source)

    def begin(self, chunk: range, pool: Any = None) -> Callable[[], Any]:
        """Read a piece; see Source."""
        finish = self._source.begin(chunk, pool)

        def finish_or_die() -> Any:
            self._count()
            return finish()

        return finish_or_die

    def _count(self) -> None:
        if self._left is None:
            self._left = self._claimed()
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _claimed(self) -> int:
        """How many pieces are read before the end; below 0: no end."""
        for file in sorted(self._deaths.iterdir()):
            try:
                file.rename(self._deaths.parent / f"{file.name}.died")
            except FileNotFoundError:
                continue
            return int(file.name.partition("-")[2])
        return -1


def opened_by_few(path: str, other: str) -> Any:
    """The source for the driver, another one for its workers."""
    import ray

    is_worker = ray.get_runtime_context().worker.mode == ray._private.worker.WORKER_MODE
    return open_source(other if is_worker else path)
