"""WholeEpochs: samplers that tell all samples of an epoch, whichever rank gets them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["WholeEpochs"]


@runtime_checkable
class WholeEpochs(Protocol):
    """
    A sampler that knows what an epoch should give over all ranks. Receipts are compared with that, so it must not be
    joined from plans, whose mistakes it would repeat.
    """

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64] | None:
        """
        Return the index of each sample of an epoch, as often as it comes, in any order; None if that is unknown.

        Nothing is repeated for the ranks' sake, and the last ``dropped`` samples of the order are left out.
        """
        ...
