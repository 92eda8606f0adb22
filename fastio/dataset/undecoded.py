"""Rows of a batch that native decoders did not fill: Pillow decodes the pictures, the others get an error each."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec import describe_status
from fastio.codec.headers import Headers
from fastio.codec.pillow import decode_with_pillow
from fastio.codec.pixel_limit import is_refused, refusal
from fastio.errors import SampleError
from fastio.types.spans import Spans

__all__ = ["DecodedBatch", "PixelsToRow", "Settled", "UndecodedRows"]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


class PixelsToRow(Protocol):
    """Makes rows of a batch from pixels that Pillow decoded, where a row is not the whole picture."""

    def channels(self, position: int) -> int:
        """How many channels (1, 3 or 4) to decode the picture at this position of the batch with."""
        ...

    def row(self, position: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """
        Transform ``pixels`` ``(H, W, C)`` to a row; None if they do not have the size that was planned with.

        Raises ValueError, in one line, if a function of the user's fails.
        """
        ...


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """What native code made of ``n`` samples: ``rows`` ``(n, ...)``, and for each an int32 ``status``."""

    spans: Spans
    rows: NDArray[Any]
    status: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Settled:
    """
    What became of the rows that native code did not fill.

    ``errors`` has the bad samples by position in the batch, ascending; ``kinds`` counts the pictures that Pillow
    decoded, by kind ("WEBP", "CMYK JPEG").
    """

    errors: dict[int, SampleError]
    kinds: Counter[str]


class UndecodedRows:
    """
    The rows of a batch whose status is not OK. ``settle`` fills them; several threads may share that work.

    Every row is settled by itself, so neither rows nor errors depend on the number of threads. Each thread holds one
    decoded picture at a time. ``error`` makes the error of a position from words; ``probe`` is the codec's, if the
    values are pictures.
    """

    def __init__(
        self,
        batch: DecodedBatch,
        *,
        error: Callable[[int, str], SampleError],
        probe: Callable[[Spans], Headers] | None = None,
        to_row: PixelsToRow | None = None,
    ) -> None:
        self._batch = batch
        self._error = error
        self._probe = probe
        self._to_row = to_row
        self._positions = deque(np.flatnonzero(batch.status).tolist())
        self._errors: dict[int, SampleError] = {}
        self._kinds: list[str] = []

    @property
    def for_pillow(self) -> int:
        """How many of the rows Pillow is to decode; the others only get an error."""
        return int(np.count_nonzero(self._batch.status == _native.UNSUPPORTED))

    def settle(self) -> None:
        """Decode rows, or find out what is wrong with them, until none is left or ``cancel`` was called."""
        while True:
            try:
                position = self._positions.popleft()
            except IndexError:
                return
            self._settle(position)

    def cancel(self) -> None:
        """Leave the rows that no thread has begun."""
        self._positions.clear()

    def result(self) -> Settled:
        """The outcome, once every call of ``settle`` has returned."""
        return Settled(dict(sorted(self._errors.items())), Counter(self._kinds))

    def _settle(self, position: int) -> None:
        status = int(self._batch.status[position])
        reason = self._refusal(position, status)
        if status == _native.UNSUPPORTED and reason is None:
            status, reason = self._decode(position)
        if status != _native.OK:
            self._errors[position] = self._error(position, reason or describe_status(status))

    def _refusal(self, position: int, status: int) -> str | None:
        """Return why a picture is not decoded because of its size, if that is what its status means."""
        may_be_large = status in (_native.BAD_SHAPE, _native.TOO_LARGE, _native.UNSUPPORTED)
        if self._probe is None or not may_be_large:
            return None
        headers = self._probe(self._batch.spans.part(position, position + 1))
        return f"it {refusal(headers[0].height, headers[0].width)}" if is_refused(headers.sizes)[0] else None

    def _decode(self, position: int) -> tuple[int, str | None]:
        rows, to_row = self._batch.rows, self._to_row
        try:
            channels = rows.shape[3] if to_row is None else to_row.channels(position)
            picture = decode_with_pillow(self._batch.spans.view(position), _MODES[channels])
            row = picture.pixels if to_row is None else to_row.row(position, picture.pixels)
        except ValueError as exc:
            return _native.CORRUPT, str(exc)
        if row is None or row.shape != rows.shape[1:]:
            return _native.BAD_SHAPE, None
        rows[position] = row
        self._kinds.append(picture.kind)
        return _native.OK, None
