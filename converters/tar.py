"""Existing tar shards as a source: our own, or those that webdataset or GNU tar wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.checksum import damaged
from fastio.converters.cut import cut
from fastio.converters.labels import LabelFile
from fastio.converters.probe import image_problem, probe
from fastio.converters.scan import Folder, shown
from fastio.converters.source import Chunk, Problem
from fastio.errors import SourceError
from fastio.samplers.order import full_order
from fastio.store import open_store
from fastio.store.index import SealedStore
from fastio.store.sample_store import SampleBatch
from fastio.types.schema import IMAGE, TEXT, TOKENS, Schema
from fastio.types.spans import Spans

__all__ = ["TarSource", "is_tar", "open_tar"]

_CARRIED = ("left_out", "left_aside", "misnamed", "tokenizer")  # what is on record of a sealed store stays true


def is_tar(path: str) -> bool:
    """Whether a path names tar shards: by its suffix, for ``name-{000000..000009}.tar`` need not exist as such."""
    return path.endswith(".tar") and not Path(path).is_dir()


def open_tar(path: str, labels: LabelFile | None = None, _top: Folder | None = None) -> TarSource:
    """The samples of one tar file, of shards, or of a folder of shards, in the order of the shards."""
    if labels is not None:
        raise SourceError(f"{path}: tar shards bring their labels along; leave --labels {labels.path} out")
    if not is_tar(path) and not Path(path).is_dir():
        raise SourceError(f"{path}: expected a .tar file, shards such as name-*.tar, or a folder of shards")
    store = open_store(path)
    if store.format != "tar":
        raise SourceError(f"{path}: expected tar shards, got a {store.format} store")
    skipped = [] if _sealed(store) else store.metadata["skipped"]  # members that are no samples
    problems = [Problem(shown(entry["key"]), entry["problem"]) for entry in skipped]
    repeated = {} if _sealed(store) else _repeated(store)
    problems += repeated.values()
    kept = np.setdiff1d(np.arange(len(store)), np.fromiter(repeated, np.int64, len(repeated)))
    return TarSource(path, store, sorted(problems, key=lambda problem: problem.key), kept)


@dataclass(frozen=True, slots=True)
class TarSource:
    """
    An open tar store, read in chunks. Satisfies ``fastio.converters.Source``.

    Images are recognised by their first bytes; where the store has checksums, they are
    compared before anything is handed on, so that damage is not packed under a new, right checksum.
    """

    path: str
    store: SealedStore
    problems: Sequence[Problem]
    kept: NDArray[np.int64]  # the store's samples that are not problems already
    layout: str = "tar"
    shuffle: int | None = None
    left_out: Sequence[Problem] = ()

    @property
    def schema(self) -> Schema:
        """As in the shards."""
        return self.store.schema

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Classes as in the shards; what an earlier run skipped stays on record."""
        source = {"layout": "tar", "name": Path(self.path).resolve().name, "labels": None}
        known = self.store.metadata
        kept = {"skipped_before": known["skipped"]} if known.get("skipped") and _sealed(self.store) else {}
        kept |= {name: known[name] for name in _CARRIED if known.get(name)}
        if any(field.codec in (TEXT, TOKENS) for field in self.schema.payload):
            kept["text_source"] = known.get("text_source") or known.get("source")
        if self.shuffle is not None:
            kept["shuffle"] = self.shuffle
        if known.get("packing"):
            kept["packing_before"] = [*known.get("packing_before", []), known["packing"]]
        return {"classes": known.get("classes"), "source": source, **kept}

    @property
    def size_bytes(self) -> int:
        """Bytes of all payload fields."""
        return int(self._sizes().sum())

    @property
    def disk_bytes(self) -> int:
        """Blocks of the shards."""
        return sum(Path(path).stat().st_blocks * 512 for path in self.store.shard_paths)

    @property
    def files_opened(self) -> int:
        """One file a shard."""
        return len(self.store.shard_paths)

    def __len__(self) -> int:
        return len(self.kept) + len(self.problems)

    def chunks(self, max_bytes: int, max_samples: int) -> Sequence[range]:
        """Cut by the bytes of all payload fields together."""
        return cut(self._sizes(), max_bytes, max_samples)

    def shuffled(self, seed: int) -> TarSource:
        """See ``fastio.converters.Source``."""
        by_key = np.array(self.store.keys(self.kept), object).argsort(kind="stable")
        return replace(self, kept=self.kept[by_key][full_order(len(self.kept), seed=seed, epoch=0)], shuffle=seed)

    def begin(self, chunk: range, pool: _native.ThreadPool | None = None) -> Callable[[], Chunk]:
        """Spans over the mapped shards, read ahead by the kernel; nothing is copied here."""
        indices = self.kept[chunk.start : chunk.stop]
        spans = {field.name: self.store.spans(field.name, indices) for field in self.schema.payload}
        jobs = [_native.read_ahead(s, pool) for s in spans.values()]

        def finish() -> Chunk:
            for job in jobs:
                job.wait()
            return self._chunk(indices, spans)

        return finish

    def _chunk(self, indices: NDArray[np.int64], spans: Mapping[str, Spans]) -> Chunk:
        keys = self.store.keys(indices)
        shapes: dict[str, NDArray[np.int32]] = {}
        problems: dict[int, str] = {}
        for field in self.schema.payload:
            if field.codec == IMAGE:
                seen = probe(spans[field.name], verify=True)
                shapes[field.name] = np.ascontiguousarray(seen[:, 1:4])
                problems |= {int(i): image_problem(seen[i]) for i in np.flatnonzero(seen[:, 0] != _native.OK)}
        for name, part in spans.items():
            problems |= {int(i): f"has a field {name!r} that differs from its checksum" for i in damaged(part)}
        columns = {field.name: self.store.column(field.name)[indices] for field in self.schema.columns}
        batch = SampleBatch(keys, spans, columns, shapes)
        if problems:
            batch = batch.at(np.setdiff1d(np.arange(len(keys)), np.fromiter(problems, np.int64, len(problems))))
        return Chunk(batch, [Problem(keys[i], problems[i]) for i in sorted(problems)])

    def _sizes(self) -> NDArray[np.int64]:
        total = np.zeros(len(self.kept), np.int64)
        for field in self.schema.payload:
            total += self.store.spans(field.name, self.kept).sizes
        return total


def _sealed(store: SealedStore) -> bool:
    return all(shard.seal is not None for shard in store.shards)


def _repeated(store: SealedStore) -> dict[int, Problem]:
    """Samples whose key an earlier shard has already, by index: within one shard the scan has found them."""
    repeated: dict[int, Problem] = {}
    first_in: dict[str, str] = {}
    start = 0
    for shard in store.shards if len(store.shards) > 1 else ():
        name = Path(shard.path).name
        for index, key in enumerate(store.keys(np.arange(start, start + shard.count)), start):
            first = first_in.setdefault(key, name)
            if first != name:
                repeated[index] = Problem(shown(key), f"comes again in {name}, after {first}")
        start += shard.count
    return repeated
