"""How often damage within JPEGs is found, when they are packed and when Pillow opens them.

python -m benchmarks.damaged_jpegs FOLDER [--rounds 2]

Every JPEG in the class folders FOLDER is damaged in each way, behind byte 700 at a random place, and packed alone as
``fastio pack`` does: its header and end are looked at, and all its codes are read. Nothing is timed.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from fastio.converters.pictures.probe import probe
from fastio.store.jump_tables import JumpRule, begin_jump_tables
from fastio.types.spans import Spans

__all__ = ["main"]

_HEADER = 700  # bytes that stay: damage in headers is found by everybody
_BLOCK = 512
_TEXT = b"the quick brown fox jumps over the lazy dog. "
_END = b"\xff\xd9"

Rng = np.random.Generator


def _one_bit(data: bytes, at: int, rng: Rng) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]


def _filled(data: bytes, at: int, fill: bytes) -> bytes:
    """The same size and beginning, then ``fill``, then the end marker."""
    return data[:at] + fill[: len(data) - at - 2] + _END


def _text(data: bytes, at: int) -> bytes:
    return _filled(data, at, _TEXT * (len(data) // len(_TEXT) + 1))


DAMAGES: dict[str, Callable[[bytes, int, Rng], bytes]] = {
    "one bit flipped": _one_bit,
    "a block of 512 bytes zeroed": lambda data, at, rng: data[:at] + bytes(_BLOCK) + data[at + _BLOCK :],
    "a block of 512 bytes lost": lambda data, at, rng: data[:at] + data[at + _BLOCK :],
    "cut, with an end marker": lambda data, at, rng: data[:at] + _END,
    "from there on noise": lambda data, at, rng: data[:at] + rng.bytes(len(data) - at),
    "from there on zeros": lambda data, at, rng: data[:at] + bytes(len(data) - at),
    "from there on text": lambda data, at, rng: _text(data, at)[:-2] + b"do",
    "from there on text, with an end marker": lambda data, at, rng: _text(data, at),
}


def _is_refused(data: bytes) -> bool:
    spans = Spans.joined(np.frombuffer(data, np.uint8), np.array([len(data)]))
    if probe(spans, check_end=True).status[0]:
        return True
    return bool(begin_jump_tables(spans, rule=JumpRule(0))()[1][0])


def _pillow_raises(data: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except OSError:
        return True
    return False


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--rounds", default=2, show_default=True, help="How often each JPEG is damaged in each way.")
def main(source: Path, rounds: int) -> None:
    """Damage the JPEGs of SOURCE, and print what finds it."""
    rng, packing, pillow = np.random.default_rng(0), Counter[str](), Counter[str]()
    files = [data for path in sorted(source.rglob("*.*")) if (data := path.read_bytes()).startswith(b"\xff\xd8")]
    files = [data for data in files if len(data) > _HEADER + 2 * _BLOCK]
    for data in files * rounds:
        at = int(rng.integers(_HEADER, len(data) - _BLOCK - 2))
        for name, damage in DAMAGES.items():
            damaged = damage(data, at, rng)
            packing[name] += _is_refused(damaged)
            pillow[name] += _pillow_raises(damaged)
    table = Table(title=f"found, of {len(files) * rounds:,} trials each")
    for heading in ("damage", "by packing", "by Pillow"):
        table.add_column(heading)
    for name in DAMAGES:
        table.add_row(name, f"{packing[name]:,}", f"{pillow[name]:,}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
