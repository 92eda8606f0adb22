"""Makes batches of the dataset's own samples in a few Python threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.dataset.bfloat16 import array_of
from fastio.dataset.fast_dataset import FastDataset, sample_placement
from fastio.dataset.form import FieldTransform
from fastio.dataset.record_collate import FieldCollate, Rows
from fastio.dataset.token_collate import PadCollate, PreferenceCollate, count_tokens
from fastio.dataset.tv_values import picture_array
from fastio.errors import SampleError
from fastio.lazy import is_tensor
from fastio.loader.batch_steps import Numbered
from fastio.loader.forks import PerProcess
from fastio.loader.output import Output, nbytes_of
from fastio.loader.producer.batch_part import collate_lengths
from fastio.loader.producer.chunks import CheckedSamples, Proof
from fastio.loader.producer.producer import (
    FinishedBatch,
    PendingBatch,
    ProducerContext,
    RestartedBatch,
    failures,
    kept_positions,
)
from fastio.samplers.batches import Batches
from fastio.transforms.batch.functions import FailedSamplesError
from fastio.types.metrics import PictureCounts
from fastio.types.placement import IN_PYTHON_THREADS, Placement, called

__all__ = ["PlainProducer"]


class PlainProducer:
    """
    Makes each batch from the dataset's own samples and transforms, in a few Python threads.

    Correct for any transform, and as fast as Python and the GIL allow: what PIL, NumPy and torch do outside the GIL
    runs in parallel. Transforms must be thread-safe.
    """

    reads_samples = True
    reads_whole = False
    pool = None

    def __init__(self, context: ProducerContext) -> None:
        dataset, verify = context.dataset, context.options.verify
        if verify != dataset.verify:
            raise ValueError(
                f"{dataset.store.path}: verify={verify} does not reach samples that the dataset makes itself: pass "
                f"it to FastDataset(..., verify={verify})"
            )
        self._dataset = dataset
        self.steps, self.on_error = context.steps, context.options.on_error
        output = context.options.output
        self._collate: Callable[[Sequence[Any]], Any] | None = context.collate
        if context.collate is not None and output is Output.ARRAYS:
            self._collate = getattr(context.collate, "arrays", None)
            if self._collate is None:
                raise ValueError(
                    f"{dataset.store.path}: output='numpy': {context.collate!r} makes tensors of the samples of a "
                    "dataset with a transform: give it a method arrays(samples), too"
                )
        preference = next((how for how in context.rows.values() if isinstance(how, PreferenceCollate)), None)
        collate = _ArrayCollate if output is Output.ARRAYS else FieldCollate
        self._fields = collate(dataset, preference or context.rows or None)
        traits = dataset.reader.field.traits
        has_own_collate = (
            dataset.form.is_joint or traits.is_ragged or traits.is_npy or traits.is_json or bool(dataset.lists)
        )
        self._default = self._fields.collate if has_own_collate else output.joined
        self._options = context.options
        self._executor = PerProcess(partial(ThreadPoolExecutor, context.options.threads, thread_name_prefix="fastio"))

    @staticmethod
    def accepts(context: ProducerContext) -> bool:
        """Any samples."""
        return True

    @property
    def placement(self) -> Placement:
        """Python threads for all fields, and what of the dataset forces that."""
        dataset, reason = self._dataset, _reason(self._dataset)
        placed = sample_placement(dataset, IN_PYTHON_THREADS).fields
        columns = [] if dataset.makes_samples else [name for name in dataset.form.names if name not in dataset.readers]
        explained = {name: [replace(stage, reason=reason) for stage in stages] for name, stages in placed.items()}
        return Placement({name: placed[name] if name in columns else stages for name, stages in explained.items()})

    @property
    def pictures(self) -> PictureCounts:
        """None: the dataset decodes them, or a picture itself does when its pixels are asked for."""
        return PictureCounts()

    @property
    def threads(self) -> int:
        """The number of threads."""
        return self._options.threads

    @property
    def buffer_bytes(self) -> int:
        """Always 0: batches are made by torch's collate, not in buffers of ours."""
        return 0

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """Return the bytes of batches in progress, of the loop's and of one in between."""
        return (depth + 2) * batch_bytes

    def close(self) -> None:
        """Join the threads; batches not yet begun are dropped."""
        executor = self._executor.own
        if executor is not None:
            executor.shutdown(cancel_futures=True)

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[PendingBatch]:
        """Start one batch per step."""
        for batch in batches.each():
            numbered = Numbered(None, epoch, batch.ids)
            yield RestartedBatch(partial(self._start, batch.indices.tolist(), numbered))

    def _start(self, indices: list[int], numbered: Numbered) -> PendingBatch:
        """
        Start one batch.

        Even in a forked child, a new thread makes it: in the main thread, torch's parallel operations would wait for
        ever for the parent's OpenMP threads, which do not survive a fork.
        """
        made = self._executor.here().submit(self._make, indices)
        return _PlainBatch(self, made, indices, numbered)

    def _make(self, indices: list[int]) -> _Made:
        """Make one batch in the calling thread."""
        errors: dict[int, SampleError] = {}
        try:
            samples, checked = self._read(indices)
        except SampleError:
            if self._options.on_error == "raise":
                raise
            samples, checked = self._good(indices, errors)
        proof = checked, (0, len(indices))
        return _Made(samples, errors, self.collated(samples, errors.values(), proof))

    def collated(self, samples: Sequence[Any], errors: Iterable[SampleError], proof: Proof) -> FinishedBatch:
        """Return the batch of these samples."""
        if not samples:
            return FinishedBatch(None, 0, 0, list(errors), proof=proof)
        batch = self._default(list(samples)) if self._collate is None else self._collate(list(samples))
        tokens, slots = (0, 0) if self._collate is None else count_tokens(batch)
        batch = self._options.output.pinned(batch)
        return FinishedBatch(batch, len(samples), nbytes_of(batch), list(errors), tokens, slots, proof=proof)

    def _read(self, indices: list[int]) -> tuple[list[Any], CheckedSamples]:
        """Return samples, and the checksums that the dataset compared their bytes with."""
        chosen = np.array(indices, np.int64)
        if self._dataset.makes_samples:
            return self._decoded(self._dataset.__getitems__(indices)), CheckedSamples(chosen, None)
        samples, spans = self._dataset.read_with_spans(indices)
        return self._decoded(samples), CheckedSamples.of(chosen, spans, verify=self._options.verify)

    def _decoded(self, samples: list[Any]) -> list[Any]:
        """Return the samples with tensors in place of pictures that the transform has left, as in native batches."""
        return samples if self._collate is not None else list(map(self._fields.decoded, samples))

    def _good(self, indices: list[int], errors: dict[int, SampleError]) -> tuple[list[Any], CheckedSamples]:
        """
        Read the samples of a batch with a bad one in it, one by one; the bad ones, which are added to ``errors`` by
        place, have no checksums to rely on.
        """
        samples: list[Any] = []
        parts: list[CheckedSamples] = []
        for place, index in enumerate(indices):
            try:
                read, checked = self._read([index])
                samples += read
                parts.append(checked)
            except SampleError as exc:
                errors[place] = exc
                parts.append(CheckedSamples.bad(index, self._dataset.readers))
                if self._options.on_error == "zero":
                    samples += self._decoded([self._dataset.blank(index)])
        return samples, CheckedSamples.joined(parts)


