"""Batches of token ids: padded to one length, packed one behind the other, or cut into rows of one length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch._C import _from_dlpack as from_dlpack  # that of torch.utils.dlpack takes twice the time around it
from torch.utils.data import default_collate

from fastio import _native

__all__ = [
    "Batch",
    "ChunkCollate",
    "Flat",
    "PackCollate",
    "PadCollate",
    "TokenCollate",
    "TokenSlots",
    "count_tokens",
    "tensor_core_multiple",
]

Batch = dict[str, Any]
Side = Literal["right", "left"]

_MOST_TOKENS = (1 << 31) - 1  # of a packed batch: variable-length attention takes places as int32
_MULTIPLES = {
    torch.float16: 8,
    torch.bfloat16: 8,
    torch.int8: 16,
    torch.uint8: 16,
    torch.float32: 4,
    torch.float64: 2,
}


def tensor_core_multiple(dtype: torch.dtype) -> int:
    """
    The least length that Tensor Cores work on without waste: 16 bytes of the type that a model computes in.

    8 for float16 and bfloat16, 16 for int8, 4 for float32 (as TF32), 2 for float64, as NVIDIA's guide to matrix
    multiplication has them. An A100 is at its best at eight times that for the first two (64, 128, 32, 16): pass
    such a number itself.
    """
    if dtype not in _MULTIPLES:
        raise ValueError(f"pad_to_multiple={dtype}: expected a number, or one of {', '.join(map(str, _MULTIPLES))}")
    return _MULTIPLES[dtype]


@dataclass(frozen=True, slots=True)
class TokenSlots:
    """
    Where the tokens of some batches go in one flat buffer, batch behind batch.

    Sample i has the slot ``starts[i]`` to ``starts[i + 1]``; batch k the elements ``cuts[k]`` to ``cuts[k + 1]``.
    """

    starts: NDArray[np.int64]
    cuts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Flat:
    """The filled buffer of some batches: token ids, whether each is one (bool), and its place in its sample."""

    ids: torch.Tensor
    mask: torch.Tensor | None
    positions: torch.Tensor | None
    is_pinned: bool = False  # torch's own answer asks the driver, which a forked child must not


@runtime_checkable
class TokenCollate(Protocol):
    """
    How samples become a batch.

    ``__call__`` is a plain ``collate_fn`` for torch's DataLoader: samples are tensors of ids, or pairs of those and a
    label. FastLoader asks for the ``slots`` of several batches, lets native threads fill it, and takes ``batches``:
    one by one, for a batch made before it is asked for only keeps Python's garbage collector busy.
    """

    @property
    def pad_id(self) -> int: ...

    @property
    def pads_before(self) -> bool: ...

    @property
    def has_mask(self) -> bool: ...

    @property
    def has_positions(self) -> bool: ...

    @property
    def has_labels(self) -> bool: ...

    def __call__(self, samples: Sequence[Any]) -> Batch: ...

    def slots(self, lengths: NDArray[np.int64], cuts: NDArray[np.int64]) -> TokenSlots: ...

    def batches(
        self, flat: Flat, slots: TokenSlots, lengths: NDArray[np.int64], cuts: NDArray[np.int64]
    ) -> Iterator[Batch]: ...


@dataclass(frozen=True, slots=True)
class PadCollate:
    """
    Samples as rows of the batch's longest: a dict with

    * ``input_ids`` int64 ``(B, L)``, ``pad_id`` where a sample has no more tokens
    * ``attention_mask`` bool ``(B, L)``, True for tokens, as ``scaled_dot_product_attention`` takes it
    * ``lengths`` int64 ``(B,)``; ``labels`` ``(B,)`` where there are any

    L is rounded up to ``pad_to_multiple``: a number, or a dtype for its ``tensor_core_multiple``. ``side`` says
    where the padding is: "left" for generation.
    """

    has_mask: ClassVar[bool] = True
    has_positions: ClassVar[bool] = False
    has_labels: ClassVar[bool] = True

    pad_id: int = 0
    side: Side = "right"
    pad_to_multiple: int | torch.dtype = 1

    def __post_init__(self) -> None:
        if self.side not in ("right", "left"):
            raise ValueError(f"side={self.side!r}: expected 'right' or 'left'")
        _checked_multiple(self.pad_to_multiple)

    @property
    def pads_before(self) -> bool:
        return self.side == "left"

    def __call__(self, samples: Sequence[Any]) -> Batch:
        tokens, labels = _apart(samples)
        lengths = _lengths(tokens)
        width = _rounded(int(lengths.max()), _checked_multiple(self.pad_to_multiple))
        ids = lengths.new_full((len(tokens), width), self.pad_id)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        for row, each in enumerate(tokens):
            place = slice(width - len(each), width) if self.pads_before else slice(len(each))
            ids[row, place] = each
            mask[row, place] = True
        return {"input_ids": ids, "attention_mask": mask, "lengths": lengths, **labels}

    def slots(self, lengths: NDArray[np.int64], cuts: NDArray[np.int64]) -> TokenSlots:
        """A slot is a row."""
        multiple = _checked_multiple(self.pad_to_multiple)
        widths = np.maximum.reduceat(lengths, cuts[:-1])
        if multiple > 1:
            widths = -(-widths // multiple) * multiple
        counts = cuts[1:] - cuts[:-1]
        return TokenSlots(_sums(np.repeat(widths, counts)), _sums(widths * counts))

    def batches(
        self, flat: Flat, slots: TokenSlots, lengths: NDArray[np.int64], cuts: NDArray[np.int64]
    ) -> Iterator[Batch]:
        """Views of the filled buffer."""
        assert flat.mask is not None
        counts, sizes = cuts[1:] - cuts[:-1], slots.cuts[1:] - slots.cuts[:-1]
        shapes = np.stack((counts, sizes // counts), axis=1)
        parts = zip(
            _views(flat.ids, slots.cuts, shapes, is_pinned=flat.is_pinned),
            _views(flat.mask, slots.cuts, shapes, is_pinned=flat.is_pinned),
            _views(torch.from_numpy(lengths), cuts, counts[:, None]),
            strict=True,
        )
        for ids, mask, own in parts:
            yield {"input_ids": ids, "attention_mask": mask, "lengths": own}


@dataclass(frozen=True, slots=True)
class PackCollate:
    """
    Samples one behind the other, nothing between them, for attention of variable length: a dict with

    * ``input_ids`` int64 ``(T,)``; T is ``tokens``, or, without that, the sum of the lengths
    * ``position_ids`` int64 ``(T,)``, from 0 in every sample
    * ``cu_seqlens`` int32 ``(B + 1,)``: sample i is ``input_ids[cu_seqlens[i]:cu_seqlens[i + 1]]``
    * ``lengths`` int64 ``(B,)``; ``labels`` ``(B,)`` where there are any

    With ``tokens`` all batches have one shape; what is left behind the last sample is ``pad_id`` and in no sequence.
    ``PackSampler(lengths, max_tokens=tokens)`` leaves little.
    """

    pads_before: ClassVar[bool] = False
    has_mask: ClassVar[bool] = False
    has_positions: ClassVar[bool] = True
    has_labels: ClassVar[bool] = True

    tokens: int | None = None
    pad_id: int = 0

    def __post_init__(self) -> None:
        if self.tokens is not None and not 1 <= self.tokens <= _MOST_TOKENS:
            raise ValueError(f"tokens={self.tokens}: expected 1 to {_MOST_TOKENS}, or None")

    def __call__(self, samples: Sequence[Any]) -> Batch:
        tokens, labels = _apart(samples)
        lengths = _lengths(tokens)
        total = int(lengths.sum())
        self._check(total)
        tail = (self.tokens or total) - total
        ids = torch.cat([*tokens, lengths.new_full((tail,), self.pad_id)])
        counted = [torch.arange(len(each), device=each.device) for each in tokens]
        places = torch.cat([*counted, lengths.new_zeros(tail)])
        ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(torch.int32)
        return {"input_ids": ids, "position_ids": places, "cu_seqlens": ends, "lengths": lengths, **labels}

    def slots(self, lengths: NDArray[np.int64], cuts: NDArray[np.int64]) -> TokenSlots:
        """A slot is as long as its sample, and the last of a batch goes to the batch's end."""
        totals = np.add.reduceat(lengths, cuts[:-1])
        self._check(int(totals.max()))
        if self.tokens is None:
            return TokenSlots(_sums(lengths), _sums(totals))
        widths = lengths.copy()
        widths[cuts[1:] - 1] += self.tokens - totals
        return TokenSlots(_sums(widths), _sums(np.full(len(totals), self.tokens)))

    def batches(
        self, flat: Flat, slots: TokenSlots, lengths: NDArray[np.int64], cuts: NDArray[np.int64]
    ) -> Iterator[Batch]:
        """Views of the filled buffer."""
        assert flat.positions is not None
        counts, sizes = (cuts[1:] - cuts[:-1])[:, None], (slots.cuts[1:] - slots.cuts[:-1])[:, None]
        ends = torch.from_numpy(_sequences(lengths, cuts))
        parts = zip(
            _views(flat.ids, slots.cuts, sizes, is_pinned=flat.is_pinned),
            _views(flat.positions, slots.cuts, sizes, is_pinned=flat.is_pinned),
            _views(ends, cuts + np.arange(len(cuts)), counts + 1),
            _views(torch.from_numpy(lengths), cuts, counts),
            strict=True,
        )
        for ids, places, sequences, own in parts:
            yield {"input_ids": ids, "position_ids": places, "cu_seqlens": sequences, "lengths": own}

    def _check(self, total: int) -> None:
        if total > _MOST_TOKENS:
            raise ValueError(f"a batch of {total} tokens: cu_seqlens is int32, and holds up to {_MOST_TOKENS}")
        if self.tokens is not None and total > self.tokens:
            raise ValueError(
                f"a batch of {total} tokens does not fit into tokens={self.tokens}: plan batches by "
                f"PackSampler(lengths, max_tokens={self.tokens})"
            )


