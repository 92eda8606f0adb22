"""Rows of a batch that native decoders did not fill: Pillow decodes the pictures, the others get an error each."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec import describe_status
from fastio.codec.codec import Geometry
from fastio.codec.mask import fill_number, numbers_through
from fastio.codec.pillow import DecodedPicture, decode_mask_with_pillow, decode_with_pillow
from fastio.errors import SampleError
from fastio.types.spans import Spans

__all__ = [
    "DecodedBatch",
    "MaskRows",
    "PixelsToRow",
    "Settled",
    "UndecodedRows",
]


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
    """
    What native code made of ``n`` samples: ``rows`` ``(n, ...)``, or an array for each, and for each an int32
    ``status``.
    """

    spans: Spans
    rows: NDArray[Any] | Sequence[NDArray[Any]]
    status: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Settled:
    """
    What became of the rows that native code did not fill.

    ``errors`` has the bad samples by position in the batch, ascending; ``kinds`` counts the pictures that Pillow
    decoded, by kind ("WEBP", "CMYK JPEG", "BMP mask").
    """

    errors: dict[int, SampleError]
    kinds: Counter[str]


class UndecodedRows:
    """
    The rows of a batch whose status is not OK. ``settle`` fills them; several threads may share that work.

    Every row is settled by itself, so neither rows nor errors depend on the number of threads. Each thread holds one
    decoded picture at a time. ``error`` makes the error of a position from words. ``refusal`` says, of pictures, why
    the one at a position may not be decoded, if its header shows that. ``to_row`` makes rows of pictures that are not
    rows as they are, and of masks, which are decoded as stored.
    """

    def __init__(
        self,
        batch: DecodedBatch,
        *,
        error: Callable[[int, str], SampleError],
        refusal: Callable[[int], str | None] | None = None,
        to_row: PixelsToRow | MaskRows | None = None,
    ) -> None:
        self._batch = batch
        self._error = error
        self._refusal = refusal
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
        reason = self._reason(position, status)
        if status == _native.UNSUPPORTED and reason is None:
            status, reason = self._decode(position)
        if status != _native.OK:
            self._errors[position] = self._error(position, reason or describe_status(status))

    def _reason(self, position: int, status: int) -> str | None:
        """Return why a picture is not decoded because of its size or form, if that is what its status means."""
        may_be_refused = status in (_native.BAD_SHAPE, _native.TOO_LARGE, _native.UNSUPPORTED)
        return self._refusal(position) if self._refusal is not None and may_be_refused else None

    def _decode(self, position: int) -> tuple[int, str | None]:
        rows, to_row = self._batch.rows, self._to_row
        try:
            picture = self._pillow(position)
            row = picture.pixels if to_row is None else to_row.row(position, picture.pixels)
        except ValueError as exc:
            return _native.CORRUPT, str(exc)
        place = rows[position]
        if row is None or row.shape != place.shape or row.dtype.itemsize > place.dtype.itemsize:
            return _native.BAD_SHAPE, None
        place[...] = row
        self._kinds.append(f"{picture.kind} mask" if isinstance(to_row, MaskRows) else picture.kind)
        return _native.OK, None

    def _pillow(self, position: int) -> DecodedPicture:
        data, to_row = self._batch.spans.view(position), self._to_row
        if isinstance(to_row, MaskRows):
            return decode_mask_with_pillow(data)
        channels = self._batch.rows[position].shape[2] if to_row is None else to_row.channels(position)
        return decode_with_pillow(data, _MODES[channels])


# MaskRows: masks that Pillow decodes, as the rows of a batch.


@dataclass(frozen=True, slots=True)
class MaskRows:
    """
    Makes rows of a batch from the numbers of masks.

    ``geometry`` is what ``RowReader.decode`` was called with (None: rows are whole masks), ``size`` the height and
    width of the rows.
    """

    geometry: Geometry | None
    size: tuple[int, int]

    @classmethod
    def of(cls, geometry: Geometry | None, rows: NDArray[Any]) -> MaskRows:
        """Return them for a batch of ``rows`` ``(n, H, W)``, ``(n, H, W, C)`` or, if planar, ``(n, C, H, W)``."""
        first = 2 if geometry is not None and geometry.is_planar and rows.ndim == 4 else 1
        return cls(geometry, (rows.shape[first], rows.shape[first + 1]))

    def row(self, position: int, numbers: NDArray[Any]) -> NDArray[Any] | None:
        """
        Transform a mask ``(H, W)`` or ``(H, W, C)`` to the row at this position; None if it has another size than
        ``geometry.sizes`` says.
        """
        geometry = self.geometry
        if geometry is None:
            return numbers
        if geometry.sizes is not None and numbers.shape[:2] != tuple(geometry.sizes[position].tolist()):
            return None
        moves = np.zeros((0, 14)) if geometry.colours is None else geometry.colours[position]
        plan = geometry.plan[position].tolist()
        row = numbers_through(numbers, plan, moves, self.size, fill=fill_number(geometry))
        return row.transpose(2, 0, 1) if row is not None and row.ndim == 3 and geometry.is_planar else row
