"""Makes batches whose JPEGs a GPU decodes, crops and resizes; native threads do what it cannot."""

from __future__ import annotations

import importlib
import io
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio.codec.image import is_for_gpu
from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.row_reader import Shape
from fastio.errors import SampleError, SchemaError
from fastio.lazy import torch
from fastio.loader.device.nested import map_tensors
from fastio.loader.forks import PerProcess
from fastio.loader.output import Output
from fastio.loader.producer.chunks import CheckedSamples
from fastio.loader.producer.decoding import PillowFinish, without_sides
from fastio.loader.producer.pillow_threads import PillowCount, PillowThreads
from fastio.loader.producer.producer import FinishedBatch, ProducerContext, collate_labels
from fastio.loader.ranges import DECODE, named_range
from fastio.samplers.batches import Batches
from fastio.transforms.batch.geometry import grey, run_plans, to_device
from fastio.transforms.batch.program import grouped, run_program
from fastio.transforms.canvas import RefusedPicturesError
from fastio.transforms.fused import PicturePass, Planned
from fastio.types.metrics import PictureCounts
from fastio.types.placement import IN_THE_INDEX, Placement, Stage
from fastio.types.spans import Spans

__all__ = [
    "DeviceDecodeProducer",
    "NvImageCodec",
    "decoder_on",
]


_MOST_BYTES = 1 << 30  # bytes of decoded pictures on the device at a time, before they are cropped and resized
_PREPARERS = 2  # batches prepared at a time: reading and checking one is cheap compared with decoding it


@dataclass(frozen=True, slots=True)
class _Threads:
    """Those of one process: ``preparing`` batches, ``decoding`` what is for the CPU, or for Pillow."""

    preparing: ThreadPoolExecutor
    decoding: _native.ThreadPool
    pillow: PillowThreads


def _start(threads: int) -> _Threads:
    preparing = ThreadPoolExecutor(_PREPARERS, thread_name_prefix="fastio")
    return _Threads(preparing, _native.ThreadPool(threads), PillowThreads(threads))


@dataclass(frozen=True, slots=True)
class _DeviceSamples:
    """The samples of a batch, read and planned."""

    indices: NDArray[np.int64]
    spans: Spans
    stored: NDArray[np.int64]  # (n, 3), by the index or the header; 0x0 of those that a transform refuses
    planned: Planned | None
    shape: Shape  # shape of a row (height, width, channels)
    unread: NDArray[np.int32] | None
    epoch: int
    reasons: Mapping[int, str]  # why a transform refuses a picture, by position


@dataclass(slots=True)
class _Prepared:
    """A batch as the host prepares it for the device."""

    samples: _DeviceSamples
    for_device: NDArray[np.int64]  # positions in the batch
    # Decoded by the CPU: positions, pixels.
    rows: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = field(default_factory=list)
    bad: dict[int, SampleError] = field(default_factory=dict)
    by_pillow: Counter[str] = field(default_factory=Counter)  # pictures that Pillow decoded, by kind


