"""RunQueue: how long a thread has waited for a CPU, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path
from weakref import finalize

__all__ = ["RunQueue"]

_SCHEDSTAT = Path("/proc/thread-self/schedstat")  # not on every kernel


class RunQueue:
    """The waits of the thread that creates it, whichever thread asks. Holds a descriptor while it lives."""

    def __init__(self) -> None:
        self._file = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC) if _SCHEDSTAT.exists() else None
        if self._file is not None:
            finalize(self, os.close, self._file)

    @property
    def waited_s(self) -> float:
        """Seconds waited since the thread began; 0.0 if the kernel does not count them."""
        if self._file is None:
            return 0.0
        return int(os.pread(self._file, 64, 0).split()[1]) / 1e9  # "ran waited slices", in ns
