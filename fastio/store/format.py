"""What a packed container has to bring along to become an entry of FORMATS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.store.atomic import PartialFile
from fastio.types.schema import Schema
from fastio.types.spans import Spans

__all__ = ["Columns", "Ending", "Format", "Layout", "Place", "Sizes", "Values"]

Values = Mapping[str, Spans]  # per payload field, one value per sample
Columns = Mapping[str, NDArray[Any]]
Sizes = Mapping[str, NDArray[np.int64]]  # bytes of every sample's value, per payload field


@dataclass(frozen=True, slots=True)
class Place:
    """Where an index array lies in its file, and how it reads."""

    start: int
    dtype: str
    shape: tuple[int, ...]
    crc32: int


@dataclass(frozen=True, slots=True)
class Ending:
    """What a finished layout tells its seal."""

    file_size: int
    seal_start: int
    head_size: int
    header_start: int
    header_size: int
    header_crc: int
    head_crc: int
    file_crc: int


class Layout(Protocol):
    """
    Puts samples into one file, in order, and then the index behind them.

    The writer has checked keys and sizes; a layout cares for bytes and places only.
    """

    def append(self, keys: Sequence[str], values: Values, columns: Columns) -> None:
        """Write samples: one value per key of every payload field; ``columns`` for formats that repeat them."""
        ...

    def take_starts(self) -> dict[str, NDArray[np.int64]]:
        """Where values lie, from ``base`` on, as far as their place became known since the last call."""
        ...

    def end_payload(self) -> None:
        """Write what was gathered; now ``take_starts`` gives the rest."""
        ...

    @property
    def base(self) -> int:
        """The byte of the file that ``starts`` count from."""
        ...

    def finish(self, arrays: Mapping[str, NDArray[Any]], header: Callable[[Mapping[str, Place]], bytes]) -> Ending:
        """Write the index arrays, then ``header(places)``, and leave room for the seal."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """
    One packed container.

    ``seal_start`` is the seal's place, from the end of the file when negative. ``sample_bytes``
    says how much of a file each of n samples takes, for a format that is cut into shards.
    ``fixed_keys`` asks for keys as an array of fixed-width strings, where that does not waste much.
    """

    name: str
    suffixes: tuple[str, ...]
    seal_start: int
    layout: Callable[[PartialFile, Schema], Layout]
    sample_bytes: Callable[[Schema, Sizes, int], NDArray[np.int64]] | None = None
    fixed_keys: bool = False
