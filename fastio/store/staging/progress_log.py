"""Lines in the log that say how far a copy is."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastio.store.staging.stage import Meter
from fastio.types.units import size

__all__ = ["logged_meter"]

_LOG = logging.getLogger(__name__)
_INTERVAL_S = 30.0  # between lines
_SHORT_S = 5.0  # copies that take less say nothing


def logged_meter(path: str, folder: str) -> Meter:
    """Return a meter for ``stage`` that logs how far the copy of ``path`` to ``folder`` is."""

    @contextmanager
    def meter(total: int) -> Iterator[Callable[[int, int], None]]:
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

    return meter