@dataclass(frozen=True, slots=True)
class ChunkCollate:
    """
    Samples one behind the other, cut into rows of ``tokens``, for language-model pre-training: a dict with

    * ``input_ids`` int64 ``(R, tokens)``: as many rows as are needed; a sample may go on in the next row
    * ``attention_mask`` bool ``(R, tokens)``: False only behind the last token of the batch

    Put an end mark behind each text when packing (``fastio pack --eos``). Labels of samples are left out, for a row
    has many. ``PackSampler(lengths, max_tokens=rows * tokens)`` gives nearly full batches of ``rows`` rows.
    """

    pads_before: ClassVar[bool] = False
    has_mask: ClassVar[bool] = True
    has_positions: ClassVar[bool] = False
    has_labels: ClassVar[bool] = False

    tokens: int
    pad_id: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ValueError(f"tokens={self.tokens}: expected 1 or more")

    def __call__(self, samples: Sequence[Any]) -> Batch:
        tokens, _ = _apart(samples)
        total = sum(map(len, tokens))
        tail = _rounded(total, self.tokens) - total
        ids = torch.cat([*tokens, tokens[0].new_full((tail,), self.pad_id)])
        mask = torch.arange(total + tail, device=ids.device) < total
        return {"input_ids": ids.view(-1, self.tokens), "attention_mask": mask.view(-1, self.tokens)}

    def slots(self, lengths: NDArray[np.int64], cuts: NDArray[np.int64]) -> TokenSlots:
        """A slot is as long as its sample, and the last of a batch goes to the end of the batch's last row."""
        totals = np.add.reduceat(lengths, cuts[:-1])
        wholes = -(-totals // self.tokens) * self.tokens
        widths = lengths.copy()
        widths[cuts[1:] - 1] += wholes - totals
        return TokenSlots(_sums(widths), _sums(wholes))

    def batches(
        self, flat: Flat, slots: TokenSlots, lengths: NDArray[np.int64], cuts: NDArray[np.int64]
    ) -> Iterator[Batch]:
        """Views of the filled buffer."""
        assert flat.mask is not None
        rows = (slots.cuts[1:] - slots.cuts[:-1]) // self.tokens
        shapes = np.stack((rows, np.full_like(rows, self.tokens)), axis=1)
        for ids, mask in zip(
            _views(flat.ids, slots.cuts, shapes, is_pinned=flat.is_pinned),
            _views(flat.mask, slots.cuts, shapes, is_pinned=flat.is_pinned),
            strict=True,
        ):
            yield {"input_ids": ids, "attention_mask": mask}


def count_tokens(batch: Batch) -> tuple[int, int]:
    """The tokens of a batch, and its slots for them."""
    filled = batch["lengths"] if "lengths" in batch else batch["attention_mask"]
    return int(filled.sum()), batch["input_ids"].numel()


def _checked_multiple(wish: int | torch.dtype) -> int:
    if isinstance(wish, torch.dtype):
        return tensor_core_multiple(wish)
    if wish < 1:
        raise ValueError(f"pad_to_multiple={wish}: expected 1 or more")
    return wish


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _sums(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 and the sums of the first 1, 2, ... values."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


def _views(
    flat: torch.Tensor, cuts: NDArray[np.int64], shapes: NDArray[np.int64], *, is_pinned: bool = False
) -> Iterator[torch.Tensor]:
    """
    Views of the elements between two cuts in these shapes.

    By DLPack: that takes less time than as_strided, and each view has a storage of its own, so that saving it does
    not save its neighbours. Pinned memory stays torch's, whose allocator has to know it again behind a copy.
    """
    if is_pinned:
        parts = torch.split_with_sizes(flat, (cuts[1:] - cuts[:-1]).tolist())
        return (part.view(shape) for part, shape in zip(parts, shapes.tolist(), strict=True))
    return map(from_dlpack, _native.views(flat.numpy(), cuts, shapes))


def _sequences(lengths: NDArray[np.int64], cuts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Where the samples of each batch begin within it, and the last ends: one number more than samples a batch."""
    counts = cuts[1:] - cuts[:-1]
    numbers = np.repeat(np.arange(len(counts)), counts)
    sequences = np.zeros(len(lengths) + len(counts), np.int32)
    sums = _sums(lengths)
    sequences[np.arange(len(lengths)) + numbers + 1] = sums[1:] - sums[cuts[:-1]][numbers]
    return sequences


def _lengths(tokens: Sequence[torch.Tensor]) -> torch.Tensor:
    """Tokens of each sample, where the tokens are."""
    return torch.tensor([len(each) for each in tokens], dtype=torch.int64, device=tokens[0].device)


def _apart(samples: Sequence[Any]) -> tuple[list[torch.Tensor], Batch]:
    """The ids of samples, and their labels where they have any."""
    if isinstance(samples[0], tuple):
        return [ids for ids, _ in samples], {"labels": default_collate([label for _, label in samples])}
    return list(samples), {}
