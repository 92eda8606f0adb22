"""Masks: pictures whose pixels are numbers of classes, decoded as stored."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio._native import Job, RowWork, ThreadPool
from fastio.codec.codec import Geometry
from fastio.codec.headers import Header, Headers, read_headers
from fastio.codec.pillow import mask_form, pixel_limit
from fastio.errors import SchemaError
from fastio.types.picture_kinds import PICTURE_KINDS
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = [
    "MaskCodec",
    "fill_number",
    "misfits",
    "moved_numbers",
    "nearest_positions",
    "nearest_row",
    "numbers_through",
    "with_mask_form",
]

_OUTSIDE = 11  # the column of a step with the first number of a warp's fill
_CANVAS, _PLAN = 24, 25  # steps of a program, as the native core numbers them


class MaskCodec:
    """
    A mask in any format of pictures, decoded to what ``np.asarray(PIL.Image.open(file))`` gives.

    That is the indices of a palette, 0 or 1 for one bit, uint16 for greys of 16 bits, and ``(H, W, C)`` for a mask that
    has colours. (Pillow stretches greys of 2 and 4 bits to 0...255, and so does this codec.) Rows are uint8 or uint16:
    8-bit numbers are widened, a mask of 16 bits in 8-bit rows is BAD_SHAPE. Colours of 16 bits are BAD_SHAPE too,
    for Pillow would drop the lower half.
    """

    def encode(self, value: NDArray[Any]) -> bytes:
        """Return a PNG of a mask ``(H, W)`` of bool, uint8 or uint16, or ``(H, W, C)`` of uint8 with C 2 to 4."""
        is_flat = value.ndim == 2 and value.dtype in (np.bool_, np.uint8, np.uint16)
        has_colours = value.ndim == 3 and value.shape[2] in (2, 3, 4) and value.dtype == np.uint8
        if not (is_flat or has_colours) or 0 in value.shape:
            raise SchemaError(
                "expected a mask as bool, uint8 or uint16 (H, W), or uint8 (H, W, 2 to 4), got "
                f"{value.dtype} {value.shape}"
            )
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(value)).save(file, "PNG")
        return file.getvalue()

    def probe(self, spans: Spans) -> Headers:
        """
        Read the headers of the masks.

        ``channels`` are those of the decoded numbers (1 for a palette), ``bits`` those that a number needs: 8, 16, or
        more than any mask may have.
        """
        return with_mask_form(read_headers(spans), spans)

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
        Decode mask i into ``out[i]``: ``(n, H, W)``, or ``(n, H, W, C)`` for masks with colours; see ``Codec.decode``.

        A caller passes the ``plan`` of the pictures beside the masks. Pixels are chosen by torch's rule of the
        nearest one, whatever ``geometry.filter`` says. ``geometry.fill`` is the number around masks, little endian
        (``b""``: 0), for all channels. With ``is_planar``, rows with colours are ``(n, C, H, W)``. ``sizes``,
        ``(n, 2)``, are those that the masks must have, height first: another is BAD_SHAPE. ``geometry.colours`` are the
        flips and warps of the finished rows.
        """
        options = _options(geometry)
        return _native.decode_masks(spans, out, status, pool, verify=verify, max_pixels=pixel_limit(), **options)

    def rows(self, spans: Spans, *, verify: bool, geometry: Geometry | None = None) -> RowWork:
        """Return what ``decode`` does to these masks, for batches that native code makes of parts of them."""
        return _native.mask_rows(spans, verify=verify, max_pixels=pixel_limit(), **_options(geometry))


def _options(geometry: Geometry | None) -> dict[str, Any]:
    """Return what native functions that decode masks are told of a geometry."""
    if geometry is None:
        return {}
    return {
        "plan": geometry.plan,
        "sizes": geometry.sizes,
        "fill": fill_number(geometry),
        "planar": geometry.is_planar,
        "moves": geometry.colours,
    }


def with_mask_form(headers: Headers, spans: Spans) -> Headers:
    """Return the headers of pictures as those of masks, see ``MaskCodec.probe``; their rows are changed in place."""
    forms = np.zeros((len(headers), 2), np.int32)
    _native.mask_forms(spans, forms)
    for position in np.flatnonzero((forms[:, 0] == 0) & (headers.status == _native.OK)).tolist():
        try:
            forms[position] = mask_form(spans.view(position))
        except ValueError:
            headers.status[position] = _native.CORRUPT
    headers.channels[:] = forms[:, 0]
    return Headers(headers.rows, np.ascontiguousarray(forms[:, 1]))


def fill_number(geometry: Geometry) -> int:
    """Return the number around masks."""
    return int.from_bytes(geometry.fill, "little")


def misfits(headers: Headers, field: Field) -> dict[int, str]:
    """Say why masks do not fit their field, by position; sentences that follow a mask's name."""
    assert headers.bits is not None
    channels = 1 if len(field.shape) == 2 else field.shape[2]
    bad = headers.bits > 8 * np.dtype(field.dtype).itemsize
    bad |= (headers.bits > 8) & (headers.channels > 1)
    if channels is not None:
        bad |= headers.channels != channels
    bad &= headers.status == _native.OK
    return {i: _misfit(headers[i], int(headers.bits[i]), field) for i in np.flatnonzero(bad).tolist()}


