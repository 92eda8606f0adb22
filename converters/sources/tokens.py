"""Packs a stream of token ids, such as nanoGPT's or Megatron's, in runs of a few thousand ids."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.sources.listed import Indices, ListedSource, Values
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.dataset.token_stream import TokenStream
from fastio.dataset.window_store import TokenRuns
from fastio.errors import SchemaError, SourceError, StoreError
from fastio.store.kinds.scan import SourcePath
from fastio.store.token_files import CONTINUES, RUN_BYTES, STREAM
from fastio.types.schema import COLUMN, TOKENS, Field, Schema
from fastio.types.spans import Spans

__all__ = ["open_tokens", "stream_source"]

_KIND: Final = "tokens"  # of sources
_MOST_IDS = 1 << 32


def open_tokens(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open a file of ids, Megatron's prefix, a pattern or a folder of these."""
    try:
        stream = TokenStream(place.path, **asdict(options.ids))
    except (SchemaError, StoreError, ValueError) as exc:
        raise SourceError(str(exc)) from exc
    said = {name: value for name, value in asdict(options.ids).items() if value is not None}
    return stream_source(stream, place.name, **({"ids": said} if said else {}))


def stream_source(stream: TokenStream, name: str, **more: Any) -> ListedSource:
    """
    Return a stream as samples of at most 8,192 bytes of ids, which end where documents or files do.

    The column "continues" is 1 for a sample that goes on with the document of the one before, and for all but the
    first if it is not known where documents begin. ``more`` is for the record of the source. Ids are uint16 if their
    dtype or ``vocab_size`` says that they fit.
    """
    runs = stream.runs
    is_small = runs.dtype.itemsize == 1 or runs.dtype in (np.uint16, np.int16)
    stored = np.dtype("<u2" if is_small or 0 < (runs.vocab_size or 0) <= 1 << 16 else "<u4")
    starts, continues = _cut(runs, RUN_BYTES // stored.itemsize)
    lengths = np.diff(starts, append=len(runs))
    record = source_record(_KIND, name, files=[Path(path).name for path in stream.paths], **more)
    special = dict.fromkeys(("bos", "eos", "pad", "unk")) | (runs.metadata["tokenizer"].get("special") or {})
    tokenizer = {"kind": "ids", "name": None, "vocab_size": runs.vocab_size, "special": special, "json": None}
    return ListedSource(
        path=stream.path,
        kind=_KIND,
        schema=Schema((Field("tokens", TOKENS, stored.str, (None,)), Field(CONTINUES, COLUMN, "|u1", ()))),
        metadata={
            "classes": None,
            "source": record,
            "tokenizer": tokenizer,
            STREAM: {"dtype": runs.dtype.name, "documents": runs.documents is not None},
        },
        keys_at=lambda indices: _keys(runs, starts[indices]),
        sizes=lengths * stored.itemsize,
        read=_reader(runs, starts, lengths, stored),
        disk_bytes=sum(Path(path).stat().st_blocks * 512 for path in stream.paths),
        files_opened=len(stream.paths),
        columns={CONTINUES: continues},
        paths=lambda: stream.paths,
        is_by_name=False,
    )


def _keys(runs: TokenRuns, tokens: NDArray[np.int64]) -> list[str]:
    """Return the names of samples that begin with these ids: file and number, such as ``train.bin:0000000004096``."""
    shard = runs.shard[np.searchsorted(runs.ends, tokens, side="right")]
    paths = [source.path for source in runs.sources]
    names = [Path(path).name for path in paths]
    if len(set(names)) < len(names):
        folder = os.path.commonpath(paths)
        names = [os.path.relpath(path, folder) for path in paths]
    firsts = runs.firsts[np.searchsorted(runs.shard, np.arange(len(paths)))][shard]
    return [
        f"{names[file]}:{token:013}" for file, token in zip(shard.tolist(), (tokens - firsts).tolist(), strict=True)
    ]


def _cut(runs: TokenRuns, most: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the first id of each sample, and whether it goes on with the one before."""
    firsts = runs.firsts if runs.documents is None else np.union1d(runs.firsts, runs.documents)
    counts = -(-np.diff(firsts, append=len(runs)) // most)
    ends = np.cumsum(counts)
    numbers = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    starts = np.repeat(firsts, counts) + numbers * most
    begins = np.zeros(1, np.int64) if runs.documents is None else runs.documents
    continues = np.ones(len(starts), np.uint8)
    continues[np.searchsorted(starts, begins)] = 0
    return starts, continues


def _reader(runs: TokenRuns, starts: NDArray[np.int64], lengths: NDArray[np.int64], stored: np.dtype[Any]) -> Any:
    """Return how to read some samples: where they lie, if they are stored as they are."""
    is_same = runs.dtype.kind == "u" and runs.dtype == stored and not runs.vocab_size

    def begin(indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        files = runs.files
        run = np.searchsorted(runs.ends, starts[indices], side="right")
        first = runs.starts[run] + (starts[indices] - runs.firsts[run]) * runs.dtype.itemsize
        shard, sizes = np.ascontiguousarray(runs.shard[run]), lengths[indices] * runs.dtype.itemsize
        spans = Spans(files.buffers, shard, first, sizes)
        job = files.read_ahead(spans, pool=pool)
        fetched = files.fetch(spans, pool=pool, is_near=True)

        def finish() -> Values:
            job.wait()
            there, status = fetched.wait()
            if status is not None:
                place = runs.place(int(starts[indices[int(np.flatnonzero(status)[0])]]))
                raise SourceError(f"{place}: cannot be read: check the disk, or copy the file again")
            return Values({"tokens": there}) if is_same else _converted(runs, starts[indices], there, stored)

        return finish

    return begin


def _converted(runs: TokenRuns, starts: NDArray[np.int64], spans: Spans, stored: np.dtype[Any]) -> Values:
    """Return ids in the dtype of the store, and what is wrong with those that are none."""
    highest = min(runs.vocabulary or _MOST_IDS, int(np.iinfo(stored).max) + 1)
    parts, problems = [], {}
    for number, view in enumerate(spans.views()):
        ids = view.view(runs.dtype)
        wrong = np.flatnonzero((ids < 0) | (ids.astype(np.int64) >= highest))
        if len(wrong):
            place = runs.place(int(starts[number]) + int(wrong[0]))
            problems[number] = f"has an id {ids[wrong[0]]} ({place}): expected 0 to {highest - 1}"
        parts.append(ids.astype(stored))
    sizes = np.array([part.nbytes for part in parts], np.int64)
    return Values({"tokens": Spans.joined(np.concatenate(parts).view(np.uint8), sizes)}, problems)
