"""Pictures as base64 text, with or without ``data:image/png;base64,`` before it, as web tools write them."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from fastio.converters.sources.column_kinds.kind import ColumnKind, begins_picture

__all__ = ["KIND"]

_PREFIX = re.compile(r"data:[^,]{1,100};base64,")
_BEGINNING = 64  # characters, of which the first bytes of a picture are made
_ALPHABET = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_FROM_URLS = str.maketrans("-_", "+/")  # the alphabet for names of files and URLs


def _plain(value: str) -> str:
    """The base64 text alone, in its usual alphabet, without the line ends that mail programs put into it."""
    match = _PREFIX.match(value)
    text = "".join(value[match.end() if match else 0 :].split()).translate(_FROM_URLS)
    return text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)  # some writers leave the padding out


def _recognises(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    beginning = _plain(value[: 2 * _BEGINNING])[:_BEGINNING]
    try:
        return len(beginning) == _BEGINNING and begins_picture(base64.b64decode(beginning, validate=True))
    except (binascii.Error, ValueError):
        return False


def _decode(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"is {value!r:.60}, expected base64 text")
    text = _plain(value)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        match = _ALPHABET.match(text)
        stop = match.end() if match else 0
        if stop < len(text):
            raise ValueError(f"is not base64: {text[stop : stop + 1]!r} is none of its characters") from exc
        raise ValueError(f"is not base64: its {len(text.rstrip('=')):,} characters are no whole bytes") from exc


KIND = ColumnKind(
    name="base64",
    what="pictures as base64 text",
    recognises=_recognises,
    decode=_decode,
    encode=lambda data: base64.b64encode(data).decode(),
)
