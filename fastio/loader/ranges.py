"""Named ranges around what a loader does, for torch's profiler and, on request, for Nsight Systems (NVTX)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch.autograd import _profiler_enabled as profiler_is_on  # type: ignore[attr-defined] # it has no public name
from torch.profiler import record_function

__all__ = ["COPY", "DECODE", "NVTX", "TRANSFORM", "WAIT", "named_range", "wants_nvtx", "wants_ranges"]

NVTX = "FASTIO_NVTX"  # the environment variable; anything but "" and "0" turns ranges on

# The wait has the name of torch's own DataLoader, so profilers recognise it by its beginning.
WAIT = "enumerate(DataLoader)#FastLoader.__next__"
COPY = "fastio.copy"
DECODE = "fastio.decode"
TRANSFORM = "fastio.transform"

_NOTHING = nullcontext()


def wants_nvtx() -> bool:
    """Return whether the environment asks for NVTX ranges and there is a GPU whose tools would read them."""
    return os.environ.get(NVTX, "0") not in ("", "0") and torch.cuda.is_available()


_nvtx = wants_nvtx()  # read once: reading the environment would cost more than a range that is off


# Whether somebody reads ranges now. Without NVTX this is torch's own function: a loop asks before each batch.
wants_ranges: Callable[[], bool] = partial(bool, 1) if _nvtx else profiler_is_on


def named_range(name: str) -> AbstractContextManager[object]:
    """
    Return a range of torch's profiler if one runs (with ``emit_nvtx``, that is an NVTX range too).

    Otherwise an NVTX range if ``FASTIO_NVTX=1`` was set when fastio was imported, else nothing: a range that nobody
    reads would cost torch 6 us.
    """
    if profiler_is_on():
        return record_function(name)
    return torch.cuda.nvtx.range(name) if _nvtx else _NOTHING
