"""Which tokens of a sample count in the loss, as lengths of runs: by turns outside and inside of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["mask_of_runs", "runs_of_mask"]


def runs_of_mask(mask: ArrayLike) -> NDArray[np.int32]:
    """
    Return the lengths of the runs of a mask ``(L,)``, int32 ``(R,)``: False, True, False, ..., beginning with False.

    >>> runs_of_mask([False, False, True, True, True]).tolist(), runs_of_mask([True, False]).tolist()
    ([2, 3], [0, 1, 1])

    Raises ValueError for a mask that is not one of bools in one dimension.
    """
    bits = np.asarray(mask)
    if bits.ndim != 1 or (bits.dtype != np.bool_ and bits.size):
        raise ValueError(f"a mask of {bits.dtype} {bits.shape}: expected bools in one dimension, one for each token")
    edges = np.flatnonzero(np.diff(bits, prepend=False, append=False)) if bits.size else np.empty(0, np.int64)
    ends = np.append(edges, len(bits)) if not bits.size or not bits[-1] else edges
    return np.diff(ends, prepend=0).astype(np.int32)


def mask_of_runs(runs: ArrayLike, length: int) -> NDArray[np.bool_]:
    """
    Return the mask ``(length,)`` that has these runs.

    >>> mask_of_runs([0, 1, 1], 2).tolist()
    [True, False]

    Raises ValueError for runs that are negative, or are not ``length`` tokens together.
    """
    lengths = np.asarray(runs, np.int64)
    if (lengths < 0).any() or int(lengths.sum()) != length:
        raise ValueError(f"runs of {int(lengths.sum())} tokens, for a sample of {length}")
    return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