class DeviceDecodeProducer:
    """
    Makes batches on the device, in the stream that is current when a result is requested.

    Threads read the bytes ahead, compare checksums, plan transforms with the same random numbers as on the CPU, and
    decode what is not for the GPU. ``result`` lets the GPU decode the rest; what it refuses after all comes from the
    CPU too. Only the CPU's decoder decides which samples are bad, and what is reported about them.
    """

    reads_samples = False
    reads_whole = False
    pool = None

    def __init__(self, context: ProducerContext) -> None:
        dataset = context.dataset
        if not dataset.is_as_stored:
            raise ValueError(
                f"{dataset.store.path}: decode='device' is for a FastDataset without a transform or methods of its own"
            )
        assert context.device is not None
        self._decoder = decoder_on(context.device, threads=context.options.threads)
        _check(dataset, context.fused)
        self._context, self._device = context, context.device
        self._dataset, self._reader, self._fused = dataset, dataset.reader, context.fused
        self._pillow_count = PillowCount(dataset.store.path)
        self._threads = PerProcess(partial(_start, context.options.threads))

    @staticmethod
    def accepts(context: ProducerContext) -> bool:
        """Samples that a device decodes."""
        return context.device is not None and context.kept is None

    @property
    def placement(self) -> Placement:
        """The device for JPEGs that its decoder takes; native threads for the others, and Pillow."""
        name, steps = self._reader.field.name, () if self._fused is None else self._fused.steps
        made = [Stage(f"{self._device}, or native threads what it does not decode", ("decode", *steps))]
        return Placement({each: made if each == name else [Stage(IN_THE_INDEX)] for each in self._dataset.form.names})

    @property
    def pictures(self) -> PictureCounts:
        """As Producer.pictures."""
        return self._pillow_count.counts

    @property
    def threads(self) -> int:
        """The number of CPU threads."""
        return self._context.options.threads

    @property
    def buffer_bytes(self) -> int:
        """Always 0: batches are on the device, in torch's memory."""
        return 0

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """Return the bytes of batches in progress, of the loop's and of one in between, on the device."""
        return (depth + 2) * batch_bytes

    def close(self) -> None:
        """Join the threads; batches not yet begun are dropped."""
        threads = self._threads.own
        if threads is not None:
            threads.preparing.shutdown(cancel_futures=True)
            threads.decoding.close()
            threads.pillow.close()
            self._pillow_count.tell()

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[_DeviceBatch]:
        """Start one batch at each step."""
        for number, batch in enumerate(batches.each(), 1):
            preparing = self.threads_here().preparing
            prepared = preparing.submit(self._prepare, batch.indices, batch.ids, epoch)
            yield _DeviceBatch(self, prepared, is_last=number == len(batches))

    @property
    def is_inherited(self) -> bool:
        """Whether this is a copy in a forked child, which has neither the threads nor the GPU."""
        return self._threads.own is None

    def threads_here(self) -> _Threads:
        """The threads; RuntimeError in a forked child, which has neither them nor the GPU."""
        threads = self._threads.own
        if threads is None:
            raise RuntimeError(
                f"{self._dataset.store.path}: a forked child cannot use its parent's GPU: build the loader in the "
                "child, and start that with spawn"
            )
        return threads

    def _prepare(self, indices: NDArray[np.int64], ids: NDArray[np.int64], epoch: int) -> _Prepared:
        """Do everything that needs no device, in one of our threads."""
        reader, files, pool = self._reader, self._dataset.store.files, self.threads_here().decoding
        asked = reader.store.spans(reader.field.name, indices)
        near = files.read_ahead(asked, pool=pool)
        near.wait()
        spans, unread = files.fetch(asked, is_near=True).wait()
        del near  # it may hold what was read until then
        stored = reader.shapes(indices, spans)
        stored, planned, reasons = self._planned(ids, stored, epoch=epoch)
        height, width, channels = reader.common_shape(indices, stored if planned is None else planned.shapes)
        is_good = stored[:, :2].all(axis=1)
        if unread is not None:
            is_good &= unread == _native.OK
        if self._context.options.verify and spans.checksums is not None:
            sums = np.empty(len(spans), np.uint32)
            _native.checksum(spans, sums, pool).wait()
            is_good &= sums == spans.checksums
        chosen = [place for place in np.flatnonzero(is_good).tolist() if is_for_gpu(spans.view(place))]
        for_device = np.array(chosen, np.int64)
        shape = (height, width, channels)
        samples = _DeviceSamples(indices, spans, stored, planned, shape, unread, epoch, reasons)
        prepared = _Prepared(samples, for_device)
        self._decode_on_cpu(prepared, np.setdiff1d(np.arange(len(indices)), for_device))
        return prepared

    def _planned(
        self, ids: NDArray[np.int64], stored: NDArray[np.int64], *, epoch: int
    ) -> tuple[NDArray[np.int64], Planned | None, dict[int, str]]:
        """Plan pictures of these shapes. Those that a transform refuses are 0x0 from here on; why, by position."""
        reasons: dict[int, str] = {}
        while self._fused is not None:
            try:
                return stored, self._fused.plan(ids, stored, epoch=epoch), reasons
            except RefusedPicturesError as exc:  # plan the others
                reasons |= dict.fromkeys(np.flatnonzero(exc.refused).tolist(), exc.reason)
                stored = without_sides(stored, exc.refused)
        return stored, None, reasons

    def _decode_on_cpu(self, prepared: _Prepared, places: NDArray[np.int64]) -> None:
        """Decode these samples of the batch completely, into their rows."""
        if len(places) == 0:
            return
        indices, spans = prepared.samples.indices[places], prepared.samples.spans.at(places)
        rows = np.empty((len(places), *prepared.samples.shape), np.uint8)
        status = np.empty(len(places), np.int32)
        geometry = to_row = None
        if self._fused is not None and prepared.samples.planned is not None:
            planned = prepared.samples.planned.part(places)
            geometry = self._fused.geometry(planned, channels=prepared.samples.shape[2], is_planar=False)
            to_row = PillowFinish(self._fused, planned, prepared.samples.epoch, is_planar=False)
        reader, threads, verify = self._reader, self.threads_here(), self._context.options.verify
        reader.decode(spans, rows, status, pool=threads.decoding, verify=verify, geometry=geometry).wait()
        if prepared.samples.unread is not None:
            unread = prepared.samples.unread[places]
            np.copyto(status, unread, where=unread != _native.OK)
        reasons = prepared.samples.reasons
        refused = np.isin(places, list(reasons)) & (status == _native.OK)
        status[refused] = _native.BAD_SHAPE
        settled = threads.pillow.settle(reader.undecoded(indices, spans, rows, status, to_row=to_row)).result()
        for position in settled.errors:
            if places[position] in reasons and status[position] in (_native.BAD_SHAPE, _native.UNSUPPORTED):
                settled.errors[position] = reader.error(indices, spans, position, reasons[places[position]])
        rows[list(settled.errors)] = 0
        prepared.bad |= {int(places[place]): error for place, error in settled.errors.items()}
        prepared.by_pillow += settled.kinds
        prepared.rows.append((places, rows))

    def finish(self, prepared: _Prepared, *, is_last: bool) -> FinishedBatch:
        """Return the batch, made in the current stream of the calling thread."""
        with named_range(DECODE):
            places, images = self._on_device(prepared)
        self._pillow_count.add(len(prepared.samples.indices), prepared.by_pillow, is_last=is_last)
        on_device = len(places)
        for cpu_places, rows in prepared.rows:
            places = np.concatenate((places, cpu_places))
            images.append(to_device(rows, self._device))
        errors = [prepared.bad[place] for place in sorted(prepared.bad)]
        if errors and self._context.options.on_error == "raise":
            raise errors[0]
        samples, field = prepared.samples, self._reader.field.name
        checked = CheckedSamples.of(samples.indices, {field: samples.spans}, verify=self._context.options.verify)
        proof = checked, (0, len(samples.indices))
        order = np.argsort(places)  # a permutation: each position comes once
        if self._context.options.on_error == "skip" and errors:
            order = order[~np.isin(np.arange(len(order)), list(prepared.bad))]
        if len(order) == 0:
            return FinishedBatch(None, 0, 0, errors, proof=proof)
        together = images[0] if len(images) == 1 else torch.cat(images)
        if len(order) != len(places) or (order != np.arange(len(order))).any():
            together = together.index_select(0, to_device(order, self._device))
        pictures = together.permute(0, 3, 1, 2)
        pictures = pictures.contiguous() if self._context.is_planar else pictures
        batch = self._with_labels(pictures, prepared.samples.indices[np.sort(places[order])])
        return FinishedBatch(batch, len(order), pictures.nbytes, errors, on_device=on_device, proof=proof)

    def _on_device(self, prepared: _Prepared) -> tuple[NDArray[np.int64], list[torch.Tensor]]:
        """Return what the device decodes: positions in the batch, and their rows (n, height, width, C), or nothing."""
        places, rows = np.empty(0, np.int64), []
        for part in _bounded(prepared):
            done, pictures = self._decoded(prepared, part)
            if not pictures:
                continue
            places = np.concatenate((places, done))
            rows.append(self._transformed(prepared, done, pictures))
        self._decode_on_cpu(prepared, np.setdiff1d(prepared.for_device, places))
        return places, rows

    def _decoded(self, prepared: _Prepared, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[torch.Tensor]]:
        """Return what the decoder makes of these samples; if it fails or finds another size, the CPU decodes them."""
        decoded = self._decoder.decode([prepared.samples.spans.view(place) for place in places.tolist()])
        done, pictures = [], []
        for place, picture in zip(places.tolist(), decoded, strict=True):
            if picture is not None and tuple(picture.shape) == (*prepared.samples.stored[place, :2].tolist(), 3):
                done.append(place)
                pictures.append(picture)
        return np.array(done, np.int64), pictures

    def _transformed(
        self, prepared: _Prepared, places: NDArray[np.int64], pictures: list[torch.Tensor]
    ) -> torch.Tensor:
        if self._fused is None or prepared.samples.planned is None:
            return torch.stack(pictures)
        planned = prepared.samples.planned.part(places)
        images = run_plans(pictures, planned.rows, self._fused.target(planned))
        images = images if self._fused.grey is None else grey(images, self._fused.grey)
        if planned.colours is not None:
            on_device = partial(_copied, self._device)
            images = run_program(images, map_tensors(on_device, grouped(planned.colours)))
        return images.permute(0, 2, 3, 1).contiguous()

    def _with_labels(self, images: torch.Tensor, indices: NDArray[np.int64]) -> Any:
        """Return images and labels like torch's default collate; labels are still on the host."""
        labels = self._dataset.labels
        return images if labels is None else [images, collate_labels(self._dataset, labels[indices], Output.TENSORS)]


