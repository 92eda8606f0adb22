"""LocalCopy: a copy of an object on a disk of this machine, which may be under way; ``stage=`` makes it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["LocalCopy"]


class LocalCopy(Protocol):
    """What is there of a copy is read instead of the object. Safe to share between threads; nothing raises."""

    def read(self, start: int, stop: int) -> NDArray[np.uint8] | None:
        """Return the bytes from ``start`` up to ``stop``, read-only; None unless all are there and right."""
        ...

    def offer(self, start: int, data: Any) -> None:
        """Take bytes that were fetched, from ``start`` on, if the copy can use them."""
        ...

    def distrust(self, start: int, stop: int) -> None:
        """Read this range no more: a sample in it does not have its CRC-32."""
        ...

    def mend(self, start: int, data: Any) -> None:
        """Put the bytes from ``start`` on right in a finished copy, where a sample did not have its CRC-32."""
        ...

    def whole(self) -> str | None:
        """Return the path of the copy if it is finished; None before."""
        ...
