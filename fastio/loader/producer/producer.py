"""
Producer, the protocol: what makes a loader's batches ahead of the training loop; and what producers share.

A producer's ``submit`` is a generator: each step starts one batch and yields it as pending; ``result()`` waits for
it. The caller limits how many are pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.record_collate import Rows
from fastio.dataset.row_reader import one_by_one
from fastio.dataset.token_collate import TokenCollate
from fastio.errors import SampleError, SchemaError
from fastio.lazy import torch
from fastio.loader.batch_steps import BatchSteps
from fastio.loader.forks import PerProcess
from fastio.loader.options import OnError, ProducerOptions
from fastio.loader.output import Output
from fastio.loader.producer.cache_contents import CacheContents
from fastio.loader.producer.chunks import Proof
from fastio.loader.producer.clips import Clips
from fastio.loader.producer.field_options import FieldOptions
from fastio.loader.thread_tuner import Pool
from fastio.samplers.batches import Batches
from fastio.transforms.batch.functions import FailedSamplesError
from fastio.transforms.fused import PicturePass
from fastio.transforms.pick import Pick
from fastio.types.metrics import PictureCounts
from fastio.types.placement import Placement
from fastio.types.split import Split

__all__ = [
    "FinishedBatch",
    "ImpossibleBatch",
    "PendingBatch",
    "Producer",
    "ProducerContext",
    "ProducerKind",
    "RestartedBatch",
    "Submitted",
    "add_advice",
    "collate_labels",
    "failures",
    "kept_positions",
    "tensor_labels",
]


@dataclass(frozen=True, slots=True)
class ProducerContext:
    """
    What a producer works with. The loader's wiring makes it once; whoever makes batches shares it.

    ``fused`` are the transforms of the pass that decodes (None: nothing beyond decoding); with ``is_planar`` that pass
    writes pictures as (B, C, H, W). ``collate`` is for token ids. ``device`` is where the producer itself makes the
    batches, None for the CPU; ``kept`` are the samples that it keeps there. ``fields`` says what is done with samples
    that are not one picture, array or row of token ids, alone or with a label; ``field_options`` says it of any.
    ``rows`` says how the plain path collates fields whose values differ in length. ``compared`` are the checksums of
    the samples of a cache in memory, see CacheContents; None for others. ``clips`` says which samples are one clip.
    ``seed`` is the loader's, for what is drawn where samples are looked up, as ``picks`` do. ``split`` says which parts
    of samples come, if not whole ones.
    ``steps`` are done to batches in the loop's thread, where samples are good or bad: up to the last function of a
    single picture, whose sample may be bad to it; None: there is none.
    """

    dataset: FastDataset
    options: ProducerOptions
    fused: PicturePass | None = None
    is_planar: bool = False
    collate: TokenCollate | None = None
    device: torch.device | None = None
    kept: CacheContents | None = None
    fields: FieldOptions | None = None
    rows: Mapping[str, Rows] = dataclass_field(default_factory=dict)
    compared: Mapping[str, NDArray[np.uint32]] | None = None
    clips: Clips | None = None
    seed: int = 0
    steps: BatchSteps | None = None
    split: Split | None = None
    picks: Sequence[Pick] = ()

    @property
    def field_options(self) -> FieldOptions:
        """What is done with each field, be it one or many."""
        return self.fields or FieldOptions.of_one(self.dataset.reader.field.name, self.fused, self.is_planar)


@dataclass(slots=True)
class FinishedBatch:
    """
    A finished batch: what the training loop gets, its samples and bytes, and its bad samples by name.

    For token ids, it also has the count of tokens and of slots for them. A GPU decoded ``on_device`` of its samples.
    ``proof`` says which samples they are, bad ones included, for receipts (None: unknown). ``lost`` are the positions
    of those that are not as stored, where these are more than the bad ones: the frames of a clip go together.
    (Not frozen: that would take a third of the time of a batch of tokens.)
    """

    batch: Any
    samples: int
    nbytes: int
    errors: Sequence[SampleError] = ()
    tokens: int = 0
    slots: int = 0
    on_device: int = 0
    proof: Proof | None = None
    lost: NDArray[np.int64] | None = None


class PendingBatch(Protocol):
    """A batch in progress."""

    def result(self) -> FinishedBatch:
        """Wait for the batch and return it. Raises the error of this batch, if there was one."""
        ...

    def cancel(self) -> object:
        """Cancel the batch: its result will not be requested."""
        ...


# What a producer yields for each batch: the batch itself, or the group of native code's to which it belongs.
Submitted = PendingBatch | _native.BatchGroup


class RestartedBatch:
    """A pending batch that a forked child starts again, because it has none of its parent's threads."""

    __slots__ = ("_batch",)

    def __init__(self, begin: Callable[[], PendingBatch]) -> None:
        self._batch = PerProcess(begin)

    def result(self) -> FinishedBatch:
        """As PendingBatch.result."""
        return self._batch.here().result()

    def cancel(self) -> None:
        """As PendingBatch.cancel."""
        batch = self._batch.own
        if batch is not None:
            batch.cancel()


