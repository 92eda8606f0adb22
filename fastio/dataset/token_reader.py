"""TokenReader: the token ids of a store as int64, and how many each sample has."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec import describe_status
from fastio.dataset.row_reader import RowReader
from fastio.errors import SampleError
from fastio.lazy import torch, torch_if_there
from fastio.store.protocol import SampleStore
from fastio.types.spans import Spans

__all__ = ["TokenReader", "read_text", "stored_tokenizer"]


def stored_tokenizer(store: SampleStore) -> dict[str, Any]:
    """
    Return what a store says about its tokenizer: "kind", "name", "vocab_size", "special" and more; empty without one.
    """
    stored = store.metadata.get("tokenizer")
    return stored if isinstance(stored, dict) else {}


class TokenReader:
    """Reads a field of token ids; ``rows`` gives the names of samples for errors."""

    def __init__(self, rows: RowReader) -> None:
        self.rows = rows
        self.store = rows.store
        self.field = rows.field
        self.item_bytes = np.dtype(rows.field.dtype).itemsize

    @cached_property
    def tokenizer(self) -> dict[str, Any]:
        """What the store says about its tokenizer: see ``stored_tokenizer``."""
        return stored_tokenizer(self.store)

    @property
    def pad_id(self) -> int:
        """The tokenizer's id for padding, 0 if it has none: mask and lengths mark padding, not its id."""
        pad = (self.tokenizer.get("special") or {}).get("pad")
        return pad if isinstance(pad, int) else 0

    @property
    def vocabulary(self) -> int:
        """The size of the vocabulary, 0 if unknown; a sample with an id beyond it is bad."""
        size = self.tokenizer.get("vocab_size")
        return size if isinstance(size, int) and size > 0 else 0

    def lengths(self, spans: Spans) -> NDArray[np.int64]:
        """Return the number of ids in each span; incomplete ids are reported when the sample is read."""
        return spans.sizes >> (self.item_bytes >> 1)

    def values(self, indices: NDArray[np.int64], spans: Spans, *, verify: bool) -> list[Any]:
        """
        Return the ids of each sample, an int64 tensor, or where torch cannot be imported, an array.

        Raises SampleError for the first bad one.
        """
        lengths = self.lengths(spans)
        slots = np.concatenate(([0], np.cumsum(lengths)))
        ids, status = np.empty(int(slots[-1]), np.int64), np.empty(len(indices), np.int32)
        _native.fill_tokens(
            spans,
            slots,
            ids,
            status,
            verify=verify,
            item_bytes=self.item_bytes,
            vocabulary=self.vocabulary,
        ).wait()
        for error in self.errors(indices, spans, status).values():
            raise error
        if torch_if_there() is None:
            return np.split(ids, slots[1:-1])[: len(indices)]
        return list(torch.split_with_sizes(torch.from_numpy(ids), lengths.tolist()))

    def errors(self, indices: NDArray[np.int64], spans: Spans, status: NDArray[np.int32]) -> dict[int, SampleError]:
        """Return what is wrong with the samples whose status is not OK, by position."""
        return {
            position: self.rows.error(indices, spans, position, self._words(spans, position, int(status[position])))
            for position in np.flatnonzero(status).tolist()
        }

    def _words(self, spans: Spans, position: int, status: int) -> str:
        size = int(spans.sizes[position])
        if status == _native.BAD_SHAPE:
            return f"{size} bytes are not a multiple of the {self.item_bytes} bytes of an id: pack again"
        if status != _native.CORRUPT:
            return describe_status(status)
        ids = np.frombuffer(spans.view(position).tobytes(), self.field.dtype)
        at = int((ids >= self.vocabulary).argmax())
        return f"token {at} is {ids[at]}, but the vocabulary has ids 0 to {self.vocabulary - 1}: pack again"


def read_text(rows: RowReader, indices: NDArray[np.int64], spans: Spans, *, verify: bool) -> list[str]:
    """Return the text of each sample. Raises SampleError for the first that is not UTF-8."""
    assert rows.field.traits.is_text
    texts = []
    for position in range(len(indices)):
        data = rows.encoded(indices, spans, position, verify=verify)
        try:
            texts.append(data.decode())
        except UnicodeDecodeError as exc:
            words = f"byte {exc.start} (0x{data[exc.start]:02x}) is not UTF-8: {exc.reason}"
            raise rows.error(indices, spans, position, words) from exc
    return texts
