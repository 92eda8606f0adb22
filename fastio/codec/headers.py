"""What the headers of encoded values say, as the native core reads them: one row per value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.types.picture_kinds import PICTURE_KINDS
from fastio.types.spans import Spans

__all__ = ["Header", "Headers", "read_headers"]


class Header(NamedTuple):
    """The header of one value; see ``Headers``."""

    status: int
    height: int
    width: int
    channels: int
    kind: int


@dataclass(frozen=True, slots=True)
class Headers:
    """
    The headers of n values: ``rows`` is ``(n, 5)`` int32, and each property a view of some of its columns.

    ``height``, ``width`` and ``channels`` (as stored) are 0 where ``status`` is not OK, and for values that have no
    header. ``kind`` is a number of ``fastio.types.picture_kinds``. ``bits``, ``(n,)``, is there for masks alone: how
    many bits their numbers have, 0 if unknown.
    """

    rows: NDArray[np.int32]
    bits: NDArray[np.int32] | None = None

    @classmethod
    def unknown(cls, count: int) -> Headers:
        """Return those of values without a header: all are OK, and of unknown size."""
        return cls(np.zeros((count, 5), np.int32))

    def among(self, count: int, positions: NDArray[np.int64]) -> Headers:
        """Return the headers of ``count`` values, these at ``positions`` and all others unknown."""
        rows, bits = np.zeros((count, 5), np.int32), None
        rows[positions] = self.rows
        if self.bits is not None:
            bits = np.zeros(count, np.int32)
            bits[positions] = self.bits
        return Headers(rows, bits)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Header]:
        return map(Header._make, self.rows.tolist())

    def __getitem__(self, position: int) -> Header:
        return Header._make(self.rows[position].tolist())

    @property
    def status(self) -> NDArray[np.int32]:
        """``(n,)``: OK, or what is wrong; see ``fastio.codec.describe_status``."""
        return self.rows[:, 0]

    @property
    def sizes(self) -> NDArray[np.int32]:
        """``(n, 2)``: height and width."""
        return self.rows[:, 1:3]

    @property
    def shapes(self) -> NDArray[np.int32]:
        """``(n, 3)``: height, width and channels."""
        return self.rows[:, 1:4]

    @property
    def channels(self) -> NDArray[np.int32]:
        """``(n,)``: 1 grey, 2 grey with alpha, 3 colour or palette, 4 RGBA or CMYK; more in some TIFFs."""
        return self.rows[:, 3]

    @property
    def kind(self) -> NDArray[np.int32]:
        """``(n,)``: the kind of picture, recognised by its first bytes."""
        return self.rows[:, 4]

    @property
    def bad(self) -> NDArray[np.int64]:
        """The positions whose status is not OK."""
        return np.flatnonzero(self.status != _native.OK)


def read_headers(spans: Spans, *, verify: bool = False) -> Headers:
    """
    Read the headers of encoded pictures, in the calling thread.

    Pillow reads those that native code does not know; what Pillow does not know either is UNSUPPORTED.

    With ``verify``, a PNG with a chunk that differs from its own CRC-32 is BAD_CHECKSUM, and a picture whose file seems
    to break off is TRUNCATED beside its height and width: decoding it must confirm that.
    """
    headers = Headers.unknown(len(spans))
    _native.probe_images(spans, headers.rows, verify=verify).wait()
    for position in np.flatnonzero(headers.status == _native.UNSUPPORTED).tolist():
        _read_with_pillow(headers.rows[position], spans.view(position), verify=verify)
    return headers


def _read_with_pillow(row: NDArray[np.int32], picture: NDArray[np.uint8], *, verify: bool) -> None:
    """Read the header of a kind whose headers native code does not know."""
    from fastio.codec.pillow import UnidentifiedError, shape_of  # imports Pillow, for rare kinds only

    breaks_off = PICTURE_KINDS[row[4]].breaks_off
    try:
        row[1:4] = shape_of(picture)
    except UnidentifiedError:  # the installed Pillow lacks this kind, or wants more of the file than there is
        if breaks_off is not None and breaks_off(picture):
            row[0] = _native.TRUNCATED
        return
    except ValueError:
        row[0] = _native.CORRUPT
        return
    row[0] = _native.TRUNCATED if verify and (breaks_off is None or breaks_off(picture)) else _native.OK