def _misfit(header: Header, bits: int, field: Field) -> str:
    """Say why a mask does not fit its field."""
    kind = PICTURE_KINDS[header.kind]
    channels = 1 if len(field.shape) == 2 else field.shape[2]
    if channels is not None and header.channels != channels:
        as_is = "mask" if header.channels == 1 else f"mask[{header.channels}]"
        return (
            f"is {kind} of {_counted(header.channels)}, but masks of {_counted(channels)} are expected: declare the "
            f"field {as_is}, or image if it is no mask"
        )
    if header.channels > 1 or bits > 16:
        return f"is {kind} with {bits}-bit numbers, which no mask can have: declare the field bytes"
    return f"is {kind} with {bits}-bit numbers, but masks of 8 bits are expected: declare the field mask16"


def _counted(channels: int) -> str:
    return "1 channel" if channels == 1 else f"{channels} channels"


# The plain path of masks: a plan applied with torch's rule of the nearest pixel, in NumPy.


def nearest_positions(size: int, virtual_size: int) -> NDArray[np.int64]:
    """
    Return which of ``size`` pixels becomes each of ``virtual_size``: ``torch.nn.functional.interpolate``'s "nearest".

    That is ``floor(i * (size / virtual_size))`` in float32. Pillow's NEAREST takes the pixel in the middle instead.

    >>> nearest_positions(5, 3).tolist(), nearest_positions(2, 4).tolist()
    ([0, 1, 3], [0, 0, 1, 1])
    """
    scale = np.float32(size) / np.float32(virtual_size)
    positions: NDArray[np.int64] = np.floor(np.arange(virtual_size, dtype=np.float32) * scale).astype(np.int64)
    np.minimum(positions, size - 1, out=positions)
    return positions


def nearest_row(
    numbers: NDArray[Any], plan: Sequence[int], size: tuple[int, int], *, fill: int = 0
) -> NDArray[Any] | None:
    """
    Apply one row of a plan (see ``fastio.transforms.plan``) to a mask ``(H, W)`` or ``(H, W, C)``.

    Returns ``size`` (height, width) pixels of the same dtype, with ``fill`` where the plan leaves edges; None if the
    plan's box leaves the mask.
    """
    x, y, w, h, virtual_w, virtual_h, window_x, window_y, window_w, window_h, place_x, place_y, flip = plan
    row = np.full((*size, *numbers.shape[2:]), fill, numbers.dtype)
    if window_w == 0 or window_h == 0:
        return row
    if x + w > numbers.shape[1] or y + h > numbers.shape[0]:
        return None
    columns = x + nearest_positions(w, virtual_w)[window_x : window_x + window_w]
    lines = y + nearest_positions(h, virtual_h)[window_y : window_y + window_h]
    row[place_y : place_y + window_h, place_x : place_x + window_w] = numbers[lines[:, None], columns]
    return row[:: -1 if flip & 2 else 1, :: -1 if flip & 1 else 1]


def numbers_through(
    numbers: NDArray[Any], plan: Sequence[int], moves: NDArray[np.float64], size: tuple[int, int], *, fill: int = 0
) -> NDArray[Any] | None:
    """
    As ``nearest_row``, then what ``moves`` ``(steps, 14)`` does: flips, warps, and further plans, each on its canvas.
    """
    if not len(moves) or moves[0, 0] != _CANVAS:
        row = nearest_row(numbers, plan, size, fill=fill)
        return None if row is None else moved_numbers(row, moves)
    row = numbers
    for canvas in np.flatnonzero(moves[:, 0] == _CANVAS).tolist():
        if canvas > 0:
            plan = moves[canvas - 1, 1:].astype(np.int64).tolist()
        height, width, _, outside = moves[canvas, 1:5].astype(np.int64).tolist()
        filled = nearest_row(row, plan, (height, width), fill=outside)
        if filled is None:
            return None
        others = np.flatnonzero((moves[:, 0] == _PLAN) & (np.arange(len(moves)) > canvas))
        row = moved_numbers(filled, moves[canvas + 1 : others[0] if len(others) else len(moves)])
    return row


def moved_numbers(numbers: NDArray[Any], moves: NDArray[np.float64]) -> NDArray[Any]:
    """
    Apply flips and warps, a program ``(steps, 14)``, to a mask ``(H, W)`` or ``(H, W, C)`` of any dtype.

    The first number of a warp's fill is that outside. Native code says which pixel each one shows.
    """
    pixels = numbers.shape[:2]
    for step in moves:
        places = np.empty(pixels, np.int64)
        _native.mask_places(np.ascontiguousarray(step), places)
        moved = numbers.reshape(-1, *numbers.shape[2:])[np.maximum(places, 0)]
        moved[places < 0] = step[_OUTSIDE]
        numbers = moved
    return numbers
