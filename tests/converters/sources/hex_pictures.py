"""A kind of column in one file: pictures as hexadecimal digits, as some databases export them."""

from __future__ import annotations

from typing import Any

from fastio.converters.sources.column_kinds import ColumnKind
from fastio.types.picture_kinds import PNG_SIGNATURE

_PREFIX = "\\x"


def _recognises(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_PREFIX + PNG_SIGNATURE.hex())


def _decode(value: Any) -> bytes:
    if not value.startswith(_PREFIX):
        raise ValueError(f"does not begin with {_PREFIX}")
    try:
        return bytes.fromhex(value.removeprefix(_PREFIX))
    except ValueError as exc:
        raise ValueError(f"is not hexadecimal: {exc}") from exc


KIND = ColumnKind(
    name="hex",
    what="pictures as hexadecimal text",
    recognises=_recognises,
    decode=_decode,
    encode=lambda data: _PREFIX + data.hex(),
)
