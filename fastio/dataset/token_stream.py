"""TokenStream: one long row of token ids, opened in place; and windows of it as a dataset."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec import describe_status
from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.token_reader import TokenReader, stored_tokenizer
from fastio.dataset.window_store import (
    Documents,
    LocatedWindows,
    TokenRuns,
    WindowRule,
    WindowStore,
    content_of,
)
from fastio.errors import SampleError, SchemaError, StoreError
from fastio.lazy import torch
from fastio.samplers.position import whole
from fastio.store import open_store
from fastio.store.files import Read
from fastio.store.files.local import expanded, path_text
from fastio.store.index.store import SealedStore
from fastio.store.protocol import SampleStore
from fastio.store.token_files import (
    CONTINUES,
    STREAM,
    TokenFile,
    check_ids,
    find_token_files,
    keeps_stream,
    not_found,
    open_token_file,
)
from fastio.types.field_types import type_of
from fastio.types.options import explains_names
from fastio.types.spans import Spans, distinct
from fastio.types.units import counted

__all__ = ["TokenStream", "TokenWindows", "WindowReader", "runs_of_store"]

_LATER_PIECE = re.compile(r"#[1-9][0-9]*\Z")
_NONE: NDArray[np.int64] = np.empty(0, np.int64)
_SCANNED = 1 << 24  # ids looked at together
_STREAM = ("--tokenizer", "tokenizer.json", "--concat", "--eos")  # of fastio pack, for text
_EXPECTED = "the path of a .bin, a .npy, Megatron's prefix, a folder of these or a store"


class TokenStream:
    """
    One long row of token ids, opened in place: nothing is copied or written::

        stream = TokenStream("train.bin", dtype="uint16")
        loader = FastLoader(stream.windows(1025, random=True), 16, shuffle=True)
        for batch in loader:                                   # input_ids (16, 1025) int64
            inputs, targets = batch["input_ids"][:, :-1], batch["input_ids"][:, 1:]

    ``path`` is a ``.bin`` of ids, as nanoGPT has them, or with the header of llm.c; the prefix of Megatron's ``.bin``
    and ``.idx``; a ``.npy`` of one axis; a folder or pattern (``"train-*.bin"``) of one of these, whose files follow
    each other in the order of their names; or a store of token ids that fastio packed, whose samples do.

    * ``dtype``: that of the ids of a ``.bin`` that does not say it: "uint16", "uint32", "int32", ...
    * ``vocab_size``: how many different ids there are. Some are compared with it now, the others when they are read: a
      larger one is a bad sample. By default what the store of a tokenizer says.
    * ``eos``: the id that ends each document, in files that do not say where documents begin. It belongs to the
      document that it ends. The whole file is read once for that.

    ``len(stream)`` is the number of ids, ``stream[100:200]`` are some of them, int64 ``(n,)``; ``documents`` are those
    at which documents begin, None if that is not known.

    Raises StoreNotFound, StoreCorrupt for a file that is cut short or contradicts its index, and SchemaError for one
    that holds no ids, or ids of another dtype.
    """

    @explains_names(example="dtype='uint16'")
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dtype: Any = None,
        vocab_size: int | None = None,
        eos: int | None = None,
        read: Read = "auto",
    ) -> None:
        name = path_text(path, _EXPECTED)
        if vocab_size is not None:
            vocab_size = whole("vocab_size", vocab_size, "1 or more", least=1, below=1 << 32)
        if eos is not None:
            eos = whole("eos", eos, "a token id", least=0, below=vocab_size or 1 << 32)
        self._options: dict[str, Any] = {"dtype": dtype, "vocab_size": vocab_size, "eos": eos, "read": read}
        found = find_token_files(name)
        self._store: SealedStore | None = None
        if found is not None:
            files = [open_token_file(each, dtype=dtype, read=read) for each in found]
            if vocab_size is not None:
                check_ids(files, vocab_size)
            self.runs = _runs_of_files(name, files, vocab_size, eos)
        elif Path(name).is_dir() and not any(Path(name).iterdir()):
            raise not_found(name)
        else:
            self._store = _store_at(name, read)
            self.runs = runs_of_store(self._store, dtype, vocab_size)
        if eos is not None and self.runs.documents is not None:
            raise ValueError(f"{name}: eos={eos}: it says itself where documents begin: leave eos= out")
        if eos is not None:
            if eos > np.iinfo(self.runs.dtype).max:
                raise ValueError(f"{name}: eos={eos}: its ids are {self.runs.dtype}, which has no such number")
            self.runs = _divided(self.runs, eos)

    @property
    def path(self) -> str:
        """As it was opened."""
        return self.runs.path

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the ids as stored."""
        return self.runs.dtype

    @property
    def vocab_size(self) -> int | None:
        """How many different ids there are; None if that is not known."""
        return self.runs.vocab_size

    @property
    def documents(self) -> NDArray[np.int64] | None:
        """The ids at which documents begin, ascending, the first 0; None if that is not known."""
        return self.runs.documents

    @property
    def paths(self) -> tuple[str, ...]:
        """The path of each file, in order."""
        return tuple(source.path for source in self.runs.sources)

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, part: slice) -> NDArray[np.int64]:
        """Return some ids, int64: ``stream[start:stop]``."""
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise TypeError(f"{self.path}: expected stream[start:stop], got [{part!r}]")
        start, stop, _ = part.indices(len(self))
        pieces = list(self.pieces(start, stop))
        return np.concatenate(pieces).astype(np.int64) if pieces else np.empty(0, np.int64)

    def pieces(self, start: int = 0, stop: int | None = None, *, most: int = _SCANNED) -> Iterator[NDArray[Any]]:
        """Yield the ids from ``start`` up to ``stop`` as stored, at most so many at a time; a run begins another."""
        runs, stop = self.runs, len(self.runs) if stop is None else stop
        run = int(np.searchsorted(runs.ends, start, side="right"))
        while start < stop:
            end = min(stop, int(runs.ends[run]), start + most)
            yield _ids(runs, run, start, end)
            run += end == runs.ends[run]
            start = end

    def windows(
        self,
        size: int,
        *,
        random: bool = False,
        stride: int | None = None,
        documents: Documents = "cross",
    ) -> TokenWindows:
        """
        Return windows of ``size`` ids, as a dataset for FastLoader: ``block_size + 1`` for inputs and their targets.

        * ``stride``: how far a window begins behind the one before: ``size`` by default. What is left at the end is in
          no window (``unused``).
        * ``random``: windows begin anywhere, drawn anew in each epoch from its seed. An epoch has as many as there
          would be without overlap, one from each part of the stream of that size, so two may overlap. FastLoader alone
          draws them.
        * ``documents``: "cross" takes no notice of documents: ``input_ids`` ``(B, size)``. "mask" has the same windows,
          and what keeps their documents apart: ``position_ids``, ``document_ids``, ``cu_seqlens`` and ``max_seqlen``,
          as with ``collate="pack"``. A document that begins before its window counts from the window's first id.
          "inside" takes windows out of single documents: shorter ones at their ends, and of short documents, padded
          as ``collate`` says. Every id is in a window, if ``stride`` is not above ``size``.

        Raises ValueError for options that mean nothing, for a stream shorter than a window, and SchemaError for
        documents that are not known.
        """
        size = whole("size", size, "a number of tokens from 1", least=1, below=1 << 31)
        if stride is not None:
            stride = whole("stride", stride, "1 or more", least=1)
        if random and stride is not None:
            raise ValueError(f"random=True, stride={stride}: expected one of the two at most")
        if documents not in get_args(Documents):
            names = ", ".join(map(repr, get_args(Documents)))
            raise ValueError(f"documents={documents!r}: expected one of {names}")
        if documents != "cross" and self.documents is None:
            raise SchemaError(
                f"{self.path}: does not say where documents begin, as documents={documents!r} needs it: pass eos=, the "
                "id that ends a document: TokenStream(path, eos=50256)"
            )
        if documents != "inside" and len(self) < size:
            raise ValueError(f"{self.path}: has {len(self)} tokens, fewer than one window of {size}")
        rule = WindowRule(size, 0 if random else stride or size, documents)
        again = _Opener(self.path, self._options, rule)
        return TokenWindows(WindowStore(self.runs, [(rule, len(self))], again))

    def close(self) -> None:
        """Let the files of a store go; twice does no harm. Windows keep what they need."""
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        files = "" if len(self.paths) == 1 else f" in {len(self.paths)} files"
        known = "" if self.documents is None else f", {counted(len(self.documents), 'document')}"
        return f"TokenStream({self.path!r}): {len(self):,} tokens of {self.dtype}{files}{known}"


