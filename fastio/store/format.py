"""What a packed container brings to become an entry of FORMATS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.store.arrays import Place
from fastio.store.atomic import PartialFile
from fastio.store.files import ByteSource
from fastio.store.seal import ReadBytes, SealAt
from fastio.store.sealed import Shard
from fastio.types.schema import Schema
from fastio.types.spans import Spans

__all__ = ["HEAD_BYTES", "Columns", "CutOff", "Ending", "ForeignFiles", "Format", "ShardWriter", "Sizes", "Values"]

HEAD_BYTES = 8192  # of a file, in which the marks of every format lie

Values = Mapping[str, Spans]  # per payload field, one value per sample, with checksums
Columns = Mapping[str, NDArray[Any]]
CutOff = Callable[[int, ReadBytes], str]  # what is wrong with a file of this size without its end; "": nothing
Sizes = Mapping[str, NDArray[np.int64]]  # bytes of every sample's value, per payload field


@dataclass(frozen=True, slots=True)
class Ending:
    """What a finished file reports for the seal; ``seal.py`` explains each field."""

    file_size: int
    seal_start: int
    head_size: int
    header_start: int
    header_size: int
    header_crc: int
    head_crc: int
    file_crc: int


class ShardWriter(Protocol):
    """
    Writes samples to one file, in order, and the index after them.

    The writer has already checked keys, sizes and checksums; a shard writer only decides where bytes go.
    """

    def append(self, keys: Sequence[str], values: Values, columns: Columns) -> None:
        """Write samples: for each key, a value of every payload field. ``columns`` is for formats that repeat them."""
        ...

    def take_starts(self) -> dict[str, NDArray[np.int64]]:
        """Return the offsets, from ``base``, of those values whose position became known since the last call."""
        ...

    def end_payload(self) -> None:
        """Write what is still in memory; then ``take_starts`` returns the rest."""
        ...

    @property
    def base(self) -> int:
        """The byte of the file that ``starts`` count from."""
        ...

    def finish(self, arrays: Mapping[str, NDArray[Any]], header: Callable[[Mapping[str, Place]], bytes]) -> Ending:
        """Write the index arrays, then ``header(places)``, and leave 128 bytes for the seal."""
        ...


@dataclass(frozen=True, slots=True)
class ForeignFiles:
    """How to open files of a container that other tools wrote."""

    open: Callable[[ByteSource], Shard]
    check_set: Callable[[str, Sequence[Shard]], list[Shard]]  # the shards in order; StoreError unless they are one set


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """
    One packed container and everything that fastio knows about it. As an entry of FORMATS it works in all commands.

    Only ``writer`` writes files. Reading them takes only ``seal_at``: it finds the seal, which leads to the index.

    ``plain_reader`` returns Python that reads a store of this schema without fastio: given ``path``, it leaves the
    values of the first payload field in ``images`` (of text and tokens alone in ``samples``), and ``labels`` if the
    schema has them, in order. Of many fields it leaves ``samples``, a dict of the payload fields each, pictures as
    bytes, and the columns either in these dicts or in ``columns``, a dict of arrays.
    """

    name: str  # ASCII, as ``fastio info`` shows it
    suffixes: tuple[str, ...]  # of file names, with the dot; the first is the usual one
    file: str  # what one file is called, with its article: "an LMDB file"
    good_for: str  # when to choose it, a few words
    writer: Callable[[PartialFile, Schema], ShardWriter]
    seal_at: SealAt
    overhead: Callable[[Schema], str]  # why a file takes more bytes than the samples of this schema
    plain_reader: Callable[[Schema], str]
    # What that code takes for several shards; None: it takes them one by one.
    plain_path: Callable[[Schema, Sequence[str]], object] = lambda schema, paths: None
    marks: tuple[tuple[int, bytes], ...] = ()  # offset and bytes: any of them tells a file of this container
    cut_off: CutOff = lambda file_size, read: ""
    sample_bytes: Callable[[Schema, Sizes, int], NDArray[np.int64]] | None = None  # None: a store is always one file
    foreign: ForeignFiles | None = None  # None: only what fastio packed can be opened
    # What else a plan of shards depends on: another word where a newer version writes the same samples as other bytes.
    layout: Callable[[Schema], str] = lambda schema: ""
    fixed_keys: bool = False  # keys as an array of strings of one width, where that wastes little

    @property
    def has_shards(self) -> bool:
        """
        Whether a store may consist of several files, ``name-%06d`` and a suffix; a folder of them is then a store.
        """
        return self.sample_bytes is not None

    @property
    def names(self) -> tuple[str, ...]:
        """How files may be named, for help and guides: ``x.tar``, ``x-%06d.tar``."""
        shards = (f"x-%06d{self.suffixes[0]}",) if self.has_shards else ()
        return (*(f"x{suffix}" for suffix in self.suffixes), *shards)

    def is_name(self, name: str) -> bool:
        """Whether a file of this name is one of this format."""
        return name.endswith(self.suffixes)

    def is_content(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes is one of this container; ``HEAD_BYTES`` are enough."""
        return any(head[start:].startswith(mark) for start, mark in self.marks)
