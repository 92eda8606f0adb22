"""Caffe's Datum: the message of Protocol Buffers that its LMDB files hold, read by its wire format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["CaffeSample", "parse_caffe_sample"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _FLOATS, _ENCODED = 1, 2, 3, 4, 5, 6, 7
_WIRES = {_CHANNELS: {0}, _HEIGHT: {0}, _WIDTH: {0}, _DATA: {2}, _LABEL: {0}, _FLOATS: {2, 5}, _ENCODED: {0}}


@dataclass(frozen=True, slots=True)
class CaffeSample:
    """
    A picture and its label.

    ``data`` is an encoded picture if ``is_encoded``, else ``channels * height * width`` bytes, channels first (blue,
    green, red if OpenCV read them). ``floats`` are as many numbers instead. ``label`` is None if there is none.
    """

    channels: int
    height: int
    width: int
    data: bytes
    label: int | None
    floats: NDArray[np.float32]
    is_encoded: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return self.channels, self.height, self.width


def parse_caffe_sample(message: bytes) -> CaffeSample:
    """Parse a Datum. Raises ValueError that says what is wrong, in words that follow "is not a Datum of Caffe: "."""
    numbers: dict[int, int] = {}
    data, floats = b"", [b""]
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if number not in _WIRES or wire not in _WIRES[number]:
            raise ValueError(f"it has a field {number} of wire type {wire}")
        if wire == _VARINT:
            numbers[number], at = _varint(message, at)
            continue
        size, at = (4, at) if wire == _FIXED32 else _varint(message, at)
        if at + size > len(message):
            raise ValueError("it is cut off")
        value, at = message[at : at + size], at + size
        if number == _DATA:
            data = value
        else:
            floats.append(value)
    joined = b"".join(floats)
    if len(joined) % 4:
        raise ValueError("its floats are cut off")
    label = numbers.get(_LABEL)
    sample = CaffeSample(
        numbers.get(_CHANNELS, 0),
        numbers.get(_HEIGHT, 0),
        numbers.get(_WIDTH, 0),
        data,
        None if label is None else _signed(label),
        np.frombuffer(joined, "<f4"),
        bool(numbers.get(_ENCODED, 0)),
    )
    _check(sample)
    return sample


def _check(sample: CaffeSample) -> None:
    count = sample.channels * sample.height * sample.width
    if sample.is_encoded:
        if not sample.data:
            raise ValueError("it has no picture")
    elif len(sample.data or sample.floats) != count or not count:
        raise ValueError(f"it has {len(sample.data or sample.floats)} values for {sample.shape}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("it is cut off")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _signed(value: int) -> int:
    """A label of 32 bits; negative ones are written in 64."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