@dataclass(frozen=True)
class _Opener:
    """Opens the windows of a stream again in the process that unpickles them."""

    path: str
    options: Mapping[str, Any]
    rule: WindowRule

    def __call__(self) -> WindowStore:
        stream = TokenStream(self.path, **self.options)
        return WindowStore(stream.runs, [(self.rule, len(stream))], self)


def _runs_of_files(path: str, files: Sequence[TokenFile], vocab_size: int | None, eos: int | None) -> TokenRuns:
    dtype = files[0].dtype
    for file in files:
        if file.dtype != dtype:
            raise SchemaError(
                f"{file.source.path}: its ids are {file.dtype}, but in {files[0].source.path} they are {dtype}: open "
                "them as two streams"
            )
    ends = np.cumsum([file.count for file in files], dtype=np.int64)
    known = [
        file.documents + end - file.count for file, end in zip(files, ends, strict=True) if file.documents is not None
    ]
    tokenizer = {"vocab_size": vocab_size, "special": {} if eos is None else {"eos": eos}}
    return TokenRuns(
        path,
        [file.source for file in files],
        dtype,
        ends,
        np.arange(len(files), dtype=np.int32),
        np.array([file.start for file in files], np.int64),
        None,
        np.concatenate(known) if known else None,
        vocab_size,
        {"tokenizer": tokenizer},
        zlib.crc32(np.array([content_of(file.source) for file in files], np.uint32).tobytes()),
    )


