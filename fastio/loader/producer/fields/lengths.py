"""Values of different lengths in one batch: a list of tensors, one padded tensor, or a nested one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.dataset.record_collate import RowsName, nest_rows, split_rows

__all__ = ["collate_lengths"]


def collate_lengths(values: NDArray[Any], counts: NDArray[np.int64], how: RowsName, *, is_pinned: bool) -> Any:
    """
    Return what ``record_collate.collate_rows`` returns for ``values`` ``(N, ...)``, padded with zeros.

    Nothing here is computed by torch: see PlainProducer on forked children.
    """
    if how == "pad":
        rows, mask = map(torch.from_numpy, _padded(values, counts))
        return (rows.pin_memory(), mask.pin_memory()) if is_pinned else (rows, mask)
    joined = torch.from_numpy(values)
    joined = joined.pin_memory() if is_pinned else joined
    return split_rows(joined, counts) if how == "list" else nest_rows(joined, counts)


def _padded(values: NDArray[Any], counts: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    longest = int(counts.max(initial=0))
    mask = np.arange(longest) < counts[:, None]
    rows = np.zeros((len(counts), longest, *values.shape[1:]), values.dtype)
    rows[mask] = values
    return rows, mask