@dataclass(frozen=True, slots=True)
class ImpossibleBatch:
    """A batch that could not begin: its samples do not fit together."""

    error: SchemaError

    def result(self) -> FinishedBatch:
        """Raises what is wrong with it."""
        raise self.error

    def cancel(self) -> None:
        """Nothing is under way."""


class Producer(Protocol):
    """Makes batches of one dataset."""

    reads_samples: bool  # dataset[i] itself, so that a transform assigned after the loader was built counts
    reads_whole: bool  # by itself, from first to last, a store that memory holds: the loader need not

    @property
    def placement(self) -> Placement:
        """Where it makes the fields of its batches, and what makes it do so there."""
        ...

    @property
    def pictures(self) -> PictureCounts:
        """The pictures that it has decoded so far, by what decoded them; none where nobody counts."""
        ...

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[Submitted]:
        """
        Start one batch per step. Errors of samples are raised by ``result()``, never here. Batches that native code
        makes are started by the loop itself: of these, the group is yielded, once for each.

        ``epoch`` determines the random numbers of transforms, if there are any.
        """
        ...

    @property
    def pool(self) -> Pool | None:
        """The native threads whose number may be tuned, or None."""
        ...

    @property
    def threads(self) -> int:
        """The number of threads that make batches now."""
        ...

    @property
    def buffer_bytes(self) -> int:
        """Bytes of batches: in progress, with the training loop, and free."""
        ...

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """
        Return the bytes of batches if the loop keeps one, the largest has ``batch_bytes`` and ``depth`` are requested
        ahead.
        """
        ...

    def close(self) -> None:
        """Stop the threads; calling it twice is harmless."""
        ...


class ProducerKind(Protocol):
    """A class of producers: which datasets and options it is for, and how one is made."""

    def accepts(self, context: ProducerContext) -> bool:
        """Whether it can make these batches."""
        ...

    def __call__(self, context: ProducerContext) -> Producer:
        """A producer; ValueError or SchemaError, with what to do, for options that it cannot do after all."""
        ...


# The labels of a batch, as torch's default collate makes them.

_KINDS = "iuf"  # of numbers that are tensors


def tensor_labels(dataset: FastDataset, labels: NDArray[Any]) -> NDArray[Any] | None:
    """Return labels that a batch has as they are, in one tensor; None if ``collate_labels`` has to make them."""
    if dataset.target_transform is None and labels.dtype.kind in _KINDS and labels.dtype.isnative:
        return np.ascontiguousarray(labels)
    return None


def collate_labels(dataset: FastDataset, labels: NDArray[Any], output: Output) -> Any:
    """
    ``labels`` as the ``output`` has them; or what the dataset's ``target_transform`` makes of each, collated.

    Collated labels are whatever ``default_collate`` returns: a tensor, a list of strings, a dict of tensors.
    """
    if dataset.target_transform is None:
        return output.of(labels)
    return output.joined([dataset.target_transform(label) for label in one_by_one(labels)])


# What becomes of a batch with bad samples: an error, the good ones alone, or all of them with blanks.

_SKIP = 'FastLoader(..., on_error="skip") leaves such samples out, and lists them in loader.skipped'
_ZERO = 'no sample of its batch is left, and other ranks would wait for one: on_error="zero" keeps batches whole'


def kept_positions(
    errors: Mapping[int, SampleError], count: int, *, on_error: OnError, lost: NDArray[np.int64] | None = None
) -> NDArray[np.int64] | None:
    """
    Return the positions of the samples that stay in a batch of ``count``; None for all, the bad ones as blanks.
    ``lost`` are the positions of those that go; None: the bad ones.

    Raises the first of the errors with ``on_error="raise"``.
    """
    if on_error == "raise":
        raise errors[min(errors)]
    if on_error == "zero":
        return None
    return np.setdiff1d(np.arange(count), list(errors) if lost is None else lost)


def failures(failed: FailedSamplesError, *, on_error: OnError) -> dict[int, SampleError]:
    """Return the errors of samples that functions failed for; those that are kept do not keep the batch by a trace."""
    if on_error != "raise":
        for error in failed.errors.values():
            error.__cause__ = None
    return dict(failed.errors)


def add_advice(error: SampleError, *, on_error: OnError) -> None:
    """Add to the message of an error that ends the loop how the loop could go on; once, if it is raised again."""
    advice = {"raise": _SKIP, "skip": _ZERO, "zero": ""}[on_error]
    if advice not in str(error):
        error.args = (f"{error}; {advice}",)
