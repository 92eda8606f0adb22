"""What ``stage=`` of a dataset does: the copy is made by the first process of the node, the others wait for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fastio.store.files.remote_options import RemoteOptions
from fastio.store.staging.stage import stage
from fastio.types.units import size

__all__ = ["staged_path"]

_LOG = logging.getLogger(__name__)
_INTERVAL_S = 30.0  # between lines of progress
_SHORT_S = 5.0  # copies that take less say nothing


def staged_path(path: str | Path, options: RemoteOptions) -> str | Path:
    """
    Return the path of the copy in ``options.stage``, made first if it is not there; ``path`` itself without a stage.

    Every process of a node calls it: the first copies, the others wait as long as that makes progress. Progress is
    logged. Raises what ``stage`` raises.
    """
    folder = options.stage
    if folder is None:
        return path
    name = str(path)
    return stage(name, folder, options=options, meter=lambda total: _logged(name, folder, total)).path


@contextmanager
def _logged(path: str, folder: str, total: int) -> Iterator[Callable[[int, int], None]]:
    begun = time.monotonic()
    next_line = begun + _SHORT_S
    done = 0

    def progress(_samples: int, size_bytes: int) -> None:
        nonlocal done, next_line
        done += size_bytes
        now = time.monotonic()
        if now >= next_line:
            next_line = now + _INTERVAL_S
            left_s = (total - done) * (now - begun) / done
            _LOG.warning("%s: %s of %s copied to %s, %.0f s left", path, size(done), size(total), folder, left_s)

    yield progress
