"""Batches of token ids: padded, packed one after the other, cut into rows of one length, or a prompt and answers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio.dataset.stacking import stacked_arrays
from fastio.lazy import is_tensor, torch
from fastio.types.options import explains_fields
from fastio.types.runs import mask_of_runs
from fastio.types.schema import LOSS, Field

__all__ = [
    "IGNORED",
    "Batch",
    "ChunkCollate",
    "PackCollate",
    "PadCollate",
    "PreferenceCollate",
    "TokenCollate",
    "WindowCollate",
    "answers_of",
    "beside_fill",
    "beside_name",
    "count_tokens",
    "tensor_core_multiple",
]

Batch = dict[str, Any]
Side = Literal["right", "left"]
Layout = Literal["pad", "pack", "chunk", "window"]
_Stack = Callable[[Sequence[Any]], Any]  # makes labels and columns of a batch

_LABELS = "labels"
IGNORED = -100  # in ``labels``: the ``ignore_index`` of torch's cross entropy
_MOST_TOKENS = (1 << 31) - 1  # tokens of a packed batch: variable-length attention takes positions as int32
_MULTIPLES = {"float16": 8, "bfloat16": 8, "int8": 16, "uint8": 16, "float32": 4, "float64": 2}  # of a dtype of torch


def tensor_core_multiple(dtype: torch.dtype) -> int:
    """
    Return the smallest length that Tensor Cores process without waste: 16 bytes of the dtype that a model computes
    in.

    8 for float16 and bfloat16, 16 for int8, 4 for float32 (as TF32), 2 for float64, according to NVIDIA's guide to
    matrix multiplication. An A100 is fastest at eight times that (64, 128, 32, 16); to get it, pass the number
    itself.
    """
    multiple = _MULTIPLES.get(str(dtype).removeprefix("torch."))
    if multiple is None:
        names = ", ".join(f"torch.{name}" for name in _MULTIPLES)
        raise ValueError(f"pad_to_multiple={dtype}: expected a number, or one of {names}")
    return multiple


@runtime_checkable
class TokenCollate(Protocol):
    """
    How samples become a batch.

    ``__call__`` is an ordinary ``collate_fn`` for torch's DataLoader: samples are tensors of ids, or pairs of ids and
    a label, or dicts. The first int64 sequence of a dict is the ids; the others lie beside them, with one value for
    each id. They become entries of the batch under their names, with the shape of ``input_ids``, and 0 in padding (-100
    in "labels"). What counts in the "loss" becomes ``labels``; numbers become ``(B,)`` under their names, unless rows
    hold parts of samples. Raises ValueError for values of another length.

    FastLoader's native code makes the same batches from ``layout``, ``width`` and ``rows``: see
    ``_native.TokenFiller``.
    """

    layout: ClassVar[Layout]
    has_labels: ClassVar[bool]

    @property
    def pad_id(self) -> int: ...

    @property
    def pads_before(self) -> bool: ...

    @property
    def width(self) -> int: ...

    @property
    def rows(self) -> int | None: ...

    @property
    def longest(self) -> int | None: ...

    def __call__(self, samples: Sequence[Any]) -> Batch: ...


@explains_fields
@dataclass(frozen=True, slots=True)
class PadCollate:
    """
    Pads samples to the length of the batch's longest. A batch is a dict with

    * ``input_ids`` int64 ``(B, L)``, filled up with ``pad_id``
    * ``attention_mask`` bool ``(B, L)``, True for tokens, as ``scaled_dot_product_attention`` takes it
    * ``lengths`` int64 ``(B,)``; ``labels`` ``(B,)`` if there are any

    L is rounded up to a multiple of ``pad_to_multiple``: a number, or a dtype for its ``tensor_core_multiple``.
    ``side`` is the side that is padded: "left" is for generation. Called with a list of samples: int64 ids ``(L,)``, or
    pairs of ids and a label. Raises ValueError for options that mean nothing.
    """

    layout: ClassVar[Layout] = "pad"
    has_labels: ClassVar[bool] = True
    rows: ClassVar[None] = None
    longest: ClassVar[None] = None

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

    @property
    def width(self) -> int:
        """What lengths are rounded up to a multiple of."""
        return _checked_multiple(self.pad_to_multiple)

    def __call__(self, samples: Sequence[Any]) -> Batch:
        return _as_tensors(self._made(samples, _collated), samples)

    def arrays(self, samples: Sequence[Any]) -> Batch:
        """As a call, with arrays in the place of tensors."""
        return self._made(samples, stacked_arrays)

    def _made(self, samples: Sequence[Any], stack: _Stack) -> Batch:
        tokens, labels, beside = _apart(samples, stack)
        lengths = _lengths(tokens)
        width = _rounded(int(lengths.max()), _checked_multiple(self.pad_to_multiple))
        ids = np.full((len(tokens), width), self.pad_id, np.int64)
        mask = np.zeros(ids.shape, np.bool_)
        others = {name: each.filled(ids.shape) for name, each in beside.items()}
        for row, each in enumerate(tokens):
            columns = slice(width - len(each), width) if self.pads_before else slice(len(each))
            ids[row, columns] = each
            mask[row, columns] = True
            for name, other in others.items():
                other[row, columns] = beside[name].values[row]
        return {"input_ids": ids, "attention_mask": mask, "lengths": lengths, **others, **labels}


@explains_fields
@dataclass(frozen=True, slots=True)
class PackCollate:
    """
    Packs samples one after the other, without padding, for variable-length attention. A batch is a dict with

    * ``input_ids`` int64 ``(T,)``; T is ``tokens``, or without that, the sum of the lengths
    * ``position_ids`` int64 ``(T,)``, from 0 in every sample
    * ``cu_seqlens`` int32 ``(B + 1,)``: sample i is ``input_ids[cu_seqlens[i]:cu_seqlens[i + 1]]``
    * ``max_seqlen``: the length of the longest sample, an int, as variable-length attention takes it
    * ``lengths`` int64 ``(B,)``; ``labels`` ``(B,)`` if there are any

    What counts in the "loss" of samples becomes ``labels`` of the shape of ``input_ids``. The first id of a sample does
    not count: what comes before it is another sample.

    With ``tokens``, all batches have one shape; the space after the last sample is filled with ``pad_id`` and belongs
    to no sequence. ``PackSampler(lengths, max_tokens=tokens)`` leaves little of it.

    With ``rows`` as well, a batch has so many rows of ``tokens``; a sample that does not fit into what its row has left
    begins the next one. ``PackSampler(lengths, max_tokens=tokens, rows=rows)`` plans such batches. Then a batch has

    * ``input_ids``, ``position_ids`` int64 ``(rows, tokens)``
    * ``document_ids`` int32 ``(rows, tokens)``: the number of the token's sample within the batch, -1 for padding, as a
      document mask for FlexAttention compares them
    * ``cu_seqlens`` int32: where sequences begin in ``input_ids.view(-1)``, and the end of the last. The padding of a
      row is a sequence of its own, so that the flat batch can be attended to as it is.
    * ``max_seqlen``: the length of the longest sequence, padding included
    * ``lengths`` int64 ``(B,)``; ``labels`` ``(B,)`` if there are any

    Of samples of more than ``longest`` tokens, the first come alone; ``PackSampler(lengths, max_tokens=longest,
    too_long="cut")`` plans such batches, and names these samples. Raises ValueError for a batch that does not fit.

    ``image_token`` is for FastLoader and samples that have pictures beside their ids: the id that stands for a picture,
    once for each of a sample's pictures. It then comes once for each token that a model makes of the picture:
    ``image_length`` times, or without that, as often as a Patchify among the transforms makes patches of it, divided by
    4 with ``order="qwen"``. ``labels`` are -100 there; what else lies beside the ids has the placeholder's value. The
    batch has the pictures under the name of their field, and without ``image_length`` also

    * ``mrope_position_ids`` int64 ``(3, T)``, or ``(3, rows, tokens)``: positions in time, rows and columns of patches,
      from 0 in every sample, as ``get_rope_index`` of Qwen2-VL in transformers gives them

    A sample with more or fewer placeholders than pictures is a bad sample; with on_error="zero", the placeholders of
    its pictures take the place of its ids, as they do where ids are damaged.
    """

    pads_before: ClassVar[bool] = False
    layout: ClassVar[Layout] = "pack"
    has_labels: ClassVar[bool] = True

    tokens: int | None = None
    pad_id: int = 0
    rows: int | None = None
    longest: int | None = None
    image_token: int | None = None
    image_length: int | None = None

    def __post_init__(self) -> None:
        _check_longest(self.longest)
        self._check_image()
        if self.tokens is not None and not 1 <= self.tokens <= _MOST_TOKENS:
            raise ValueError(f"tokens={self.tokens}: expected 1 to {_MOST_TOKENS}, or None")
        if self.rows is None:
            return
        if self.tokens is None:
            raise ValueError(f"rows={self.rows}: rows need a length: expected tokens=, too")
        if not 1 <= self.rows <= _MOST_TOKENS // self.tokens:
            raise ValueError(f"rows={self.rows}: expected 1 to {_MOST_TOKENS // self.tokens} of {self.tokens} tokens")

    @property
    def width(self) -> int:
        """The tokens of a batch, or of a row; 0 for as many as its samples have."""
        return self.tokens or 0

    def _check_image(self) -> None:
        for name in ("image_token", "image_length"):
            value, least = getattr(self, name), 0 if name == "image_token" else 1
            if value is not None and (not isinstance(value, int) or value < least):
                raise ValueError(f"{name}={value!r}: expected a whole number of {least} or more, or None")
        if self.image_token is None and self.image_length is not None:
            raise ValueError(f"image_length={self.image_length}: expected image_token=, too: which id is a picture's")
        if self.image_token == self.pad_id:
            raise ValueError(f"image_token={self.image_token} is pad_id, too: expected another id for padding")
        if self.image_token is not None and self.longest is not None:
            raise ValueError(f"longest={self.longest} with image_token=: samples with pictures cannot be cut: drop one")

    def __call__(self, samples: Sequence[Any]) -> Batch:
        if self.image_token is not None:
            raise ValueError("image_token= is for FastLoader, which knows how many tokens pictures have: drop it")
        return _as_tensors(self._made(samples, _collated), samples)

    def arrays(self, samples: Sequence[Any]) -> Batch:
        """As a call, with arrays in the place of tensors; placeholders of pictures come as often as they are there."""
        return self._made(samples, stacked_arrays)

    def _made(self, samples: Sequence[Any], stack: _Stack) -> Batch:
        tokens, labels, beside = _cut(*_apart(samples, stack), self.longest)
        lengths = _lengths(tokens)
        starts, cuts = self._places(lengths.tolist())
        if isinstance(samples[0], Mapping) and LOSS in samples[0]:
            for each in beside[_LABELS].values:
                each[:1] = IGNORED
        size = (self.tokens or cuts[-1]) * (self.rows or 1)
        shape = (size,) if self.rows is None else (self.rows, self.width)
        counts = [np.arange(len(each)) for each in tokens]
        batch: Batch = {
            "input_ids": _joined(tokens, starts, size, self.pad_id).reshape(shape),
            "position_ids": _joined(counts, starts, size, 0).reshape(shape),
        }
        if self.rows is not None:
            numbers = [np.full(len(each), number, np.int32) for number, each in enumerate(tokens)]
            batch["document_ids"] = _joined(numbers, starts, size, -1).reshape(shape)
        batch["cu_seqlens"] = np.array(cuts, np.int32)
        batch["max_seqlen"] = max(map(operator.sub, cuts[1:], cuts))
        others = {name: _joined(each.values, starts, size, each.fill).reshape(shape) for name, each in beside.items()}
        return {**batch, "lengths": lengths, **others, **labels}

    def _places(self, lengths: Sequence[int]) -> tuple[list[int], list[int]]:
        """
        Return where each sample begins, and where sequences begin, with the end of the last. Raises ValueError if the
        samples do not fit.
        """
        if self.rows is None:
            ends = list(accumulate(lengths, initial=0))
            self._check(ends[-1])
            return ends[:-1], ends
        starts, cuts, row = [], [0], 1
        for length in lengths:
            if cuts[-1] + length > row * self.width:
                if cuts[-1] < row * self.width:
                    cuts.append(row * self.width)
                row += 1
                if length > self.width or row > self.rows:
                    raise ValueError(
                        f"samples of {sum(lengths)} tokens do not fit into rows={self.rows} of tokens={self.tokens}: "
                        f"plan batches with PackSampler(lengths, max_tokens={self.tokens}, rows={self.rows})"
                    )
            starts.append(cuts[-1])
            cuts.append(cuts[-1] + length)
        cuts += [end * self.width for end in range(row, self.rows + 1) if end * self.width > cuts[-1]]
        return starts, cuts

    def _check(self, total: int) -> None:
        if total > _MOST_TOKENS:
            raise ValueError(f"a batch of {total} tokens: cu_seqlens is int32 and holds at most {_MOST_TOKENS}")
        if self.tokens is not None and total > self.tokens:
            raise ValueError(
                f"a batch of {total} tokens does not fit into tokens={self.tokens}: plan batches with "
                f"PackSampler(lengths, max_tokens={self.tokens})"
            )


@explains_fields
@dataclass(frozen=True, slots=True)
class ChunkCollate:
    """
    Joins samples and cuts them into rows of ``tokens``, for pre-training language models. A batch is a dict with

    * ``input_ids`` int64 ``(R, tokens)``: as many rows as needed; a sample may continue in the next row
    * ``attention_mask`` bool ``(R, tokens)``: False only after the last token of the batch

    Add an end mark to each text when packing (``fastio pack --eos``). Labels are left out, because a row has several
    samples. ``PackSampler(lengths, max_tokens=rows * tokens)`` gives nearly full batches of ``rows`` rows. ``longest``
    is that of ``PackCollate``.
    """

    pads_before: ClassVar[bool] = False
    layout: ClassVar[Layout] = "chunk"
    has_labels: ClassVar[bool] = False
    rows: ClassVar[None] = None

    tokens: int
    pad_id: int = 0
    longest: int | None = None

    def __post_init__(self) -> None:
        _check_longest(self.longest)
        if self.tokens < 1:
            raise ValueError(f"tokens={self.tokens}: expected 1 or more")

    @property
    def width(self) -> int:
        """The tokens of a row."""
        return self.tokens

    def __call__(self, samples: Sequence[Any]) -> Batch:
        return _as_tensors(self._made(samples, _collated), samples)

    def arrays(self, samples: Sequence[Any]) -> Batch:
        """As a call, with arrays in the place of tensors."""
        return self._made(samples, stacked_arrays)

    def _made(self, samples: Sequence[Any], stack: _Stack) -> Batch:
        tokens, _, beside = _cut(*_apart(samples, stack), self.longest)
        total = sum(map(len, tokens))
        tail = _rounded(total, self.tokens) - total
        ids = np.concatenate([*tokens, np.full(tail, self.pad_id, tokens[0].dtype)])
        mask = np.arange(total + tail) < total
        batch = {"input_ids": ids.reshape(-1, self.tokens), "attention_mask": mask.reshape(-1, self.tokens)}
        for name, each in beside.items():
            batch[name] = np.concatenate([*each.values, each.filled((tail,))]).reshape(-1, self.tokens)
        return batch


@explains_fields
@dataclass(frozen=True, slots=True)
class WindowCollate:
    """
    Puts windows of a stream into rows of ``tokens``. A batch is a dict with ``input_ids`` int64 ``(B, tokens)``, and if
    they know their ``documents``, as ``PackCollate`` with rows,

    * ``position_ids`` int64 ``(B, tokens)``, from 0 in every document of a window
    * ``document_ids`` int32 ``(B, tokens)``: the number of the token's document within the batch
    * ``cu_seqlens`` int32 and ``max_seqlen``: where documents begin in ``input_ids.view(-1)``, and the longest's length

    A bad window, with ``on_error="zero"``, is ``pad_id`` alone, and no document (-1).
    """

    pads_before: ClassVar[bool] = False
    layout: ClassVar[Layout] = "window"
    has_labels: ClassVar[bool] = False
    rows: ClassVar[None] = None
    longest: ClassVar[None] = None

    tokens: int
    documents: bool = False
    pad_id: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ValueError(f"tokens={self.tokens}: expected 1 or more")

    @property
    def width(self) -> int:
        """The tokens of a row."""
        return self.tokens

    def __call__(self, samples: Sequence[Any]) -> Batch:
        return _as_tensors(self.arrays(samples), samples)

    def arrays(self, samples: Sequence[Any]) -> Batch:
        """As a call, with arrays in the place of tensors."""
        if not self.documents:
            return {"input_ids": np.stack(list(map(_as_array, samples)))}
        batch: Batch = {name: np.stack([_as_array(sample[name]) for sample in samples]) for name in samples[0]}
        begins = batch["position_ids"] == 0
        ends = np.append(np.flatnonzero(begins), begins.size).astype(np.int32)
        batch["document_ids"] = begins.reshape(-1).cumsum(dtype=np.int32).reshape(begins.shape) - 1
        return {**batch, "cu_seqlens": ends, "max_seqlen": int(np.diff(ends).max())}


@explains_fields
@dataclass(frozen=True, slots=True)
class PreferenceCollate:
    """
    Puts prompts and their answers into rows, for DPO, KTO and reward models: what TRL's collators make, for samples
    with "prompt" and either "chosen" and "rejected", or "completion". A batch is a dict with

    * ``input_ids`` int64 ``(2B, L)``: each prompt with the chosen answer, then each with the rejected one; ``(B, L)``
      with completions. Filled up with ``pad_id`` behind the answers.
    * ``attention_mask`` bool, of the same shape: True for tokens
    * ``completion_mask`` bool, of the same shape: True for the tokens of answers
    * the columns of the samples under their names, such as ``label`` ``(B,)``

    With ``apart``, prompts and answers are tensors of their own, as in earlier versions of TRL and for generating:
    ``prompt_input_ids`` ``(B, P)``, padded on the left, ``chosen_input_ids`` ``(B, C)`` and so on, padded on the right,
    each with its ``prompt_attention_mask``, ... bool.

    L is rounded up to a multiple of ``pad_to_multiple``: a number, or a dtype for its ``tensor_core_multiple``. Called
    with a list of samples: dicts of int64 ids and of numbers. Raises ValueError for other samples.
    """

    pad_id: int = 0
    pad_to_multiple: int | torch.dtype = 1
    apart: bool = False

    def __post_init__(self) -> None:
        _checked_multiple(self.pad_to_multiple)

    @property
    def width(self) -> int:
        """What lengths are rounded up to a multiple of."""
        return _checked_multiple(self.pad_to_multiple)

    def padding_of(self, name: str) -> PadCollate:
        """Return how a field is padded if it is ``apart``: a prompt on the left."""
        return PadCollate(self.pad_id, "left" if name == "prompt" else "right", self.pad_to_multiple)

    def __call__(self, samples: Sequence[Mapping[str, Any]]) -> Batch:
        return _as_tensors(self._made(samples, _collated), [samples[0].get("prompt")])

    def arrays(self, samples: Sequence[Mapping[str, Any]]) -> Batch:
        """As a call, with arrays in the place of tensors."""
        return self._made(samples, stacked_arrays)

    def _made(self, samples: Sequence[Mapping[str, Any]], stack: _Stack) -> Batch:
        answers = answers_of(samples[0])
        if not answers:
            raise ValueError(f"samples with {', '.join(map(str, samples[0]))}: expected {_PREFERENCE_FIELDS}")
        rest = [name for name in samples[0] if name != "prompt" and name not in answers]
        columns = {name: stack([sample[name] for sample in samples]) for name in rest}
        if self.apart:
            batch: Batch = {}
            for name in ("prompt", *answers):
                padded = self.padding_of(name).arrays([sample[name] for sample in samples])
                batch |= {f"{name}_{part}": padded[part] for part in ("input_ids", "attention_mask")}
            return {**batch, **columns}
        rows = [
            np.concatenate([_as_array(sample["prompt"]), _as_array(sample[name])])
            for name in answers
            for sample in samples
        ]
        batch = PadCollate(self.pad_id, pad_to_multiple=self.pad_to_multiple).arrays(rows)
        prompts = np.array([len(sample["prompt"]) for _ in answers for sample in samples])
        is_answer = (np.arange(batch["input_ids"].shape[1]) >= prompts[:, None]) & batch["attention_mask"]
        return {
            "input_ids": batch["input_ids"],
            "attention_mask": batch["attention_mask"],
            "completion_mask": is_answer,
            **columns,
        }


_PREFERENCE_FIELDS = "'prompt' with 'chosen' and 'rejected', or with 'completion'"


def answers_of(names: Collection[str]) -> tuple[str, ...]:
    """
    Return the fields of answers among those of samples; none if they are no preferences.

    >>> answers_of(["prompt", "chosen", "rejected"]), answers_of(["prompt", "completion"]), answers_of(["text"])
    (('chosen', 'rejected'), ('completion',), ())
    """
    if "prompt" not in names:
        return ()
    if "completion" in names:
        return ("completion",)
    return ("chosen", "rejected") if "chosen" in names and "rejected" in names else ()


def count_tokens(batch: Batch) -> tuple[int, int]:
    """Return the tokens of a batch, and its slots for tokens."""
    filled = batch["lengths"] if "lengths" in batch else batch["attention_mask"]
    return int(filled.sum()), math.prod(batch["input_ids"].shape)


def _check_longest(longest: int | None) -> None:
    if longest is not None and longest < 1:
        raise ValueError(f"longest={longest}: expected 1 or more, or None")


def _checked_multiple(wish: int | torch.dtype) -> int:
    if not isinstance(wish, int):
        return tensor_core_multiple(wish)
    if wish < 1:
        raise ValueError(f"pad_to_multiple={wish}: expected 1 or more")
    return wish


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _joined(parts: Sequence[NDArray[Any]], starts: Sequence[int], size: int, fill: int) -> NDArray[Any]:
    """Return the parts from their starts on, in ``size`` elements; what is between them and behind is ``fill``."""
    joined = np.full(size, fill, parts[0].dtype)
    for start, part in zip(starts, parts, strict=True):
        joined[start : start + len(part)] = part
    return joined


def _lengths(tokens: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return the number of tokens of each sample."""
    return np.array([len(each) for each in tokens], np.int64)


