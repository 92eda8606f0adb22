"""The protocol of a codec: a batch of spans in, one array out, a status for every sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Resampling

from fastio._native import Job, PictureFunction, ThreadPool
from fastio.codec.headers import Headers
from fastio.types.spans import Spans

__all__ = ["FILTERS", "Codec", "Geometry"]

# The antialiased filters that the native core has; its number of each is the position here.
FILTERS: Final = (
    Resampling.BILINEAR,
    Resampling.BICUBIC,
    Resampling.BOX,
    Resampling.LANCZOS,
    Resampling.HAMMING,
    Resampling.NEAREST,
)


@dataclass(frozen=True, slots=True)
class Geometry:
    """
    What the native core does to pictures on their way into the rows of a batch, in one pass.

    ``plan`` is ``(n, 13)`` int32, see ``fastio.transforms.plan``; ``filter`` a position in FILTERS; ``fill`` the
    colour of edges, one byte for each channel. Rows are ``(C, H, W)`` where ``is_planar``, and luma in all channels
    where ``is_grey``. Raw pictures have no header that tells their size: ``stored`` does. ``is_fast`` lets decoders
    shrink a picture before it is resampled, which gives slightly other pixels. ``function``, where there is one, is
    called with each finished picture and its row of ``numbers``, ``(n, k)``.
    """

    plan: NDArray[np.int32]
    filter: int
    fill: bytes
    is_planar: bool = False
    is_grey: bool = False
    is_fast: bool = False
    stored: tuple[int, int] | None = None
    function: PictureFunction | None = None
    numbers: NDArray[np.float64] | None = None


class Codec(Protocol):
    """
    Bytes to arrays, a batch a call.

    Bad bytes become a status (see ``fastio.codec.describe_status``), never an exception in
    a thread and never a silent garbage row.
    """

    def encode(self, value: NDArray[Any]) -> bytes:
        """One value's bytes."""
        ...

    def probe(self, spans: Spans) -> Headers:
        """Read the header of each value, and nothing behind it."""
        ...

    def decode(
        self,
        spans: Spans,
        out: NDArray[Any],
        status: NDArray[np.int32],
        *,
        pool: ThreadPool | None = None,
        verify: bool = True,
        geometry: Geometry | None = None,
    ) -> Job:
        """
        Decode value i into ``out[i]``; ``status[i]`` says how it went.

        Returns at once with the job under way, or, without a pool, when all is done. Rows
        whose status is not OK are unspecified. ``verify`` compares each value with its
        checksum first, where there is one. With a ``geometry`` pictures are transformed; codecs
        of other things refuse it.
        """
        ...
