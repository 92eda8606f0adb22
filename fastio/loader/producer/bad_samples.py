"""What becomes of a batch with bad samples: an error, the good ones alone, or all of them with blanks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SampleError
from fastio.loader.options import OnError

__all__ = ["add_advice", "kept_positions"]

_SKIP = 'FastLoader(..., on_error="skip") leaves such samples out, and lists them in loader.skipped'
_ZERO = 'no sample of its batch is left, and other ranks would wait for one: on_error="zero" keeps batches whole'


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


def add_advice(error: SampleError, *, on_error: OnError) -> None:
    """Add to the message of an error that ends the loop how the loop could go on; once, if it is raised again."""
    advice = {"raise": _SKIP, "skip": _ZERO, "zero": ""}[on_error]
    if advice not in str(error):
        error.args = (f"{error}; {advice}",)