def _as_array(values: Any) -> NDArray[Any]:
    """Return a tensor, an array or a list as an array, of the dtype that torch would give it."""
    if is_tensor(values):
        return values.detach().cpu().numpy()
    array = np.asarray(values)
    is_list = not isinstance(values, (np.ndarray, np.generic))
    return array.astype(np.float32) if is_list and array.dtype == np.float64 else array


def _as_tensors(batch: Batch, samples: Sequence[Any]) -> Batch:
    """Return a batch with tensors in the place of arrays, on the device that the ids of the samples are on."""
    first = samples[0]
    values = first.values() if isinstance(first, Mapping) else first if isinstance(first, tuple) else [first]
    device = next((value.device for value in values if is_tensor(value)), "cpu")
    return {
        name: torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value
        for name, value in batch.items()
    }


@dataclass(frozen=True, slots=True)
class _Beside:
    """What samples have beside their ids, one value for each, and what padding gets."""

    values: list[NDArray[Any]]
    fill: int

    def filled(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return an array of this shape that is padding alone."""
        return np.full(shape, self.fill, self.values[0].dtype)


def beside_name(field: Field) -> str:
    """Return the name that a field beside the ids has in a batch: what counts in the loss becomes ``labels``."""
    return _LABELS if field.is_loss else field.name


def beside_fill(name: str) -> int:
    """Return what padding gets in such an entry of a batch."""
    return IGNORED if name == _LABELS else 0


def _collated(values: Sequence[Any]) -> Any:
    return torch.utils.data.default_collate(list(values))


def _apart(samples: Sequence[Any], stack: _Stack) -> tuple[list[NDArray[Any]], Batch, dict[str, _Beside]]:
    """
    Return the ids of samples, their labels or columns if they have any, and what lies beside the ids, by its name in a
    batch. Raises ValueError for samples without ids, and for values that are not as many.
    """
    first = samples[0]
    if isinstance(first, tuple):
        return (
            [_as_array(ids) for ids, _ in samples],
            {"labels": stack([label for _, label in samples])},
            {},
        )
    if not isinstance(first, Mapping):
        return list(map(_as_array, samples)), {}, {}
    sequences = [name for name, value in first.items() if name != LOSS and np.ndim(value) == 1]
    ids = next((name for name in sequences if _as_array(first[name]).dtype == np.int64), None)
    if ids is None:
        raise ValueError(f"samples with {', '.join(map(str, first))}: expected token ids, an int64 sequence, first")
    tokens = [_as_array(sample[ids]) for sample in samples]
    beside = {}
    if LOSS in first:
        counted = [_counted(own, sample[LOSS]) for own, sample in zip(tokens, samples, strict=True)]
        beside[_LABELS] = _Beside(counted, IGNORED)
    for name in sequences:
        if name == ids:
            continue
        values = [_as_array(sample[name]) for sample in samples]
        for own, value in zip(tokens, values, strict=True):
            if len(own) != len(value):
                raise ValueError(f"{name!r} has {len(value)} values, for a sample of {len(own)} ids in {ids!r}")
        beside[name] = _Beside(values, beside_fill(name))
    columns = [name for name in first if name != LOSS and name not in sequences]
    return (
        tokens,
        {name: stack([sample[name] for sample in samples]) for name in columns},
        beside,
    )


def _cut(
    tokens: list[NDArray[Any]], labels: Batch, beside: dict[str, _Beside], longest: int | None
) -> tuple[list[NDArray[Any]], Batch, dict[str, _Beside]]:
    """Return what ``_apart`` does, with the first ``longest`` tokens of each sample."""
    if longest is None:
        return tokens, labels, beside
    others = {name: _Beside([value[:longest] for value in each.values], each.fill) for name, each in beside.items()}
    return [each[:longest] for each in tokens], labels, others


def _counted(ids: NDArray[Any], runs: ArrayLike) -> NDArray[Any]:
    return np.where(mask_of_runs(runs, len(ids)), ids, IGNORED)
