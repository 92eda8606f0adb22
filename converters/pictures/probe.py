"""Headers of encoded pictures, what is wrong with them in a sentence, and whether their files break off."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.headers import Header, Headers, read_headers
from fastio.errors import SourceError
from fastio.store.jump_tables import JumpRule, begin_jump_tables
from fastio.types.picture_kinds import JPEG, PICTURE_KINDS, UNKNOWN, load_plugin
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = [
    "NO_IMAGE",
    "decode_problem",
    "header_problems",
    "look_at",
    "probe",
]


NO_IMAGE = "is not an image: its first bytes are those of no known kind"
_DECODE_PROBLEMS = {
    _native.TRUNCATED: "cannot be decoded: its data end too early",
    _native.CORRUPT: "cannot be decoded: its data are damaged",
    _native.BAD_SHAPE: "decodes to another size than its header announces",
    _native.NOT_IMAGE: "is not an image",
}


def decode_problem(status: int) -> str:
    """Return one sentence on a picture to which a native decoder gave this status."""
    return _DECODE_PROBLEMS.get(status, f"cannot be decoded (status {status})")


def probe(spans: Spans, field: Field | None = None, *, check_end: bool = False) -> Headers:
    """
    Read the headers of encoded pictures that are to be packed, and check what can be checked without decoding; those of
    masks if ``field`` holds masks.

    A picture that is too large to be decoded (see ``fastio.codec.pillow``) is TOO_LARGE, and a PNG with a chunk
    that differs from its own CRC-32 is BAD_CHECKSUM. With ``check_end``, a picture whose data end too early, or whose
    end is damaged, has the status that its decoder gives it (TRUNCATED, CORRUPT): only those are decoded whose last
    bytes are unusual, and damage that leaves the end as it was is not found.
    """
    from fastio.codec.pillow import is_refused  # imports Pillow

    headers = read_headers(spans, verify=True)
    check_truncated(headers, spans, decode=check_end)
    headers = _of_field(headers, spans, field)
    headers.status[(headers.status == _native.OK) & is_refused(headers.sizes)] = _native.TOO_LARGE
    return headers


def look_at(spans: Spans, field: Field, *, reads_codes: bool) -> tuple[NDArray[np.int32], dict[int, str]]:
    """
    Return height, width and channels ``(n, 3)`` of pictures that lie in files, 0 of what is damaged, and what is wrong.

    With ``reads_codes``, so are those of JPEGs which are too small for start points: making these finds other damage.
    """
    headers = probe(spans, field, check_end=True)
    problems = header_problems(headers, field)
    if reads_codes and field.traits.is_image:
        is_small = (headers.kind == JPEG) & (headers.status == _native.OK) & ~JumpRule().takes(spans.sizes)
        rows = np.flatnonzero(is_small)
        _, status = begin_jump_tables(spans.at(rows), rule=JumpRule(0))()
        bad = np.flatnonzero(status).tolist()
        problems |= {int(rows[i]): decode_problem(int(status[i])) for i in bad}
    is_good = headers.status[:, None] == _native.OK
    return np.ascontiguousarray(np.where(is_good, headers.shapes, 0)), problems


def picture_shapes(spans: Spans, field: Field) -> NDArray[np.int32]:
    """Return height, width and channels ``(n, 3)`` of pictures or masks that ``probe`` has found to be good."""
    return np.ascontiguousarray(_of_field(read_headers(spans), spans, field).shapes)


def _of_field(headers: Headers, spans: Spans, field: Field | None) -> Headers:
    """The headers of pictures, or as those of masks if the field holds masks."""
    if field is not None and field.traits.is_mask:
        from fastio.codec.mask import with_mask_form  # imports Pillow

        headers = with_mask_form(headers, spans)
    return headers


def header_problems(headers: Headers, field: Field) -> dict[int, str]:
    """
    What is wrong with headers that are not OK, and with masks that do not fit their field, by position; sentences that
    follow the picture's name.
    """
    problems = {position: _problem(headers[position]) for position in headers.bad.tolist()}
    if field.traits.is_mask:
        from fastio.codec.mask import misfits

        problems |= misfits(headers, field)
    return problems


def _problem(header: Header) -> str:
    kind = PICTURE_KINDS[header.kind]
    if header.status == _native.TOO_LARGE:
        from fastio.codec.pillow import refusal

        return refusal(header.height, header.width)
    if header.status == _native.BAD_CHECKSUM:
        return f"is {kind} with a damaged chunk: it differs from its own CRC-32"
    if header.height and header.status in (_native.TRUNCATED, _native.CORRUPT):
        return decode_problem(header.status)
    if header.status == _native.NOT_IMAGE or header.kind == UNKNOWN:
        return NO_IMAGE
    if header.status == _native.TRUNCATED:
        return f"is {kind} that ends within its header" if kind.is_native else f"is {kind} whose file is cut off"
    if header.status == _native.UNSUPPORTED:
        missing = load_plugin(header.kind)
        why = "which the installed Pillow cannot open: it is damaged, or Pillow lacks what opens it"
        return f"is {kind}, {missing or why}"
    return f"is {kind} with a damaged header"


# Finds pictures whose files break off before their data end: suspected by their ends, confirmed by decoding them.


def check_truncated(headers: Headers, spans: Spans, *, decode: bool) -> None:
    """
    Decide which of the pictures that ``read_headers(verify=True)`` suspects of breaking off do so; ``headers`` changes.

    With ``decode``, each of them is decoded: its status becomes OK if that succeeds (a GIF may have bytes behind its
    end, a JPEG lack nothing but its end marker), TOO_LARGE if it may not be decoded, or what the decoder found.
    Without, all become OK. Raises SourceError if there is not enough memory to decode one, which says nothing of the
    picture.
    """
    is_suspect = (headers.status == _native.TRUNCATED) & (headers.sizes > 0).all(axis=1)
    for position in np.flatnonzero(is_suspect).tolist():
        headers.status[position] = _status_of(headers, spans, position) if decode else _native.OK


def _status_of(headers: Headers, spans: Spans, position: int) -> int:
    """The status of a picture that is decoded."""
    from fastio.codec.pillow import (
        decode_with_pillow,
        is_refused,  # imports Pillow, as above: few sets have such a picture
    )

    if is_refused(headers.sizes[position : position + 1]).any():
        return int(_native.TOO_LARGE)
    height, width = headers.sizes[position].tolist()
    status = np.zeros(1, np.int32)
    try:
        pixels = np.empty((1, height, width, 3), np.uint8)
        _native.decode_images(spans.at(np.array([position])), pixels, status, verify=False).wait()
    except MemoryError:
        status[0] = _native.NO_MEMORY
    if status[0] == _native.NO_MEMORY:
        raise SourceError(f"there is not enough memory to decode a picture of {height:,} x {width:,} pixels: free some")
    if status[0] != _native.UNSUPPORTED:
        return int(status[0])
    try:
        decode_with_pillow(spans.view(position), "RGB")
    except ValueError:
        return int(_native.TRUNCATED)
    return int(_native.OK)
