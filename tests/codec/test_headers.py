"""Headers: columns by name, one row per value."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from fastio import _native
from fastio.codec.headers import Header, Headers, read_headers
from fastio.types.picture_kinds import JPEG, PNG, UNKNOWN
from tests.codec.conformance import spans_of


def encoded(kind: str, mode: str) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (7, 5)).save(file, kind)
    return file.getvalue()


def test_columns_have_names() -> None:
    """Size and kind of good pictures, a status for the others."""
    headers = read_headers(
        spans_of([encoded("JPEG", "L"), b"no picture at all", encoded("PNG", "RGBA"), b"\xff\xd8\xff"])
    )

    assert [_native.OK, _native.NOT_IMAGE, _native.OK, _native.TRUNCATED] == headers.status.tolist()
    assert [[5, 7, 1], [0, 0, 0], [5, 7, 4], [0, 0, 0]] == headers.shapes.tolist()
    assert [[5, 7], [0, 0], [5, 7], [0, 0]] == headers.sizes.tolist()
    assert [1, 0, 4, 0] == headers.channels.tolist()
    assert [JPEG, UNKNOWN, PNG, JPEG] == headers.kind.tolist()
    assert [1, 3] == headers.bad.tolist()
    assert Header(_native.OK, 5, 7, 4, PNG) == headers[2] == list(headers)[2]
    assert len(headers) == 4


def test_columns_are_views() -> None:
    """What is written to a column stands in the rows."""
    headers = Headers.unknown(2)
    headers.status[1] = _native.TOO_LARGE
    headers.sizes[0] = 3, 4

    assert [[0, 3, 4, 0, 0], [_native.TOO_LARGE, 0, 0, 0, 0]] == headers.rows.tolist()
    assert np.shares_memory(headers.shapes, headers.rows)
