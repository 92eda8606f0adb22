"""What the tests of pack run in the driver of a cluster, and sources that kill whoever reads them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fastio.converters import open_source
from fastio.converters.text import Encoder, Sequences, TextSamples, open_text
from fastio.ray import pack, packing


def run(
    src: Any, dst: str, *, deaths: str | None = None, others_see: str | None = None, retries: int = 10, **options: Any
) -> dict[str, Any]:
    """Pack, and return the report and what progress was told."""
    told: list[tuple[int, int]] = []
    packing._RETRIES = retries
    source = src
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


def text_of(path: str) -> TextSamples:
    """The lines of a text as they are."""
    return TextSamples(open_text(path), Encoder(None, Sequences()))


def run_text(
    path: str,
    dst: str,
    *,
    deaths: str | None = None,
    others_see: str | None = None,
    forgets: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """As ``run``, for the lines of a text; a part that is forgotten is not given to a task."""
    source: Any = partial(text_of, path)
    if deaths is not None:
        source = partial(DeadlyText, path, deaths)
    if others_see is not None:
        source = partial(text_seen, path, others_see)
    every = packing._finished
    if forgets is not None:
        packing._finished = lambda begin, items, *rest: every(begin, [*items][:forgets], *rest)
    try:
        return run(source, dst, **options)
    finally:
        packing._finished = every


def means_of(images: Any) -> dict[str, Any]:
    """A number and a row of numbers for each picture of a batch."""
    pixels = images.float()
    return {"mean": pixels.mean((1, 2, 3)), "colours": pixels.mean((2, 3))}


class Countdown:
    """Kills a process that reads, once for each file of a folder: after as many pieces as its name says."""

    def __init__(self, deaths: str) -> None:
        self._deaths = Path(deaths)
        self._left: int | None = None

    def count(self) -> None:
        """A piece was read."""
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


class DeadlySource:
    """A source, by its path or a function that opens it, that kills a process which reads it."""

    def __init__(self, src: Any, deaths: str) -> None:
        self._source = src() if callable(src) else open_source(src)
        self._countdown = Countdown(deaths)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __len__(self) -> int:
        return len(self._source)

    def begin(self, chunk: range, pool: Any = None) -> Callable[[], Any]:
        """Read a piece; see Source."""
        finish = self._source.begin(chunk, pool)

        def finish_or_die() -> Any:
            self._countdown.count()
            return finish()

        return finish_or_die


class DeadlyText:
    """The lines of a text, which kill a process that reads them."""

    def __init__(self, path: str, deaths: str) -> None:
        self._text = text_of(path)
        self._countdown = Countdown(deaths)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._text, name)

    def pieces(self, pool: Any = None) -> Iterator[Any]:
        """Read; see StreamedSource."""
        for piece in self._text.pieces(pool):
            self._countdown.count()
            yield piece


def opened_by_few(path: str, other: str) -> Any:
    """The source for the driver, another one for its workers."""
    return open_source(other if _is_worker() else path)


def text_seen(path: str, other: str) -> TextSamples:
    """The same for a text."""
    return text_of(other if _is_worker() else path)


def _is_worker() -> bool:
    import ray

    worker: Any = ray._private.worker
    return bool(ray.get_runtime_context().worker.mode == worker.WORKER_MODE)
