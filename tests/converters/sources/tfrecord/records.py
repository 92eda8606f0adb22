"""TFRecord files, written as the format is documented: tf.train.Example in records with masked CRC-32Cs."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path


def crc32c(data: bytes) -> int:
    """One bit at a time, as the polynomial says."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """The checksum as TFRecord stores it."""
    value = crc32c(data)
    return struct.pack("<I", (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """One record of a file."""
    size = struct.pack("<Q", len(data))
    return size + masked(size) + data + masked(data)


def write_records(path: Path, records: Iterable[bytes]) -> Path:
    """A file of these records."""
    path.write_bytes(b"".join(map(record, records)))
    return path


def varint(value: int) -> bytes:
    """A number in groups of seven bits; negative ones as 64 bits."""
    value &= (1 << 64) - 1
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def sized(number: int, data: bytes) -> bytes:
    """A field with a size: a message, bytes, or packed numbers."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value: object) -> bytes:
    """The Feature of a value or a list of values: bytes, text, floats or integers."""
    values = value if isinstance(value, list) else [value]
    if values and isinstance(values[0], (bytes, str)):
        data = [each.encode() if isinstance(each, str) else bytes(each) for each in values]
        return sized(1, b"".join(sized(1, each) for each in data))
    if values and isinstance(values[0], float):
        return sized(2, sized(1, struct.pack(f"<{len(values)}f", *values)))
    return sized(3, sized(1, b"".join(map(varint, values))) if values else b"")


def example(values: Mapping[str, object]) -> bytes:
    """The Example of these features, in their order."""
    entries = [sized(1, sized(1, name.encode()) + sized(2, feature(value))) for name, value in values.items()]
    return sized(1, b"".join(entries))