class _ArrayCollate(FieldCollate):
    """A FieldCollate that makes arrays in the place of tensors."""

    def _pixels(self, image: Image.Image, *, is_mask: bool = False) -> Any:
        return picture_array(image, is_mask=is_mask)

    def _listed(self, value: Any) -> Any:
        if is_tensor(value):
            return self._of(array_of(value))
        return list(map(self._listed, value)) if type(value) is list else value

    def _of(self, array: NDArray[Any]) -> Any:
        return Output.ARRAYS.of(array)

    def _stacked(self, values: Sequence[Any]) -> Any:
        return Output.ARRAYS.joined(values)

    def _preferences(self, collate: PreferenceCollate, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return collate.arrays(samples)

    def _joined_rows(self, values: Sequence[Any], how: Rows, fill: int) -> Any:
        if isinstance(how, PadCollate):
            batch = how.arrays(values)
            return batch["input_ids"], batch["attention_mask"]
        assert not isinstance(how, PreferenceCollate), "which is for several fields at once"
        rows = list(map(array_of, values))
        counts = np.array([len(each) for each in rows], np.int64)
        return collate_lengths(np.concatenate(rows), counts, how, Output.ARRAYS, fill=fill)


@dataclass(frozen=True, slots=True)
class _Made:
    """The samples of a batch that are not left out, the errors of those that are bad, by place, and the batch."""

    samples: list[Any]
    errors: dict[int, SampleError]
    batch: FinishedBatch


class _PlainBatch:
    """A batch in progress: made by a thread, and after that by the steps of the loader, in the loop's thread."""

    __slots__ = ("_indices", "_made", "_numbered", "_producer")

    def __init__(self, producer: PlainProducer, made: Future[_Made], indices: list[int], numbered: Numbered) -> None:
        self._producer, self._made, self._indices, self._numbered = producer, made, indices, numbered

    def cancel(self) -> None:
        """Cancel the batch, unless a thread has begun it."""
        self._made.cancel()

    def result(self) -> FinishedBatch:
        """The batch, when it is there."""
        made, steps, on_error = self._made.result(), self._producer.steps, self._producer.on_error
        batch, errors = made.batch, made.errors
        if steps is None:
            return batch
        places = [place for place in range(len(self._indices)) if on_error == "zero" or place not in errors]
        samples = dict(zip(places, made.samples, strict=True))
        while batch.samples:
            step = Numbered(batch.batch, self._numbered.epoch, self._numbered.indices[places])
            try:
                batch.batch = steps.run(step, blanks=[errors] * steps.pictures if on_error == "zero" else ())
                break
            except FailedSamplesError as exc:
                failed = {places[row]: error for row, error in failures(exc, on_error=on_error).items()}
            errors = dict(sorted((failed | errors).items()))
            kept = kept_positions(errors, len(self._indices), on_error=on_error)
            places = places if kept is None else kept.tolist()
            assert batch.proof is not None
            batch = self._producer.collated([samples[place] for place in places], errors.values(), batch.proof)
        return batch


def _reason(dataset: FastDataset) -> str:
    """Return what of a dataset forces the plain path."""
    if dataset.makes_samples:
        return f"{type(dataset).__name__} makes its samples itself"
    if isinstance(dataset.transform, FieldTransform):
        return "the dataset has the transforms: native threads run those of FastLoader(..., transforms=[...])"
    return f"the dataset's transform {called(dataset.transform)} is Python"