def _copied(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    return to_device(tensor.numpy(), device)


def _check(dataset: FastDataset, fused: PicturePass | None) -> None:
    """Raise ValueError or SchemaError for samples that a GPU's decoder cannot handle."""
    path, reader = dataset.store.path, dataset.reader
    if not reader.field.traits.is_picture or reader.mode != "RGB":
        raise SchemaError(
            f"{path}: decode='device' is for encoded pictures in mode='RGB', but the samples are {reader.field} and "
            f"mode={reader.mode!r}"
        )
    if fused is not None:
        fused.check_on_device()


def _bounded(prepared: _Prepared) -> list[NDArray[np.int64]]:
    """Return the samples for the device, in parts that take little enough of its memory when decoded, or are single."""
    places = prepared.for_device
    if len(places) == 0:
        return []
    part = np.cumsum(prepared.samples.stored[places, 0] * prepared.samples.stored[places, 1] * 3) // _MOST_BYTES
    return np.split(places, np.flatnonzero(np.diff(part)) + 1)


class _DeviceBatch:
    """A batch in preparation."""

    __slots__ = ("_future", "_is_last", "_producer")

    def __init__(self, producer: DeviceDecodeProducer, future: Future[_Prepared], *, is_last: bool) -> None:
        self._producer = producer
        self._future = future
        self._is_last = is_last

    def cancel(self) -> None:
        """Cancel the batch if it has not begun."""
        if not self._producer.is_inherited:
            self._future.cancel()

    def result(self) -> FinishedBatch:
        """The batch, when the device gets there; RuntimeError in a forked child."""
        self._producer.threads_here()
        return self._producer.finish(self._future.result(), is_last=self._is_last)


# Decodes JPEGs on a GPU with nvImageCodec. All knowledge of that package is in this file.


class DeviceDecoder(Protocol):
    """Decodes JPEGs into the memory of a device."""

    def decode(self, encoded: Sequence[NDArray[np.uint8]]) -> list[torch.Tensor | None]:
        """
        Return RGB pictures (H, W, 3) uint8 on the device, valid once its current stream gets there.

        None for each picture that this decoder cannot decode. EXIF's orientation is ignored, as on the CPU.
        """
        ...


class NvImageCodec:
    """
    nvJPEG through nvImageCodec's Python package, on the chip's JPEG engines if it has any.

    The package's own CPU decoders are not used: what nvJPEG cannot decode is decoded by fastio, and counted.
    """

    def __init__(self, device: torch.device, *, threads: int) -> None:
        self._module = _module()
        self._device = device
        kinds = self._module.BackendKind
        self._decoder = self._module.Decoder(
            device_id=device.index,
            max_num_cpu_threads=threads,
            backends=[self._module.Backend(kind) for kind in (kinds.HW_GPU_ONLY, kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU)],
            options=":fancy_upsampling=1",  # as in libjpeg-turbo
        )
        self._params = self._module.DecodeParams(
            apply_exif_orientation=False, color_spec=self._module.ColorSpec.SRGB, allow_any_depth=False
        )
        self._reading: deque[tuple[torch.cuda.Event, object]] = deque()  # bytes that the device may still be reading
        self._lock = threading.Lock()  # two threads may use two iterators of a loader
        self._check_works()

    def _check_works(self) -> None:
        """Raise ImportError if the package is installed, but not the library that it loads."""
        file = io.BytesIO()
        Image.new("RGB", (64, 64)).save(file, "JPEG")
        if self.decode([np.frombuffer(file.getvalue(), np.uint8)])[0] is None:
            raise ImportError(
                f"decode='device': nvImageCodec {self._module.__version__} cannot decode a JPEG on {self._device}: "
                f"install nvJPEG ({_install()}), and see its messages above"
            )

    def decode(self, encoded: Sequence[NDArray[np.uint8]]) -> list[torch.Tensor | None]:
        """As DeviceDecoder.decode."""
        places, streams = [], []
        for place, data in enumerate(encoded):
            try:
                streams.append(self._module.CodeStream(data))
            except RuntimeError:  # a header that nvImageCodec cannot read: the CPU reports what is wrong
                continue
            places.append(place)
        pictures: list[torch.Tensor | None] = [None] * len(encoded)
        if not streams:
            return pictures
        stream = torch.cuda.current_stream(self._device)
        with self._lock, torch.cuda.device(self._device):  # a stream must belong to the current device
            images = self._decoder.decode(streams, params=self._params, cuda_stream=stream.cuda_stream)
            self._keep(stream, (encoded, streams))
        if len(images) != len(streams):
            raise RuntimeError(
                f"nvImageCodec {self._module.__version__} returned {len(images)} pictures for {len(streams)}, so it "
                f"is unknown which is which; {_install()}"
            )
        for place, image in zip(places, images, strict=True):
            pictures[place] = None if image is None else torch.utils.dlpack.from_dlpack(image)
        return pictures

    def _keep(self, stream: torch.cuda.Stream, what: object) -> None:
        while self._reading and self._reading[0][0].query():  # type: ignore[no-untyped-call] # torch's
            self._reading.popleft()
        event = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch's
        event.record(stream)
        self._reading.append((event, what))


def decoder_on(device: torch.device, *, threads: int) -> DeviceDecoder:
    """Return the decoder of a device. Raises an error of one line that says what to do if there is none."""
    if device.type != "cuda":
        raise ValueError(f"decode='device' needs a GPU, but device={str(device)!r} is not one: pass device='cuda'")
    return NvImageCodec(device, threads=threads)


def _module() -> Any:
    try:
        return importlib.import_module("nvidia.nvimgcodec")
    except ImportError as exc:
        raise ImportError(
            f"decode='device' needs nvImageCodec, which cannot be imported ({exc}): {_install()}"
        ) from exc


def _install() -> str:
    """Return how to install the package for torch's CUDA."""
    extra = "gpu-decode" if (torch.version.cuda or "12").startswith("12") else "gpu-decode-cu13"
    return f"pip install 'fastio[{extra}]'"
