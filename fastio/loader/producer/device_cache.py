"""``cache="device"``: samples that are read and decoded once, when the loader is built, and kept on the device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.bfloat16 import tensor_of
from fastio.dataset.form import LABEL
from fastio.dataset.row_reader import Shape
from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.loader.output import Output
from fastio.loader.producer.cache_contents import CacheContents
from fastio.loader.producer.chunks import CheckedSamples
from fastio.loader.producer.memory_cache import decode_contents
from fastio.loader.producer.producer import FinishedBatch, ProducerContext, collate_labels
from fastio.machine import available_memory
from fastio.samplers.batches import Batches
from fastio.types.metrics import PictureCounts
from fastio.types.placement import IN_THE_INDEX, Placement, Stage

__all__ = [
    "DeviceCacheProducer",
]


class DeviceCacheProducer:
    """
    Picks batches on the device from all samples, which are kept there.

    The work runs in the stream that is current when a batch is requested. Raises MemoryError if the samples do not
    fit.
    """

    reads_samples = False
    reads_whole = False
    pool = None

    def __init__(self, context: ProducerContext) -> None:
        kept, device, is_planar = context.kept, context.device, context.is_planar
        assert kept is not None
        assert device is not None
        self._dataset = dataset = kept.dataset
        self._device = device
        self._is_channels_last = dataset.reader.is_picture and not is_planar
        shape = _one_shape(kept)
        kept.check_fits(_free_on(device), where=f"on {device}")
        dtype = tensor_of(np.empty(0, dataset.reader.dtype)).dtype
        if dataset.reader.is_picture and is_planar:
            shape = (shape[2], *shape[:2])
        self._rows = torch.empty((len(kept.indices), *shape), dtype=dtype, device=device)
        for places, decoded in decode_contents(kept, threads=context.options.threads, verify=context.options.verify):
            rows = decoded.transpose(0, 3, 1, 2) if dataset.reader.is_picture and is_planar else decoded
            self._rows[torch.from_numpy(places).to(device)] = tensor_of(rows).to(device)
        self._compared = kept.compared
        self._kept_steps = () if kept.first is None else kept.first.steps
        self._row_of = np.full(len(dataset), -1, np.int64)
        self._row_of[kept.indices] = np.arange(len(kept.indices))
        has_tensor = dataset.labels is not None and dataset.target_transform is None
        self._labels = torch.from_numpy(np.array(dataset.labels)).to(device) if has_tensor else None
        if device.type == "cuda":  # batches are made on another stream than these copies
            torch.cuda.current_stream(device).synchronize()

    @staticmethod
    def accepts(context: ProducerContext) -> bool:
        """Samples that a cache keeps on the device."""
        return context.kept is not None

    @property
    def placement(self) -> Placement:
        """The device, on which all samples are kept."""
        form, device = self._dataset.form, str(self._device)
        kept = [Stage(f"kept on {device}", self._kept_steps)]
        labels = [Stage(IN_THE_INDEX if self._labels is None else f"kept on {device}")]
        return Placement({name: labels if name == LABEL else kept for name in form.names})

    @property
    def pictures(self) -> PictureCounts:
        """None: they were decoded when the loader was built."""
        return PictureCounts()

    @property
    def threads(self) -> int:
        """Always 0: batches are assembled on the device."""
        return 0

    @property
    def buffer_bytes(self) -> int:
        """The bytes of all samples."""
        return self._rows.nbytes

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """Return the bytes of all samples, the loop's batch and the one after it."""
        return self._rows.nbytes + 2 * batch_bytes

    def close(self) -> None:
        """Do nothing: there are no threads, and batches stay valid."""

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[_CachedBatch]:
        """As Producer.submit; nothing is random here."""
        for batch in batches.each():
            yield _CachedBatch(self, batch.indices)

    def make(self, indices: NDArray[np.int64]) -> FinishedBatch:
        """Return the batch of these samples."""
        rows = self._picked(self._rows, self._row_of[indices])
        proof = CheckedSamples.kept(indices, self._compared), (0, len(indices))
        images = rows.permute(0, 3, 1, 2) if self._is_channels_last else rows
        if self._dataset.labels is None:
            return FinishedBatch(images, len(indices), rows.nbytes, proof=proof)
        if self._dataset.target_transform is not None:
            labels = collate_labels(self._dataset, self._dataset.labels[indices], Output.TENSORS)
        else:
            assert self._labels is not None
            labels = self._picked(self._labels, indices)
        return FinishedBatch([images, labels], len(indices), rows.nbytes, proof=proof)

    def _picked(self, kept: torch.Tensor, places: NDArray[np.int64]) -> torch.Tensor:
        """Return rows of what is on the device, made in the current stream."""
        chosen = torch.from_numpy(np.ascontiguousarray(places))
        if self._device.type == "cuda":
            chosen = chosen.pin_memory().to(self._device, non_blocking=True)
            # The stream may still read when the loader is dropped.
            kept.record_stream(torch.cuda.current_stream(self._device))
        return kept.index_select(0, chosen)


def _one_shape(kept: CacheContents) -> Shape:
    """Return the shape of all rows on a device. Raises SchemaError, which says what to do, if they differ."""
    if not kept.is_uniform and kept.rest:
        first = "" if kept.first is None else f" behind {', '.join(kept.first.steps)}"
        raise SchemaError(
            f"{kept.dataset.store.path}: pictures have different sizes{first}, and {kept.rest[0]!r} is random: "
            "cache='device' keeps pictures of one size: begin with Resize((height, width)), or use cache='ram'"
        )
    return kept.one_shape()


class _CachedBatch:
    """A batch to be picked."""

    __slots__ = ("_indices", "_producer")

    def __init__(self, producer: DeviceCacheProducer, indices: NDArray[np.int64]) -> None:
        self._producer = producer
        self._indices = indices

    def result(self) -> FinishedBatch:
        """Return the batch."""
        return self._producer.make(self._indices)

    def cancel(self) -> None:
        """Do nothing: nothing is in progress."""


def _free_on(device: torch.device) -> int:
    """
    Return the bytes that torch can still allocate there: the driver's free ones, and those kept from dead tensors.
    """
    if device.type != "cuda":
        return available_memory()
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept
