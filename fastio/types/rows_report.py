"""RowsReport: how full the rows of a PackSampler are, how mixed, and which samples do not come as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field

import numpy as np
from numpy.typing import NDArray

from fastio.types.units import counted

__all__ = ["RowsReport"]


@dataclass(frozen=True, slots=True, eq=False)
class RowsReport:
    """
    The rows of an epoch, of all ranks, without those repeated for equal ranks.

    * ``filled`` is the share of their places that hold a token, 0 to 1.
      ``patches_filled`` is the same of patches, None without a budget of them.
    * ``mixing`` says how much the lengths within a row differ, as a share of how much they differ overall: the standard
      deviation within rows divided by that of all. A random draw gives 1; 0 says that each row has samples of one
      length, and nan that there is nothing to compare.
    * ``dropped`` and ``cut`` are the samples, int64, ascending, that need more than a row has (``too_long``): they do
      not come, or without their last tokens. ``lost_tokens`` are the tokens of both that do not come.
      ``dataset.store.keys(report.dropped)`` are their names. ``split`` are those that come in parts, each of which
      counts among ``samples``; ``repeated_tokens`` are the tokens that come twice, where parts overlap.
    """

    rows: int
    samples: int
    filled: float
    mixing: float
    dropped: NDArray[np.int64]
    cut: NDArray[np.int64]
    lost_tokens: int
    split: NDArray[np.int64] = dataclass_field(default_factory=lambda: np.empty(0, np.int64))
    repeated_tokens: int = 0
    patches_filled: float | None = None

    def __str__(self) -> str:
        """
        One line.

        >>> none = np.empty(0, np.int64)
        >>> str(RowsReport(3, 40, 0.9974, 0.981, none, np.array([7]), 12))
        '3 rows of 40 samples, 99.74 % filled, lengths mixed 0.98; 1 sample cut: 12 tokens lost'
        """
        line = f"{counted(self.rows, 'row')} of {counted(self.samples, 'sample')}, {100 * self.filled:.2f} % filled"
        line += "" if self.patches_filled is None else f", with patches {100 * self.patches_filled:.2f} %"
        line += "" if np.isnan(self.mixing) else f", lengths mixed {self.mixing:.2f}"
        left = [(self.dropped, "dropped"), (self.cut, "cut")]
        words = [f"{counted(len(each), 'sample')} {what}" for each, what in left if len(each)]
        line += f"; {', '.join(words)}: {counted(self.lost_tokens, 'token')} lost" if words else ""
        if not len(self.split):
            return line
        return f"{line}; {counted(len(self.split), 'sample')} split: {counted(self.repeated_tokens, 'token')} twice"