def _store_at(path: str, read: Read) -> SealedStore:
    """Open a store. Raises StoreError for what is not packed yet, with the command that packs it as a stream."""
    try:
        return open_store(path, read=read)
    except StoreError as exc:
        from fastio.store.kinds.recognise import pack_command

        there = expanded(path)
        message = str(exc).replace(pack_command(there), pack_command(there, *_STREAM))
        if message == str(exc):
            raise
        raise type(exc)(message) from None


def runs_of_store(store: SealedStore, dtype: Any, vocab_size: int | None) -> TokenRuns:
    """Return the samples of a store as one stream. Raises SchemaError for one without ids."""
    fields = [field for field in store.schema.payload if field.traits.is_tokens]
    if not fields:
        names = ", ".join(f"{field.name} ({type_of(field)})" for field in store.schema.payload)
        raise SchemaError(
            f"{store.path}: has no token ids, but {names}: FastDataset reads it; text becomes a stream by fastio pack "
            f"SRC OUT {' '.join(_STREAM)}"
        )
    if len(fields) > 1:
        names = ", ".join(field.name for field in fields)
        raise SchemaError(f"{store.path}: has {len(fields)} fields of token ids ({names}), but a stream is one of them")
    field = fields[0]
    if dtype is not None and np.dtype(dtype) != np.dtype(field.dtype):
        raise SchemaError(f"{store.path}: its ids are {np.dtype(field.dtype)}, not {np.dtype(dtype)}: leave dtype= out")
    spans = store.spans(field.name, np.arange(len(store), dtype=np.int64))
    item = np.dtype(field.dtype).itemsize
    is_used = spans.sizes > 0
    wrong = np.flatnonzero(spans.sizes % item)
    if len(wrong) or not is_used.any():
        problem = f"sample {wrong[0]} is no whole number of ids" if len(wrong) else "has no ids"
        raise SchemaError(f"{store.path}: {problem}: pack again")
    continues = np.zeros(len(store), np.bool_)
    stream = store.metadata.get(STREAM)
    known = stored_tokenizer(store)
    if CONTINUES in store.schema and keeps_stream(store.metadata):
        continues = store.column(CONTINUES).astype(np.bool_)
    elif (known.get("options") or {}).get("over") == "split":  # pieces of a document are key#0, key#1, ...
        if known["options"].get("overlap"):
            raise SchemaError(
                f"{store.path}: its documents were split with an overlap: a stream would have these ids twice; pack "
                "them with --concat"
            )
        keys = store.keys(np.arange(len(store)))
        continues = np.array([_LATER_PIECE.search(key) is not None for key in keys], np.bool_)
    used = spans.at(np.flatnonzero(is_used))
    ends = np.cumsum(used.sizes // item)
    knows = not isinstance(stream, Mapping) or stream.get("documents", True)
    firsts = np.append(0, ends[:-1])
    documents = np.union1d(firsts[~continues[is_used]], [0]) if knows else None
    size = known.get("vocab_size") if vocab_size is None else vocab_size
    return TokenRuns(
        store.path,
        store.sources,
        np.dtype(field.dtype),
        ends,
        used.shard,
        used.starts,
        used.checksums,
        documents,
        size if isinstance(size, int) and size > 0 else None,
        {"tokenizer": {**known, "vocab_size": size}},
        store.identity,
    )


def _ids(runs: TokenRuns, run: int, start: int, stop: int) -> NDArray[Any]:
    """Return ids of one run as stored: a view where the file is mapped."""
    item = runs.dtype.itemsize
    first = int(runs.starts[run]) + (start - int(runs.firsts[run])) * item
    return runs.sources[int(runs.shard[run])].read(first, first + (stop - start) * item).view(runs.dtype)


def _divided(runs: TokenRuns, eos: int) -> TokenRuns:
    """
    Return the stream with documents that begin behind each ``eos``, and with each file. Raises SchemaError if there is
    none: a mask of documents would mask nothing.
    """
    files = [distinct(runs.firsts[np.searchsorted(runs.shard, np.arange(len(runs.sources)))])]
    starts: list[NDArray[np.int64]] = []
    for run, (first, end) in enumerate(zip(runs.firsts.tolist(), runs.ends.tolist(), strict=True)):
        for start in range(first, end, _SCANNED):
            ids = _ids(runs, run, start, min(end, start + _SCANNED))
            starts.append(np.flatnonzero(ids == eos) + start + 1)
    if not any(map(len, starts)):
        raise SchemaError(
            f"{runs.path}: eos={eos}: none of its {len(runs):,} ids is that: is it another tokenizer's? "
            "If its documents have no such end, leave it out"
        )
    documents = distinct(np.concatenate([*files, *starts]))
    values = {name: getattr(runs, name) for name in TokenRuns.__dataclass_fields__}
    return TokenRuns(**{**values, "documents": documents[documents < len(runs)]})


class TokenWindows(FastDataset):
    """
    Windows of a TokenStream as a dataset: FastLoader makes batches of them natively. ``dataset[i]`` is the ids, int64
    ``(n,)``, with documents="mask" a dict of ``input_ids`` and ``position_ids``.

    A state and a receipt count windows. Random ones are drawn in each epoch: that every window came once says that each
    part of the stream gave one, and says nothing about single tokens.
    """

    store: WindowStore

    def _read_from(self, store: SampleStore) -> None:
        if not isinstance(store, WindowStore):
            raise TypeError(
                f"{store.path}: windows have no samples to assign: use torch's Subset, or FastLoader(indices=)"
            )
        super()._read_from(store)
        self.token_reader = self.ids_reader = WindowReader(self.reader)

    @property
    def size(self) -> int:
        """The ids of a window; with documents="inside", at most."""
        return self.store.rule.size

    @property
    def unused(self) -> int:
        """How many ids of the stream are in no window."""
        return self.store.unused

    @property
    def unverified(self) -> str:
        """Why a receipt has no checksums."""
        if any(rule.is_random for rule, _ in self.store.rules):
            return "windows that begin anywhere are counted, one for each part of the stream, and may overlap"
        return "windows of a stream have no checksums of their own"

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The ids of each window, int64."""
        return self.store.lengths()

    def lengths_of(self, field: str) -> NDArray[np.int64]:
        """Return ``lengths``: there is one field."""
        return self.lengths

    def _values(self, indices: NDArray[np.int64], used: dict[str, Spans] | None = None) -> dict[str, list[Any]]:
        if any(rule.is_random for rule, _ in self.store.rules):
            raise TypeError(
                f"{self.store.path}: windows of random=True begin elsewhere in each epoch, which only FastLoader "
                "counts: pass them to fastio.FastLoader, or choose stride= for torch's DataLoader"
            )
        located = self.store.locate(indices, verify=self.verify)
        spans, unread = self.store.files.fetch(located.spans).wait()
        reader, name = self.token_reader, self.reader.field.name
        assert isinstance(reader, WindowReader)
        if used is not None:
            used[name] = spans
        return {
            name: [reader.window(indices, located, spans, unread, i, verify=self.verify) for i in range(len(indices))]
        }

    @staticmethod
    def of_members(members: Sequence[TokenWindows]) -> TokenWindows:
        """Return the windows of several datasets as one. Raises SchemaError if they cannot be in one batch."""
        return TokenWindows(WindowStore.joined([each.store for each in members]), verify=members[0].verify)

    def __repr__(self) -> str:
        kinds = {rule.stride for rule, _ in self.store.rules}
        step = ", ".join("begin anywhere" if not stride else f"stride {stride}" for stride in sorted(kinds))
        left = f", {self.unused:,} tokens in none" if self.unused else ""
        documents = self.store.rule.documents
        return f"TokenWindows({self.store.path!r}): {len(self):,} windows of {self.size}, {step}, {documents}{left}"


class WindowReader(TokenReader):
    """Reads windows of ids."""

    def __init__(self, rows: Any) -> None:
        super().__init__(rows)
        self.windows: WindowStore = rows.store
        self.item_bytes = self.windows.runs.dtype.itemsize

    @property
    def vocabulary(self) -> int:
        """As TokenRuns.vocabulary."""
        return self.windows.runs.vocabulary

    def window(
        self,
        indices: NDArray[np.int64],
        located: LocatedWindows,
        spans: Spans,
        unread: NDArray[np.int32] | None,
        number: int,
        *,
        verify: bool,
    ) -> Any:
        """Return one window in the plain way, which native code is compared with. Raises SampleError if it is bad."""
        parts, positions, status = self._parts(located, spans, unread, number, verify=verify)
        ids = np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
        if status == _native.OK and len(self._wrong(ids)):
            status = _native.CORRUPT
        if status != _native.OK:
            raise self.problem(int(indices[number]), located, spans, unread, number, status)
        if self.windows.rule.documents != "mask":
            return torch.from_numpy(ids)
        return {"input_ids": torch.from_numpy(ids), "position_ids": torch.from_numpy(np.concatenate(positions))}

    def problem(
        self,
        index: int,
        located: LocatedWindows,
        spans: Spans,
        unread: NDArray[np.int32] | None,
        number: int,
        status: int,
    ) -> SampleError:
        """Return what is wrong with a window, whose bytes are in ``spans``: file and id are named."""
        parts, _, _ = self._parts(located, spans, unread, number, verify=True)
        place, words = sum(map(len, parts)), describe_status(status)
        if status == _native.CORRUPT:
            ids = np.concatenate(parts)
            place = int(self._wrong(ids)[0])
            words = (
                f"is {ids[place]}, but the vocabulary has ids 0 to {self.vocabulary - 1}: is dtype= or vocab_size= "
                "another, or the file damaged?"
            )
        path, key = self.windows.path, self.windows.keys([index])[0]
        token = self.windows.runs.place(int(located.firsts[number]) + place)
        return SampleError(f"{path}[{index}]: {token}: {words}", path=path, index=index, key=key, field=self.field.name)

    def _parts(
        self,
        located: LocatedWindows,
        spans: Spans,
        unread: NDArray[np.int32] | None,
        number: int,
        *,
        verify: bool,
    ) -> tuple[list[NDArray[Any]], list[NDArray[np.int64]], int]:
        """Return the ids of a window and their positions, piece by piece up to a bad one, and the status of that."""
        pieces, dtype = located.pieces, self.windows.runs.dtype
        places = range(number, number + 1) if pieces is None else range(*pieces.cuts[number : number + 2].tolist())
        parts: list[NDArray[Any]] = []
        positions: list[NDArray[np.int64]] = []
        for place in places:
            if unread is not None and unread[place]:
                return parts, positions, int(unread[place])
            data = spans.view(place)
            if verify and spans.checksums is not None and _native.crc32(data) != int(spans.checksums[place]):
                return parts, positions, _native.BAD_CHECKSUM
            first, size, origin = 0, len(data), 0
            if pieces is not None:
                first, size, origin = (int(each[place]) for each in (pieces.starts, pieces.sizes, pieces.origins))
            parts.append(data[first : first + size].view(dtype))
            positions.append(np.arange(origin, origin + len(parts[-1])))
        return parts, positions, _native.OK

    def _wrong(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the positions of ids that there are none of."""
        return np.flatnonzero((ids < 0) | (ids.astype(np.int64) >= self.vocabulary)) if self.vocabulary else _NONE
