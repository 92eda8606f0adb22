"""What becomes of a batch with bad samples: an error, the good ones alone, or all of them with blanks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SampleError
from fastio.loader.options import OnError

__all__ = ["kept_positions"]


def kept_positions(errors: Mapping[int, SampleError], count: int, *, on_error: OnError) -> NDArray[np.int64] | None:
    """
    Return the positions of the samples that stay in a batch of ``count``; None for all, the bad ones as blanks.

    Raises the first of the errors with ``on_error="raise"``.
    """
    if on_error == "raise":
        raise errors[min(errors)]
    if on_error == "zero":
        return None
    return np.setdiff1d(np.arange(count), list(errors))
