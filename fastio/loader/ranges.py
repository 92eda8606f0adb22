"""Named ranges around what a loader does, for torch's profiler and, on request, for Nsight Systems (NVTX)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from fastio.lazy import torch, torch_if_there

__all__ = ["COPY", "DECODE", "NVTX", "TRANSFORM", "WAIT", "named_range", "wants_nvtx", "watcher"]

NVTX = "FASTIO_NVTX"  # the environment variable; anything but "" and "0" turns ranges on

# The wait has the name of torch's own DataLoader, so profilers recognise it by its beginning.
WAIT = "enumerate(DataLoader)#FastLoader.__next__"
COPY = "fastio.copy"
DECODE = "fastio.decode"
TRANSFORM = "fastio.transform"

_NOTHING = nullcontext()


def wants_nvtx() -> bool:
    """Return whether the environment asks for NVTX ranges and there is a GPU whose tools would read them."""
    if os.environ.get(NVTX, "0") in ("", "0"):
        return False
    found = torch_if_there()
    return found is not None and bool(found.cuda.is_available())


_nvtx = wants_nvtx()  # read once: reading the environment would cost more than a range that is off


def watcher() -> Callable[[], bool] | None:
    """
    Return what says whether somebody reads ranges now; None if nobody can: torch was not imported.

    Without NVTX this is torch's own function: a loop asks before each batch.
    """
    return partial(bool, 1) if _nvtx else _profiler()


def _profiler() -> Callable[[], bool] | None:
    """Return torch's function that says whether its profiler runs; None if torch was not imported."""
    autograd = sys.modules.get("torch.autograd")
    return None if autograd is None else autograd._profiler_enabled  # it has no public name


def named_range(name: str) -> AbstractContextManager[object]:
    """
    Return a range of torch's profiler if one runs (with ``emit_nvtx``, that is an NVTX range too).

    Otherwise an NVTX range if ``FASTIO_NVTX=1`` was set when fastio was imported, else nothing: a range that nobody
    reads would cost torch 6 us.
    """
    is_on = _profiler()
    if is_on is not None and is_on():
        return torch.profiler.record_function(name)
    return torch.cuda.nvtx.range(name) if _nvtx else _NOTHING
