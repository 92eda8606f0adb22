"""FileWriter: one packed file in progress: its payload, its index in spools, and its seal."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.store.arrays import IndexHeader, Place, expected_arrays, unit_bytes
from fastio.store.atomic import PartialFile
from fastio.store.batch import CheckedBatch
from fastio.store.format import Ending, Format
from fastio.store.key_ledger import KeyLedger, KeyRange
from fastio.store.seal import Seal, set_checksum
from fastio.store.spool import Spool
from fastio.types.schema import Schema

__all__ = ["FileWriter", "SealedAlone"]


@dataclass(frozen=True, slots=True)
class SealedAlone:
    """One shard of a set that is sealed before the others are known: its plan (0: none), and its number there."""

    plan: int
    number: int


class FileWriter:
    """
    Writes samples, then their index and the seal to ``file``, which belongs to the caller.

    Keys lie in ``ledger``, one after the other: those of this file begin at ``first_key``. The index is spooled beside
    the file until ``release``.
    """

    def __init__(self, file: PartialFile, form: Format, schema: Schema, ledger: KeyLedger, *, first_key: int) -> None:
        self.file = file
        self.keys = KeyRange(first_key, first_key)
        self.size_bytes = 0  # by Format.sample_bytes, for whoever cuts shards
        self._format = form
        self._schema = schema
        self._ledger = ledger
        self._writer = form.writer(file, schema)
        required, optional = expected_arrays(schema, 0)
        self._arrays = {
            name: Spool(dtype, tuple(n or 0 for n in shape[1:]), beside=file.path)
            for name, (dtype, shape) in {**required, **optional}.items()
        }
        self._required = frozenset(required)
        self._units = unit_bytes(schema)
        self._starts: list[str] = []  # arrays that come first in a file, in the order of the format's writer

    @property
    def count(self) -> int:
        """Samples so far."""
        return self.keys.count

    def append(self, batch: CheckedBatch, start: int, stop: int) -> None:
        """Add the samples ``start`` up to ``stop`` of a batch whose keys the ledger has."""
        columns = {f.name: batch.arrays[f.name][start:stop] for f in self._schema.columns}
        values = {name: spans.part(start, stop) for name, spans in batch.values.items()}
        self._writer.append(batch.keys[start:stop], values, columns)
        self.keys.count += stop - start
        self.keys.stop += int(batch.key_sizes[start:stop].sum()) + stop - start
        self.keys.longest = max(self.keys.longest, int(batch.key_sizes[start:stop].max(initial=0)))
        for name, array in batch.arrays.items():
            unit = self._units.get(name.removesuffix("_sizes"), 1) if name.endswith("_sizes") else 1
            self._arrays[name].append(array[start:stop] // unit if unit > 1 else array[start:stop])
        for name, spans in values.items():
            if spans.intervals is not None:
                for view in spans.intervals.views():
                    self._arrays[f"{name}_intervals"].append(view.view("<u4"))
        self._take_starts()

    def finish(self, metadata: bytes, alone: SealedAlone | None) -> Seal:
        """Write the index and the seal: of a store of one file, or of a shard that is sealed alone. Returns it."""
        self._writer.end_payload()
        self._take_starts()
        arrays: dict[str, NDArray[Any]] = {}
        for name in [*self._starts, *(other for other in self._arrays if other not in self._starts)]:
            array = self._arrays[name].rows()
            if name in self._required or name.endswith("_checksums") or array.any():  # zeros: unknown, not worth bytes
                arrays[name] = array
        arrays["keys"] = self._ledger.array(self.keys, fixed=self._format.fixed_keys)
        arrays["metadata"] = np.frombuffer(metadata, np.uint8)

        def header(places: Mapping[str, Place]) -> bytes:
            return IndexHeader(schema=self._schema, base=self._writer.base, places=places).to_bytes()

        seal = self._seal(self._writer.finish(arrays, header), alone)
        self.file.overwrite(seal.seal_start, seal.pack())
        return seal

    def release(self) -> None:
        """Let the spools go: temporary files without a name, whose content is in the file or no longer needed."""
        for spool in self._arrays.values():
            with contextlib.suppress(OSError):
                spool.close()

    def _take_starts(self) -> None:
        taken = self._writer.take_starts()
        self._starts = [f"{name}_starts" for name in taken]
        for name, starts in taken.items():
            self._arrays[f"{name}_starts"].append(starts // self._units[name] if self._units[name] > 1 else starts)

    def _seal(self, ending: Ending, alone: SealedAlone | None) -> Seal:
        count = self.keys.count
        return Seal(
            format=self._format.name,
            count=count,
            file_size=ending.file_size,
            seal_start=ending.seal_start,
            head_size=ending.head_size,
            header_start=ending.header_start,
            header_size=ending.header_size,
            set_count=count,
            shard=0 if alone is None else alone.number,
            shards=1 if alone is None else 0,
            header_crc=ending.header_crc,
            head_crc=ending.head_crc,
            file_crc=ending.file_crc,
            set_crc=set_checksum([(count, ending.file_size, ending.file_crc)]) if alone is None else 0,
            plan=0 if alone is None else alone.plan,
        )
