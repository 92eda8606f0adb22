"""Writes the token ids of a store as one row: a ``.bin``, as nanoGPT reads it, or Megatron's ``.bin`` and ``.idx``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fastio.converters.inspect.unpack import UnpackReport
from fastio.converters.sources.source import damaged, split_by_bytes
from fastio.converters.write.token_files import TokenFileWriter
from fastio.dataset.token_stream import runs_of_store
from fastio.errors import StoreCorrupt
from fastio.store.index.store import SealedStore
from fastio.store.token_files import STREAM
from fastio.types.spans import Spans

__all__ = ["TokenForm", "unpack_tokens"]

TokenForm = Literal["bin", "megatron"]

_PIECE_BYTES = 16 << 20
_PIECE_RUNS = 1 << 16


def unpack_tokens(
    store: SealedStore,
    out: str | os.PathLike[str],
    *,
    form: TokenForm,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> UnpackReport:
    """
    Write all ids of a store in order to ``out``: a ``.bin``, or the prefix of Megatron's two files. Their dtype is that
    of the file that was packed; otherwise uint16, or uint32 (Megatron: int32) where the store has 4 bytes for an id.

    Files get their names when they are complete. Raises SchemaError for a store without ids, StoreCorrupt for samples
    that differ from their checksums, and StoreError for a name that is taken, unless ``overwrite``.
    """
    runs = runs_of_store(store, None, None)
    path = os.fspath(out)
    path = path if path.endswith(".bin") else f"{path}.bin"
    is_megatron = form == "megatron"
    said = store.metadata.get(STREAM)
    wide = "int32" if is_megatron else "uint32"
    dtype = said["dtype"] if isinstance(said, Mapping) else "uint16" if runs.dtype.itemsize == 2 else wide
    dtype = "int32" if is_megatron and dtype == "uint32" else dtype
    begins = np.zeros(len(runs.ends), np.bool_)
    if runs.documents is not None:
        begins[np.searchsorted(runs.firsts, runs.documents)] = True
    lengths = runs.ends - runs.firsts
    with TokenFileWriter(path, dtype=dtype, megatron=is_megatron, overwrite=overwrite) as writer:
        for piece in split_by_bytes(lengths * runs.dtype.itemsize, _PIECE_BYTES, _PIECE_RUNS):
            own = slice(piece.start, piece.stop)
            checksums = None if runs.checksums is None else runs.checksums[own]
            sizes = lengths[own] * runs.dtype.itemsize
            spans = Spans(runs.files.buffers, runs.shard[own], runs.starts[own], sizes, checksums)
            fetched, status = runs.files.fetch(spans).wait()
            wrong = np.flatnonzero(status).tolist() if status is not None else damaged(fetched).tolist()
            if wrong:
                raise StoreCorrupt(
                    f"{runs.place(int(runs.firsts[piece.start + wrong[0]]))}: ids differ from their checksum; "
                    f"`fastio verify {store.path}` lists all such samples"
                )
            ids = np.concatenate([view.view(runs.dtype) for view in fetched.views()])
            is_new = begins[own]
            firsts = np.flatnonzero(is_new)
            starts = np.unique(np.append(0, firsts))
            token_starts = np.append(0, np.cumsum(lengths[own]))[starts]
            documents = np.diff(token_starts, append=len(ids))
            writer.write_all(ids, documents, continues=not is_new[0])
            if progress is not None:
                progress(len(piece), int(sizes.sum()))
    size_bytes = sum(Path(each).stat().st_size for each in writer.paths)
    return UnpackReport(os.fspath(out), len(writer.paths), size_bytes, _notes(runs.documents, is_megatron=is_megatron))


def _notes(documents: Any, *, is_megatron: bool) -> list[str]:
    """Return what the files do not say."""
    if is_megatron:
        return [] if documents is not None else ["it is not known where documents begin: the .idx has one"]
    if documents is None:
        return []
    return [f"a .bin does not say where its {len(documents):,} documents begin: TokenStream(..., eos=) finds them"]
