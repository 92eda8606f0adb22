"""Codec, the protocol: takes a batch of spans, returns one array and a status for every sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio._native import Job, ThreadPool
from fastio.codec.headers import Headers
from fastio.codec.pillow import pillow_takes_cheaper_pass_first
from fastio.types.spans import Spans

__all__ = [
    "Codec",
    "Geometry",
]


@dataclass(frozen=True, slots=True)
class Geometry:
    """
    What the native core does to pictures or masks, in one pass, on their way into the rows of a batch.

    ``plan`` is ``(n, 13)`` int32, see ``fastio.transforms.plan``; ``filter`` is a position in
    ``fastio.codec.pillow.FILTERS``; ``fill`` the colour of edges, one byte per channel. With ``is_planar``, rows are
    ``(C, H, W)``; with ``is_grey``, all channels hold luma. Raw pictures have no header with their size: ``stored``
    gives it. ``is_fast`` lets decoders shrink a picture before it is resampled, which changes pixels slightly.
    The steps of each picture's row of ``colours``, ``(n, steps, 14)``, run on the finished picture, see
    ``fastio.transforms.program``.

    Masks need only a plan, and take ``fill``, ``sizes`` and ``colours`` as ``MaskCodec.decode`` says: ``sizes``,
    ``(n, 2)`` int32, are the heights and widths of the pictures that the plan was made for.
    """

    plan: NDArray[np.int32]
    filter: int = 0
    fill: bytes = b""
    is_planar: bool = False
    is_grey: bool = False
    is_fast: bool = False
    stored: tuple[int, int] | None = None
    colours: NDArray[np.float64] | None = None
    sizes: NDArray[np.int32] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What every native function that transforms pictures is told besides the plan."""
        return {
            "filter": self.filter,
            "fill": self.fill,
            "planar": self.is_planar,
            "grey": self.is_grey,
            "colours": self.colours,
            "cheaper_first": pillow_takes_cheaper_pass_first(),
        }


class Codec(Protocol):
    """
    Turns bytes into arrays, one batch per call.

    Bad bytes become a status (see ``fastio.codec.describe_status``), never an exception in a thread and never silent
    garbage in a row.
    """

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return the bytes of one value."""
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
        Decode value i into ``out[i]``; ``status[i]`` says whether that worked.

        Returns the running job at once, or without a pool, after everything is done. Rows whose status is not OK are
        unspecified. ``verify`` first compares each value with its checksum, if there is one. With a ``geometry``,
        pictures are transformed; codecs of other things refuse it.
        """
        ...
